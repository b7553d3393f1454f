"""Which of the promised attempts a short second may have lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mainspring.scheduler.duties.books import Expected, Page, Promised, balance, share_out

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
SECOND = int(NOON.timestamp())


def page(short: int, *, second: int = SECOND) -> Page:
    published_at = NOON + timedelta(seconds=second - SECOND)
    return Page(
        0, second, short, published=short, claimed=0, repairs=0, written_off=0, published_at=published_at
    )


def expected(job_id: int, *, too_late: bool = False, held: bool = False) -> Expected:
    return Expected(0, SECOND, job_id, SECOND * 1_000_000, "default", too_late=too_late, held=held)


def promise(job_id: int, *, held: bool = False, since: datetime = NOON) -> Promised:
    return Promised(expected(job_id, held=held), since)


def given(pages: list[Page], found: list[Expected], promised: list[Promised]) -> list[tuple[int, int]]:
    return [(each.second - SECOND, each.job_id) for each in share_out(pages, found, promised)]


def test_promises_go_to_what_lacks_more_than_was_found() -> None:
    assert given([page(2)], [expected(1)], [promise(2), promise(3)]) == [(0, 2)]


def test_what_would_be_given_up_does_not_hide_a_promise() -> None:
    found = [expected(1, too_late=True), expected(2, held=True)]
    assert given([page(2)], found, [promise(3), promise(4)]) == [(0, 3), (0, 4)]
    judged = balance(page(2), [*found, expected(3), expected(4)], ())
    assert [each.job_id for each in judged.repair] == [3, 4]
    assert (judged.written_off, judged.unexplained) == (0, 0)


def test_the_promise_of_a_deleted_job_does_not_take_the_place_of_another() -> None:
    assert given([page(1)], [], [promise(1, held=True), promise(2)]) == [(0, 1), (0, 2)]


def test_nothing_is_promised_to_a_second_before_the_promise() -> None:
    later = promise(1, since=NOON + timedelta(seconds=1))
    assert given([page(1)], [], [later]) == []
    assert given([page(1), page(1, second=SECOND + 1)], [], [later]) == [(1, 1)]


def test_what_is_given_up_explains_the_rest() -> None:
    judged = balance(page(3), [expected(1), expected(2, too_late=True), expected(3, held=True)], ())
    assert [each.job_id for each in judged.repair] == [1]
    assert [each.job_id for each in judged.too_late] == [2]
    assert (judged.written_off, judged.unexplained, judged.waits) == (2, 0, False)
