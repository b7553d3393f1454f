r"""A crontab, read as cron reads it, and each entry as a job. Pure.

    # comment                      goes above the job that follows it
    CRON_TZ=Europe/Berlin          the time zone of what follows; TZ too, where there is no CRON_TZ
    NAME=value                     the environment of what follows: `payload.environment`
    @daily  command                nicknames; @reboot is no time
    m h dom mon dow [user] command  the user column is there in system crontabs alone

In a command the first `%` ends it and what follows is its standard input, line by line at each further `%`;
`\%` is a percent sign. A command becomes the payload of a handler of the user's own, because Mainspring
runs no shell:

    {"command": "backup --all", "user": "root", "environment": {"PATH": "/bin"}, "stdin": "yes\n"}

Cron neither repeats what failed nor makes up for what it missed, and never stops a command: the jobs say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mainspring.schedule import Cadence, load_zone
from mainspring.schema.errors import InvalidInput

_SETTING = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|\"[^\"]*\"|'[^']*')\s*=\s*(.*?)\s*")
_PERCENT = re.compile(r"(?<!\\)%")
_WORD = re.compile(r"[A-Za-z0-9]+")
_NICKNAMES = {"@annually": "@yearly", "@midnight": "@daily", "@every_minute": "* * * * *"}
_CHANGED_DIRECTORY = re.compile(r"^cd\s+\S+\s*(&&|;)\s*")
_WRAPPERS = frozenset(
    (
        *("bash", "env", "exec", "ionice", "nice", "nohup", "perl", "php"),
        *("python", "python3", "ruby", "sh", "sudo", "time"),
    )
)
_NO_TIMEOUT = 30 * 86_400
_LONGEST_SLUG = 60


class Problem(NamedTuple):
    """A line that cannot be carried over."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A job, with the comment that stood above it."""

    line: int
    comment: tuple[str, ...]
    job: dict[str, Any]


@dataclass(slots=True)
class Crontab:
    """What was read: jobs, and the lines that are none."""

    entries: list[Entry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    """What was carried over with a meaning that may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How entries become jobs."""

    handler: str = "command"
    prefix: str = ""
    timezone: str = "UTC"
    system: bool = False
    labels: dict[str, str] = field(default_factory=dict)


def read_crontab(text: str, options: Options) -> Crontab:
    """Every line becomes part of a job, or a problem with its number."""
    reader = _Reader(options)
    for number, line in enumerate(text.splitlines(), 1):
        try:
            reader.read(number, line.strip())
        except InvalidInput as refusal:
            reader.found.problems.append(Problem(number, f"{refusal.field}: {refusal.rule}"))
            reader.comment = []
    return reader.found


class _Reader:
    """The settings so far, and the comment above the next entry."""

    def __init__(self, options: Options) -> None:
        self.found = Crontab()
        self.comment: list[str] = []
        self._options = options
        self._environment: dict[str, str] = {}
        self._timezone = options.timezone
        self._from_cron_tz = False
        self._unknown_zone: int | None = None
        self._names: set[str] = set()

    def read(self, number: int, line: str) -> None:
        if not line:
            self.comment = []
        elif line.startswith("#"):
            self.comment.append(line.lstrip("#").strip())
        elif (setting := _SETTING.fullmatch(line)) and not line.startswith("@"):
            self._set(number, setting[1].strip("\"'"), _unquote(setting[2]))
        else:
            self._enter(number, line)
            self.comment = []

    def _set(self, number: int, name: str, value: str) -> None:
        if name == "MAILTO":
            if value:
                raise InvalidInput("MAILTO", f"nobody is mailed; {value} would not hear of failures")
        elif name == "CRON_TZ" or (name == "TZ" and not self._from_cron_tz):
            self._set_zone(number, name, value)
        if name not in ("MAILTO", "CRON_TZ"):
            self._environment[name] = value

    def _set_zone(self, number: int, name: str, value: str) -> None:
        self._from_cron_tz = name == "CRON_TZ"
        self._unknown_zone = number
        zone = value.lstrip(":") or self._options.timezone
        load_zone(zone)
        self._timezone, self._unknown_zone = zone, None
        if name == "TZ":
            note = "TZ is taken for the schedule too; some crons give it to the command alone"
            self.found.notes.append(Problem(number, note))

    def _enter(self, number: int, line: str) -> None:
        schedule, rest = _split(line, 1) if line.startswith("@") else _split(line, 5)
        user = None
        if self._options.system:
            user, rest = _split(rest, 1)
        if not schedule or not rest:
            raise InvalidInput("entry", "is not a schedule and a command")
        if self._unknown_zone is not None:
            raise InvalidInput("timezone", f"the one of line {self._unknown_zone} is not known")
        job = self._job(_schedule(schedule), user, rest)
        self.found.entries.append(Entry(number, tuple(self.comment), job))

    def _job(self, schedule: str, user: str | None, command: str) -> dict[str, Any]:
        Cadence.parse(schedule, self._timezone)
        payload = self._payload(user, command)
        job: dict[str, Any] = {"name": self._name(payload["command"]), "schedule": schedule}
        if self._timezone != "UTC":
            job["timezone"] = self._timezone
        job["handler"] = self._options.handler
        job["payload"] = payload
        job |= {"missed_window": "SKIP", "max_retries": 0, "timeout_seconds": _NO_TIMEOUT}
        return job | ({"labels": dict(self._options.labels)} if self._options.labels else {})

    def _payload(self, user: str | None, command: str) -> dict[str, Any]:
        first, *lines = (part.replace("\\%", "%") for part in _PERCENT.split(command))
        payload: dict[str, Any] = {"command": first.strip()}
        if not payload["command"]:
            raise InvalidInput("command", "is empty")
        if user is not None:
            payload["user"] = user
        if self._environment:
            payload["environment"] = dict(self._environment)
        if lines:
            payload["stdin"] = "\n".join(lines) + "\n"
        return payload

    def _name(self, command: str) -> str:
        """After the program, so that it stays when lines move; numbered where several run it."""
        program = next(filter(_is_program, _CHANGED_DIRECTORY.sub("", command).split()), command)
        slug = "-".join(_WORD.findall(program.rsplit("/", 1)[-1]))[:_LONGEST_SLUG].lower() or "command"
        name, number = f"{self._options.prefix}{slug}", 1
        while name in self._names:
            number += 1
            name = f"{self._options.prefix}{slug}-{number}"
        self._names.add(name)
        return name


def _schedule(text: str) -> str:
    word = text.lower()
    if word == "@reboot":
        raise InvalidInput("@reboot", "is not a time: Mainspring does not know when machines start")
    return _NICKNAMES.get(word, word if text.startswith("@") else text)


def _is_program(word: str) -> bool:
    """What is run, and not what only runs it."""
    return "=" not in word and word[0] not in "-[(" and word.rsplit("/", 1)[-1] not in _WRAPPERS


def _split(text: str, count: int) -> tuple[str, str]:
    """So many words, with single spaces, and the rest."""
    words = text.split(None, count)
    if len(words) <= count:
        raise InvalidInput("entry", "is not a schedule and a command")
    return " ".join(words[:count]), words[count]


def _unquote(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def comments(entry: Entry) -> Iterator[str]:
    """The comment above a job, and where it comes from."""
    yield from entry.comment
    yield f"line {entry.line}"
