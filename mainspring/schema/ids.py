"""Identifiers: integers inside, text outside.

Job ids are positive 63-bit integers, because COPY of bigint keys is 40 % faster than of uuid keys. Outside
they are `j_` and 13 characters of Crockford's base32 in lower case (digits and letters without i, l, o, u).
A run's id is `r_` and its three key parts in the same alphabet, so that it needs no column and no look-up:

    r_ 06jtwf0vcp0x3 01jcfqav0z00 001
       job_id (13)   scheduled_at attempt (3)
                     µs UTC (12)

Both have a fixed width, so text sorts as the numbers do. One value has one spelling: capitals, Crockford's
look-alikes and values out of range are refused, because an id that can be written in two ways ends up in
two rows of somebody's table.

New job ids are drawn as *ranges*: a random 63-bit start, then consecutive. Wholly random ids would dirty
one index page per row of a bulk COPY; a clock in the id would need bits that collisions then lack; a
sequence costs a round trip and is known only after the insert, when the shard has long been computed. Ten
million jobs in ranges of 65,536 collide with probability 2e-10, and the primary key refuses the one that
does. Ids are not secrets: access is decided by tenant.

Claim ids, in contrast, start with the millisecond: the BRIN index of `runs(claim_id)` only helps when
neighbours in the heap have neighbouring claims.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from mainspring.schema.errors import InvalidInput
from mainspring.schema.states import MAXIMUM_ATTEMPT

MAXIMUM_ID = 2**63 - 1
MAXIMUM_MICROSECONDS = 253_402_300_799_999_999  # the last instant of the year 9999

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_VALUE = {character: value for value, character in enumerate(_ALPHABET)}
_ID_WIDTH = 13
_INSTANT_WIDTH = 12
_ATTEMPT_WIDTH = 3
_RANGE = 65_536
_CLAIM_RANDOM_BITS = 21
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class RunKey(NamedTuple):
    """The primary key of a run."""

    job_id: int
    scheduled_at: datetime
    attempt: int


class JobIds:
    """Draws new job ids; one per process, which need not talk to any other."""

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._process = 0

    def take(self) -> int:
        """One new id."""
        return self.take_many(1)[0]

    def take_many(self, count: int) -> range:
        """`count` consecutive new ids."""
        # A child made by fork would go on in its parent's range.
        if self._end - self._next < count or self._process != os.getpid():
            self._draw(max(count, _RANGE))
        taken = range(self._next, self._next + count)
        self._next += count
        return taken

    def _draw(self, size: int) -> None:
        self._next = 1 + secrets.randbelow(MAXIMUM_ID - size + 1)
        self._end = self._next + size
        self._process = os.getpid()


def new_claim_id(now: datetime) -> int:
    """A claim's id, chosen before the claim is written: 42 bits of milliseconds, then 21 random bits."""
    milliseconds = to_microseconds(now) // 1000
    return milliseconds << _CLAIM_RANDOM_BITS | secrets.randbits(_CLAIM_RANDOM_BITS)


def first_claim_id(instant: datetime) -> int:
    """The lowest id a claim made at or after this instant can have: a range of time is a range of ids."""
    return to_microseconds(instant) // 1000 << _CLAIM_RANDOM_BITS


def format_job_id(job_id: int) -> str:
    """The id as people and the API see it."""
    return "j_" + _encode(_check_job_id(job_id), _ID_WIDTH)


def format_job_ids(ids: range) -> Iterator[str]:
    """Consecutive ids as people see them, at a tenth of the cost of each by itself."""
    for start in range(ids.start & ~1023, ids.stop, 1024):
        prefix = "j_" + _encode(start >> 10, _ID_WIDTH - 2)
        first, last = max(ids.start, start), min(ids.stop, start + 1024)
        for ending in _PAIRS[first - start : last - start]:
            yield prefix + ending


def parse_job_id(text: str) -> int:
    """The id behind its canonical text; any other spelling is refused."""
    body = _body("job_id", text, "j_", _ID_WIDTH)
    return _check_job_id(_decode("job_id", body))


def format_run_id(key: RunKey) -> str:
    """The run's id: its key, readable back."""
    return (
        "r_"
        + _encode(_check_job_id(key.job_id), _ID_WIDTH)
        + _encode(_check_instant("scheduled_at", to_microseconds(key.scheduled_at)), _INSTANT_WIDTH)
        + _encode(_check_attempt(key.attempt), _ATTEMPT_WIDTH)
    )


def parse_run_id(text: str) -> RunKey:
    """The key behind a run's canonical id."""
    body = _body("run_id", text, "r_", _ID_WIDTH + _INSTANT_WIDTH + _ATTEMPT_WIDTH)
    job_id = _decode("run_id", body[:_ID_WIDTH])
    microseconds = _decode("run_id", body[_ID_WIDTH:-_ATTEMPT_WIDTH])
    attempt = _decode("run_id", body[-_ATTEMPT_WIDTH:])
    instant = from_microseconds(_check_instant("run_id", microseconds))
    return RunKey(_check_job_id(job_id), instant, _check_attempt(attempt))


def to_microseconds(instant: datetime) -> int:
    """Microseconds since 1970 in UTC, exactly; `timestamp()` would pass through a float and lose some."""
    if instant.tzinfo is None:
        raise InvalidInput("instant", "has no time zone")
    return (instant - _EPOCH) // _MICROSECOND


def from_microseconds(microseconds: int) -> datetime:
    """The instant, aware, in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


def _encode(value: int, width: int) -> str:
    characters = [""] * width
    for position in range(width - 1, -1, -1):
        characters[position] = _ALPHABET[value & 31]
        value >>= 5
    return "".join(characters)


def _decode(field: str, text: str) -> int:
    value = 0
    try:
        for character in text:
            value = value << 5 | _VALUE[character]
    except KeyError as error:
        raise InvalidInput(field, f"{error.args[0]!r} is not one of {_ALPHABET}") from None
    return value


def _body(field: str, text: str, prefix: str, width: int) -> str:
    if not text.startswith(prefix) or len(text) != len(prefix) + width:
        raise InvalidInput(field, f"{text!r} is not {prefix} and {width} characters")
    return text[len(prefix) :]


def _check_job_id(job_id: int) -> int:
    if not 1 <= job_id <= MAXIMUM_ID:
        raise InvalidInput("job_id", f"{job_id} is not in 1–2^63-1")
    return job_id


def _check_instant(field: str, microseconds: int) -> int:
    if not 0 <= microseconds <= MAXIMUM_MICROSECONDS:
        raise InvalidInput(field, "is not between the years 1970 and 9999")
    return microseconds


def _check_attempt(attempt: int) -> int:
    if not 1 <= attempt <= MAXIMUM_ATTEMPT:
        raise InvalidInput("attempt", f"{attempt} is not in 1–{MAXIMUM_ATTEMPT}")
    return attempt
