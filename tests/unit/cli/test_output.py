"""Data in each of its shapes, times, and asking."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import click
import pytest
from click.testing import CliRunner

from mainspring.cli.confirmation import act_on_each, confirm, counted
from mainspring.cli.output import Column, Format, Output, View, paint, record, watchable, with_output
from mainspring.cli.times import Times, milliseconds
from mainspring.client import NoAnswer, NotFound
from mainspring.client.models import Forecast, ForecastSecond, Pool

POOLS = [
    Pool(pool="default", jobs=12_345, workers=2, dead_letters=0),
    Pool(pool="b", jobs=1, workers=0, dead_letters=0),
]
VIEW: View[Pool] = View(
    (
        Column("pool", lambda pool, _: pool.pool),
        Column("jobs", lambda pool, _: pool.jobs, right=True),
        Column("nothing", lambda pool, _: None),
    ),
    lambda pool: pool.pool,
)
AT = datetime(2026, 3, 30, 8, 0, tzinfo=UTC)


def shown(capsys: pytest.CaptureFixture[str], format_: Format, things: list[Pool]) -> str:
    Output(format_).show(VIEW, things)
    return capsys.readouterr().out


def test_a_table_has_a_head_and_columns_of_one_width(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, Format.TABLE, POOLS).splitlines() == [
        "pool       jobs  nothing",
        "default  12,345  -",
        "b             1  -",
    ]


def test_json_is_an_array_jsonl_an_object_a_line_and_name_a_name_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = json.loads(shown(capsys, Format.JSON, POOLS))
    assert found[0] == {"pool": "default", "jobs": 12_345, "workers": 2, "dead_letters": 0}
    assert [json.loads(line) for line in shown(capsys, Format.JSONL, POOLS).splitlines()] == found
    assert shown(capsys, Format.NAME, POOLS) == "default\nb\n"


def test_nothing_is_an_empty_array_and_an_empty_output_and_talk(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, Format.JSON, []) == "[]\n"
    assert shown(capsys, Format.JSONL, []) == ""
    Output().show(VIEW, [])
    assert capsys.readouterr() == ("", "nothing found\n")


def test_lines_are_printed_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    def endless() -> Iterator[Pool]:
        yield POOLS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Output(Format.NAME).show(VIEW, endless())
    assert capsys.readouterr().out == "default\n"


def test_one_thing_is_a_field_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    Output().show_one(
        VIEW, POOLS[0], [("pool", "default"), ("times", "a\nb"), ("none", None), ("flag", False)]
    )
    assert capsys.readouterr().out == "pool   default\ntimes  a\n       b\nnone   -\nflag   no\n"
    Output(Format.JSONL).show_one(VIEW, POOLS[0], ())
    assert json.loads(capsys.readouterr().out)["pool"] == "default"


def test_records_have_the_names_of_the_api_and_instants_in_utc() -> None:
    there = AT.astimezone(datetime.fromisoformat("2026-01-01T00:00:00+02:00").tzinfo)
    whole = Forecast(start=there, end=AT, seconds=(ForecastSecond(at=AT, jobs=1),), is_complete=True)
    assert record(whole) == {
        "from": "2026-03-30T08:00:00Z",
        "to": "2026-03-30T08:00:00Z",
        "seconds": [{"at": "2026-03-30T08:00:00Z", "jobs": 1}],
        "is_complete": True,
    }


class Terminal:
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    assert paint("dead") == "dead"
    monkeypatch.setattr("mainspring.cli.output.sys.stdout", Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert paint("dead ") == click.style("dead ", fg="red")
    assert paint("other") == "other"
    monkeypatch.setenv("NO_COLOR", "1")
    assert paint("dead") == "dead"


def test_times_are_local_and_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    now = AT - timedelta(hours=2)
    utc = Times(utc=True, now=now)
    assert utc.short(AT) == "2026-03-30T08:00:00Z"
    assert utc.whole(AT) == "2026-03-30T08:00:00Z  in 2 h"
    local = Times(utc=False, now=now)
    assert local.short(AT) == f"{AT.astimezone():%Y-%m-%d %H:%M:%S} {AT.astimezone().tzname()}"
    assert local.whole(AT) == f"{local.short(AT)}  2026-03-30T08:00:00Z  in 2 h"
    assert local.short(None) is None


@pytest.mark.parametrize(
    ("duration", "text"),
    [(None, None), (12, "12 ms"), (3210, "3.2 s"), (125_000, "2 min"), (3_900_000, "1 h 5 min")],
)
def test_durations(duration: int | None, text: str | None) -> None:
    assert milliseconds(duration) == text


def test_watching_goes_on_while_the_api_is_away_and_ends_with_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Exception | str] = ["one", NoAnswer("http://a", "refused", maybe_applied=False), "two"]

    @click.command()
    @watchable
    @with_output
    def show(*, output: Output) -> None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        click.echo(f"{answer} {output.format}")

    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if not answers:
            raise KeyboardInterrupt

    monkeypatch.setattr("mainspring.cli.output.time.sleep", sleep)
    done = CliRunner().invoke(show, ["--watch", "0.5", "-o", "jsonl"])
    assert (done.exit_code, done.stdout) == (0, "one jsonl\ntwo jsonl\n")
    assert "no answer from the API at http://a" in done.stderr
    assert waits == [0.5, 0.5, 0.5]
    answers.append("three")
    assert CliRunner().invoke(show, []).stdout == "three table\n"


def test_where_nobody_can_be_asked_the_answer_must_be_given() -> None:
    confirm("delete?", yes=True)

    @click.command()
    def ask() -> None:
        confirm("delete 3 jobs?", yes=False)

    done = CliRunner().invoke(ask, input="y\n")
    assert (done.exit_code, "give --yes" in done.stderr) == (2, True)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_a_person_is_asked_on_stderr(answer: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def ask() -> None:
        monkeypatch.setattr("mainspring.cli.confirmation.sys.stdin.isatty", lambda: True)
        confirm("delete 3 jobs?", yes=False)
        click.echo("done")

    done = CliRunner().invoke(ask, input=answer)
    assert (done.exit_code, done.stdout) == (code, "done\n" if code == 0 else "")
    assert "delete 3 jobs? [y/N]" in done.stderr


def test_one_that_is_refused_does_not_keep_the_others() -> None:
    def act(job: str) -> str:
        if job == "b":
            raise NotFound(404, {"detail": "there is no job 'b'"})
        return f"paused {job}"

    @click.command()
    def pause() -> None:
        act_on_each(["a", "b", "c"], act)

    done = CliRunner().invoke(pause)
    assert (done.exit_code, done.stderr) == (
        1,
        "paused a\nmainspring: b: there is no job 'b'\npaused c\n",
    )


def test_counts() -> None:
    assert [counted(number, "job") for number in (0, 1, 1234)] == ["0 jobs", "1 job", "1,234 jobs"]
