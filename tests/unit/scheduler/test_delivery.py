"""Every line of the table in mainspring/scheduler/delivery.py, on a scripted Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from mainspring.clock import ManualClock
from mainspring.kafka.publisher import Publisher, Refused, Standing, Why
from mainspring.kafka.topics import Topics
from mainspring.scheduler import delivery as module
from mainspring.scheduler.delivery import LONGEST_REST_SECONDS, REST_SECONDS, Delivered, Delivery
from mainspring.scheduler.expansion import Parcel
from tests.unit.scheduler.kafka import Kafka, parcel, values

ALL = frozenset(range(64))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(module, "MESSAGE_SECONDS", 0.05)


class Scene:
    """A process that delivers to a scripted Kafka; `rights` are the answers of the proof, the last stays."""

    def __init__(self, kafka: Kafka, *rights: Iterable[int]) -> None:
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.delivery = Delivery(cast(Publisher, kafka), cast(Topics, kafka), self.clock)
        self.rights = [frozenset(each) for each in rights] or [ALL]
        self.proofs = 0

    async def deliver(self, *parcels: Parcel) -> Delivered:
        async with asyncio.timeout(10):
            return await self.delivery.deliver(parcels, self.prove)

    async def prove(self) -> frozenset[int]:
        self.proofs += 1
        return self.rights.pop(0) if len(self.rights) > 1 else self.rights[0]


def of(refused: Iterable[Refused]) -> list[bytes]:
    return [message.value for message in refused]


def come_back(kafka: Kafka) -> None:
    kafka.away = False


def come_back_whole(kafka: Kafka) -> None:
    kafka.away = False
    kafka.offline.clear()
    kafka.unknown.clear()


def go_away(kafka: Kafka) -> None:
    kafka.away = True


def nothing(_: Kafka) -> None:
    """A try like the one before."""


async def test_a_bucket_that_is_acknowledged_is_sent_once() -> None:
    kafka = Kafka(a=2, b=2)
    result = await Scene(kafka).deliver(parcel("a", 1, 2), parcel("b", 3))
    assert result == Delivered()
    assert kafka.values("a") == values(parcel("a", 1, 2))
    assert kafka.values("b") == values(parcel("b", 3))
    assert len(kafka.tries) == 1


async def test_an_empty_bucket_asks_nobody() -> None:
    kafka = Kafka()
    scene = Scene(kafka)
    assert await scene.deliver() == Delivered()
    assert (kafka.tries, scene.proofs) == ([], 0)


async def test_higher_priorities_leave_first() -> None:
    kafka = Kafka(a=1)
    low, high = parcel("a", 1, priority=1), parcel("a", 2, priority=9)
    await Scene(kafka).deliver(low, high)
    assert kafka.values("a") == values(high, low)


async def test_a_message_too_large_is_a_dead_letter_and_holds_nobody() -> None:
    kafka = Kafka(a=2)
    [_, large, _] = values(parcel("a", 1, 2, 3))
    kafka.too_large = {large}
    result = await Scene(kafka).deliver(parcel("a", 1, 2, 3))
    assert of(result.too_large) == [large]
    assert not result.deferred
    assert len(kafka.taken) == 2
    assert len(kafka.tries) == 1


async def test_what_one_partition_refuses_goes_to_the_others() -> None:
    kafka = Kafka(a=4)
    kafka.offline = {("a", 1)}
    result = await Scene(kafka).deliver(parcel("a", *range(1, 9)))
    assert result == Delivered()
    assert sorted(kafka.values("a")) == sorted(values(parcel("a", *range(1, 9))))
    assert 1 not in kafka.tried("a")[1]


async def test_a_single_message_finds_the_one_partition_that_takes_it() -> None:
    kafka = Kafka(a=4)
    kafka.offline = {("a", 0), ("a", 1), ("a", 2)}
    result = await Scene(kafka).deliver(parcel("a", 1))
    assert result == Delivered()
    assert kafka.tried("a") == [[0], [1], [2], [3]]


async def test_messages_of_a_topic_that_is_refused_become_timers() -> None:
    kafka = Kafka(a=1, b=1)
    kafka.forbidden = {"a"}
    result = await Scene(kafka).deliver(parcel("a", 1, 2), parcel("b", 3))
    assert of(result.deferred) == values(parcel("a", 1, 2))
    assert {message.why for message in result.deferred} == {Why.TOPIC}
    assert kafka.values("b") == values(parcel("b", 3))
    assert not kafka.tried("a")


async def test_messages_of_a_topic_that_cannot_be_written_become_timers_and_the_topic_is_looked_at_anew() -> (
    None
):
    kafka = Kafka(a=8, b=1)
    kafka.unwritable = {"a"}
    result = await Scene(kafka).deliver(parcel("a", 1, 2), parcel("b", 3))
    assert of(result.deferred) == values(parcel("a", 1, 2))
    assert len(kafka.tries) == 1
    assert kafka.forgotten == ["a"]


@pytest.mark.parametrize("partitions", [1, 2, 8])
@pytest.mark.parametrize("standing", [Standing.WRITABLE, Standing.BROKEN])
async def test_a_topic_that_takes_nothing_while_others_do_holds_them_for_two_tries_at_most(
    partitions: int, standing: Standing
) -> None:
    """Under-replicated, it has leaders and is called writable; one message reaches one partition a try."""
    kafka = Kafka(a=partitions, b=1)
    kafka.silence("a")
    kafka.standings = {"a": standing}
    result = await Scene(kafka).deliver(parcel("a", 1), parcel("b", 2))
    assert of(result.deferred) == values(parcel("a", 1))
    assert kafka.values("b") == values(parcel("b", 2))
    assert kafka.tried("a") == [[0], [1]][: min(partitions, 2)]


async def test_a_topic_that_takes_nothing_on_any_partition_while_others_do_holds_them_for_one_try() -> None:
    kafka = Kafka(a=4, b=1)
    kafka.silence("a")
    result = await Scene(kafka).deliver(parcel("a", 1, 2, 3, 4), parcel("b", 5))
    assert len(result.deferred) == 4
    assert len(kafka.tries) == 1


async def test_a_topic_alone_without_a_leader_is_given_up_when_all_partitions_were_tried() -> None:
    kafka = Kafka(a=3)
    kafka.silence("a")
    kafka.standings = {"a": Standing.BROKEN}
    result = await Scene(kafka).deliver(parcel("a", 1))
    assert of(result.deferred) == values(parcel("a", 1))
    assert kafka.tried("a") == [[0], [1], [2]]


async def test_a_topic_alone_that_is_called_writable_is_given_up_when_all_partitions_were_tried_twice() -> (
    None
):
    """Once it may have come back just after the try; twice it holds all the buckets behind it."""
    kafka = Kafka(a=2)
    kafka.silence("a")
    result = await Scene(kafka).deliver(parcel("a", 1))
    assert of(result.deferred) == values(parcel("a", 1))
    assert kafka.tried("a") == [[0], [1], [0], [1]]


async def test_with_kafka_wholly_away_the_bucket_waits_and_the_right_to_it_is_proved_before_every_try() -> (
    None
):
    kafka = Kafka(a=2, b=2)
    kafka.away = True
    kafka.turns = [nothing] * 11 + [come_back]
    scene = Scene(kafka)
    result = await scene.deliver(parcel("a", 1, 2), parcel("b", 3))
    assert result == Delivered()
    assert kafka.values("a") == values(parcel("a", 1, 2))
    assert kafka.values("b") == values(parcel("b", 3))
    assert len(kafka.tries) == scene.proofs == 12


async def test_kafka_back_between_a_try_and_the_question_about_it_defers_nothing() -> None:
    kafka = Kafka(a=1)
    kafka.silence("a")  # refuses, and is called writable
    kafka.turns = [nothing, lambda it: it.offline.clear()]
    assert await Scene(kafka).deliver(parcel("a", 1)) == Delivered()
    assert len(kafka.taken) == 1


async def test_kafka_that_goes_away_half_way_is_waited_for_although_others_took_something() -> None:
    kafka = Kafka(a=4, b=1)
    kafka.silence("a")
    kafka.turns = [
        nothing,
        go_away,
        nothing,
        nothing,
        nothing,
        nothing,
        come_back_whole,
    ]
    result = await Scene(kafka).deliver(parcel("a", 1), parcel("b", 2))
    assert result == Delivered()
    assert kafka.values("a") == values(parcel("a", 1))


async def test_a_topic_that_speaks_again_is_silent_anew_only_after_that() -> None:
    """Two messages, one taken at the second try: its silence is over, and counted from the beginning."""
    kafka = Kafka(a=8, b=1)
    kafka.silence("a")
    kafka.turns = [nothing, lambda it: it.offline.discard(("a", 2)), lambda it: it.silence("a")]
    result = await Scene(kafka).deliver(parcel("a", 1, 2), parcel("b", 3))
    assert kafka.tried("a")[:2] == [[0, 1], [2, 3]]
    assert len(kafka.values("a")) == 1
    assert len(result.deferred) == 1
    assert len(kafka.tried("a")) > 3


async def test_what_belongs_to_a_term_that_ended_is_dropped() -> None:
    kafka = Kafka(a=1)
    result = await Scene(kafka, {3}).deliver(parcel("a", 1, shard=3), parcel("a", 2, shard=4))
    assert result == Delivered()
    assert kafka.values("a") == values(parcel("a", 1, shard=3))


async def test_what_belongs_to_a_term_that_ended_while_kafka_was_away_is_dropped() -> None:
    kafka = Kafka(a=1)
    kafka.away = True
    kafka.turns = [nothing, come_back]
    result = await Scene(kafka, {3, 4}, {4}).deliver(parcel("a", 1, shard=3), parcel("a", 2, shard=4))
    assert result == Delivered()
    assert kafka.values("a") == values(parcel("a", 2, shard=4))


async def test_when_all_terms_have_ended_kafka_need_not_come_back() -> None:
    kafka = Kafka(a=1)
    kafka.away = True
    result = await Scene(kafka, {3}, ()).deliver(parcel("a", 1, shard=3))
    assert result == Delivered()
    assert not kafka.taken


@pytest.mark.parametrize("standing", [Standing.WRITABLE, Standing.BROKEN])
async def test_a_topic_about_which_nobody_answers_holds_no_other(standing: Standing) -> None:
    """It cannot be made, because the controller is away; the brokers serve all others."""
    kafka = Kafka(a=1, b=1)
    kafka.unknown = {"a"}
    kafka.standings = {"a": standing}
    result = await Scene(kafka).deliver(parcel("a", 1, 2), parcel("b", 3))
    assert of(result.deferred) == values(parcel("a", 1, 2))
    assert kafka.tries[0] == [("b", 0)]
    assert len(kafka.tries) == 2


async def test_a_topic_about_which_there_is_no_answer_in_time_holds_no_other() -> None:
    class Slow(Kafka):
        async def partitions(self, name: str) -> int:
            if name == "a":
                await asyncio.Event().wait()
            return await super().partitions(name)

    kafka = Slow(a=1, b=1)
    result = await Scene(kafka).deliver(parcel("a", 1), parcel("b", 2))
    assert of(result.deferred) == values(parcel("a", 1))
    assert kafka.values("b") == values(parcel("b", 2))


async def test_a_topic_that_is_known_a_moment_later_gets_its_messages() -> None:
    kafka = Kafka(a=1, b=1)
    kafka.unknown = {"a"}
    kafka.turns = [lambda it: it.unknown.clear()]
    assert await Scene(kafka).deliver(parcel("a", 1), parcel("b", 2)) == Delivered()
    assert kafka.values("a") == values(parcel("a", 1))


async def test_with_kafka_away_and_no_topic_known_the_bucket_waits() -> None:
    kafka = Kafka(a=1)
    kafka.away, kafka.unknown = True, {"a"}
    kafka.turns = [nothing] * 5 + [come_back_whole]
    assert await Scene(kafka).deliver(parcel("a", 1)) == Delivered()
    assert kafka.values("a") == values(parcel("a", 1))


async def test_one_oversized_message_one_forbidden_topic_one_offline_partition_stops_every_shard() -> None:
    kafka = Kafka(large=1, forbidden=1, unwritable=1, offline=3, silent=8, unknown=1, fine=2)
    kafka.too_large = set(values(parcel("large", 99, shard=1)))
    kafka.forbidden, kafka.unwritable, kafka.unknown = {"forbidden"}, {"unwritable"}, {"unknown"}
    kafka.offline = {("offline", 0)}
    kafka.silence("silent")
    bad = [
        parcel(topic, 1, shard=shard)
        for shard, topic in enumerate(["forbidden", "unwritable", "silent", "unknown"])
    ]
    good = [parcel("fine", number, shard=number) for number in range(10, 20)]
    result = await Scene(kafka).deliver(
        parcel("large", 99, shard=1), *bad, parcel("offline", 1, shard=9), *good
    )
    assert kafka.values("fine") == values(*good)
    assert kafka.tries[0].count(("fine", 0)) + kafka.tries[0].count(("fine", 1)) == 10
    assert kafka.values("offline") == values(parcel("offline", 1, shard=9))
    assert sorted(of(result.deferred)) == sorted(values(*bad))
    assert of(result.too_large) == values(parcel("large", 99, shard=1))
    assert len(kafka.tries) <= 3


async def test_refused_messages_leave_in_the_order_they_had() -> None:
    kafka = Kafka(a=1)
    kafka.away = True
    kafka.turns = [nothing, nothing, come_back]
    sent = [parcel("a", *range(1, 100), shard=3), parcel("a", *range(100, 130), shard=4)]
    await Scene(kafka).deliver(*sent)
    assert kafka.values("a") == values(*sent)


async def test_a_topic_that_was_given_up_rests_and_costs_the_next_bucket_no_try() -> None:
    kafka = Kafka(a=2, b=1)
    kafka.silence("a")
    scene = Scene(kafka)
    await scene.deliver(parcel("a", 1), parcel("b", 2))
    tries = len(kafka.tries)
    result = await scene.deliver(parcel("a", 3), parcel("b", 4))
    assert of(result.deferred) == values(parcel("a", 3))
    assert len(kafka.tries) == tries + 1
    assert kafka.forgotten == ["a"]
    assert (await scene.deliver(parcel("a", 5))).deferred


async def test_a_rest_ends_and_is_twice_as_long_the_next_time_up_to_a_bound() -> None:
    kafka = Kafka(a=1, b=1)
    kafka.silence("a")
    scene, expected = Scene(kafka), REST_SECONDS
    for _ in range(6):
        await scene.deliver(parcel("a", 1), parcel("b", 2))
        tried = len(kafka.tried("a"))
        scene.clock.advance(timedelta(seconds=expected - 0.1))
        await scene.deliver(parcel("a", 1), parcel("b", 2))
        assert len(kafka.tried("a")) == tried
        scene.clock.advance(timedelta(seconds=0.1))
        expected = min(2 * expected, LONGEST_REST_SECONDS)
    kafka.offline.clear()
    assert await scene.deliver(parcel("a", 1)) == Delivered()
    kafka.silence("a")
    await scene.deliver(parcel("a", 1), parcel("b", 2))
    scene.clock.advance(timedelta(seconds=REST_SECONDS))
    kafka.offline.clear()
    assert await scene.deliver(parcel("a", 1)) == Delivered()


def test_what_was_delivered_can_be_told_apart_by_shard() -> None:
    def refusal(job_id: int, shard: int) -> Refused:
        [value] = values(parcel("a", job_id, shard=shard))
        return Refused("a", 0, value, Why.PARTITION, "")

    whole = Delivered([refusal(1, 3), refusal(2, 4)], [refusal(3, 4), refusal(4, 5)])
    assert whole.of({4}) == Delivered([refusal(2, 4)], [refusal(3, 4)])
