"""`mainspring api`: serve the HTTP API, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal

import click
import structlog
import uvloop

from mainspring import logs
from mainspring.api.process import Api
from mainspring.api.settings import ApiSettings
from mainspring.settings import describe


@click.command("api")
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="Where to listen; default: MAINSPRING_API_ADDRESS, or 127.0.0.1:8080. Port 0 is any free one.",
)
def command(address: str | None) -> None:
    """Serve the HTTP API: jobs, runs, dead letters, keys, under /api/v1.

    Start as many as you like; they keep nothing. SIGTERM or Ctrl-C finishes the requests under way. Where
    Postgres is and how to listen, the MAINSPRING_… variables say.
    """
    settings = ApiSettings.from_environment(os.environ, address=address)
    logs.configure(settings.log)
    structlog.get_logger().info("settings", **describe(settings))
    uvloop.run(_run(Api(settings)))


async def _run(api: Api) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await api.run(stop)
