"""The judge of the demo, given facts that are broken in one way each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from mainspring.demo.facts import Attempt, Call, Facts, Letter, Takeover, read_journal
from mainspring.demo.judging import Finding, expected, judge
from mainspring.demo.samples import Promise, Sample, samples
from mainspring.demo.summary import summary

BEGIN = datetime(2026, 11, 18, 20, 0, 30, 250_000, tzinfo=UTC)
END = datetime(2026, 11, 18, 20, 1, 5, tzinfo=UTC)
SAMPLES = samples(BEGIN)
SECOND = BEGIN.replace(microsecond=0) + timedelta(seconds=5)


def run(sample: Sample, at: datetime, attempt: int = 1, status: str = "succeeded") -> Attempt:
    started = at + timedelta(milliseconds=80)
    length = timedelta(seconds=20 if sample.promise is Promise.MARCHES else 0)
    return Attempt(
        f"{sample.name}-{at}-{attempt}", sample.name, at, attempt, status, started, started + length
    )


def well() -> Facts:
    """Everything happened as it was promised."""
    bare = Facts(
        after=BEGIN,
        through=END,
        attempts=[],
        calls=[],
        letters=[],
        progress={},
        takeover=Takeover(
            killed="scheduler-2",
            killed_at=BEGIN + timedelta(seconds=15),
            shards=32,
            taken_by={"scheduler-1": 32},
            taken_seconds=3.0,
            resumed_seconds=3.2,
        ),
    )
    attempts, letters = [], []
    for sample in SAMPLES:
        for at in expected(sample, bare):
            if sample.promise is Promise.DEAD:
                attempts += [run(sample, at, 1, "failed"), run(sample, at, 2, "dead")]
                letters.append(Letter(sample.name, at, 2))
            else:
                attempts.append(run(sample, at))
    progress = {each.run_id: "100%" for each in attempts if each.job == "marches"}
    calls = [Call(each.job, each.scheduled_at, each.attempt) for each in attempts]
    return replace(bare, attempts=attempts, calls=calls, letters=letters, progress=progress)


def broken(facts: Facts) -> list[Finding]:
    return [finding for finding in judge(SAMPLES, facts) if not finding.kept]


def without(facts: Facts, job: str, at: datetime) -> Facts:
    """No trace of this occurrence."""
    return replace(
        facts,
        attempts=[each for each in facts.attempts if (each.job, each.scheduled_at) != (job, at)],
        calls=[each for each in facts.calls if (each.job, each.scheduled_at) != (job, at)],
    )


def only(findings: Sequence[Finding]) -> Finding:
    [finding] = findings
    return finding


def test_what_was_promised_and_happened_is_kept_and_the_summary_says_so() -> None:
    facts = well()
    findings = judge(SAMPLES, facts)
    assert [finding.subject for finding in findings if finding.kept] == [
        *("every-second", "every-2-seconds", "its-dependent", "every-minute", "one-off"),
        *("always-fails", "marches", "takeover"),
    ]
    lines = summary(SAMPLES, facts, findings)
    assert lines[-1] == "Everything that was promised happened."
    assert any("every-second     due 35 times, and ran exactly once each time" in line for line in lines)
    assert not any("BROKEN" in line for line in lines)


@pytest.mark.parametrize(
    "job", ["every-second", "every-2-seconds", "its-dependent", "every-minute", "one-off"]
)
def test_an_occurrence_without_a_run_is_lost_whatever_else_ran(job: str) -> None:
    facts = well()
    lost = next(each.scheduled_at for each in facts.attempts if each.job == job)
    finding = only(broken(without(facts, job, lost)))
    assert (finding.subject, finding.text) == (job, f"did not run for {lost:%H:%M:%S} UTC")
    assert finding.may_come


def test_one_more_run_than_was_due_does_not_make_up_for_a_lost_one() -> None:
    facts = without(well(), "every-second", SECOND)
    triggered = run(SAMPLES[0], SECOND + timedelta(microseconds=123_456))
    finding = only(broken(replace(facts, attempts=[*facts.attempts, triggered])))
    assert finding.subject == "every-second"


@pytest.mark.parametrize("status", ["failed", "lost", "running", "skipped", "missed"])
def test_only_a_success_counts_as_a_run(status: str) -> None:
    facts = without(well(), "every-second", SECOND)
    unsuccessful = run(SAMPLES[0], SECOND, status=status)
    assert only(broken(replace(facts, attempts=[*facts.attempts, unsuccessful]))).subject == "every-second"


def test_a_second_success_is_twice_and_waiting_cannot_mend_it() -> None:
    facts = well()
    again = run(SAMPLES[0], SECOND, attempt=2)
    finding = only(broken(replace(facts, attempts=[*facts.attempts, again])))
    assert finding.text == f"succeeded twice for {SECOND:%H:%M:%S} UTC"
    assert not finding.may_come


def test_a_handler_that_was_called_twice_cannot_hide_behind_one_run() -> None:
    facts = well()
    finding = only(broken(replace(facts, calls=[*facts.calls, Call("every-second", SECOND, 1)])))
    assert finding.text == f"was executed more often than it has attempts for {SECOND:%H:%M:%S} UTC"
    failing = next(call for call in facts.calls if call.job == "always-fails")
    assert only(broken(replace(facts, calls=[*facts.calls, failing]))).subject == "always-fails"


def test_a_success_that_no_handler_knows_of_is_none() -> None:
    facts = well()
    calls = [call for call in facts.calls if (call.job, call.scheduled_at) != ("every-second", SECOND)]
    finding = only(broken(replace(facts, calls=calls)))
    assert finding.text == f"succeeded without being executed for {SECOND:%H:%M:%S} UTC"


def test_a_run_that_was_lost_and_run_again_is_no_fault() -> None:
    """As after the kill of a worker: two calls, two attempts, one success."""
    facts = without(well(), "every-second", SECOND)
    attempts = [run(SAMPLES[0], SECOND, 1, "lost"), run(SAMPLES[0], SECOND, 2)]
    calls = [Call("every-second", SECOND, 1), Call("every-second", SECOND, 2)]
    assert broken(replace(facts, attempts=[*facts.attempts, *attempts], calls=[*facts.calls, *calls])) == []


def test_a_failure_without_its_letter_its_retry_or_its_failing_is_broken() -> None:
    facts = well()
    assert only(broken(replace(facts, letters=facts.letters[1:]))).subject == "always-fails"
    unretried = [each for each in facts.attempts if (each.job, each.attempt) != ("always-fails", 2)]
    assert only(broken(replace(facts, attempts=unretried))).subject == "always-fails"
    first = next(each for each in facts.attempts if each.job == "always-fails")
    cured = [*facts.attempts, replace(first, attempt=3, status="succeeded")]
    assert "succeeded" in only(broken(replace(facts, attempts=cured))).text


def test_a_long_run_may_be_under_way_but_must_say_how_far_it_came() -> None:
    facts = well()
    [march] = [each for each in facts.attempts if each.job == "marches"]
    others = [each for each in facts.attempts if each.job != "marches"]
    assert broken(replace(facts, attempts=[*others, replace(march, status="running")])) == []
    assert only(broken(replace(facts, attempts=others))).text == "did not run to its end"
    assert only(broken(replace(facts, progress={march.run_id: None}))).subject == "marches"


def test_a_takeover_needs_a_kill_heirs_and_a_run() -> None:
    facts = well()
    takeover = facts.takeover
    assert takeover is not None
    for worse in (
        None,
        replace(takeover, taken_seconds=None),
        replace(takeover, resumed_seconds=None),
        replace(takeover, taken_by={"scheduler-2": 32}),
        replace(takeover, shards=0),
    ):
        assert only(broken(replace(facts, takeover=worse))).subject == "takeover"


def test_the_summary_names_what_did_not_happen() -> None:
    facts = replace(without(well(), "one-off", expected(SAMPLES[4], well())[0]), takeover=None)
    lines = summary(SAMPLES, facts, judge(SAMPLES, facts))
    assert lines[-1] == "Not everything that was promised happened: one-off, takeover."


def test_a_job_that_was_not_due_is_said_to_be_due_later() -> None:
    short = replace(well(), through=BEGIN + timedelta(seconds=25))
    [minute] = [each for each in judge(SAMPLES, short) if each.subject == "every-minute"]
    assert minute == Finding(
        "every-minute", True, "not due in the window; the next one is due at 20:01:00 UTC"
    )


@pytest.mark.parametrize("job", ["one-off", "marches"])
def test_a_one_off_whose_instant_was_past_when_the_last_job_was_registered_is_judged_all_the_same(
    job: str,
) -> None:
    """On a busy machine registering takes longer than the two seconds until the first is due."""
    late = replace(well(), after=BEGIN + timedelta(seconds=10))
    assert broken(late) == []
    [at] = [each.scheduled_at for each in late.attempts if each.job == job]
    assert at < late.after
    assert only(broken(without(late, job, at))).subject == job


def test_the_journal_is_read_line_by_line_and_an_unfinished_line_waits() -> None:
    lines = ["every-second 2026-11-18T20:00:35+00:00 1\n", "every-second 2026-11-18T20:0"]
    assert read_journal(lines) == [Call("every-second", SECOND, 1)]
