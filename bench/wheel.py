"""The timing wheel beside a plain dictionary of lists and heapq.

All three are given the same entries through the same loop, in turns within each round, so that a disturbance
of the machine hits all of them. It is five to midnight: the entries are due within the next ten minutes or
all at midnight, so what the wheel holds cascades from the hours through the minutes to the seconds. Time then
passes second by second, as it does for a shard leader. After each pass the answer is checked: everything came
out, in order.
"""

from __future__ import annotations

import gc
import heapq
import json
import random
import sys
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

import click

from bench.harness.environment import Environment
from bench.harness.summary import Summary
from mainspring.wheel import Bucket, Wheel

MIDNIGHT = 1_767_225_600  # 2026-01-01T00:00:00Z
START = MIDNIGHT - 300
WINDOW = 600
REMOVED = 20  # few, because the plain structures search for each
# What is measured, and the unit in which people are shown it, in nanoseconds.
MEASURES = {"insert": ("ns", 1), "remove": ("µs", 1000), "advance": ("ns", 1)}


class Contender(Protocol):
    """What is measured. The entry is the key itself; `advance` answers in the contender's own form."""

    def insert(self, key: int, due: int, entry: int, /) -> None: ...
    def remove(self, key: int, due: int, /) -> object: ...
    def advance(self, to: int, /) -> Sequence[object]: ...
    def entries(self, answer: Sequence[object], /) -> Iterable[object]: ...


class TheWheel(Wheel[int, int]):
    """Ours: a subclass and not a wrapper, so that `insert` and `advance` are measured as they are."""

    __slots__ = ()

    def remove(self, key: int, due: int = 0) -> bool:  # noqa: ARG002 (the others need the second)
        return super().remove(key)

    def entries(self, answer: Sequence[object]) -> Iterable[object]:
        for bucket in answer:
            assert isinstance(bucket, Bucket)
            yield from bucket.entries.values()


class DictOfLists:
    """The least that can work: each second's list, looked up when the second comes."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._lists: defaultdict[int, list[int]] = defaultdict(list)

    def insert(self, key: int, due: int, entry: int) -> None:  # noqa: ARG002 (no index by key)
        self._lists[due].append(entry)

    def remove(self, key: int, due: int) -> None:
        self._lists[due].remove(key)

    def advance(self, to: int) -> list[int]:
        due: list[int] = []
        for second in range(self._now + 1, to + 1):
            due += self._lists.pop(second, ())
        self._now = to
        return due

    def entries(self, answer: Sequence[object]) -> Iterable[object]:
        return answer


class Heap:
    """heapq; the sequence number keeps the order of insertion within a second."""

    def __init__(self, now: int) -> None:  # noqa: ARG002 (a heap has no notion of now)
        self._heap: list[tuple[int, int, int]] = []
        self._sequence = 0

    def insert(self, key: int, due: int, entry: int) -> None:  # noqa: ARG002 (no index by key)
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, entry))

    def remove(self, key: int, due: int) -> None:  # noqa: ARG002 (a heap is not ordered enough to use it)
        index = next(i for i, armed in enumerate(self._heap) if armed[2] == key)
        self._heap[index] = self._heap[-1]
        self._heap.pop()
        heapq.heapify(self._heap)

    def advance(self, to: int) -> list[int]:
        due: list[int] = []
        heap = self._heap
        while heap and heap[0][0] <= to:
            due.append(heapq.heappop(heap)[2])
        return due

    def entries(self, answer: Sequence[object]) -> Iterable[object]:
        return answer


CONTENDERS: dict[str, Callable[[int], Contender]] = {
    "wheel": TheWheel,
    "dict of lists": DictOfLists,
    "heapq": Heap,
}


@dataclass(frozen=True, slots=True)
class Load:
    """When each entry is due, and which are removed before time passes. A key is its position in `dues`."""

    name: str
    keys: list[int]  # made beforehand, so that no contender's memory is charged with them
    dues: list[int]
    removed: list[int]

    @classmethod
    def make(cls, entries: int, seed: int) -> list[Load]:
        generator = random.Random(seed)
        keys = list(range(entries))
        spread = [START + 1 + generator.randrange(WINDOW) for _ in range(entries)]
        removed = sorted(generator.sample(keys, min(REMOVED, entries)))
        return [
            cls("spread over ten minutes", keys, spread, removed),
            # Inserted in the order of handing out: what the first load costs without its disorder.
            cls("the same in order", keys, [START + 1 + key * WINDOW // entries for key in keys], removed),
            cls("all in one second", keys, [MIDNIGHT] * entries, removed),
        ]

    def expected(self) -> list[int]:
        """The keys in the order they must come out: by due second, then by insertion."""
        gone = set(self.removed)
        # sorted() is stable, and the keys start in order of insertion.
        return sorted((key for key in self.keys if key not in gone), key=self.dues.__getitem__)


@dataclass(frozen=True, slots=True)
class Sample:
    """One pass of one contender over one load: CPU nanoseconds per entry (`remove`: per removal)."""

    round: int
    load: str
    contender: str
    insert: float
    remove: float
    advance: float


@dataclass(slots=True)
class Results:
    """What has been measured so far: complete, or as far as it came before Ctrl-C."""

    rounds: int
    samples: list[Sample] = field(default_factory=list)
    bytes_per_entry: dict[str, dict[str, float]] = field(default_factory=dict)
    complete: bool = False

    def summary(self, load: str, contender: str, measure: str, unit: int = 1) -> Summary | None:
        """In units of so many nanoseconds."""
        return Summary.of(value / unit for value in self._by_round(load, contender, measure).values())

    def ratio(self, load: str, contender: str, measure: str) -> Summary | None:
        """How many times the wheel's cost, compared within each round before taking the median."""
        wheel = self._by_round(load, "wheel", measure)
        other = self._by_round(load, contender, measure)
        return Summary.of(other[number] / wheel[number] for number in other if wheel.get(number))

    def _by_round(self, load: str, contender: str, measure: str) -> dict[int, float]:
        return {
            sample.round: getattr(sample, measure)
            for sample in self.samples
            if (sample.load, sample.contender) == (load, contender)
        }


def insert_all(contender: Contender, load: Load) -> None:
    insert = contender.insert
    for key, due in zip(load.keys, load.dues, strict=True):
        insert(key, due, key)


def remove_some(contender: Contender, load: Load) -> None:
    for key in load.removed:
        contender.remove(key, load.dues[key])


def pass_time(contender: Contender) -> list[Sequence[object]]:
    return [contender.advance(to) for to in range(START + 1, START + WINDOW + 1)]


def measure(number: int, name: str, load: Load) -> Sample:
    """One pass, timed in CPU time so that a neighbour on the machine counts for little; then checked."""
    contender = CONTENDERS[name](START)
    gc.collect()
    gc.disable()  # as timeit does: a collection would be charged to whoever happens to allocate
    try:
        began = time.process_time_ns()
        insert_all(contender, load)
        inserted = time.process_time_ns()
        remove_some(contender, load)
        removed = time.process_time_ns()
        answers = pass_time(contender)
        ended = time.process_time_ns()
    finally:
        gc.enable()
    check(name, load, [entry for answer in answers for entry in contender.entries(answer)])
    return Sample(
        round=number,
        load=load.name,
        contender=name,
        insert=(inserted - began) / len(load.dues),
        remove=(removed - inserted) / len(load.removed),
        advance=(ended - removed) / len(load.dues),
    )


def check(name: str, load: Load, came_out: list[object]) -> None:
    """A fast wrong answer is not a result."""
    if came_out != load.expected():
        raise click.ClickException(f"{name}, {load.name}: what came out is not what went in, in order of due")


def measure_memory(name: str, load: Load) -> float:
    """Bytes per entry of the structure alone: the keys and due seconds exist already."""
    contender = CONTENDERS[name](START)
    gc.collect()
    tracemalloc.start()
    try:
        insert_all(contender, load)
        return tracemalloc.get_traced_memory()[0] / len(load.dues)
    finally:
        tracemalloc.stop()


def run(loads: list[Load], results: Results) -> None:
    """Fill the results as they come, so that an interrupt loses only the pass in hand."""
    for load in loads:
        click.echo(f"memory, {load.name}", err=True)
        of_load = results.bytes_per_entry.setdefault(load.name, {})
        for name in CONTENDERS:
            of_load[name] = measure_memory(name, load)
    names = list(CONTENDERS)
    for number in range(results.rounds):
        # Another one begins each round: none always follows the same neighbour's garbage and cache.
        turn = number % len(names)
        for load in loads:
            click.echo(f"round {number + 1} of {results.rounds}, {load.name}", err=True)
            for name in names[turn:] + names[:turn]:
                results.samples.append(measure(number, name, load))
    results.complete = True


def table(load: Load, results: Results) -> list[str]:
    """One load for people: a row for each contender."""
    titles = [f"{f'{name}, {unit}':>25}{'ratio':>9}" for name, (unit, _) in MEASURES.items()]
    rows = [f"{load.name:<23}" + "".join(titles) + f"{'memory':>8}"]
    for contender in CONTENDERS:
        cells = [cell(results, load.name, contender, name) for name in MEASURES]
        size = results.bytes_per_entry.get(load.name, {}).get(contender)
        memory = "–" if size is None else f"{size:.0f} B"
        rows.append(f"{contender:<23}" + "".join(cells) + f"{memory:>8}")
    return rows


def cell(results: Results, load: str, contender: str, name: str) -> str:
    """One measure with its ratio, or dashes where Ctrl-C came first."""
    summary = results.summary(load, contender, name, MEASURES[name][1])
    ratio = results.ratio(load, contender, name)
    digits = 2 if ratio and ratio.median < 100 else 0
    return f"{summary or '–'!s:>25}" + (f"{ratio.median:>9,.{digits}f}" if ratio else f"{'–':>9}")


def report(environment: Environment, loads: list[Load], results: Results, seed: int) -> list[str]:
    """The whole run for people."""
    passes = len(results.samples)
    planned = results.rounds * len(loads) * len(CONTENDERS)
    lines = [
        *environment.lines(),
        f"settings  {len(loads[0].dues):,} entries, rounds: {results.rounds}, seed {seed}, gc off",
        "",
        "CPU time per entry (remove: per removal): median (lowest–highest). ratio: to the wheel's cost in",
        "the same round, median. memory: bytes per entry of the structure, without the keys themselves.",
    ]
    for load in loads:
        lines += ["", *table(load, results)]
    if not results.complete:
        lines += ["", f"Stopped after {passes} of {planned} passes: this is what they measured."]
    return lines


def document(environment: Environment, loads: list[Load], results: Results, seed: int) -> dict[str, object]:
    """The whole run for programs: the summaries and every sample behind them."""
    summaries = [
        {
            "load": load.name,
            "contender": name,
            "measure": measure_name,
            "nanoseconds": asdict(summary),
            "ratio_to_wheel": asdict(ratio) if ratio else None,
        }
        for load in loads
        for name in CONTENDERS
        for measure_name in MEASURES
        if (summary := results.summary(load.name, name, measure_name))
        for ratio in [results.ratio(load.name, name, measure_name)]
    ]
    return {
        "scenario": "wheel",
        "complete": results.complete,
        "environment": asdict(environment),
        "settings": {"entries": len(loads[0].dues), "rounds": results.rounds, "seed": seed, "gc": False},
        "summaries": summaries,
        "bytes_per_entry": results.bytes_per_entry,
        "samples": [asdict(sample) for sample in results.samples],
    }


@click.command("wheel", short_help="insert and advance: the timing wheel, a dict of lists, heapq")
@click.option(
    "--entries", type=click.IntRange(min=1), default=500_000, show_default=True, help="timers per pass"
)
@click.option("--seed", type=int, default=1, show_default=True, help="of the random due seconds")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="rounds; each runs all, in turns",
)
@click.option(
    "--json", "as_json", is_flag=True, help="one JSON document with every sample instead of the tables"
)
def command(entries: int, seed: int, repeat: int, *, as_json: bool) -> None:
    """Cost per entry of the timing wheel, beside a plain dict of lists and heapq.

    The timers are due spread over ten minutes (at random, then in order), and all in one second. All three
    run in turns within every round, and each answer is checked. The defaults take about a minute. Ctrl-C
    ends it early and prints what has been measured (exit code 130).
    """
    loads = Load.make(entries, seed)
    results = Results(rounds=repeat)
    try:
        run(loads, results)
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
    environment = Environment.capture()
    if as_json:
        click.echo(json.dumps(document(environment, loads, results, seed), indent=2))
    else:
        click.echo("\n".join(report(environment, loads, results, seed)))
    if not results.complete:
        sys.exit(130)
