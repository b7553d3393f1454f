"""Errors of one kind have one fingerprint, and errors of two kinds have two."""

from __future__ import annotations

import re

import pytest

from mainspring.registry.letters import fingerprint

SAME = [
    ("no row 17", "no row 4711"),
    ("took 1.5 s", "took 12 s"),
    ("balance is -3", "balance is 1,700.25"),
    ("KeyError: 'anna'", "KeyError: 'it's bob'"),
    ('no user "a b"', 'no user ""'),
    ("can't read 'a'", "can't read 'b'"),
    ("no order 3f2b8c1e-abcd-4abc-8def-feedfacecafe", "no order 00000000-0000-4000-8000-000000000000"),
    ("<Session at 0x7f3a2c1b>", "<Session at 0x7f00deadbeef>"),
    ("job j_06jtwf0vcp0x3 is gone", "job j_0000000000001 is gone"),
    ("commit deadbeef is unknown", "commit 0123456789abcdef is unknown"),
    ("at 2026-11-18T10:00:00Z", "at 1999-01-01T23:59:59Z"),
    ("connect to 10.0.0.3:5432 refused", "connect to 192.168.17.4:80 refused"),
    ("file part17 is missing", "file part4 is missing"),
    ("two  lines\nof text", "two lines of\ttext"),
    ("bad value 'a", "bad value 'another one that never ends"),
]
DIFFERENT = [
    ("KeyError: 'a'", "ValueError: 'a'"),
    ("no row 17", "no column 17"),
    ("timeout", "refused"),
    ("S3Error: no", "DBError: no"),
    ("", "failed"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_differs_from_case_to_case_is_masked(one: str, other: str) -> None:
    assert fingerprint("h", one) == fingerprint("h", other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_another_kind_of_error_is_another_fingerprint(one: str, other: str) -> None:
    assert fingerprint("h", one) != fingerprint("h", other)


def test_another_handler_is_another_fingerprint() -> None:
    assert fingerprint("h", "timeout") != fingerprint("i", "timeout")
    assert fingerprint("h1", "timeout") != fingerprint("h2", "timeout")


def test_handler_and_error_do_not_run_into_each_other() -> None:
    assert fingerprint("ab", "c") != fingerprint("a", "bc")


def test_it_is_sixteen_digits_and_the_same_in_every_process() -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", fingerprint("", ""))
    assert fingerprint("send-report", "KeyError: 'x'") == "6a177440b26d2456"


def test_only_the_beginning_of_a_long_error_counts() -> None:
    begin = "the same " * 1000
    assert fingerprint("h", begin + "one") == fingerprint("h", begin + "other")


def test_any_text_has_one() -> None:
    for text in ("\0", "\ud800", "'\"`" * 700, "\N{SNOWMAN}", "9" * 100_000):
        assert fingerprint("h", text)
