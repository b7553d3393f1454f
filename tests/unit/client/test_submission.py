"""Lines cut into bodies, and the answers put together again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mainspring.client import NameTaken, SubmissionBroken, UnreadableAnswer
from mainspring.client.core import Answer, Call
from mainspring.client.models import Answered, Progress
from mainspring.client.submission import BODY_BYTES, BODY_LINES, Batch, Submission, batch, read_batch
from mainspring.schema.errors import InvalidInput

REFUSED = {"type": "urn:mainspring:name-taken", "status": 409, "detail": "taken", "names": ["a"]}


def ndjson(*lines: dict[str, Any]) -> Answer:
    return Answer(200, "".join(json.dumps(line) + "\n" for line in lines).encode())


def submit(jobs: Iterator[Any] | list[Any], **options: Any) -> tuple[Submission, list[Call[Batch]]]:
    given = {"atomic": False, "reason": None, "progress": None, "on_answer": None} | options
    submission = Submission(**given)
    calls = []
    for job in jobs:
        if (call := submission.add(job)) is not None:
            calls.append(call)
            settle(submission, call)
    if (call := submission.rest()) is not None:
        calls.append(call)
        settle(submission, call)
    return submission, calls


def settle(submission: Submission, call: Call[Batch]) -> None:
    """As an API that takes every line."""
    assert call.request.content is not None
    lines = call.request.content.split(b"\n")
    answers = [Answered(line=number, job_id="j", refusal=None) for number in range(1, len(lines) + 1)]
    submission.settle(Batch(answers, None, ""))


def test_bodies_hold_so_many_lines_and_the_rest_comes_last() -> None:
    submission, calls = submit({"name": str(number)} for number in range(BODY_LINES * 2 + 7))
    sizes = [len((call.request.content or b"").split(b"\n")) for call in calls]
    assert sizes == [BODY_LINES, BODY_LINES, 7]
    assert submission.result().created == BODY_LINES * 2 + 7


def test_a_body_is_cut_when_it_is_large() -> None:
    line = json.dumps({"payload": "x" * (BODY_BYTES // 3)})
    _, calls = submit([line] * 7)
    assert [len((call.request.content or b"").split(b"\n")) for call in calls] == [3, 3, 1]


def test_all_or_nothing_is_one_body() -> None:
    _, calls = submit([{"name": "a"}] * (BODY_LINES + 1), atomic=True)
    assert [call.request.query for call in calls] == [(("mode", "atomic"),)]


def test_each_body_has_a_key_of_its_own() -> None:
    _, calls = submit([{"name": "a"}] * (BODY_LINES + 1))
    assert len({call.request.headers["Idempotency-Key"] for call in calls}) == 2


def test_a_line_may_be_a_mapping_a_text_or_bytes_but_not_two_lines() -> None:
    _, calls = submit([{"name": "ä"}, '{"name":"b"}\n', b'{"name":"c"}\r\n', ""])
    assert calls[0].request.content == '{"name":"ä"}\n{"name":"b"}\n{"name":"c"}\n'.encode()
    with pytest.raises(InvalidInput, match="more than one line"):
        submit(["{}\n{}"])


def test_answers_carry_the_line_of_the_whole_and_progress_grows() -> None:
    progress: list[Progress] = []
    answers: list[Answered] = []
    submit([{"name": "a"}] * (BODY_LINES + 2), progress=progress.append, on_answer=answers.append)
    assert [answer.line for answer in answers] == list(range(1, BODY_LINES + 3))
    assert [(each.sent, each.created) for each in progress] == [(BODY_LINES,) * 2, (BODY_LINES + 2,) * 2]


def test_a_refused_line_is_an_error_of_its_meaning() -> None:
    found = read_batch(
        ndjson(
            {"line": 1, "job_id": "j_1"},
            {"line": 2, "problem": REFUSED},
            {"summary": {"created": 1, "refused": 1}},
        )
    )
    assert found.next_line is None
    assert [answer.job_id for answer in found.answers] == ["j_1", None]
    assert isinstance(found.answers[1].refusal, NameTaken)
    assert found.answers[1].refusal.names == ("a",)


def test_an_answer_without_its_end_or_with_a_problem_in_it_is_not_whole() -> None:
    call = batch(b"{}", atomic=False, reason=None)
    down = {"summary": {"created": 0, "refused": 0, "problem": {"detail": "away"}, "next_line": 1}}
    assert call.is_whole(ndjson({"summary": {"created": 0, "refused": 0}}))
    assert not call.is_whole(ndjson({"line": 1, "job_id": "j_1"}))
    assert not call.is_whole(ndjson(down))


def test_a_batch_that_stays_broken_says_where_and_what_is_there() -> None:
    submission = Submission(atomic=False, reason=None, progress=None, on_answer=None)
    for _ in range(BODY_LINES):
        call = submission.add({"name": "a"})
    assert call is not None
    settle(submission, call)
    submission.add({"name": "b"})
    submission.rest()
    down = {"summary": {"created": 0, "refused": 0, "problem": {"detail": "away"}, "next_line": 1}}
    with pytest.raises(SubmissionBroken, match=r"line 5,001: away") as caught:
        submission.settle(read_batch(ndjson(down)))
    assert caught.value.submitted is not None
    assert caught.value.submitted.created == BODY_LINES


def test_an_answer_that_is_something_else_cannot_be_read() -> None:
    for content in (b"<html>", b"[]"):
        with pytest.raises(UnreadableAnswer):
            read_batch(Answer(200, content))
