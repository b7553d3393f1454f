"""How new topics are made, from the environment.

MAINSPRING_TOPIC_PARTITIONS       of new topics (default 8)
MAINSPRING_TOPIC_REPLICATION      of new topics (default: 3 where there are three brokers, else theirs)
MAINSPRING_TOPIC_RETENTION_HOURS  of new topics (default 72): longer than any outage planned for
"""

from __future__ import annotations

from datetime import timedelta

from mainspring.kafka.topic_rules import TopicSettings
from mainspring.schema.errors import InvalidInput, InvalidSetting
from mainspring.settings import PREFIX, Environment


def read_topic_settings(environment: Environment) -> TopicSettings:
    """The settings; every refusal names the variable and the rule."""
    partitions = environment.integer("TOPIC_PARTITIONS", 1, 10_000)
    hours = environment.integer("TOPIC_RETENTION_HOURS", 1, 100_000)
    try:
        return TopicSettings(
            partitions=TopicSettings.partitions if partitions is None else partitions,
            replication=environment.integer("TOPIC_REPLICATION", 1, 32_767),
            retention=TopicSettings.retention if hours is None else timedelta(hours=hours),
        )
    except InvalidInput as error:
        raise InvalidSetting(f"{PREFIX}TOPIC_RETENTION_HOURS", error.rule) from error
