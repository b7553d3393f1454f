"""What a worker counts: the names are part of its interface, see docs/operations.md.

A histogram of prometheus-client costs microseconds per observation, which half a million runs a few
seconds apart cannot afford: counting happens in plain lists, and becomes samples when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mainspring.schema.messages import Message
from mainspring.schema.states import Lane, Outcome
from mainspring.worker.batches import Run
from mainspring.worker.plans import Plan

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2.5, 5, 10, 30, 60, 300, 1800, 3600)


class _Distribution:
    """Values counted by how large they are."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(_BOUNDS, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Counted up, as Prometheus wants it."""
        names = [*(str(float(bound)) for bound in _BOUNDS), "+Inf"]
        sums, so_far = [], 0
        for name, count in zip(names, self.counts, strict=True):
            so_far += count
            sums.append((name, float(so_far)))
        return sums


@dataclass(slots=True)
class Metrics:
    """The numbers of one worker process."""

    claimed: int = 0
    copies: int = 0
    """Messages whose run was somebody else's already."""
    deferred: int = 0
    unreadable: int = 0
    expired: int = 0
    blocked: Counter[str] = field(default_factory=Counter)
    gauges: dict[str, float] = field(default_factory=dict)
    lanes: dict[str, Mapping[Lane, float]] = field(default_factory=dict)
    """By name of the metric: a value for each lane."""
    _ended: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    _abandoned: Counter[str] = field(default_factory=Counter)
    _lateness: defaultdict[str, _Distribution] = field(default_factory=lambda: defaultdict(_Distribution))
    _seconds: defaultdict[str, _Distribution] = field(default_factory=lambda: defaultdict(_Distribution))

    def ended(self, run: Run, outcome: Outcome, seconds: float) -> None:
        """A run has ended that began as late as that by the database's clock, and took so long."""
        message, batch = run.message, run.batch
        late = batch.claimed_unix + run.began - batch.claimed_monotonic - message.second
        handler = message.job.handler
        self._ended[handler, outcome] += 1
        self._lateness[handler].add(late if late > 0 else 0.0)
        self._seconds[handler].add(seconds)

    def planned(self, plan: Plan) -> None:
        """A claim was written."""
        self.claimed += plan.outcomes.count(Outcome.PENDING)
        self.copies += plan.outcomes.count(Outcome.VOID)
        self.deferred += len(plan.timers)
        for final in plan.finals:
            self._ended[plan.runs[final.position].job.handler, final.outcome] += 1

    def abandoned(self, message: Message) -> None:
        self._abandoned[message.job.handler] += 1

    def registry(self) -> CollectorRegistry:
        """What the status server shows."""
        registry = CollectorRegistry()
        registry.register(_Collector(self))
        return registry

    def samples(self) -> Iterator[Metric]:
        """Everything as it stands."""
        yield _counter("runs_claimed", "Runs that this worker has taken", self.claimed)
        yield _counter("duplicates_removed", "Messages whose run another claim holds", self.copies)
        yield _counter("messages_deferred", "Messages put off as timers", self.deferred)
        yield _counter("messages_unreadable", "Messages that nobody could decode", self.unreadable)
        yield _counter("messages_expired", "Messages older than runs are kept", self.expired)
        yield self._outcomes()
        yield _by_handler(
            "handlers_abandoned", "Runs that did not end when they were asked to", self._abandoned
        )
        yield _by_handler("loop_blocked", "Times a handler blocked the event loop", self.blocked)
        yield _histogram("start_lateness_seconds", "From due to started", self._lateness)
        yield _histogram("run_seconds", "From started to ended", self._seconds)
        for name, value in self.gauges.items():
            yield GaugeMetricFamily(f"mainspring_worker_{name}", name.replace("_", " "), value=value)
        for name, values in self.lanes.items():
            family = GaugeMetricFamily(f"mainspring_worker_{name}", name.replace("_", " "), labels=["lane"])
            for lane, value in values.items():
                family.add_metric([lane], value)
            yield family

    def _outcomes(self) -> Metric:
        family = CounterMetricFamily(
            "mainspring_worker_runs_ended", "Runs by handler and outcome", labels=["handler", "outcome"]
        )
        for (handler, outcome), count in self._ended.items():
            family.add_metric([handler, outcome.word], count)
        return family


class _Collector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.samples()


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"mainspring_worker_{name}", text, value=value)


def _by_handler(name: str, text: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"mainspring_worker_{name}", text, labels=["handler"])
    for handler, count in counts.items():
        family.add_metric([handler], count)
    return family


def _histogram(name: str, text: str, found: Mapping[str, _Distribution]) -> Metric:
    family = HistogramMetricFamily(f"mainspring_worker_{name}", text, labels=["handler"])
    for handler, distribution in found.items():
        family.add_metric([handler], buckets=distribution.buckets(), sum_value=distribution.total)
    return family
