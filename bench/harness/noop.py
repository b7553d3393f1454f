"""The handler of the scenarios: it notes whose run it was, and nothing else.

Executions are counted by who executed, and not by the books that are to be checked. A run is two numbers
of eight bytes, its job and its instant, appended to a file of this process's own some thousand at a time:
so they cost next to nothing, and the worker does not grow by them.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from pathlib import Path

from bench.harness.keys import run_key
from mainspring.worker import Context, Mainspring

DIRECTORY_VARIABLE = "BENCH_EXECUTIONS"
_TOGETHER = 20_000  # numbers

app = Mainspring()
_noted = array("q")


@app.handler("noop")
async def noop(context: Context) -> None:
    message = context._message  # as public texts they would cost more than all the rest
    _noted.append(message.job.job_id)
    _noted.append(message.scheduled_at)
    if len(_noted) >= _TOGETHER:
        write()


@app.on_stop
def write() -> None:
    """Append what has been noted since."""
    with (Path(os.environ[DIRECTORY_VARIABLE]) / f"{os.getpid()}").open("ab") as file:
        _noted.tofile(file)
    del _noted[:]


def executions(directory: Path) -> Counter[int]:
    """How often each run was executed by any of the workers."""
    found: Counter[int] = Counter()
    for file in directory.iterdir():
        numbers = array("q", file.read_bytes())
        found.update(map(run_key, numbers[::2], numbers[1::2]))
    return found
