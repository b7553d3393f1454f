"""What a scheduler counts: the names are part of its interface, see docs/operations.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from mainspring.scheduler.delivery import Delivered
from mainspring.scheduler.expansion import Bucket, Parcel
from mainspring.scheduler.terms import Term

_LATENESS = (0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 4, 5, 10, 30, 60, 300)
_DURATION = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 10, 30)


class Metrics:
    """The numbers of one scheduler process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._shards = self._gauge("shards_led", "Shards that this process leads")
        self._epoch = self._gauge("shard_epoch", "Epoch of the term", "shard")
        self._mark_lag = self._gauge("shard_mark_lag_seconds", "Database time minus the mark", "shard")
        self._jobs = self._gauge("shard_jobs_armed", "Jobs and timers held in memory", "shard")
        self._wheel = self._gauge("wheel_entries", "Entries of all wheels")
        self._bucket = self._histogram(
            "bucket_messages", "Messages of one bucket", (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
        )
        self._publish = self._histogram("publish_seconds", "Expanding and publishing a bucket", _DURATION)
        self._lateness = self._histogram(
            "lateness_seconds", "From due to acknowledged, by message", _LATENESS
        )
        self.published = self._counter("messages_published", "Messages acknowledged by Kafka")
        self._refused = self._counter("messages_refused", "Messages that Kafka did not take", "outcome")
        self._missed = self._counter("occurrences_missed", "Given up by the missed-window policy")
        self._capped = self._counter("occurrences_capped", "Given up because RUN_ALL has a cap")
        self.step_downs = self._counter("terms_ended", "Terms that ended", "reason")
        self.feed_delay = self._gauge("feed_delay_seconds", "Time since the feed was last applied")
        self.feed_poll = self._histogram("feed_poll_seconds", "One poll of the change feed", _DURATION)
        self.horizon_load = self._histogram("horizon_load_seconds", "One load of the window", _DURATION)
        self.set_aside = self._gauge("cadences_set_aside", "Cadences that cannot be evaluated")
        self._offset = self._gauge("clock_offset_seconds", "Database clock minus ours", "bound")
        self._rounds = self._counter("duty_rounds", "Rounds of the duties held here", "duty", "outcome")
        self._work = self._counter(
            "duty_work", "What the duties did, by the fields of their results", "duty", "what"
        )

    def bucket_left(self, parcels: Iterable[Parcel], elapsed: float, now: float) -> None:
        """A bucket has been acknowledged at this time of the database's clock."""
        total = 0
        for parcel in parcels:
            total += len(parcel.bodies)
            self._observe_many(self._lateness, max(0.0, now - parcel.second), len(parcel.bodies))
        if total:
            self._bucket.observe(total)
            self._publish.observe(elapsed)
            self.published.inc(total)

    def refused(self, delivered: Delivered) -> None:
        self._refused.labels("dead_letter").inc(len(delivered.too_large))
        self._refused.labels("deferred").inc(len(delivered.deferred))

    def given_up(self, bucket: Bucket) -> None:
        self._missed.inc(bucket.missed.total())
        self._capped.inc(bucket.capped.total())

    def clock_offset(self, low: float, high: float) -> None:
        self._offset.labels("low").set(low)
        self._offset.labels("high").set(high)

    def duty_done(self, duty: str, result: object | None) -> None:
        """A round has ended; without a result if it failed."""
        self._rounds.labels(duty, "failed" if result is None else "done").inc()
        if is_dataclass(result):
            for field in fields(result):
                value = getattr(result, field.name)
                count = len(value) if isinstance(value, Collection) else value
                if count:
                    self._work.labels(duty, field.name).inc(count)

    def terms(self, terms: Mapping[int, Term], now: float) -> None:
        """Describe the shards as they are now; those no longer led disappear."""
        for gauge in (self._epoch, self._mark_lag, self._jobs):
            gauge.clear()
        self._shards.set(len(terms))
        self._wheel.set(sum(len(term.wheel) for term in terms.values()))
        for shard, term in terms.items():
            self._epoch.labels(shard).set(term.epoch)
            self._mark_lag.labels(shard).set(max(0.0, now - term.mark))
            self._jobs.labels(shard).set(term.armed_jobs)

    @staticmethod
    def _observe_many(histogram: Histogram, value: float, count: int) -> None:
        """One observation for each of `count` messages, at the cost of one: they share their second."""
        for index, bound in enumerate(histogram._upper_bounds):
            if value <= bound:
                histogram._buckets[index].inc(count)
                break
        histogram._sum.inc(value * count)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"mainspring_scheduler_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"mainspring_scheduler_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"mainspring_scheduler_{name}", text, buckets=buckets, registry=self.registry)
