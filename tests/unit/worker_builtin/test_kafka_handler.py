"""What a producer's answers mean for the run; the real brokers are in tests/integration/worker_builtin."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from mainspring.worker.builtin import NotRetryable, RequestFailed
from mainspring.worker.builtin.kafka import KafkaHandler
from tests.unit.worker_builtin.runs import run_of

PAYLOAD = {"topic": "reports", "value": 1}


class Taken:
    """A message that was acknowledged."""

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 17


class ScriptedProducer:
    """Says one thing of each message: an error raised, an error reported, or None for an acknowledgement.

    It reports only while `open` is set, as brokers do that answer in their own time.
    """

    def __init__(self, *answers: Exception | KafkaError | None) -> None:
        self.open = threading.Event()
        self.open.set()
        self._answers = list(answers)
        self._reports: list[Callable[[], None]] = []

    def produce(self, topic: str, value: bytes, key: bytes | None, *, headers: Any, on_delivery: Any) -> None:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        self._reports.append(lambda: on_delivery(answer, Taken()))

    def poll(self, seconds: float) -> None:
        if not self.open.wait(seconds):
            return
        reports, self._reports = self._reports, []
        for report in reports:
            report()


def handler(*producers: ScriptedProducer) -> KafkaHandler:
    waiting = list(producers)
    return KafkaHandler(lambda: waiting.pop(0))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
    ],
)
async def test_what_another_attempt_cannot_mend_is_not_tried_again(code: int) -> None:
    for said in (KafkaError(code), KafkaException(KafkaError(code))):
        with pytest.raises(NotRetryable, match="reports did not take the message"):
            await handler(ScriptedProducer(said))(run_of(PAYLOAD))


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._MSG_TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.REQUEST_TIMED_OUT,
    ],
)
async def test_anything_else_is_an_ordinary_failure(code: int) -> None:
    with pytest.raises(RequestFailed, match="reports did not take the message"):
        await handler(ScriptedProducer(KafkaError(code)))(run_of(PAYLOAD))


async def test_a_full_queue_is_waited_for() -> None:
    result = await handler(ScriptedProducer(BufferError(), BufferError(), None))(run_of(PAYLOAD))
    assert result == {"topic": "reports", "partition": 3, "offset": 17}


async def test_a_full_queue_is_waited_for_no_longer_than_the_run_may_take() -> None:
    with pytest.raises(TimeoutError, match="reports had not acknowledged"):
        await handler(ScriptedProducer(*[BufferError()] * 1000))(run_of(PAYLOAD, seconds=0.3))


async def test_a_producer_that_is_finished_is_replaced() -> None:
    broken = ScriptedProducer(KafkaError(KafkaError._FATAL, "fenced", fatal=True))
    sending = handler(broken, ScriptedProducer(None, None))
    with pytest.raises(RequestFailed):
        await sending(run_of(PAYLOAD))
    for _ in range(2):
        assert (await sending(run_of(PAYLOAD)))["offset"] == 17


async def test_a_producer_that_refused_one_message_is_kept() -> None:
    sending = handler(ScriptedProducer(KafkaError(KafkaError._MSG_TIMED_OUT), None))
    with pytest.raises(RequestFailed):
        await sending(run_of(PAYLOAD))
    assert (await sending(run_of(PAYLOAD)))["offset"] == 17


async def test_the_event_loop_goes_on_while_a_broker_takes_its_time() -> None:
    """Only the loop opens the way for the report: were it waiting itself, nothing ever would."""
    producer = ScriptedProducer(None)
    producer.open.clear()
    asyncio.get_running_loop().call_later(0.3, producer.open.set)
    assert (await handler(producer)(run_of(PAYLOAD)))["offset"] == 17


async def test_a_report_that_comes_after_the_run_was_cancelled_disturbs_nobody() -> None:
    producer = ScriptedProducer(None, None)
    producer.open.clear()
    sending = handler(producer)
    run = asyncio.create_task(sending(run_of(PAYLOAD)))
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    producer.open.set()
    assert (await sending(run_of(PAYLOAD)))["offset"] == 17
