"""What must have run and what may have, read off the shard: no guess at how fast anybody hears of it."""

from __future__ import annotations

from tests.robustness.faults import LINES, Fault
from tests.robustness.history import History, Occurrence, Version
from tests.robustness.model import Shard, build
from tests.robustness.watch import Look
from tests.unit.robustness.histories import EVENTS, START, at, moment, version


def history_of(*versions: Version, looks: list[Look] | None = None) -> History:
    """Jobs under a leader that hears of everything within a second."""
    history = History(seed=0, closes_at=START + 9.5, versions=list(versions))
    usual = [
        Look(START + second + 0.4, START + second, 92 + 5 * second, 1, "s-1") for second in range(-5, 61)
    ]
    history.looks = {0: usual if looks is None else looks}
    return history


def instants(occurrences: set[Occurrence]) -> set[float]:
    return {scheduled_at / 1_000_000 - START for _, scheduled_at in occurrences}


def seconds(*numbers: float) -> set[float]:
    return {float(number) for number in numbers}


def test_what_a_job_owned_until_its_end_must_have_run() -> None:
    model = build(history_of(version(EVENTS, 1, 0.5)))
    assert instants(model.must) == instants(model.may) == seconds(*range(1, 10))


def test_a_pause_leaves_open_what_the_leader_had_not_been_seen_to_publish() -> None:
    paused = version(EVENTS, 2, 5.5, status="paused", valid_from=moment(0.5))
    model = build(history_of(version(EVENTS, 1, 0.5), paused))
    assert instants(model.must) == seconds(1, 2, 3, 4, 5)
    assert instants(model.may) == seconds(1, 2, 3, 4, 5, 6)


def test_a_job_that_no_leader_knew_before_its_pause_need_not_have_run() -> None:
    late = [Look(START + 20, START + 20, 1000, 1, "s-1")]
    paused = version(EVENTS, 2, 5.5, status="paused", valid_from=moment(0.5))
    model = build(history_of(version(EVENTS, 1, 0.5), paused, looks=late))
    assert model.must == set()
    assert instants(model.may) >= seconds(*range(1, 10))


def test_an_edit_of_the_payload_ends_nothing() -> None:
    edited = version(EVENTS, 2, 5.5, valid_from=moment(0.5))
    model = build(history_of(version(EVENTS, 1, 0.5), edited))
    assert instants(model.must) == seconds(*range(1, 10))


def test_another_schedule_owns_nothing_before_it() -> None:
    edited = version(EVENTS, 2, 4.5, schedule="*/2 * * * * *")
    model = build(history_of(version(EVENTS, 1, 0.5), edited))
    assert instants(model.must) == seconds(1, 2, 3, 4, 6, 8)
    assert instants(model.may) - instants(model.must) <= seconds(5)


def test_what_came_too_late_by_the_policy_may_have_been_given_up() -> None:
    late = [Look(START, START, 50, 1, "s-1"), Look(START + 30, START + 30, 1000, 2, "s-2")]
    skips = version(EVENTS, 1, 0.5, grace=25, missed_window="SKIP")
    assert instants(build(history_of(skips, looks=late)).must) == seconds(5, 6, 7, 8, 9)
    all_of_it = version(EVENTS, 1, 0.5, grace=25, missed_window="RUN_ALL")
    assert instants(build(history_of(all_of_it, looks=late)).must) == seconds(*range(1, 10))


def test_what_was_lost_from_a_topic_is_certain_only_within_a_long_grace() -> None:
    fault = Fault("records.delete", "worker-1", START + 5, START + 6.5, LINES)
    for grace, certain in ((60, seconds(7, 8, 9)), (3600, seconds(*range(1, 10)))):
        history = history_of(version(EVENTS, 1, 0.5, grace=grace))
        history.faults = [fault]
        assert instants(build(history).must) == certain


def test_jitter_moves_what_is_due_and_not_what_it_is_called() -> None:
    jittered = version(EVENTS, 1, 0.5, schedule="*/5 * * * * *", jitter=5)
    model = build(history_of(jittered))
    assert instants(model.must) == seconds(5)
    assert START + 5 <= model.due[EVENTS, at(5), 1] < START + 10


def test_a_close_that_came_late_leaves_open_what_lay_between() -> None:
    closed = version(EVENTS, 2, 8.5, valid_from=moment(0.5), ends_at=START + 6, xid=133)
    model = build(history_of(version(EVENTS, 1, 0.5, ends_at=None), closed))
    assert instants(model.must) == seconds(1, 2, 3, 4, 5)
    assert seconds(6, 7, 8) <= instants(model.may)


def test_a_shard_is_as_far_as_it_was_ever_seen() -> None:
    shard = Shard([Look(10.0, 8, 5, 1, "a"), Look(11.0, 9, 4, 2, "b"), Look(12.0, 12, 7, 2, "b")])
    assert [shard.passed(8), shard.passed(8.5), shard.passed(12)] == [10.0, 11.0, 12.0]
    assert [shard.knew(4), shard.knew(5), shard.knew(7)] == [10.0, 12.0, float("inf")]
