"""What a handler can say besides returning, and what the worker makes of however it ended.

    it returned                        → succeeded, also when it was late or had been asked to stop
    raise Retry(after=…, reason=…)     → failed; the next attempt comes after that time, or by the backoff
    raise Cancel(reason=…)             → cancelled; no attempt follows
    raise NotRetryable(…)              → dead at once: every further attempt would fail the same way
    any other exception                → failed; the next attempt comes by the job's backoff
    any exception, its time being up   → failed, and the error is that
    any exception, once cancelled      → cancelled; being asked to stop is no failure
    EffectExists, also in a group      → succeeded: an earlier attempt has committed the effect

A failure with no retry left is `dead`. `Retry` spends one of the job's retries as any failure does: a
handler that always asks for another attempt must end some day.

`conclude` is this table, for the worker and for the harness in `mainspring.worker.testing` alike.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from mainspring.schedule import retry_delay
from mainspring.schema.errors import InvalidInput
from mainspring.schema.messages import Message
from mainspring.schema.states import MAXIMUM_ATTEMPT, Outcome

LONGEST_RETRY = timedelta(days=7)
"""Well within the time for which runs and effects are kept."""
LONGEST_ERROR = 8192
"""In bytes."""

_SHORTEST = 1e-6  # what a timedelta can hold
_CUT = "…"


class Retry(Exception):
    """Raised by a handler that wants another attempt: after a time of its choice, or by the job's backoff."""

    def __init__(self, after: timedelta | float | None = None, reason: str = "") -> None:
        super().__init__(reason or "the handler asked for another attempt")
        self.after = None if after is None else check_duration("after", after, LONGEST_RETRY, zero=True)
        self.reason = reason


class Cancel(Exception):
    """Raised by a handler that gives up for good: no attempt follows, and nobody is alarmed."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler cancelled its run")
        self.reason = reason


class NotRetryable(Exception):
    """Raised by a handler whose every further attempt would fail the same way: a dead letter at once."""


class EffectExists(BaseException):
    """An earlier attempt at this occurrence has committed its transaction: there is nothing left to do.

    It leaves a handler through `context.transaction()` and ends the run as a success. Not an Exception, just
    as asyncio's CancelledError is none: a handler's own `except Exception` must not turn it into a failure.
    """


class Conclusion(NamedTuple):
    """How a run ended, and what follows."""

    outcome: Outcome
    retry_in: timedelta | None
    """The wait before the next attempt; None if there is none."""
    error: str | None
    """In one text; None for a success."""


_SUCCEEDED = Conclusion(Outcome.SUCCEEDED, None, None)


def conclude(message: Message, error: BaseException | None, *, cancelled: str | None = None) -> Conclusion:
    """What a run's end means.

    `error` is what left the handler, or a TimeoutError in its place once the run's time was up; `cancelled`
    is the reason of a request to cancel the run, if there was one.
    """
    if error is None or says_effect_exists(error):
        return _SUCCEEDED
    if isinstance(error, Cancel):
        return Conclusion(Outcome.CANCELLED, None, storable(str(error), LONGEST_ERROR))
    if cancelled is not None:
        return Conclusion(Outcome.CANCELLED, None, storable(cancelled, LONGEST_ERROR))
    no_retry_left = message.retries >= message.job.max_retries or message.attempt >= MAXIMUM_ATTEMPT
    if no_retry_left or isinstance(error, NotRetryable):
        return Conclusion(Outcome.DEAD, None, describe_error(error))
    return Conclusion(Outcome.FAILED, _wait(message, error), describe_error(error))


def says_effect_exists(error: BaseException) -> bool:
    """Whether that and nothing else has left the handler: from a task of its own it comes in a group."""
    if isinstance(error, BaseExceptionGroup):
        return all(says_effect_exists(each) for each in error.exceptions)
    return isinstance(error, EffectExists)


def describe_error(error: BaseException) -> str:
    """Class and text, as Postgres can store them."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  (the user's __str__; its defect must not hide the failure it belongs to)
        text = ""
    name = type(error).__name__
    return storable(f"{name}: {text}" if text else name, LONGEST_ERROR)


def storable(text: str, most: int) -> str:
    """The text as Postgres can store it in at most this many bytes of UTF-8, cut between characters.

    A NUL or half a surrogate pair in one text would make Postgres refuse the whole batch it is written with.
    """
    if len(text) > most:
        text = text[: most + 1]  # a character has a byte or more: what is cut here would be cut below
    encoded = text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace")
    if len(encoded) <= most:
        return encoded.decode()
    return encoded[: most - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def check_duration(
    field: str, value: timedelta | float, longest: timedelta, *, zero: bool = False
) -> timedelta:
    """A time given as timedelta or seconds; raises InvalidInput naming the field and the rule."""
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise InvalidInput(
            field, f"a value of type {type(value).__name__} is neither a timedelta nor seconds"
        )
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    low = 0 if zero else _SHORTEST
    if not low <= seconds <= longest.total_seconds():  # NaN is not either
        rule = "from 0" if zero else "more than 0 and"
        raise InvalidInput(
            field, f"{str(seconds)[:40]} s is not {rule} up to {longest.total_seconds():.0f} s"
        )
    return value if isinstance(value, timedelta) else timedelta(seconds=value)


def _wait(message: Message, error: BaseException) -> timedelta:
    if isinstance(error, Retry) and error.after is not None:
        return error.after
    job = message.job
    return retry_delay(job.backoff, message.retries, job.job_id, message.scheduled_at)
