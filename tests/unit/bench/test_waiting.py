"""Ctrl-C ends the waiting and not the run; options that make no sense are refused."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from click.testing import CliRunner

from bench import scale
from bench.harness.interrupt import Interrupt


async def interrupted(times: int) -> list[str]:
    """What a run still does that is interrupted so often."""
    done = []
    interrupt = Interrupt()
    for _ in range(times):
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
    await interrupt.unless(asyncio.Event().wait())
    done.append("waited")
    await asyncio.sleep(0.01)
    await interrupt.unless(asyncio.Event().wait())
    done.append("waited no more")
    assert interrupt.came
    return done


def test_an_interrupt_ends_the_waiting_and_what_follows_is_done() -> None:
    assert asyncio.run(interrupted(1)) == ["waited", "waited no more"]


def test_without_an_interrupt_everything_is_waited_for() -> None:
    async def wait() -> bool:
        interrupt = Interrupt()
        await interrupt.unless(asyncio.sleep(0.01))
        return interrupt.came

    assert asyncio.run(wait()) is False


def test_what_fails_while_it_is_waited_for_is_not_swallowed() -> None:
    async def fail() -> None:
        raise LookupError

    async def wait() -> None:
        await Interrupt().unless(fail())

    with pytest.raises(LookupError):
        asyncio.run(wait())


@pytest.mark.parametrize("steps", ["3,2", "2,2", "0", "many", ""])
def test_steps_that_do_not_grow_are_refused(steps: str) -> None:
    result = CliRunner().invoke(scale.command, ["--steps", steps])
    assert result.exit_code == 2
    assert "--steps" in result.stderr


def test_a_step_is_told_in_the_order_in_which_it_is_measured() -> None:
    environment = {"cpu": "c", "cores": 2, "platform": "p", "python": "3", "commit": None, "servers": {}}
    step = {"jobs": 1000, "disk": {"bytes_per_job": 900}, "requests": {"get": {"p50_ms": 1.5}}}
    lines = scale.table({"complete": False, "environment": environment, "steps": [step]})
    assert lines[-3:] == [
        "1,000 jobs",
        "  requests      get p50 ms 1.5",
        "  disk          bytes per job 900",
    ]
    assert any("stopped before the end" in line for line in lines)
