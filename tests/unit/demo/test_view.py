"""What the demo shows, without a terminal."""

from __future__ import annotations

import io

import pytest

from mainspring.demo.samples import samples
from mainspring.demo.stage import tries
from mainspring.demo.view import Clock, Screen, frame, one_line
from mainspring.demo.watching import Picture, Row, percentile
from tests.unit.demo.test_judging import BEGIN, SAMPLES, run

PICTURE = Picture(
    fired=97,
    executed=96,
    lateness=[0.01, 0.02, 0.4],
    leaders={"scheduler-1": 32, "scheduler-2": 32},
    behind=0.5,
    running=1,
    letters=2,
    rows=[
        Row(name=sample.name, when=sample.when, succeeded=3, others=0, last=run(sample, BEGIN), late=0.08)
        for sample in SAMPLES
    ],
)
CLOCK = Clock(elapsed=17.4, seconds=30)
EVENTS = ["00:15  SIGKILL to scheduler-2, which led 32 shards"]
TRIES = tries("http://127.0.0.1:8080")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_frame_fits_a_terminal_of_80_by_24_with_its_curl_lines_whole() -> None:
    lines = frame(CLOCK, PICTURE, EVENTS * 20, TRIES, 24)
    assert len(lines) == 23
    assert len(frame(CLOCK, PICTURE, EVENTS * 20, TRIES, 50)) == 27
    assert max(len(line.text) for line in lines) < 80
    assert [line.text for line in lines[-len(TRIES) :]] == list(TRIES)


def test_where_nobody_looks_a_line_says_the_same_every_two_seconds() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    for elapsed in (0.1, 1.1, 2.1, 3.1):
        screen.show(Clock(elapsed=elapsed, seconds=None), PICTURE, TRIES)
    assert stream.getvalue().splitlines() == [
        one_line(Clock(elapsed=elapsed, seconds=None), PICTURE) for elapsed in (0.1, 2.1)
    ]
    assert "\x1b" not in stream.getvalue()
    assert "fired 97, executed 96" in stream.getvalue()


def test_a_terminal_is_drawn_over_and_gets_its_cursor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("LINES", "10")
    stream = Terminal()
    screen = Screen(stream)
    screen.show(CLOCK, PICTURE, TRIES)
    screen.show(CLOCK, PICTURE, TRIES)
    screen.close()
    first, second = stream.getvalue().split("\x1b[9F")
    assert first.count("\n") == second.count("\n") == 9
    assert stream.getvalue().endswith("\x1b[?25h")
    assert "\x1b[1m" not in stream.getvalue()


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile([], 0.5) is None
    assert percentile([1.0], 0.99) == 1.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.99) == 4.0


def test_every_sample_says_when_it_is_due() -> None:
    assert [sample.when for sample in samples(BEGIN)] == [
        *("every 1s", "every 2s", "after every-2-seconds", "* * * * *", "once", "every 10s", "once")
    ]
