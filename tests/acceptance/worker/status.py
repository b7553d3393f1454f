"""What a worker answers on its status port."""

from __future__ import annotations

import asyncio
import json
from http.client import HTTPConnection
from typing import Any

from tests.acceptance.processes import MainspringProcess


async def ask(worker: MainspringProcess, path: str) -> tuple[int, Any]:
    """Status and body of `/healthz` or `/readyz`."""
    status, body = await asyncio.to_thread(_request, worker.status_address, path)
    return status, json.loads(body)


async def numbers(worker: MainspringProcess) -> dict[str, float]:
    """Its metrics by name and labels."""
    status, body = await asyncio.to_thread(_request, worker.status_address, "/metrics")
    assert status == 200
    lines = [line.rsplit(" ", 1) for line in body.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def _request(address: str, path: str) -> tuple[int, str]:
    connection = HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()
