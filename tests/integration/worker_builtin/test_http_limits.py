"""A receiver that never stops, hardly speaks or says nothing costs a worker neither memory nor time."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from mainspring.worker.builtin import RequestFailed
from mainspring.worker.builtin.answers import LONGEST_BODY
from tests.integration.worker_builtin.receiver import Received, Receiver
from tests.integration.worker_builtin.sending import http_handler, send
from tests.unit.worker_builtin.runs import run_of

GENEROUS = 60
PIECE = b"x" * 65_536
SOCKET_BUFFERS = 32 * 1024 * 1024
"""More than two kernels' buffers hold of a connection that nobody reads."""


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", PIECE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", PIECE),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + PIECE + b"\r\n"),
    ],
    ids=["until-closed", "huge", "chunked"],
)
async def test_of_an_endless_body_the_first_64_kib_are_read_and_the_connection_is_closed(
    receiver: Receiver, head: bytes, piece: bytes
) -> None:
    async def endless(_request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await receiver.flood(writer, piece)

    receiver.on("/", endless)
    handler = http_handler()
    tracemalloc.start()
    try:
        result = await send(receiver.url(), handler)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result["body"] == "x" * LONGEST_BODY
    assert result["truncated"]
    async with asyncio.timeout(GENEROUS):
        await receiver.gone.wait()
    assert receiver.written < SOCKET_BUFFERS
    assert peak < 8 * 1024 * 1024


async def test_an_endless_head_is_a_failure_and_not_kept(receiver: Receiver) -> None:
    async def endless(_request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        await receiver.flood(writer, PIECE)

    receiver.on("/", endless)
    with pytest.raises(RequestFailed):
        await send(receiver.url())
    async with asyncio.timeout(GENEROUS):
        await receiver.gone.wait()
    assert receiver.written < SOCKET_BUFFERS


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\n", b"Y: z\r\n"),
    ],
    ids=["body", "head", "informational", "redirect"],
)
async def test_a_dripping_answer_ends_with_the_timeout(receiver: Receiver, head: bytes, piece: bytes) -> None:
    async def drip(_request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)

    receiver.on("/", drip)
    async with asyncio.timeout(GENEROUS):
        with pytest.raises(TimeoutError, match=r"had not answered within 0\.3 s"):
            await send(receiver.url(), timeout_seconds=0.3)
        await receiver.gone.wait()


async def silence(_request: Received, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_the_body_of_a_redirect_is_not_waited_for(receiver: Receiver) -> None:
    async def slow_redirect(_request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 307 X\r\nLocation: /there\r\nContent-Length: 5\r\n\r\n")
        await asyncio.Event().wait()

    receiver.on("/", slow_redirect)
    async with asyncio.timeout(GENEROUS):
        assert (await send(receiver.url(), timeout_seconds=GENEROUS))["status"] == 200


async def test_the_deadline_of_the_run_ends_it_too(receiver: Receiver) -> None:
    receiver.on("/", silence)
    async with asyncio.timeout(GENEROUS):
        with pytest.raises(TimeoutError):
            await send("", context=run_of({"url": receiver.url(), "timeout_seconds": 3600}, seconds=0.3))
        await receiver.gone.wait()


async def test_a_run_without_time_sends_nothing(receiver: Receiver) -> None:
    with pytest.raises(TimeoutError):
        await send("", context=run_of({"url": receiver.url()}, seconds=0))
    assert receiver.requests == []


async def test_a_cancelled_run_closes_its_connection(receiver: Receiver) -> None:
    asked = asyncio.Event()

    async def ask_and_be_silent(request: Received, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await silence(request, writer)

    receiver.on("/", ask_and_be_silent)
    run = asyncio.create_task(send(receiver.url(), timeout_seconds=GENEROUS))
    async with asyncio.timeout(GENEROUS):
        await asked.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await receiver.gone.wait()


async def test_many_requests_run_at_once(receiver: Receiver) -> None:
    """Each waits until all have come: were they sent one after the other, none would be answered."""
    everybody = asyncio.Barrier(50)

    async def wait_for_all(_request: Received, writer: asyncio.StreamWriter) -> None:
        await everybody.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    receiver.on("/", wait_for_all)
    handler = http_handler()
    async with asyncio.timeout(GENEROUS):
        results = await asyncio.gather(*(send(receiver.url(), handler) for _ in range(50)))
    assert {result["status"] for result in results} == {200}
