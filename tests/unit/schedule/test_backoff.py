"""How long a failed run waits: counted by hand."""

from __future__ import annotations

import re
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path

import pytest

from mainspring.schedule import retry_delay
from mainspring.schema.states import Backoff

INSTANT = 1_772_953_200_000_000
HOUR = 3600
PAGE = (Path(__file__).parents[3] / "docs" / "handlers.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        (Backoff.EXPONENTIAL, {0: 1, 1: 2, 2: 4, 10: 1024, 11: 2048, 12: HOUR, 13: HOUR, 65_535: HOUR}),
        (Backoff.LINEAR, {0: 10, 1: 20, 2: 30, 358: 3590, 359: HOUR, 360: HOUR, 65_535: HOUR}),
        (Backoff.FIXED, {0: 10, 1: 10, 65_535: 10}),
        (Backoff.NONE, {0: 0, 1: 0, 65_535: 0}),
    ],
)
def test_each_backoff_waits_its_time_and_up_to_a_fifth_more(backoff: Backoff, waits: dict[int, int]) -> None:
    for retries, seconds in waits.items():
        delay = retry_delay(backoff, retries, 1, INSTANT).total_seconds()
        assert seconds <= delay <= seconds * 1.2


def test_every_backoff_has_its_own_wait() -> None:
    waits = [retry_delay(backoff, 4, 1, INSTANT) for backoff in Backoff]
    assert len(set(waits)) == len(Backoff)


def test_the_same_failure_waits_equally_long_every_time() -> None:
    assert retry_delay(Backoff.FIXED, 3, 7, INSTANT) == retry_delay(Backoff.FIXED, 3, 7, INSTANT)


def test_what_failed_together_does_not_come_back_together() -> None:
    """By job, by occurrence and by retry; also of those who have reached the cap."""
    by_job = {retry_delay(Backoff.EXPONENTIAL, 20, job, INSTANT) for job in range(1, 1001)}
    by_instant = {retry_delay(Backoff.EXPONENTIAL, 20, 1, INSTANT + second) for second in range(1000)}
    by_retry = {retry_delay(Backoff.EXPONENTIAL, retries, 1, INSTANT) for retries in range(20, 1020)}
    assert len(by_job) > 990
    assert len(by_instant) > 990
    assert len(by_retry) > 990


def test_the_jitter_is_spread_evenly_over_the_fifth() -> None:
    tenths = [0] * 10
    for job in range(1, 10_001):
        over = (retry_delay(Backoff.FIXED, 0, job, INSTANT) - timedelta(seconds=10)).total_seconds()
        tenths[int(over / 2 * 10)] += 1
    assert all(900 <= count <= 1100 for count in tenths)


def test_the_vectors_on_the_page_are_true() -> None:
    row = r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| ([0-9.]+) s \|$"
    vectors = re.findall(row, PAGE, re.MULTILINE)
    assert {word for word, *_ in vectors} == set(Backoff)
    for word, retries, job_id, scheduled_at, seconds in vectors:
        delay = retry_delay(Backoff(word), int(retries), int(job_id), int(scheduled_at))
        assert f"{delay.total_seconds():.6f}" == seconds


def test_the_page_tells_how_to_compute_the_jitter() -> None:
    key = b"".join(number.to_bytes(8, "big") for number in (7, INSTANT, 2))
    digest = blake2b(key, digest_size=8, person=b"mainspringretry").digest()
    part = int.from_bytes(digest, "big") / 2**64
    expected = timedelta(seconds=4 + 4 * 0.2 * part)
    assert abs(retry_delay(Backoff.EXPONENTIAL, 2, 7, INSTANT) - expected) <= timedelta(microseconds=1)
