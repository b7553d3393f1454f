"""The pictures: valid SVG, nothing from elsewhere, every series in it; and the page around them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from bench.harness import report
from bench.harness.charts import HEIGHT, WIDTH, Chart, Series, nines, plain
from bench.harness.processes import Sample

LINE = Series("start <&> more", [(0.0, 1.0), (1.0, 5.0), (2.0, 3.0)])
FOUND: dict[str, Any] = {
    "scenario": "midnight",
    "complete": False,
    "jobs": 1_000_000,
    "settings": {"seed": 1},
    "start_lateness_ms": {"p50": 1, "p999": 2, "max": None},
    "durable_lateness_ms": {"p50": 3, "p999": 4, "max": 5},
    "processes": [{"name": "worker 1"}],
    "environment": {"cpu": "fast", "servers": {"kafka": "4.3.1"}},
}


def parts(chart: Chart, tag: str) -> list[ET.Element]:
    return list(ET.fromstring(chart.svg()).iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def test_a_line_stays_within_its_picture_and_is_named() -> None:
    chart = Chart("Lateness", "seconds", "ms", [LINE], marks=[(0.5, "kill")])
    [line] = parts(chart, "polyline")
    for point in line.attrib["points"].split():
        x, y = map(float, point.split(","))
        assert 0 < x < WIDTH
        assert 0 < y < HEIGHT
    words = {text.text for text in parts(chart, "text")}
    assert {"Lateness", "seconds", "ms", "start <&> more", "kill"} <= words


def test_a_higher_value_is_drawn_higher() -> None:
    [line] = parts(Chart("", "", "", [LINE]), "polyline")
    heights = [float(point.split(",")[1]) for point in line.attrib["points"].split()]
    assert heights[1] < heights[2] < heights[0]


def test_a_peak_survives_when_points_are_left_out() -> None:
    points = [(float(x), 1.0) for x in range(20_000)]
    points[12_345] = (12_345.0, 100.0)
    [line] = parts(Chart("", "", "", [Series("", points)]), "polyline")
    drawn = [float(point.split(",")[1]) for point in line.attrib["points"].split()]
    assert len(drawn) < 2000
    assert min(drawn) < max(drawn) - 100


def test_without_a_point_a_picture_says_so() -> None:
    [word] = [
        text.text for text in parts(Chart("t", "x", "y", [Series("none", [])]), "text") if text.text != "t"
    ]
    assert word == "nothing was measured"


def test_axes_are_in_words_that_people_read() -> None:
    assert [plain(value) for value in (0.0, 0.25, 5000, 20_000, 1_500_000)] == [
        "0", "0.25", "5000", "20 k", "1.5 M",
    ]  # fmt: skip
    assert [nines(value) for value in (0, 1, 2, 3)] == ["min", "p90", "p99", "p99.9"]


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    made = report.write(tmp_path / "deep", FOUND, [Chart("Percentile curve", "", "", [LINE])])
    text = made.read_text()
    assert not re.search(r'(src|href)="', text)
    assert text.count("<svg") == 1
    assert "1,000,000" in text
    assert "stopped before its end" in text
    assert "4.3.1" in text
    assert (tmp_path / "deep" / "percentile-curve.svg").read_text().startswith("<svg")


def test_cores_are_the_processor_time_between_two_samples() -> None:
    samples = {"worker": [Sample(10.0, 1.0, 5.0), Sample(12.0, 2.0, 6.0), Sample(13.0, 3.0, 7.0)]}
    [series] = report.processor_chart(samples, 10.0, 13.0).series
    assert list(series.points) == [(2.0, 0.5), (3.0, 1.0)]
    [memory] = report.memory_chart(samples, 10.0, 13.0).series
    assert list(memory.points) == [(0.0, 5.0), (2.0, 6.0), (3.0, 7.0)]


def test_throughput_counts_moments_by_their_step() -> None:
    assert report.per_second([0.0, 0.1, 0.9, 2.5], 0.0, 0.5) == [
        (0.0, 4.0), (0.5, 2.0), (1.0, 0.0), (1.5, 0.0), (2.0, 0.0), (2.5, 2.0), (3.0, 0.0),
    ]  # fmt: skip
