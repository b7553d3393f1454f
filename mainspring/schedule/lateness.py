"""Too late is decided by the clock, not by the cause: the one rule that leader and worker share.

A run can come late because no leader led, because Kafka did not answer, or because no worker of its pool
was there. To the job's owner these are the same thing, so they get the same answer. The leader asks at
publication, the worker asks again at the claim, both ask here:

    on time      not later than `grace` after it was due              → run
    SKIP         later                                                → missed
    RUN_ONCE     later, and a newer occurrence of the job is due      → missed (the newer one stands for both)
                 later, and it is still the newest                    → run
    RUN_ALL      later                                                → run

Exactly `grace` late is on time. `due` is the occurrence's due time, jitter included. `following` is the
*nominal* instant of the next occurrence, as the Kafka message carries it, or None when none follows.
Jitter keeps every due time before the following nominal instant (see `mainspring.schedule.jitter`), so “is
the next one due” needs no second hash. The following instant is the cadence's, shared by all its members;
a job that ends before it owns no such occurrence: pass it through `Schedule.own_following` (or None) so
that its last run is not lost to a successor that will never come.

The rule is monotone: once missed, an occurrence stays missed as the clock moves on. So the worker may only
turn a leader's “run” into “missed”, never the other way round, and asking twice is safe.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from mainspring.schema.states import MissedPolicy

DEFAULT_GRACE = timedelta(seconds=60)


class Verdict(StrEnum):
    """What becomes of one occurrence."""

    RUN = "run"
    MISSED = "missed"


def is_late(due: datetime, now: datetime, grace: timedelta) -> bool:
    """Later than the grace allows; late work also travels in the `catchup` lane."""
    return now - due > grace


def decide(
    *, due: datetime, now: datetime, grace: timedelta, policy: MissedPolicy, following: datetime | None
) -> Verdict:
    """Run this occurrence now, or record it as missed."""
    if not is_late(due, now, grace) or policy is MissedPolicy.RUN_ALL:
        return Verdict.RUN
    if policy is MissedPolicy.RUN_ONCE and (following is None or following > now):
        return Verdict.RUN
    return Verdict.MISSED
