"""The judgement in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from mainspring.demo.facts import Facts
from mainspring.demo.judging import Finding
from mainspring.demo.samples import Promise, Sample
from mainspring.demo.view import seconds
from mainspring.demo.watching import percentile


def summary(samples: Sequence[Sample], facts: Facts, findings: Sequence[Finding]) -> list[str]:
    """What was promised, what happened, the figures, and the verdict last."""
    window = f"{facts.after:%H:%M:%S} to {facts.through:%H:%M:%S} UTC"
    lines = [f"  {_mark(finding):<7}  {finding.subject:<16} {finding.text}" for finding in findings]
    broken = [finding.subject for finding in findings if not finding.kept]
    verdict = f"Not everything that was promised happened: {', '.join(broken)}."
    return [
        f"What was promised, and what happened from {window}:",
        "",
        *lines,
        "",
        *_figures(samples, facts),
        "",
        verdict if broken else "Everything that was promised happened.",
    ]


def _mark(finding: Finding) -> str:
    if finding.kept:
        return "kept"
    return "BROKEN" if finding.reached else "not yet"


def _figures(samples: Sequence[Sample], facts: Facts) -> list[str]:
    """A dependent is due when its parent has ended, so its lateness says nothing."""
    dependents = {each.name for each in samples if each.promise is Promise.RELEASED}
    inside = [each for each in facts.attempts if facts.after < each.scheduled_at <= facts.through]
    begun = [each for each in inside if each.job not in dependents and each.lateness is not None]
    usual = [each.lateness for each in begun if not _is_in_gap(facts, each.scheduled_at.timestamp())]
    late = sorted(value for value in usual if value is not None)
    lines = [f"  {len(inside)} runs; started {_spread(late)} after they were due, but for the takeover"]
    if len(begun) > len(usual):
        most = max(each.lateness or 0 for each in begun)
        lines.append(
            f"  {len(begun) - len(usual)} were due in the takeover, and started at most {most:.1f} s late"
        )
    return lines


def _spread(late: Sequence[float]) -> str:
    return f"p50 {seconds(percentile(late, 0.5))}, p99 {seconds(percentile(late, 0.99))}"


def _is_in_gap(facts: Facts, due: float) -> bool:
    """Due between the last that the killed leader fired and the first of its successor."""
    takeover = facts.takeover
    if takeover is None or takeover.resumed_seconds is None:
        return False
    resumed = takeover.killed_at + timedelta(seconds=takeover.resumed_seconds)
    return takeover.killed_at.timestamp() - 1 <= due <= resumed.timestamp()
