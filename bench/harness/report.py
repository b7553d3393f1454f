"""`--report DIR`: the result, the environment and the pictures as one HTML page that needs nothing else.

Each picture also lies beside it as an SVG file, for other pages. There are no PNGs: drawing them would cost a
dependency.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.harness.charts import Chart, Point, Series, nines
from bench.harness.percentiles import curve
from bench.harness.processes import Sample

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 900px; margin: 2rem auto }
body { padding: 0 1rem }
h1 { font-size: 1.5rem } table { border-collapse: collapse; margin: 1rem 0 }
td, th { padding: .2rem .9rem .2rem 0; text-align: left; border-bottom: 1px solid #ddd; vertical-align: top }
td { font-variant-numeric: tabular-nums } pre { overflow: auto; background: #f6f6f6; padding: 1rem }
figure { margin: 1.5rem 0 } svg { width: 100%; height: auto } .stopped { color: #b00020 }
"""


def write(directory: Path, found: Mapping[str, Any], charts: Sequence[Chart]) -> Path:
    """Make the page and the pictures; the page's path."""
    directory.mkdir(parents=True, exist_ok=True)
    for chart in charts:
        (directory / f"{slug(chart.title)}.svg").write_text(chart.svg() + "\n", encoding="utf-8")
    made = directory / "index.html"
    made.write_text(page(found, charts), encoding="utf-8")
    return made


def slug(title: str) -> str:
    """A file name of a title."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def page(found: Mapping[str, Any], charts: Iterable[Chart]) -> str:
    """The whole of it in one text."""
    title = f"bench {found['scenario']}"
    stopped = "" if found["complete"] else '<p class="stopped">This run was stopped before its end.</p>'
    figures = {
        name: value
        for name, value in found.items()
        if not isinstance(value, (dict, list)) and name != "scenario"
    }
    lateness = {name: value for name, value in found.items() if name.endswith("_lateness_ms")}
    nested = {
        name: value
        for name, value in found.items()
        if isinstance(value, dict) and name != "environment" and name not in lateness
    }
    environment = dict(found["environment"])
    environment |= environment.pop("servers", {})
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>{stopped}",
        _table(figures),
        *((f"<h2>lateness in milliseconds</h2>{_grid(lateness)}",) if lateness else ()),
        *(f"<h2>{escape(_words(name))}</h2>{_table(value)}" for name, value in nested.items()),
        *(f"<figure>{chart.svg()}</figure>" for chart in charts),
        f"<h2>environment</h2>{_table(environment)}",
        "<details><summary>all of it as JSON</summary>",
        f"<pre>{escape(json.dumps(found, indent=2))}</pre></details>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def percentile_chart(named: Mapping[str, Sequence[float]]) -> Chart:
    """Curves of sorted milliseconds."""
    series = [Series(name, curve(values)) for name, values in named.items()]
    return Chart(
        "Percentile curve", "share of the runs", "milliseconds after due", series, show_x=nines, whole_x=True
    )


def throughput_chart(named: Mapping[str, Iterable[float]], origin: float, step: float = 0.1) -> Chart:
    """How many of each kind of moment fell into each step of time, per second."""
    series = [Series(name, per_second(moments, origin, step)) for name, moments in named.items()]
    return Chart("Throughput", "seconds", "per second", series)


def per_second(moments: Iterable[float], origin: float, step: float) -> list[Point]:
    counts: dict[int, int] = {}
    for moment in moments:
        place = int((moment - origin) // step)
        counts[place] = counts.get(place, 0) + 1
    if not counts:
        return []
    return [(place * step, counts.get(place, 0) / step) for place in range(min(counts), max(counts) + 2)]


def worst_chart(title: str, named: Mapping[str, Iterable[Point]]) -> Chart:
    """The largest lateness of each second, of each kind."""
    series = []
    for name, points in named.items():
        worst: dict[float, float] = {}
        for at, late in points:
            worst[at] = max(worst.get(at, 0.0), late)
        series.append(Series(name, sorted(worst.items())))
    return Chart(title, "seconds", "milliseconds after due", series)


def processor_chart(samples: Mapping[str, Sequence[Sample]], origin: float, until: float) -> Chart:
    """Cores in use by each part over time."""
    series = []
    for name, taken in samples.items():
        within = [sample for sample in taken if origin - 5 <= sample.at <= until + 2]
        points = [
            (after.at - origin, (after.cpu_s - before.cpu_s) / (after.at - before.at))
            for before, after in pairwise(within)
            if after.at > before.at
        ]
        series.append(Series(name, points))
    return Chart("Processor time by process", "seconds", "cores", series)


def memory_chart(samples: Mapping[str, Sequence[Sample]], origin: float, until: float) -> Chart:
    """Megabytes of each part over time."""
    series = [
        Series(
            name,
            [(each.at - origin, each.resident_mb) for each in taken if origin - 5 <= each.at <= until + 2],
        )
        for name, taken in samples.items()
    ]
    return Chart("Memory by process", "seconds", "megabytes", series)


def _table(values: Mapping[str, Any]) -> str:
    rows = (
        f"<tr><th>{escape(_words(name))}</th><td>{escape(_shown(value))}</td></tr>"
        for name, value in values.items()
    )
    return f"<table>{''.join(rows)}</table>"


def _grid(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A row for each kind, with the same columns."""
    columns = list(next(iter(rows.values())))
    head = "".join(f"<th>{escape(_words(column))}</th>" for column in ("", *columns))
    body = (
        f"<tr><th>{escape(_words(name.removesuffix('_lateness_ms')))}</th>"
        + "".join(f"<td>{escape(_shown(row[column]))}</td>" for column in columns)
        + "</tr>"
        for name, row in rows.items()
    )
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def _words(name: str) -> str:
    return name.replace("_", " ").replace("p999", "p99.9")


def _shown(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, (int, float)):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items())
    return str(value)
