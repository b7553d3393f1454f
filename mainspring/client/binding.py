"""Turns functions that make calls into methods that send them: one definition of a route serves both clients.

    class Jobs(Resource):
        get = sends(routes.get)          # get(self, job: str) -> JobDetail
        list = iterates(routes.find)     # list(self, *, status=…) -> Iterator[Job]

Type checkers see the parameters of the route and the result of its call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from mainspring.client.core import Call, Listing
from mainspring.client.models import Page
from mainspring.client.transport import AsyncTransport, Transport

P = ParamSpec("P")
T = TypeVar("T")

PAGE = 1000
"""How many things are asked for at once when all are wanted."""


class Resource:
    """Routes of one kind, sent by a blocking transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


class AsyncResource:
    """The same in an event loop."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport


def sends(route: Callable[P, Call[T]]) -> Callable[Concatenate[Resource, P], T]:
    @wraps(route)
    def method(self: Resource, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._transport.send(route(*args, **kwargs))

    return method


def iterates(route: Callable[P, Listing[T]]) -> Callable[Concatenate[Resource, P], Iterator[T]]:
    @wraps(route)
    def method(self: Resource, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return _all(self._transport, route(*args, **kwargs))

    return method


def turns(
    route: Callable[P, Listing[T]],
) -> Callable[Concatenate[Resource, str | None, int | None, P], Page[T]]:
    """One page alone: the cursor of the page before, and how many things, come first."""

    @wraps(route)
    def method(
        self: Resource, cursor: str | None, limit: int | None, /, *args: P.args, **kwargs: P.kwargs
    ) -> Page[T]:
        return self._transport.send(route(*args, **kwargs).page(cursor, limit))

    return method


def awaits(route: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncResource, P], Awaitable[T]]:
    @wraps(route)
    async def method(self: AsyncResource, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._transport.send(route(*args, **kwargs))

    return method


def awaits_each(
    route: Callable[P, Listing[T]],
) -> Callable[Concatenate[AsyncResource, P], AsyncIterator[T]]:
    @wraps(route)
    def method(self: AsyncResource, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return _all_async(self._transport, route(*args, **kwargs))

    return method


def awaits_page(
    route: Callable[P, Listing[T]],
) -> Callable[Concatenate[AsyncResource, str | None, int | None, P], Awaitable[Page[T]]]:
    """One page alone."""

    @wraps(route)
    async def method(
        self: AsyncResource, cursor: str | None, limit: int | None, /, *args: P.args, **kwargs: P.kwargs
    ) -> Page[T]:
        return await self._transport.send(route(*args, **kwargs).page(cursor, limit))

    return method


def _all(transport: Transport, listing: Listing[T]) -> Iterator[T]:
    cursor: str | None = None
    while True:
        page = transport.send(listing.page(cursor, PAGE))
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


async def _all_async(transport: AsyncTransport, listing: Listing[T]) -> AsyncIterator[T]:
    cursor: str | None = None
    while True:
        page = await transport.send(listing.page(cursor, PAGE))
        for item in page.items:
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
