"""The picture as lines, and the terminal that shows them: plain ANSI, no more than cursor up and clear.

Where nobody looks (a pipe, a file, TERM=dumb) a line every two seconds says the same.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TextIO

from mainspring.demo.watching import Picture, Row, percentile

_STYLES = {"": "", "bold": "\x1b[1m", "dim": "\x1b[2m", "bad": "\x1b[31m", "good": "\x1b[32m"}
_RESET = "\x1b[0m"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
LINE_EVERY_SECONDS = 2
_FEWEST_EVENTS, _MOST_EVENTS = 2, 8


class Line(NamedTuple):
    """Text in one style: cut to the width before it is coloured."""

    text: str = ""
    style: str = ""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """How far the demo is."""

    elapsed: float
    seconds: int | None

    def __str__(self) -> str:
        whole = "" if self.seconds is None else f" of {_minutes(self.seconds)}"
        return f"{_minutes(self.elapsed)}{whole}"


def frame(
    clock: Clock, picture: Picture, events: Sequence[str], tries: Sequence[str], height: int
) -> list[Line]:
    """The whole picture, with as many of the newest events as there is room for."""
    head = _head(clock, picture)
    room = height - len(head) - len(tries) - 2
    newest = events[-max(_FEWEST_EVENTS, min(_MOST_EVENTS, room)) :]
    return [
        *head,
        *(Line(event, "good") for event in newest),
        *([Line()] if newest else []),
        *(Line(each, "dim") for each in tries),
    ]


def _head(clock: Clock, picture: Picture) -> list[Line]:
    late = "" if picture.behind < 2 else f"   the furthest behind by {picture.behind:.1f} s"
    return [
        Line(f"Mainspring    {clock}   Ctrl-C ends it with a summary", "bold"),
        Line(
            f"last minute   fired {picture.fired}   executed {picture.executed}"
            f"          now   running {picture.running}   dead letters {picture.letters}"
        ),
        Line(f"lateness      {_lateness(picture)}, from due to started, in the last 10 s"),
        Line(f"leaders       {_leaders(picture)}{late}", "bad" if late else ""),
        Line(),
        Line(f"{'job':<16} {'when':<21} {'ok':>5} {'else':>5}  last run, late by", "dim"),
        *(Line(_row(row)) for row in picture.rows),
        Line(),
    ]


def one_line(clock: Clock, picture: Picture) -> str:
    return (
        f"{_minutes(clock.elapsed)}  last minute: fired {picture.fired}, executed {picture.executed};"
        f" lateness {_lateness(picture)}; {_leaders(picture)};"
        f" running {picture.running}; dead letters {picture.letters}"
    )


def _lateness(picture: Picture) -> str:
    return (
        f"p50 {seconds(percentile(picture.lateness, 0.5))} p99 {seconds(percentile(picture.lateness, 0.99))}"
    )


def _leaders(picture: Picture) -> str:
    return ", ".join(f"{name} leads {count}" for name, count in picture.leaders.items())


def _row(row: Row) -> str:
    last = row.last
    if last is None:
        shown = "-"
    else:
        late = "" if row.late is None else f", {seconds(row.late)}"
        again = f", attempt {last.attempt}" if last.attempt > 1 else ""
        shown = f"{last.scheduled_at:%H:%M:%S} {last.status}{again}{late}"
    return f"{row.name:<16} {row.when:<21} {row.succeeded:>5} {row.others:>5}  {shown}"


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _minutes(value: float) -> str:
    return f"{int(value) // 60:02}:{int(value) % 60:02}"


class Screen:
    """Shows pictures and events on a stream, as it can."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._coloured = self.live and not os.environ.get("NO_COLOR")
        self._drawn = 0
        self._events: list[str] = []
        self._said_at = float("-inf")

    def show(self, clock: Clock, picture: Picture, tries: Sequence[str]) -> None:
        if self.live:
            height = shutil.get_terminal_size().lines
            self._draw(frame(clock, picture, self._events, tries, height))
        elif clock.elapsed - self._said_at >= LINE_EVERY_SECONDS - 0.5:
            self._said_at = clock.elapsed
            self.say(one_line(clock, picture))

    def event(self, clock: Clock, text: str) -> None:
        """Something happened; in a live view it shows at the next drawing."""
        line = f"{_minutes(clock.elapsed)}  {text}"
        self._events.append(line)
        if not self.live:
            self.say(line)

    def say(self, text: str = "") -> None:
        """A line that stays."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """Leave the last picture where it is and give the cursor back."""
        if self._drawn:
            self._stream.write(_SHOW)
            self._stream.flush()
            self._drawn = 0

    def _draw(self, lines: Sequence[Line]) -> None:
        width, height = shutil.get_terminal_size()
        up = f"\x1b[{self._drawn}F" if self._drawn else _HIDE
        shown = lines[: height - 1]
        body = "".join(f"\x1b[2K{self._styled(line, width)}\n" for line in shown)
        self._stream.write(f"{up}{body}\x1b[J")
        self._stream.flush()
        self._drawn = len(shown)

    def _styled(self, line: Line, width: int) -> str:
        text = line.text if len(line.text) < width else line.text[: width - 1]
        style = _STYLES[line.style] if self._coloured else ""
        return f"{style}{text}{_RESET}" if style else text
