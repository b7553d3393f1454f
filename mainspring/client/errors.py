"""What a client raises: the API's refusals, and what keeps it from answering at all.

    MainspringError
    ├── ApiError               the API answered and refused: .status .kind .field .rule .detail
    │   ├── InvalidInput       400, 413, 415, 422: `field` broke `rule`
    │   ├── Unauthenticated    401: no key, or none that is valid
    │   ├── NotAllowed         403: by role or by handler
    │   ├── NotFound           404
    │   ├── Conflict           409, 412: what exists stands against it
    │   │   ├── NameTaken          .names
    │   │   ├── VersionMismatch    .actual is the newest version
    │   │   ├── WrongStatus        what is in this status cannot do that
    │   │   │   ├── RunEnded
    │   │   │   └── RedriveRefused
    │   │   └── Contended          others kept changing the same thing
    │   ├── QuotaExceeded      429: waiting does not help
    │   ├── RateLimited        429: .retry_after seconds
    │   └── Unavailable        5xx: the API cannot do its work now
    ├── NoAnswer               nobody answered: .address .reason .maybe_applied
    ├── UnreadableAnswer       what answered is not this API, or a newer one
    ├── SubmissionBroken       a batch ended early: .next_line .submitted
    └── StillGoing             a run had not ended in time: .run_id .run; a TimeoutError too

Where the registry has an error of the same meaning, ours is one of its kind: whoever catches
`mainspring.schema.errors.NotFound` catches this one too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mainspring.schema import errors
from mainspring.schema.errors import MainspringError

if TYPE_CHECKING:
    from mainspring.client.models import Run, Submitted

_URN = "urn:mainspring:"


class ApiError(MainspringError):
    """The API answered, and refused."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> None:
        detail = str(problem.get("detail") or problem.get("title") or f"the API answered {status}")
        Exception.__init__(self, detail)
        self.status = status
        self.kind = str(problem.get("type", "")).removeprefix(_URN)
        self.detail = detail
        self.field = str(problem.get("field", ""))
        self.rule = str(problem.get("rule", ""))
        self.retry_after = retry_after
        self.problem = problem


class InvalidInput(ApiError, errors.InvalidInput):
    """A value breaks a rule; nothing has been changed."""


class Unauthenticated(ApiError):
    """No key, or none that is valid."""


class NotAllowed(ApiError, errors.NotAllowed):
    """The key's role or handlers do not allow it."""


class NotFound(ApiError, errors.NotFound):
    """The tenant has no such thing."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> None:
        super().__init__(status, problem, retry_after)
        self.what, self.key = self.detail, ""


class Conflict(ApiError, errors.Conflict):
    """What exists stands against the change; nothing has been changed."""


class NameTaken(Conflict):
    """Another job has this name."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.problem.get("names", ()))


class VersionMismatch(Conflict):
    """The job has been changed since the version that was given."""

    @property
    def actual(self) -> int | None:
        """The newest version."""
        return self.problem.get("version")


class WrongStatus(Conflict):
    """What is in this status cannot do that."""


class RunEnded(WrongStatus):
    """A run that has ended cannot be cancelled."""


class RedriveRefused(WrongStatus):
    """The dead letter cannot be redriven, or not now."""


class Contended(Conflict):
    """Others kept changing the same thing; nothing has been changed."""


class QuotaExceeded(ApiError):
    """The tenant has as many jobs as it may have."""


class RateLimited(ApiError):
    """The tenant made more requests than it may."""


class Unavailable(ApiError):
    """The API cannot do its work now; whether a change has happened is not known."""


class NoAnswer(MainspringError):
    """Nobody answered; `maybe_applied`: the request was sent, so what it asked for may have happened."""

    def __init__(self, address: str, reason: str, *, maybe_applied: bool) -> None:
        happened = "; what was asked for may have happened" if maybe_applied else ""
        super().__init__(f"no answer from the API at {address}: {reason}{happened}")
        self.address = address
        self.reason = reason
        self.maybe_applied = maybe_applied


class UnreadableAnswer(MainspringError):
    """Something answered that is not this API, or a version of it with another shape."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the answer cannot be read: {reason}")
        self.reason = reason


class SubmissionBroken(MainspringError):
    """A batch ended before its last line; `submitted` is what is known to be there."""

    def __init__(self, next_line: int, detail: str, submitted: Submitted | None = None) -> None:
        super().__init__(f"the batch ended at line {next_line:,}: {detail}")
        self.next_line = next_line
        self.detail = detail
        self.submitted = submitted


class StillGoing(MainspringError, TimeoutError):
    """The run had not ended in time; `run` is how it was seen last, None if it had not begun."""

    def __init__(self, run_id: str, run: Run | None, seconds: float) -> None:
        state = "had not been taken by a worker" if run is None else f"was {run.status}"
        super().__init__(f"the run {run_id} {state} after {seconds:g} s")
        self.run_id = run_id
        self.run = run


_BY_KIND: Mapping[str, type[ApiError]] = {
    "name-taken": NameTaken,
    "version-mismatch": VersionMismatch,
    "wrong-status": WrongStatus,
    "run-ended": RunEnded,
    "redrive-refused": RedriveRefused,
    "contended": Contended,
    "quota-exceeded": QuotaExceeded,
    "rate-limited": RateLimited,
}
_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: InvalidInput,
    401: Unauthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    412: VersionMismatch,
    413: InvalidInput,
    415: InvalidInput,
    422: InvalidInput,
    429: RateLimited,
}


def refusal(status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> ApiError:
    """The error behind a problem: by its kind, and by its status where the kind is not known."""
    kind = str(problem.get("type", "")).removeprefix(_URN)
    default = Unavailable if status >= 500 else ApiError
    return _BY_KIND.get(kind, _BY_STATUS.get(status, default))(status, problem, retry_after)
