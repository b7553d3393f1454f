"""Calls to whichever member of etcd answers: deadlines, failover, repetition and the login.

The caller stays with one member as long as it answers and turns to the next when it does not. Each attempt
has two steps with a deadline each, because they fail differently. While *connecting*, nothing has been sent:
every call may go to the next member. Once *sent*, only a repeatable call goes on (see `methods.py`); of any
other the outcome is unknown, and the caller of this caller must decide.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from grpc import ChannelConnectivity, aio

from mainspring.clock import Clock
from mainspring.etcd import wire_pb2 as wire
from mainspring.etcd.connections import Connector
from mainspring.etcd.failures import translate
from mainspring.etcd.methods import AUTHENTICATE, RANGE, Method, Request, Response
from mainspring.etcd.session import Metadata, Session
from mainspring.schema.errors import EtcdRefused, EtcdUnavailable
from mainspring.settings import EtcdSettings

# One member may think this long: longer than a change of etcd's leader usually takes.
ATTEMPT_SECONDS = 2.0
CONNECT_SECONDS = 1.0
# No further attempt begins after this.
CALL_SECONDS = 6.0

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 0.5


def pauses(members: int) -> Iterator[float]:
    """How long to wait before each further attempt: not at all until every member had its turn."""
    longest = _FIRST_PAUSE_SECONDS
    while True:
        yield from [0.0] * (members - 1)
        yield longest * random.uniform(0.5, 1.0)  # noqa: S311
        longest = min(longest * 2, _LONGEST_PAUSE_SECONDS)


class Caller:
    """The members of one etcd, the connection to each, and the one in use."""

    def __init__(self, settings: EtcdSettings, clock: Clock) -> None:
        self._addresses = settings.endpoints
        self._connector = Connector(settings)
        self._session = Session(settings.login)
        self._logging_in = asyncio.Lock()
        self._clock = clock
        self._channels: dict[str, aio.Channel] = {}
        self._current = self._connector.first()

    def pauses(self) -> Iterator[float]:
        return pauses(len(self._addresses))

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def call(self, method: Method[Request, Response], request: Request, *, lease: int = 0) -> Response:
        """Ask until a member answers, for at most `CALL_SECONDS` and the attempt then under way.

        `lease` is the one that the request names: NOT_FOUND is about it.
        """
        deadline = self._clock.monotonic() + CALL_SECONDS
        for pause in self.pauses():
            try:
                return await self._attempt(method, request, lease)
            except EtcdUnavailable as error:
                if error.maybe_applied or self._clock.monotonic() + pause >= deadline:
                    raise
            await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    @asynccontextmanager
    async def stream(
        self, method: Method[Request, Response], requests: AsyncIterator[Request]
    ) -> AsyncIterator[aio.StreamStreamCall[Request, Response]]:
        """An open stream to the member in use, ended with the block, or by etcd when it loses its quorum."""
        with self._leaving_if_silent() as address:
            channel = await self._connected(address)
            metadata = (*await self._logged_in(channel, address), ("hasleader", "true"))
            stream = channel.stream_stream(method.path, method.encode, method.decode)(
                requests, metadata=metadata
            )
            try:
                yield stream
            except aio.AioRpcError as error:
                raise translate(error, address) from error
            finally:
                stream.cancel()

    async def _attempt(self, method: Method[Request, Response], request: Request, lease: int) -> Response:
        """Ask the member in use; a refusal that a fresh token may change is asked once more."""
        with self._leaving_if_silent() as address:
            channel = await self._connected(address)
            metadata = await self._logged_in(channel, address)
            try:
                return await _send(channel, address, method, request, metadata, lease)
            except EtcdRefused as refused:
                if not self._session.can_renew(refused):
                    raise
            self._session.forget(metadata)
            metadata = await self._logged_in(channel, address)
            return await _send(channel, address, method, request, metadata, lease)

    @contextmanager
    def _leaving_if_silent(self) -> Iterator[str]:
        """The address of the member in use; if it does not answer, the next one is in use from then on."""
        number = self._current
        try:
            yield self._addresses[number]
        except EtcdUnavailable:
            if self._current == number:  # a call beside this one may have left it already
                self._current = (number + 1) % len(self._addresses)
            raise

    async def _connected(self, address: str) -> aio.Channel:
        """The channel to a member, ready to send, or the certainty that nothing was sent."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._connector.open(address)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                while (state := channel.get_state(try_to_connect=True)) is not ChannelConnectivity.READY:
                    if state is ChannelConnectivity.TRANSIENT_FAILURE:
                        # gRPC goes on connecting by itself, and says only to a call why that fails. This
                        # call changes nothing and fails at once, unless the connection is there after all.
                        with suppress(EtcdRefused):
                            await _send(channel, address, RANGE, wire.RangeRequest(key=b"\0"))
                    else:
                        await channel.wait_for_state_change(state)
        except TimeoutError as error:
            raise EtcdUnavailable(f"{address}: no connection within {CONNECT_SECONDS:g} s") from error
        return channel

    async def _logged_in(self, channel: aio.Channel, address: str) -> Metadata:
        """What authenticates a request; calls side by side share one login."""
        async with self._logging_in:
            login = self._session.login_request()
            if login is not None:
                try:
                    answer = await _send(channel, address, AUTHENTICATE, login)
                except EtcdRefused as refused:
                    self._session.accept_refusal(refused)
                else:
                    self._session.accept(answer.token)
            return self._session.metadata()


async def _send(
    channel: aio.Channel,
    address: str,
    method: Method[Request, Response],
    request: Request,
    metadata: Metadata = (),
    lease: int = 0,
) -> Response:
    send = channel.unary_unary(method.path, method.encode, method.decode)
    try:
        return await send(request, timeout=ATTEMPT_SECONDS, metadata=metadata)
    except aio.AioRpcError as error:
        raise translate(error, address, changes=not method.repeatable, lease=lease) from error
