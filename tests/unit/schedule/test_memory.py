"""One evaluation serves every shard and member, and every machine reads the same tz database."""

from __future__ import annotations

import re
import zoneinfo
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from mainspring.schedule import (
    Cadence,
    DstPolicy,
    Gap,
    Repeat,
    cron,
    load_zone,
    parse_instant,
    tzdata_version,
)

BASE = parse_instant("2026-11-18T12:00:00Z")


@pytest.fixture(autouse=True)
def _forget() -> None:
    cron._next.cache_clear()


def test_the_same_question_is_evaluated_once() -> None:
    for _ in range(64):
        Cadence.parse("30 2 * * *", "Asia/Tokyo").next_after(BASE + timedelta(milliseconds=1))
    assert cron._next.cache_info().misses == 1
    assert cron._next.cache_info().hits == 63


def test_second_zone_and_policy_tell_questions_apart() -> None:
    Cadence.parse("30 2 * * *", "Asia/Tokyo").next_after(BASE)
    Cadence.parse("30 2 * * *", "Asia/Tokyo").next_after(BASE + timedelta(seconds=1))
    Cadence.parse("30 2 * * *", "Asia/Seoul").next_after(BASE)
    Cadence.parse("30 2 * * *", "Asia/Tokyo", DstPolicy(Gap.SKIP)).next_after(BASE)
    assert cron._next.cache_info().misses == 4


def test_what_follows_real_time_is_shared_whatever_its_policy() -> None:
    for repeat in Repeat:
        Cadence.parse("30 * * * *", "Asia/Tokyo", DstPolicy(repeat=repeat)).next_after(BASE)
    assert cron._next.cache_info().misses == 1


def test_the_memory_is_bounded() -> None:
    assert cron._next.cache_info().maxsize == cron.MEMORY
    assert cron.parse_cron.cache_info().maxsize == cron.MEMORY


def test_threads_get_the_same_answers_as_one() -> None:
    cadence = Cadence.parse("*/7 1-3 * * *", "America/New_York")
    bases = [parse_instant("2026-11-01T04:00:00Z") + timedelta(seconds=37 * step) for step in range(300)]
    alone = [cadence.next_after(base) for base in bases]
    cron._next.cache_clear()
    with ThreadPoolExecutor(max_workers=8) as threads:
        rounds = [threads.map(cadence.next_after, bases) for _ in range(4)]
        assert all(list(answers) == alone for answers in rounds)


def test_the_tz_database_is_the_package_s_and_says_its_version() -> None:
    assert re.fullmatch(r"20\d\d[a-z]", tzdata_version())
    # Taken from the package's file, so the machine's search path is neither asked nor changed.
    before = zoneinfo.TZPATH
    assert load_zone("Africa/Cairo") is load_zone("Africa/Cairo")
    assert load_zone("Africa/Cairo") is not zoneinfo.ZoneInfo("Africa/Cairo")
    assert before == zoneinfo.TZPATH
