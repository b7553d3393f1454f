"""Every error Mainspring raises on purpose.

    MainspringError
    ├── InvalidInput            what a caller gave breaks a rule: .field, .rule
    │   └── InvalidSetting      the same for a setting: .field is the variable's name
    ├── UnreadableMessage       bytes from Kafka that this version cannot decode: .reason
    ├── MigrationRefused        the schema cannot be brought forward safely: .reason
    ├── ShardCountMismatch      the cluster was made with another number of shards
    ├── PartitionBusy           a day's table cannot be made or removed now: .table, .reason
    ├── DatabaseUnavailable     Postgres cannot be reached or refused the login
    └── LocalStackError         an embedded server cannot be had: .problem, .remedy

Errors carry their data as attributes; nobody parses their text. Driver errors are translated once, where the
driver is called, and chained with `from`.
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


class LocalStackError(MainspringError):
    """An embedded server cannot be had; `remedy` says what the user can do about it."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy
