"""What a worker counts, as Prometheus reads it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prometheus_client.exposition import generate_latest

from mainspring.schema.states import Lane, Outcome
from mainspring.worker.batches import Run
from mainspring.worker.metrics import Metrics
from mainspring.worker.plans import Plan
from tests.unit.worker.runs import NOON, SECOND, batch_of, message


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry().get_sample_value(f"mainspring_worker_{name}", labels)


def run(*, began: float, handler: str = "h", due: int = SECOND) -> Run:
    """A run claimed at noon, when the worker's own clock stood at 100."""
    batch = batch_of([message(handler=handler, second=due)], monotonic=100.0)
    batch.runs[0].began = began
    return batch.runs[0]


def buckets(metrics: Metrics, name: str, handler: str = "h") -> dict[str, float]:
    [family] = [each for each in metrics.samples() if each.name == f"mainspring_worker_{name}"]
    return {
        each.labels["le"]: each.value
        for each in family.samples
        if each.name.endswith("_bucket") and each.labels["handler"] == handler
    }


def test_a_new_process_has_counted_nothing_and_shows_its_counters() -> None:
    metrics = Metrics()
    for name in ("runs_claimed", "duplicates_removed", "messages_deferred"):
        assert value(metrics, f"{name}_total") == 0
    for name in ("messages_unreadable", "messages_expired"):
        assert value(metrics, f"{name}_total") == 0


def test_a_claim_is_counted_by_what_became_of_its_messages() -> None:
    metrics, plan = Metrics(), Plan()
    for number in (1, 2, 3):
        plan.execute(message(number))
    plan.finish(message(4, handler="late"), Outcome.MISSED, "later than its grace")
    plan.finish(message(5, handler="late"), Outcome.RECALLED, "paused")
    plan.put_off(message(6), NOON, timedelta(seconds=1))
    plan.void([2, 4])
    metrics.planned(plan)
    assert value(metrics, "runs_claimed_total") == 2
    assert value(metrics, "duplicates_removed_total") == 2
    assert value(metrics, "messages_deferred_total") == 1
    assert value(metrics, "runs_ended_total", handler="late", outcome="missed") == 1
    assert value(metrics, "runs_ended_total", handler="late", outcome="recalled") is None


def test_claims_add_up() -> None:
    metrics = Metrics()
    for number in (1, 2):
        plan = Plan()
        plan.execute(message(number))
        metrics.planned(plan)
    assert value(metrics, "runs_claimed_total") == 2


def test_ends_are_counted_by_handler_and_outcome() -> None:
    metrics = Metrics()
    for handler, outcome in [
        ("a", Outcome.SUCCEEDED),
        ("a", Outcome.SUCCEEDED),
        ("a", Outcome.FAILED),
        ("b", Outcome.DEAD),
    ]:
        metrics.ended(run(began=100.0, handler=handler), outcome, 0.1)
    assert value(metrics, "runs_ended_total", handler="a", outcome="succeeded") == 2
    assert value(metrics, "runs_ended_total", handler="a", outcome="failed") == 1
    assert value(metrics, "runs_ended_total", handler="b", outcome="dead") == 1
    assert value(metrics, "runs_ended_total", handler="b", outcome="succeeded") is None


def test_buckets_are_counted_up_and_a_bound_belongs_to_its_bucket() -> None:
    metrics = Metrics()
    for seconds in (0.001, 0.005, 0.2, 0.25, 5000.0):
        metrics.ended(run(began=100.0), Outcome.SUCCEEDED, seconds)
    found = buckets(metrics, "run_seconds")
    assert (found["0.005"], found["0.01"], found["0.1"], found["0.25"]) == (2, 2, 2, 4)
    assert (found["3600.0"], found["+Inf"]) == (4, 5)
    assert list(found.values()) == sorted(found.values())
    assert value(metrics, "run_seconds_sum", handler="h") == pytest.approx(5000.456)
    assert value(metrics, "run_seconds_count", handler="h") == 5


def test_each_handler_has_its_own_distribution() -> None:
    metrics = Metrics()
    metrics.ended(run(began=100.0, handler="a"), Outcome.SUCCEEDED, 0.2)
    metrics.ended(run(began=100.0, handler="b"), Outcome.SUCCEEDED, 20)
    assert buckets(metrics, "run_seconds", "a")["0.25"] == 1
    assert buckets(metrics, "run_seconds", "b")["0.25"] == 0


def test_lateness_is_from_due_to_begun_by_the_databases_clock() -> None:
    """Due three seconds before the claim, begun a second and a half after it."""
    metrics = Metrics()
    metrics.ended(run(began=101.5, due=SECOND - 3), Outcome.SUCCEEDED, 60)
    assert value(metrics, "start_lateness_seconds_sum", handler="h") == pytest.approx(4.5)
    assert buckets(metrics, "start_lateness_seconds")["2.5"] == 0
    assert buckets(metrics, "start_lateness_seconds")["5.0"] == 1


def test_a_run_is_never_late_by_less_than_nothing() -> None:
    metrics = Metrics()
    metrics.ended(run(began=100.0, due=SECOND + 1), Outcome.SUCCEEDED, 0)
    assert value(metrics, "start_lateness_seconds_sum", handler="h") == 0


def test_who_was_abandoned_and_who_held_the_loop_is_counted_by_handler() -> None:
    metrics = Metrics()
    metrics.abandoned(message(handler="deaf"))
    metrics.blocked["greedy"] += 2
    assert value(metrics, "handlers_abandoned_total", handler="deaf") == 1
    assert value(metrics, "loop_blocked_total", handler="greedy") == 2


def test_what_is_measured_by_looking_is_shown_as_it_was_seen_last() -> None:
    metrics = Metrics()
    metrics.gauges["runs_running"] = 3
    metrics.lanes["lane_waiting"] = {Lane.HIGH: 5, Lane.LOW: 0}
    assert value(metrics, "runs_running") == 3
    assert value(metrics, "lane_waiting", lane="high") == 5
    assert value(metrics, "lane_waiting", lane="low") == 0
    metrics.gauges["runs_running"] = 0
    assert value(metrics, "runs_running") == 0


def test_prometheus_can_read_all_of_it() -> None:
    metrics = Metrics()
    metrics.ended(run(began=100.0, handler='od"d'), Outcome.SUCCEEDED, 0.2)
    text = generate_latest(metrics.registry()).decode()
    assert 'mainspring_worker_runs_ended_total{handler="od\\"d",outcome="succeeded"} 1.0' in text
