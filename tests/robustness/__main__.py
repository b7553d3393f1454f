"""`python -m tests.robustness --minutes 60 --seed 7`: a long run, with three brokers and longer faults.

Prints what it does. Exits with 0 when no rule is broken, 2 when too little was going on, else 1; then the
directory with everything stays, and `--judge DIRECTORY` judges it again.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from mainspring.local import LocalStack
from tests.integration.local.environments import own
from tests.robustness.campaign import HISTORY, Plan, carry_out, figures
from tests.robustness.faults import Invalid
from tests.robustness.history import History
from tests.robustness.validate import Case, judge
from tests.robustness.world import prepare

_SHOWN = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3)
    parser.add_argument("--keep", action="store_true", help="keep the directory of a run without fault, too")
    parser.add_argument("--judge", type=Path, metavar="DIRECTORY", help="judge a run that was kept")
    given = parser.parse_args()
    if given.judge is not None:
        kept: History = pickle.loads((given.judge / HISTORY).read_bytes())
        return _report(judge(kept))
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    directory = Path(tempfile.mkdtemp(prefix=f"robustness-{seed}-"))
    command = f"make soak MINUTES={given.minutes:g} SEED={seed}"
    _say(f"seed {seed}, {given.minutes:g} minutes, in {directory}; again with: {command}")
    code = 1
    try:
        code = _report(judge(asyncio.run(_soak(seed, given.minutes, given.brokers, directory))))
    except Invalid as reason:
        code = 2
        _say(f"invalid: {reason}")
    finally:
        if code == 0 and not given.keep:
            shutil.rmtree(directory)
        elif code != 0:
            _say(f"everything is in {directory}; again with: {command}")
    return code


async def _soak(seed: int, minutes: float, brokers: int, directory: Path) -> History:
    plan = Plan(seed, seconds=minutes * 60, settle=(5.0, 20.0), longest=25.0)
    async with LocalStack(directory / "stack", brokers=brokers, etcd=3, environment=own()) as stack:
        await prepare(stack)
        return await carry_out(plan, stack, directory, _say)


def _report(case: Case) -> int:
    _say(figures(case))
    for rule, about in case.violations[:_SHOWN]:
        _say(f"{rule}: {about}")
    _say(f"{len(case.violations)} broken rules" if case.violations else "no rule is broken")
    return 1 if case.violations else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
