"""The wheel scenario: what it prints, that it checks what it measures, that it keeps what it has."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from click.testing import CliRunner, Result

import bench.wheel
from bench.__main__ import main
from bench.wheel import CONTENDERS, START, DictOfLists, Load, Sample, insert_all, pass_time, remove_some


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["wheel", "--entries", "300", "--repeat", "2", *arguments])


def test_people_see_all_three_under_every_load_with_the_environment() -> None:
    result = run()
    assert result.exit_code == 0
    for word in (
        "spread over ten minutes",
        "the same in order",
        "all in one second",
        "CPU",
        "Python",
        "commit",
        "300 entries",
        "seed 1",
    ):
        assert word in result.stdout
    for name in CONTENDERS:
        assert sum(line.startswith(name) for line in result.stdout.splitlines()) == 3
    assert "–  " not in result.stdout  # no dash: every cell was measured
    assert "round 2 of 2, all in one second" in result.stderr


def test_programs_get_every_sample_and_nothing_else_on_stdout() -> None:
    result = run("--json", "--seed", "7")
    document = json.loads(result.stdout)
    assert document["complete"] is True
    assert document["settings"] == {"entries": 300, "rounds": 2, "seed": 7, "gc": False}
    assert len(document["samples"]) == 2 * 3 * 3
    assert len(document["summaries"]) == 3 * 3 * 3
    for summary in document["summaries"]:
        if summary["contender"] == "wheel":
            assert summary["ratio_to_wheel"]["median"] == 1
    for sizes in document["bytes_per_entry"].values():
        assert all(size > 0 for size in sizes.values())


@pytest.mark.parametrize(
    "arguments", [["--entries", "0"], ["--repeat", "0"], ["--seed", "x"], ["--nonsense"]]
)
def test_a_wrong_option_exits_2(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_gives_the_same_right_answer(name: str) -> None:
    for load in Load.make(entries=2000, seed=3):
        contender = CONTENDERS[name](START)
        insert_all(contender, load)
        remove_some(contender, load)
        came_out = [entry for answer in pass_time(contender) for entry in contender.entries(answer)]
        assert came_out == load.expected()
        assert len(came_out) == 1980


class Forgetful(DictOfLists):
    """Loses one entry, and says nothing."""

    def advance(self, to: int) -> list[int]:
        return super().advance(to)[1:]


class Backward(DictOfLists):
    """Loses nothing, but in the wrong order."""

    def entries(self, answer: Sequence[object]) -> Sequence[object]:
        return answer[::-1]


@pytest.mark.parametrize("wrong", [Forgetful, Backward])
def test_a_wrong_answer_is_not_a_result(wrong: type[DictOfLists], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONTENDERS, "dict of lists", wrong)
    result = run()
    assert result.exit_code == 1
    assert "what came out is not what went in" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("passes", [0, 1, 8])
def test_an_interrupt_keeps_the_passes_that_were_complete(
    passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Sample] = []
    measure = bench.wheel.measure

    def interrupted(number: int, name: str, load: Load) -> Sample:
        if len(measured) == passes:
            raise KeyboardInterrupt
        measured.append(measure(number, name, load))
        return measured[-1]

    monkeypatch.setattr(bench.wheel, "measure", interrupted)
    people = run()
    assert people.exit_code == 130
    assert f"Stopped after {passes} of 18 passes" in people.stdout
    measured.clear()
    programs = run("--json")
    assert programs.exit_code == 130
    document = json.loads(programs.stdout)
    assert document["complete"] is False
    assert len(document["samples"]) == passes
