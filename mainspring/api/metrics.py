"""What an API process counts: the names are part of its interface, see docs/operations.md."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_DURATION = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 300)


class Metrics:
    """The numbers of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "mainspring_api_requests",
            "Requests answered, by the route's pattern",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "mainspring_api_request_seconds",
            "From the request's head to the end of its answer",
            ("method", "route"),
            buckets=_DURATION,
            registry=self.registry,
        )
        self.registered = Counter(
            "mainspring_api_jobs_registered", "Jobs created, one by one or in batches", registry=self.registry
        )
        self.under_way = Gauge(
            "mainspring_api_requests_under_way", "Requests not yet answered", registry=self.registry
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)
