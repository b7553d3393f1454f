"""Real requests: a server is ready when it has answered one, not when its port is open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import asyncpg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from mainspring.local.waiting import in_thread

_TIMEOUT_SECONDS = 2.0
# A linearizable read of a key that nobody writes: answered only with a quorum behind the member.
_ETCD_RANGE = json.dumps({"key": "bWFpbnNwcmluZw=="}).encode()


async def postgres_answers(dsn: str) -> bool:
    """Whether Postgres executes `SELECT 1`."""
    try:
        connection = await asyncpg.connect(dsn, timeout=_TIMEOUT_SECONDS, command_timeout=_TIMEOUT_SECONDS)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    try:
        return bool(await connection.fetchval("SELECT 1") == 1)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    finally:
        connection.terminate()


async def brokers_seen(address: str) -> set[str]:
    """The brokers, as host:port, that the broker at `address` knows of; empty when it does not answer."""
    if not await listens(address):
        return set()  # asking librdkafka would take its whole timeout
    return await kafka_answer({"bootstrap.servers": address})


async def kafka_answer(connection: Mapping[str, str]) -> set[str]:
    """The brokers that a cluster tells of, reached by this part of a librdkafka configuration."""
    return await in_thread(lambda: _brokers_seen(connection))


def _brokers_seen(connection: Mapping[str, str]) -> set[str]:
    client = AdminClient(
        {
            **connection,
            "log_level": 0,
            "socket.timeout.ms": int(_TIMEOUT_SECONDS * 1000),
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
        }
    )
    try:
        metadata = client.list_topics(timeout=_TIMEOUT_SECONDS)
    except KafkaException:
        return set()
    return {f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}


async def etcd_answers(address: str) -> bool:
    """Whether an etcd member answers a linearizable range."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return b" 200 " in await _post(address, "/v3/kv/range", _ETCD_RANGE)
    except (OSError, TimeoutError):
        return False


async def says_ready(address: str) -> bool:
    """Whether a process of ours answers `/readyz` with 200."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return b" 200 " in await _ask(address, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    except (OSError, TimeoutError, ValueError):
        return False


async def _post(address: str, path: str, body: bytes) -> bytes:
    """The status line of the answer. HTTP/1.0: one request, one answer, closed."""
    head = f"POST {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return await _ask(address, head.encode() + body)


async def _ask(address: str, request: bytes) -> bytes:
    """The first line that is answered."""
    reader, writer = await asyncio.open_connection(*_split(address))
    try:
        writer.write(request)
        await writer.drain()
        return await reader.readline()
    finally:
        writer.transport.abort()


async def listens(address: str) -> bool:
    """Whether somebody accepts connections there; says nothing about who."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(*_split(address))
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
