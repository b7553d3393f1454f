"""`mainspring scheduler`: lead shards and fire what is due, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal

import click
import structlog

from mainspring import logs
from mainspring.scheduler.process import Scheduler, SchedulerOptions
from mainspring.scheduler.settings import read_options
from mainspring.settings import Settings, describe


@click.command("scheduler")
@click.option(
    "--status",
    metavar="HOST:PORT",
    help="Where /healthz, /readyz and /metrics are served; default: MAINSPRING_STATUS, or a free port of"
    " 127.0.0.1. Port 0 is any free one.",
)
def command(status: str | None) -> None:
    """Lead shards: hold the next ten minutes and publish each second's bucket onto Kafka.

    Start as many as you like; they share the shards evenly. SIGTERM or Ctrl-C finishes the bucket in hand and
    hands the shards over at once. Where Postgres, Kafka and etcd are, the MAINSPRING_… variables say.
    """
    settings = Settings.from_environment(os.environ)
    options = read_options(os.environ, status=status)
    logs.configure(settings.log)
    structlog.get_logger().info("settings", **describe(settings), **describe(options))
    asyncio.run(_run(Scheduler(settings, options)))


async def _run(scheduler: Scheduler) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await scheduler.run(stop)


__all__ = ["SchedulerOptions", "command"]
