"""Which messages have to be asked about, because their job may have changed since they were published."""

from __future__ import annotations

from mainspring.schema.messages import Message
from mainspring.schema.snapshot import Snapshot
from mainspring.schema.states import JobStatus
from mainspring.worker import recall
from mainspring.worker.recall import Changed, RecallList
from tests.unit.worker.runs import message

ACTIVE = JobStatus.ACTIVE


def snapshot(xmax: int) -> Snapshot:
    return Snapshot(xmax, xmax, frozenset())


def asks_about(recalls: RecallList, each: Message) -> bool:
    return recalls.concerned([each]) == [each]


def begun(xmax: int = 100) -> RecallList:
    recalls = RecallList()
    recalls.begin(snapshot(xmax), "00000001")
    return recalls


def test_a_message_published_before_the_list_begins_is_asked_about() -> None:
    recalls = begun(100)
    assert asks_about(recalls, message(1, position=99))
    assert not asks_about(recalls, message(1, position=100))


def test_before_its_first_claim_a_list_knows_where_to_read_from_only_when_it_has_begun() -> None:
    recalls = RecallList()
    assert recalls.snapshot is None
    recalls.begin(snapshot(100), "00000001")
    assert recalls.snapshot == snapshot(100)


def test_what_the_list_reaches_and_does_not_name_is_not_asked_about() -> None:
    recalls = begun(100)
    recalls.add(2, Changed(9, JobStatus.DELETED))
    assert not asks_about(recalls, message(1, position=100))


def test_of_several_messages_those_are_asked_about_that_it_concerns() -> None:
    recalls = begun(100)
    recalls.add(2, Changed(9, ACTIVE))
    messages = [message(1, position=99), message(2), message(3), message(4, position=1)]
    assert recalls.concerned(messages) == [messages[0], messages[1], messages[3]]


def test_a_job_in_another_version_is_asked_about_in_the_same_it_is_not() -> None:
    recalls = begun(100)
    recalls.add(1, Changed(2, ACTIVE))
    assert asks_about(recalls, message(1, version=1))
    assert not asks_about(recalls, message(1, version=2))
    assert asks_about(recalls, message(1, version=3))


def test_a_job_that_does_not_fire_is_asked_about_in_every_version() -> None:
    for status in (JobStatus.PAUSED, JobStatus.DELETED, JobStatus.COMPLETED):
        recalls = begun(100)
        recalls.add(1, Changed(1, status))
        assert asks_about(recalls, message(1, version=1))


def test_what_was_shown_last_counts() -> None:
    recalls = begun(100)
    recalls.add(1, Changed(1, JobStatus.PAUSED))
    recalls.add(1, Changed(1, ACTIVE))
    assert not asks_about(recalls, message(1, version=1))


def test_later_claims_keep_the_list_and_its_reach() -> None:
    recalls = begun(100)
    recalls.add(1, Changed(2, ACTIVE))
    recalls.snapshot = snapshot(120)
    recalls.begin(snapshot(150), "00000001")
    assert recalls.snapshot == snapshot(120)
    assert asks_about(recalls, message(1, version=1, position=149))
    assert not asks_about(recalls, message(2, position=100))


def test_another_timeline_begins_a_new_list() -> None:
    recalls = begun(100)
    recalls.add(1, Changed(2, ACTIVE))
    recalls.begin(snapshot(150), "00000002")
    assert recalls.snapshot == snapshot(150)
    assert asks_about(recalls, message(2, position=149))
    assert not asks_about(recalls, message(1, version=1, position=150))


def test_transaction_ids_that_went_back_begin_a_new_list() -> None:
    recalls = begun(100)
    recalls.add(1, Changed(2, ACTIVE))
    recalls.begin(snapshot(50), "00000001")
    assert recalls.snapshot == snapshot(50)
    assert not asks_about(recalls, message(1, version=1, position=50))
    assert asks_about(recalls, message(1, version=2, position=49))


def test_a_list_too_long_begins_again_where_it_is_now() -> None:
    recalls = begun(100)
    for job_id in range(recall.LONGEST + 1):
        recalls.add(job_id + 1, Changed(2, ACTIVE))
    assert not asks_about(recalls, message(10**6, position=100))
    recalls.begin(snapshot(200), "00000001")
    assert recalls.snapshot == snapshot(200)
    assert asks_about(recalls, message(10**6, position=199))
    assert not asks_about(recalls, message(1, version=1, position=200))
