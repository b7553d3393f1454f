"""Random faults over random traffic, a short run for each of these seeds. `make soak` is for long ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.local import LocalStack
from tests.acceptance.reports import Report
from tests.integration.local.environments import own
from tests.robustness.campaign import Plan, carry_out, figures
from tests.robustness.faults import KINDS
from tests.robustness.validate import judge
from tests.robustness.world import prepare

# What was lost from a topic is found after two minutes: for long runs only.
_KINDS = random.Random(1).sample([kind for kind in KINDS if kind != "records.delete"], len(KINDS) - 1)
PLANS = (Plan(1, tuple(_KINDS[:8])), Plan(2, tuple(_KINDS[8:])))
"""Each kind of fault comes once."""


@pytest.fixture(scope="module")
def fragile_stack() -> Iterator[LocalStack]:
    """A stack whose servers are broken; never somebody else's."""
    with asyncio.Runner() as runner:
        stack = LocalStack(etcd=3, environment=own())
        runner.run(stack.start())
        try:
            runner.run(prepare(stack))
            yield stack
        finally:
            runner.run(stack.stop())


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"seed {plan.seed}")
async def test_faults_over_traffic_break_no_rule(
    fragile_stack: LocalStack, tmp_path: Path, report: Report, plan: Plan
) -> None:
    history = await carry_out(plan, fragile_stack, tmp_path, report)
    case = judge(history)
    report(figures(case))
    assert not case.violations, "\n".join(f"{rule}: {about}" for rule, about in case.violations[:10])
