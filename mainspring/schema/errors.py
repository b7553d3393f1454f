"""Every error Mainspring raises on purpose.

    MainspringError
    ├── InvalidInput            what a caller gave breaks a rule: .field, .rule
    │   └── InvalidSetting      the same for a setting: .field is the variable's name
    ├── NotFound                the tenant has no such thing: .what, .key
    ├── NotAllowed              whoever asks may not do that: .rule
    ├── QuotaExceeded           the tenant has as many jobs as it may have: .maximum, .room
    ├── Conflict                what exists stands against it; nothing has been changed
    │   ├── NameTaken           other jobs of the tenant have these names: .names
    │   ├── VersionMismatch     the job has been changed meanwhile: .expected, .actual
    │   ├── WrongStatus         what is in this status cannot do that: .action, .status, .reason
    │   │   ├── RunEnded        the run has its outcome already: .status is its word
    │   │   └── RedriveRefused  the dead letter cannot be redriven, or not now: .letter_id
    │   └── Contended           others kept changing the same thing; trying again may succeed: .what
    ├── UnreadableMessage       bytes from Kafka that this version cannot decode: .reason
    ├── MigrationRefused        the schema cannot be brought forward safely: .reason
    ├── ShardCountMismatch      the cluster was made with another number of shards
    ├── PartitionBusy           a day's table cannot be made or removed now: .table, .reason
    ├── DatabaseUnavailable     Postgres cannot be reached or refused the login
    ├── KafkaUnavailable        Kafka cannot be reached or refused the login: .brokers, .reason
    ├── TopicRefused            a topic cannot be made or must not be used: .topic, .reason
    ├── EtcdUnavailable         no member of etcd answered in time: .maybe_applied
    ├── EtcdRefused             etcd answered and refused (login, permission, request): .status, .reason
    ├── LeaseLost               etcd no longer knows the lease, nor the keys under it: .lease_id
    ├── HistoryLost             a watch cannot go on without a gap, read again: .from_revision
    └── LocalStackError         an embedded server cannot be had: .problem, .remedy

Errors carry their data as attributes; nobody parses their text. Driver errors are translated once, where
the driver is called, and chained with `from`.
"""

from __future__ import annotations


class MainspringError(Exception):
    """The root: catching it catches what Mainspring expects to go wrong, and no bug."""


class InvalidInput(MainspringError):
    """A value given by a caller breaks a rule; nothing has been changed."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


class InvalidSetting(InvalidInput):
    """A setting is missing or breaks a rule; the process does not start."""


class NotFound(MainspringError):
    """The tenant has no such thing, or has it no longer; another tenant's things look the same from here."""

    def __init__(self, what: str, key: str | int) -> None:
        super().__init__(f"there is no {what} {key}")
        self.what = what
        self.key = key


class NotAllowed(MainspringError):
    """Whoever asks may not do that: by role, or because of the job's handler. Nothing has been changed."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"not allowed: {rule}")
        self.rule = rule


class QuotaExceeded(MainspringError):
    """The tenant would have more jobs than it may; `room` more it could have. Nothing has been changed."""

    def __init__(self, *, maximum: int, room: int) -> None:
        super().__init__(f"the tenant may have {maximum} jobs, and has room for {room} more")
        self.maximum = maximum
        self.room = room


class Conflict(MainspringError):
    """What exists stands against the change; nothing has been changed."""


class NameTaken(Conflict):
    """Names are unique among a tenant's jobs that are not deleted, and among its keys."""

    def __init__(self, names: tuple[str, ...], what: str = "a job") -> None:
        shown = ", ".join(repr(name) for name in names[:10])
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        super().__init__(f"{what} of this name exists: {shown}{more}")
        self.names = names


class VersionMismatch(Conflict):
    """The caller decided on a version of the job that is no longer the newest."""

    def __init__(self, *, expected: int, actual: int) -> None:
        super().__init__(f"the job is at version {actual}, not at {expected}: it was changed meanwhile")
        self.expected = expected
        self.actual = actual


class WrongStatus(Conflict):
    """A job in this status cannot do that."""

    def __init__(self, action: str, status: str, reason: str | None = None) -> None:
        super().__init__(f"cannot {action} a job that is {status}" + (f" ({reason})" if reason else ""))
        self.action = action
        self.status = status
        self.reason = reason


class RunEnded(WrongStatus):
    """A run that has ended cannot be cancelled; `status` says how it ended."""

    def __init__(self, action: str, status: str) -> None:
        super().__init__(action, status)
        self.args = (f"cannot {action} a run that has ended: it is {status}",)


class RedriveRefused(WrongStatus):
    """A dead letter that cannot be redriven, or not now; none of the same call has been."""

    def __init__(self, letter_id: int, status: str, reason: str) -> None:
        super().__init__("redrive", status, reason)
        self.args = (f"cannot redrive the dead letter {letter_id}: {reason}",)
        self.letter_id = letter_id


class Contended(Conflict):
    """Others kept changing the same thing for as long as we tried; nothing has been changed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"others kept changing {what}; try again")
        self.what = what


class UnreadableMessage(MainspringError):
    """A Kafka message that this version cannot decode."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"unreadable message: {reason}")
        self.reason = reason


class MigrationRefused(MainspringError):
    """The database's migrations and ours disagree; nothing has been changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"migration refused: {reason}")
        self.reason = reason


class ShardCountMismatch(MainspringError):
    """The number of shards is written once, when the cluster is created."""

    def __init__(self, *, expected: int, actual: int) -> None:
        super().__init__(f"this process expects {expected} shards, but the cluster was created with {actual}")
        self.expected = expected
        self.actual = actual


class PartitionBusy(MainspringError):
    """A day's table is in use; nothing waits behind the attempt, and a later one may succeed."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"{table} cannot be made or removed now: {reason}")
        self.table = table
        self.reason = reason


class DatabaseUnavailable(MainspringError):
    """Postgres cannot be reached, or refused the login."""


class KafkaUnavailable(MainspringError):
    """No broker answered in time, or the login was refused; asking again later may succeed."""

    def __init__(self, brokers: tuple[str, ...], reason: str) -> None:
        super().__init__(f"kafka at {','.join(brokers)} cannot be used: {reason}")
        self.brokers = brokers
        self.reason = reason


class TopicRefused(MainspringError):
    """A topic cannot be made, or would lose or repeat runs; `reason` says what to change."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"topic {topic} is refused: {reason}")
        self.topic = topic
        self.reason = reason


class EtcdUnavailable(MainspringError):
    """No member of etcd answered in time; asking again later may succeed.

    `maybe_applied`: a change was sent and its answer never came, so it may have happened, or may still.
    """

    def __init__(self, reason: str, *, maybe_applied: bool = False) -> None:
        happened = "; the change may have happened" if maybe_applied else ""
        super().__init__(f"etcd does not answer: {reason}{happened}")
        self.reason = reason
        self.maybe_applied = maybe_applied


class EtcdRefused(MainspringError):
    """etcd answered and refused: a wrong login, a missing permission, a request it cannot accept."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(f"etcd refused the request: {reason} ({status})")
        self.status = status
        self.reason = reason


class LeaseLost(MainspringError):
    """etcd no longer knows the lease: it ran out or was revoked, and the keys under it are deleted."""

    def __init__(self, lease_id: int) -> None:
        super().__init__(f"the lease {lease_id:x} is gone, and with it the keys under it")
        self.lease_id = lease_id


class HistoryLost(MainspringError):
    """A watch cannot go on without a gap: etcd has forgotten these events or was replaced. Read again."""

    def __init__(self, from_revision: int, reason: str) -> None:
        super().__init__(f"etcd has no events from revision {from_revision} on: {reason}")
        self.from_revision = from_revision
        self.reason = reason


class LocalStackError(MainspringError):
    """An embedded server cannot be had; `remedy` says what the user can do about it."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy
