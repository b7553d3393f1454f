"""Dead letters reach the pool's topic, and a redrive lets the run have its next attempt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from mainspring.registry import DeadLetters
from mainspring.schema.ids import RunKey, format_job_id, from_microseconds
from mainspring.schema.states import dead_topic_of
from tests.acceptance.waiting import until
from tests.acceptance.worker.fleet import TENANT, Fleet


@pytest.fixture
def reader(fleet: Fleet) -> Iterator[Consumer]:
    """Somebody who wants to be told of dead letters."""
    consumer = Consumer(
        fleet.kafka
        | {
            "group.id": f"{fleet.pool}-letters",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
        }
    )
    consumer.subscribe([dead_topic_of(fleet.pool)])
    yield consumer
    consumer.close()


async def test_a_dead_letter_is_copied_to_the_topic_of_its_pool_and_can_be_redriven(
    fleet: Fleet, reader: Consumer, tmp_path: Path
) -> None:
    await fleet.start()
    cure = tmp_path / "cure"
    [occurrence] = await fleet.register(handler="fail-until", payload={"file": str(cure)}, max_retries=0)
    found: list[dict[str, Any]] = []

    def look() -> bool:
        found.extend(_copies(reader))
        return bool(found)

    await until(look, "the letter is in the topic")
    assert found[0]["job_id"] == format_job_id(occurrence.job_id)
    assert (found[0]["reason"], found[0]["attempt"]) == ("exhausted", 1)
    assert found[0]["payload"] == {"file": str(cure)}
    assert "the file is not there" in found[0]["error"]

    cure.touch()
    letters = DeadLetters(fleet.database, shards=64)
    scheduled_at = from_microseconds(occurrence.scheduled_at)
    key = RunKey(occurrence.job_id, scheduled_at, 2)
    assert await letters.redrive(TENANT, [found[0]["id"]]) == [key]
    await until(lambda: bool(fleet.journal.of("end")), "the redriven run is executed")
    await fleet.settled([occurrence])
    assert [(run.attempt, run.status) for run in sorted(await fleet.books.runs())] == [
        (1, "dead"),
        (2, "succeeded"),
    ]
    assert [line.attempt for line in fleet.journal.of("start")] == [1, 2]
    fleet.assert_sound()


def _copies(reader: Consumer) -> list[dict[str, Any]]:
    values = [message.value() for message in reader.consume(100, 0.1) if message.error() is None]
    return [json.loads(value) for value in values if value is not None]
