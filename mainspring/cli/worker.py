"""`mainspring worker`: execute runs of one pool, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from functools import partial
from pathlib import Path

import click
import structlog
import uvloop

from mainspring import logs
from mainspring.settings import WorkerSettings, describe
from mainspring.worker.app import Mainspring, load_app
from mainspring.worker.builtin import HttpHandlerSettings, builtin_handlers, make_producer
from mainspring.worker.process import Worker
from mainspring.worker.settings import read_options


@click.command("worker")
@click.option(
    "--app",
    "app_path",
    metavar="MODULE:NAME",
    help="Where the handlers are: package.module:app. Without it only the built-in handlers are there.",
)
@click.option("--pool", default="default", show_default=True, help="Whose jobs to execute.")
@click.option("--lanes", metavar="LANE,…", help="high, normal, low, catchup; default: all.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    help="Runs at the same time; default: MAINSPRING_WORKER_CONCURRENCY, or 100.",
)
@click.option(
    "--grace",
    "grace_seconds",
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="How long a stop waits for what is running; default: MAINSPRING_WORKER_GRACE_SECONDS, or 30.",
)
@click.option(
    "--status",
    metavar="HOST:PORT",
    help="Where /healthz, /readyz and /metrics are served; default: MAINSPRING_STATUS, or a free port of"
    " 127.0.0.1. Port 0 is any free one.",
)
def command(
    app_path: str | None,
    pool: str,
    lanes: str | None,
    concurrency: int | None,
    grace_seconds: float | None,
    status: str | None,
) -> None:
    """Execute what is due: claim messages of a pool and run their handlers.

    Start as many as you like; they share the pool's partitions. SIGTERM or Ctrl-C takes no more, waits for
    what is running within the grace and hands back the rest; a second one hands back at once. Where Postgres
    and Kafka are, the MAINSPRING_… variables say.
    """
    settings = WorkerSettings.from_environment(os.environ)
    options = read_options(
        os.environ,
        pool=pool,
        lanes=lanes,
        concurrency=concurrency,
        grace_seconds=grace_seconds,
        status=status,
    )
    logs.configure(settings.log)
    sys.path.insert(0, str(Path.cwd()))  # the app lies where the command is given, as with python -m
    app = Mainspring() if app_path is None else load_app(app_path)
    http = HttpHandlerSettings.from_environment(os.environ)
    structlog.get_logger().info("settings", **describe(settings), **describe(options), http=describe(http))
    builtin = builtin_handlers(http, partial(make_producer, settings.kafka, client_id="mainspring-worker"))
    # The app's own come last: a user's `http` is the user's.
    _collect_less_often()
    worker = Worker(settings, options, app, {**builtin, **app.handlers})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(worker))


def _collect_less_often() -> None:
    """Let Python look for cycles among many new objects at a time: what a hot second makes lives for seconds
    and has none, and looking through it every 700 objects costs as much as executing it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def _run(worker: Worker) -> None:
    stop, abort = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (abort if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled)
    await worker.run(stop, abort)
    # A synchronous handler that ignored its end would keep the interpreter from ending.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
