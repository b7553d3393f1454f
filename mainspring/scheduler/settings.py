"""A scheduler's own settings.

MAINSPRING_STATUS         host:port of /healthz, /readyz and /metrics (default 127.0.0.1:0, a free port)
MAINSPRING_ETCD_PREFIX    what the keys in etcd begin with (default /mainspring/); one per cluster
MAINSPRING_LEASE_SECONDS  2–60 (default 3): how long after its death a scheduler's shards stay its own
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from mainspring.kafka.topic_settings import read_topic_settings
from mainspring.scheduler.process import SchedulerOptions
from mainspring.schema.errors import InvalidSetting
from mainspring.serving import SETTING, parse_address
from mainspring.settings import PREFIX, Environment


def read_options(variables: Mapping[str, str], *, status: str | None = None) -> SchedulerOptions:
    """The options from the variables; every refusal names the variable and the rule."""
    environment = Environment(variables)
    address = status or environment.text("STATUS") or SchedulerOptions.status_address
    parse_address(address, "--status" if status else SETTING)
    lease = environment.integer("LEASE_SECONDS", 2, 60)
    prefix = environment.text("ETCD_PREFIX") or SchedulerOptions.etcd_prefix
    if not prefix.endswith("/"):
        raise InvalidSetting(f"{PREFIX}ETCD_PREFIX", f"{prefix!r} does not end with /")
    return SchedulerOptions(
        status_address=address,
        etcd_prefix=prefix,
        lease=SchedulerOptions.lease if lease is None else timedelta(seconds=lease),
        topics=read_topic_settings(environment),
    )
