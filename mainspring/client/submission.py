"""Many jobs in few requests: lines cut into bodies, and the answers put together again.

    jobs ─▶ lines ─▶ bodies of BODY_LINES ─▶ one POST each, with a key of its own ─▶ an answer for each line

The client holds one body at a time, so the iterable may be as long as it likes, and a body that met a
broken connection is sent again as it was: with the same key, so what had been created is found and not made
again. A body is one chunk of the API's, written in one transaction.

A blank line counts and means nothing, so that answers carry the line numbers of a file.

All or nothing is one body, because it is one transaction; the API takes at most 100,000 lines of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import uuid4

from mainspring.client.core import Answer, Call, Request, check_reason, encode, path
from mainspring.client.errors import SubmissionBroken, UnreadableAnswer, refusal
from mainspring.client.models import Answered, Progress, Submitted
from mainspring.schema.errors import InvalidInput

BODY_LINES = 5_000
BODY_BYTES = 4_000_000
MOST_REFUSALS = 1_000
"""Refusals that are kept for the result; `on_answer` is told all of them."""

JobLine = Mapping[str, Any] | str | bytes
OnProgress = Callable[[Progress], None]
OnAnswer = Callable[[Answered], None]


class Batch(NamedTuple):
    """What the API answered to a body."""

    answers: list[Answered]
    next_line: int | None
    detail: str


class Submission:
    """The state of one submission: lines not yet sent, and what became of those that were."""

    def __init__(
        self, *, atomic: bool, reason: str | None, progress: OnProgress | None, on_answer: OnAnswer | None
    ) -> None:
        self._atomic = atomic
        self._reason = None if reason is None else check_reason(reason)
        self._progress = progress
        self._on_answer = on_answer
        self._lines: list[bytes] = []
        self._bytes = 0
        self._taken = self._sent = self._created = self._refused = 0
        self._refusals: list[Answered] = []

    def add(self, job: JobLine) -> Call[Batch] | None:
        """Take one more job; a call when that fills a body."""
        line = _line(job)
        self._lines.append(line)
        self._taken += 1
        self._bytes += len(line)
        full = len(self._lines) >= BODY_LINES or self._bytes >= BODY_BYTES
        return self.rest() if full and not self._atomic else None

    def rest(self) -> Call[Batch] | None:
        """A call with the lines that are left, if any are."""
        if not self._lines:
            return None
        body, self._lines, self._bytes = b"\n".join(self._lines), [], 0
        return batch(body, atomic=self._atomic, reason=self._reason)

    def settle(self, answered: Batch) -> None:
        """Note what became of the body that was sent last."""
        before, self._sent = self._sent, self._taken
        for answer in answered.answers:
            self._note(Answered(line=before + answer.line, job_id=answer.job_id, refusal=answer.refusal))
        if self._progress is not None:
            self._progress(Progress(sent=self._sent, created=self._created, refused=self._refused))
        if answered.next_line is not None:
            raise SubmissionBroken(before + answered.next_line, answered.detail, self.result())

    def result(self) -> Submitted:
        return Submitted(created=self._created, refused=self._refused, refusals=tuple(self._refusals))

    def _note(self, answer: Answered) -> None:
        if answer.refusal is None:
            self._created += 1
        else:
            self._refused += 1
            if len(self._refusals) < MOST_REFUSALS:
                self._refusals.append(answer)
        if self._on_answer is not None:
            self._on_answer(answer)


def batch(body: bytes, *, atomic: bool, reason: str | None) -> Call[Batch]:
    """One body of lines; an answer that broke off is asked for again, with the same key."""
    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": uuid4().hex}
    if reason is not None:
        headers["X-Reason"] = reason
    request = Request(
        method="POST",
        path=path("jobs:batch"),
        query=(("mode", "atomic" if atomic else "partial"),),
        headers=headers,
        content=body,
    )
    return Call(request, read_batch, lambda answer: read_batch(answer).next_line is None)


def read_batch(answer: Answer) -> Batch:
    """The answers of a batch; one without its summary broke off."""
    answers: list[Answered] = []
    for text in answer.content.splitlines():
        found = _object(text)
        if "summary" in found:
            return _closed(answers, found["summary"])
        answers.append(_answered(found))
    return Batch(answers, answers[-1].line + 1 if answers else 1, "the answer broke off")


def _closed(answers: list[Answered], summary: Mapping[str, Any]) -> Batch:
    problem = summary.get("problem")
    if problem is None:
        return Batch(answers, None, "")
    return Batch(answers, int(summary.get("next_line", 1)), str(problem.get("detail", "")))


def _answered(found: Mapping[str, Any]) -> Answered:
    problem = found.get("problem")
    error = None if problem is None else refusal(int(problem.get("status", 0)), problem)
    return Answered(line=int(found.get("line", 0)), job_id=found.get("job_id"), refusal=error)


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UnreadableAnswer("a line of a batch is not JSON") from error
    if not isinstance(found, dict):
        raise UnreadableAnswer("a line of a batch is not an object")
    return found


def _line(job: JobLine) -> bytes:
    line = job.encode() if isinstance(job, str) else job if isinstance(job, bytes) else encode(job)
    line = line.strip()
    if b"\n" in line:
        raise InvalidInput("job", "is more than one line")
    return line
