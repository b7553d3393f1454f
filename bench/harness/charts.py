"""Pictures as SVG text: lines and bars over two axes, no more than the reports need.

Colours are those of Okabe and Ito, which people who see few colours can tell apart; each series is also named
at the side, in the order in which they are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 860, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 168, 40, 52
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#a0760a")
_MOST_POINTS = 1500

Point = tuple[float, float]
Show = Callable[[float], str]


def plain(value: float) -> str:
    """A number on an axis: no more digits than it needs."""
    if abs(value) >= 10_000:
        return f"{value / 1_000_000:g} M" if abs(value) >= 1_000_000 else f"{value / 1000:g} k"
    return f"{round(value, 6):g}"


def nines(value: float) -> str:
    """A place on a percentile axis: 0 is the fastest, 1 is p90, 2 is p99."""
    return "min" if value <= 0 else f"p{100 * (1 - 10**-value):.6g}"


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one set of bars."""

    name: str
    points: Sequence[Point]
    bars: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture; `marks` are upright lines with a word each, such as a kill."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    marks: Sequence[tuple[float, str]] = ()
    show_x: Show = plain
    logarithmic: bool = False
    whole_x: bool = field(default=False)

    def svg(self) -> str:
        """The picture; one without a point says so."""
        drawn = [Series(each.name, _thin(each.points), each.bars) for each in self.series if each.points]
        body = (
            self._axes(drawn) if drawn else [_text(WIDTH / 2, HEIGHT / 2, "nothing was measured", "middle")]
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(self.title)}" font-family="system-ui, sans-serif" font-size="12">'
        )
        background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
        style = 'font-size="14" font-weight="600" fill="#222"'
        title = f'<text x="{_LEFT}" y="20" {style}>{escape(self.title)}</text>'
        return "\n".join([head, background, title, *body, "</svg>"])

    def _axes(self, drawn: Sequence[Series]) -> list[str]:
        points = [point for each in drawn for point in each.points]
        across = [x for x, _ in points] + [x for x, _ in self.marks]
        left, right = min(0.0, *across), max(across)
        right = right if right > left else left + 1
        top = max(max(y for _, y in points), 1e-9)
        bottom = min((y for _, y in points if y > 0), default=top / 10) if self.logarithmic else 0.0
        x = _scale(left, right, _LEFT, WIDTH - _RIGHT)
        if self.logarithmic:
            low, high = math.floor(math.log10(bottom)), math.ceil(math.log10(top))
            high = max(high, low + 1)
            logs = _scale(low, high, HEIGHT - _BOTTOM, _TOP)
            rows = [10.0**power for power in range(low, high + 1)]
            y: Callable[[float], float] = lambda value: logs(math.log10(max(value, 10.0**low)))  # noqa: E731
        else:
            rows = _ticks(0, top)
            y = _scale(0, max(top, rows[-1]), HEIGHT - _BOTTOM, _TOP)
        columns = range(math.ceil(left), math.floor(right) + 1) if self.whole_x else _ticks(left, right)
        return [
            *(_row(y(value), plain(value)) for value in rows),
            *(_column(x(value), self.show_x(value)) for value in columns if left <= value <= right),
            _text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 10, self.x_label, "middle"),
            f'<text transform="translate(16 {(HEIGHT - _BOTTOM + _TOP) / 2}) rotate(-90)" '
            f'text-anchor="middle" fill="#444">{escape(self.y_label)}</text>',
            *(part for number, each in enumerate(drawn) for part in _draw(each, number, x, y)),
            *(part for at, word in self.marks for part in _mark(x(at), word)),
        ]


def _draw(
    series: Series, number: int, x: Callable[[float], float], y: Callable[[float], float]
) -> Iterable[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    if series.bars:
        base = HEIGHT - _BOTTOM
        width = max(1.0, 0.8 * (WIDTH - _LEFT - _RIGHT) / max(len(series.points), 12))
        for at, value in series.points:
            top = y(value)
            yield (
                f'<rect x="{x(at) - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" '
                f'height="{max(0.0, base - top):.1f}" fill="{colour}"/>'
            )
    else:
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in series.points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        if len(series.points) == 1:
            at, value = series.points[0]
            yield f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>'
    line = _TOP + 8 + 18 * number
    yield f'<rect x="{WIDTH - _RIGHT + 14}" y="{line - 9}" width="11" height="11" fill="{colour}"/>'
    yield _text(WIDTH - _RIGHT + 31, line, series.name)


def _mark(at: float, word: str) -> Iterable[str]:
    yield (
        f'<line x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{HEIGHT - _BOTTOM}" '
        'stroke="#b00020" stroke-dasharray="4 3"/>'
    )
    yield _text(at, _TOP - 5, word, "middle", "#b00020")


def _row(at: float, word: str) -> str:
    line = f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{WIDTH - _RIGHT}" y2="{at:.1f}" stroke="#e4e4e4"/>'
    return line + _text(_LEFT - 8, at + 4, word, "end")


def _column(at: float, word: str) -> str:
    base = HEIGHT - _BOTTOM
    line = f'<line x1="{at:.1f}" y1="{base}" x2="{at:.1f}" y2="{base + 5}" stroke="#888"/>'
    return line + _text(at, base + 19, word, "middle")


def _text(x: float, y: float, word: str, anchor: str = "start", colour: str = "#444") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(word)}</text>'


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round numbers from `low` on, the last one not below `high`."""
    rough = (high - low) / wanted
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    first = math.floor(low / step) * step
    return [first + step * number for number in range(math.ceil((high - first) / step - 1e-9) + 1)]


def _thin(points: Sequence[Point]) -> Sequence[Point]:
    """At most so many points: of neighbours the highest stays, so no peak is lost."""
    size = -(-len(points) // _MOST_POINTS)
    if size <= 1:
        return points
    groups = (points[start : start + size] for start in range(0, len(points), size))
    return [max(group, key=lambda point: point[1]) for group in groups]
