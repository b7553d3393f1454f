"""What is refused and what is warned about, on facts made up by hand."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring.kafka.topic_rules import LARGEST_MESSAGE, TopicFacts, TopicSettings, judge
from mainspring.schema.errors import InvalidInput, TopicRefused

DAY = 86_400_000
SETTINGS = TopicSettings()
# What Kafka says of a topic made by us in a well-kept cluster of three.
GOOD = {
    "cleanup.policy": "delete",
    "retention.ms": str(3 * DAY),
    "retention.bytes": "-1",
    "segment.ms": str(7 * DAY),
    "min.insync.replicas": "2",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
}


def topic(*, partitions: int = 8, copies: int = 3, brokers: int = 3, **changed: str) -> TopicFacts:
    names = {name.replace("_", "."): value for name, value in changed.items()}
    return TopicFacts("mainspring.default.normal", partitions, copies, brokers, GOOD | names)


def reason(facts: TopicFacts) -> str:
    with pytest.raises(TopicRefused) as refused:
        judge(facts, SETTINGS)
    assert refused.value.topic == facts.name
    return refused.value.reason


def test_a_good_topic_has_no_warnings() -> None:
    assert judge(topic(), SETTINGS) == ()
    assert judge(topic(message_timestamp_type="LogAppendTime"), SETTINGS) == ()


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact", ""])
def test_any_policy_but_delete_is_refused(policy: str) -> None:
    assert f"cleanup.policy is {policy!r}" in reason(topic(cleanup_policy=policy))


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (DAY, "retention.ms is 1 day, not longer than the outage planned for (1 day)"),
        (90_000, "retention.ms is 90 seconds, not longer"),
        (0, "retention.ms is 0 ms, not longer"),
        (30 * DAY, "retention.ms is 30 days, but runs are kept for 30 days"),
        (-1, "retention.ms is -1, forever, but runs are kept for 30 days"),
    ],
)
def test_retention_outside_its_bounds_is_refused(milliseconds: int, words: str) -> None:
    said = reason(topic(retention_ms=str(milliseconds)))
    assert words in said
    assert said.endswith("set it to 259200000")


def test_retention_just_inside_its_bounds_is_accepted() -> None:
    for milliseconds in (DAY + 1, 30 * DAY - 2):
        judge(topic(retention_ms=str(milliseconds), segment_ms="1"), SETTINGS)


def test_all_that_speaks_against_a_topic_is_said_at_once() -> None:
    said = reason(topic(cleanup_policy="compact", retention_ms="-1", min_insync_replicas="4"))
    assert all(name in said for name in ("cleanup.policy", "retention.ms", "min.insync.replicas"))


def test_more_required_copies_than_there_are_is_refused() -> None:
    assert "nothing can be written" in reason(topic(copies=1, brokers=1, min_insync_replicas="2"))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (topic(min_insync_replicas="3"), "one broker down stops writes; set it to 2"),
        (topic(copies=2), "one broker down stops writes; set it to 1"),
        (topic(min_insync_replicas="1"), "min.insync.replicas is 1 of 3 copies"),
        (topic(copies=1, min_insync_replicas="1"), "one copy of each message"),
        (topic(partitions=2), "2 partitions instead of 8"),
        (topic(retention_bytes="1000000"), "retention.bytes is 1000000"),
        (topic(retention_ms=str(23 * DAY)), "segment.ms is 7 days: messages may outlive the runs"),
        (topic(max_message_bytes=str(LARGEST_MESSAGE - 1)), f"max.message.bytes is {LARGEST_MESSAGE - 1}"),
        (topic()._replace(configuration=None), "its configuration cannot be read"),
    ],
)
def test_what_works_today_but_not_always_is_one_warning(facts: TopicFacts, words: str) -> None:
    [warning] = judge(facts, SETTINGS)
    assert words in warning


def test_one_copy_is_no_warning_where_there_is_one_broker() -> None:
    assert judge(topic(copies=1, brokers=1, min_insync_replicas="1"), SETTINGS) == ()


def test_a_configuration_with_holes_is_judged_by_what_is_there() -> None:
    assert judge(topic()._replace(configuration={}), SETTINGS) == ()


def test_copies_follow_the_setting_or_else_the_cluster() -> None:
    assert [SETTINGS.copies(brokers) for brokers in (1, 2, 3, 9)] == [-1, -1, 3, 3]
    assert TopicSettings(replication=2).copies(9) == 2


def test_a_new_topic_says_only_what_was_chosen() -> None:
    made = SETTINGS.configuration()
    assert (made["cleanup.policy"], made["retention.ms"]) == ("delete", str(3 * DAY))
    assert "min.insync.replicas" not in made
    assert TopicSettings(min_insync=2).configuration()["min.insync.replicas"] == "2"


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("partitions", {"partitions": 0}),
        ("replication", {"replication": 0}),
        ("min_insync", {"min_insync": 0}),
        ("min_insync", {"min_insync": 3, "replication": 2}),
        ("max_message_bytes", {"max_message_bytes": 1_000_000}),
        ("retention", {"retention": timedelta(days=1)}),
        ("retention", {"retention": timedelta(days=30)}),
        ("minimum_outage", {"minimum_outage": timedelta(0)}),
    ],
)
def test_settings_that_contradict_the_rules_are_refused(field: str, values: dict[str, int]) -> None:
    with pytest.raises(InvalidInput) as refused:
        TopicSettings(**values)  # type: ignore[arg-type]
    assert refused.value.field == field
