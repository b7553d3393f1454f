"""The handler of `bench execute`: it notes whose run it was, and nothing else.

What it noted is written when the worker stops, so that executions are counted by who executed, and not by the
books that are to be checked.
"""

from __future__ import annotations

import os
from array import array
from pathlib import Path

from mainspring.worker import Context, Mainspring

FILE_VARIABLE = "BENCH_EXECUTIONS"

app = Mainspring()
executed = array("q")


@app.handler("noop")
async def noop(context: Context) -> None:
    executed.append(context._message.job.job_id)  # as text it would cost more than all the rest


@app.on_stop
def write() -> None:
    with Path(os.environ[FILE_VARIABLE]).open("wb") as file:
        executed.tofile(file)
