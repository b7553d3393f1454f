"""Many jobs in one request: NDJSON in, an answer per line out, in constant memory.

    lines ─▶ chunks of CHUNK lines ─▶ read, checked ─▶ one transaction, one COPY ─▶ answers ─▶ spool ─▶ client

While one chunk is written by Postgres the next one is read here; no more than these two are held. What a
line is refused for stands in its answer, and the other lines of its chunk are written all the same. A chunk
is cut by its content (so many lines, so many bytes), not by how the network delivered it: sent again with
the same Idempotency-Key, each chunk finds what became of it, and a batch that broke off is resumed by
sending it again.

**Answers never hold up the request.** Most clients send all they have before they read, so a server that
waited for its answers to be taken would wait for ever. Answers go through a spool: a file without a name
once they are many.

**What breaks.** A database that goes away ends the batch: the last line says at which line, and with which
problem. Everything answered before is durable; what the chunk under way did is not known, unless the
request had a key. A client that goes away ends it too: whole chunks are there, and nothing else.

**Atomic**: at most MOST_ATOMIC lines, all read before the first is written, then one transaction with one
COPY; or nothing, and the refused lines.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import IO, Any, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mainspring.api.access import Caller
from mainspring.api.idempotency import Key, KeyTaken, Stored
from mainspring.api.payloads import check_payload
from mainspring.api.problems import TooLarge, describe
from mainspring.api.reading import parse_json
from mainspring.registry import JobRequest, values
from mainspring.registry.dependencies import WrongParents
from mainspring.registry.edge import Connection, connected
from mainspring.registry.reader import RequestReader
from mainspring.schema.errors import (
    Contended,
    InvalidInput,
    MainspringError,
    NameTaken,
    NotAllowed,
    QuotaExceeded,
)
from mainspring.schema.ids import format_job_ids

MEDIA_TYPE = "application/x-ndjson"
MEDIA_TYPES = (MEDIA_TYPE, "application/ndjson", "application/jsonl", "application/json-lines")
CHUNK = 5_000
"""Lines: a COPY of so many is as fast as one of more, and its locks are short."""
CHUNK_BYTES = 8_000_000
MOST_ATOMIC = 100_000
MOST_ATOMIC_BYTES = 100_000_000
SPOOL_BYTES = 1_000_000
"""Answers not yet taken that are held in memory."""

_SLICE = 500  # lines read at a stretch, before others have their turn
_ATTEMPTS = 5
_PIECE = 64 * 1024


class Line(NamedTuple):
    """One line, with its number in the request; no text means that it was too long."""

    number: int
    text: bytes | None


@dataclass(slots=True)
class Chunk:
    """Consecutive lines, and what becomes of them."""

    index: int
    lines: list[Line]
    digest: bytes = b""
    accepted: list[int] = field(default_factory=list)
    requests: list[JobRequest] = field(default_factory=list)
    refused: dict[int, dict[str, Any]] = field(default_factory=dict)
    first_id: int | None = None

    def refuse(self, number: int, error: MainspringError) -> None:
        self.refused[number] = describe(error)

    def drop(self, refusals: Mapping[int, MainspringError]) -> None:
        """Refuse some of the accepted ones, by position."""
        for position, error in refusals.items():
            self.refuse(self.accepted[position], error)
        kept = [position for position in range(len(self.accepted)) if position not in refusals]
        self.accepted = [self.accepted[position] for position in kept]
        self.requests = [self.requests[position] for position in kept]


async def cut(
    parts: AsyncIterator[bytes], line_bytes: int, lines: int, size: int
) -> AsyncIterator[list[Line]]:
    """Lines out of what the network brings, in chunks; blank lines count, and mean nothing."""
    rest, too_long, number = b"", False, 0
    chunk: list[Line] = []
    held = 0
    async for part in parts:
        found = (rest + part).split(b"\n")
        rest = found.pop()
        for text in found:
            number += 1
            whole = None if too_long or len(text) > line_bytes else text
            too_long = False
            if whole is not None and not whole.strip():
                continue
            chunk.append(Line(number, whole))
            held += len(text)
            if len(chunk) >= lines or held >= size:
                yield chunk
                chunk, held = [], 0
        if len(rest) > line_bytes:
            rest, too_long = b"", True
    if too_long or rest.strip():
        chunk.append(Line(number + 1, None if too_long or len(rest) > line_bytes else rest))
    if chunk:
        yield chunk


class Batch:
    """One request's lines, from reading to answering."""

    def __init__(self, caller: Caller, key: str | None, *, line_bytes: int) -> None:
        self._caller = caller
        self._services = caller.services
        self._key = key
        self._line_bytes = line_bytes
        self._reader = RequestReader()
        self._index = 0
        self.created = 0
        self.refused = 0

    async def run(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Answers, chunk by chunk, then the summary."""
        under_way: asyncio.Task[bytes] | None = None
        first = 1
        try:
            async for lines in cut(parts, self._line_bytes, CHUNK, CHUNK_BYTES):
                chunk = await self._read(lines)
                if under_way is not None:
                    yield await under_way
                    under_way = None
                first = lines[0].number
                under_way = asyncio.create_task(self._settle(chunk), name="api-batch-chunk")
            if under_way is not None:
                yield await under_way
            yield self._summary()
        except MainspringError as error:
            yield self._summary(problem=describe(error), next_line=first)
        finally:
            if under_way is not None and not under_way.done():
                under_way.cancel()

    async def run_atomic(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """All or none: the answers of all lines, or the refusals alone."""
        chunk = Chunk(0, [])
        digest, held = sha256(), 0
        try:
            async for lines in cut(parts, self._line_bytes, CHUNK, CHUNK_BYTES):
                held += sum(len(line.text or b"") for line in lines)
                if len(chunk.lines) + len(lines) > MOST_ATOMIC or held > MOST_ATOMIC_BYTES:
                    raise _too_much()
                part = await self._read(lines)
                digest.update(part.digest)
                chunk.lines += [Line(line.number, None) for line in part.lines]
                chunk.accepted += part.accepted
                chunk.requests += part.requests
                chunk.refused |= part.refused
            chunk.digest = digest.digest()
            if not chunk.refused:
                await self._write_all(chunk)
        except MainspringError as error:
            yield self._summary(problem=describe(error), next_line=1)
            return
        if chunk.refused:
            chunk.lines = [line for line in chunk.lines if line.number in chunk.refused]
            chunk.accepted = []
        yield self._answer(chunk)
        yield self._summary()

    async def _read(self, lines: list[Line]) -> Chunk:
        """Read each line, in slices, so that others have their turn."""
        chunk = Chunk(self._index, lines)
        self._index += 1
        if self._key is not None:
            chunk.digest = sha256(b"\n".join(line.text or b"" for line in lines)).digest()
        for start in range(0, len(lines), _SLICE):
            for line in lines[start : start + _SLICE]:
                self._read_line(chunk, line)
            await asyncio.sleep(0)
        return chunk

    def _read_line(self, chunk: Chunk, line: Line) -> None:
        try:
            if line.text is None:
                raise TooLarge("line", f"has more than {self._line_bytes} bytes")
            request = self._reader.read(values.read_object("line", parse_json(line.text)))
        except InvalidInput as error:
            chunk.refuse(line.number, error)
        else:
            chunk.accepted.append(line.number)
            chunk.requests.append(request)

    async def _settle(self, chunk: Chunk) -> bytes:
        """Write what can be written of a chunk; its answers."""
        key = self._chunk_key(chunk)
        for _ in range(_ATTEMPTS):
            if key is not None and await self._replay(chunk, key):
                break
            await self._examine(chunk)
            try:
                await self._write(chunk, key)
            except NameTaken as error:
                chunk.drop(_of_names(chunk, error))
            except WrongParents as error:
                chunk.drop(_waiting(chunk, error))
            except NotAllowed:
                chunk.drop(self._forbidden(chunk))
            except QuotaExceeded as error:
                room = max(0, error.room)
                chunk.drop(dict.fromkeys(range(room, len(chunk.requests)), error))
            except KeyTaken:
                continue
            else:
                break
        else:
            chunk.drop(dict.fromkeys(range(len(chunk.requests)), Contended("these jobs")))
        return self._answer(chunk)

    async def _write_all(self, chunk: Chunk) -> None:
        """The same for all or none: the first refusal ends it."""
        key = self._chunk_key(chunk)
        if key is not None and await self._replay(chunk, key):
            return
        await self._examine(chunk)
        if chunk.refused:
            return
        try:
            await self._write(chunk, key)
        except NameTaken as error:
            chunk.drop(_of_names(chunk, error))
        except WrongParents as error:
            chunk.drop(_waiting(chunk, error))
        except NotAllowed:
            chunk.drop(self._forbidden(chunk))
        except KeyTaken:
            assert key is not None
            await self._replay(chunk, key)

    async def _write(self, chunk: Chunk, key: Key | None) -> None:
        if not chunk.requests:
            return

        async def witness(connection: Connection, ids: Sequence[int]) -> None:
            if key is not None:
                await key.keep(connection, Stored(200, _pack(chunk, ids[0])))

        registry, actor = self._services.registry, self._caller.actor(witness)
        ids = await registry.create_many(self._caller.tenant_id, chunk.requests, by=actor)
        chunk.first_id = ids[0]
        self._services.metrics.registered.inc(len(ids))

    async def _examine(self, chunk: Chunk) -> None:
        """Hold payloads against the schemas of their handlers: one statement."""
        handlers = list({request.handler for request in chunk.requests})
        if not handlers:
            return
        async with connected(self._services.pool) as connection:
            validators = await self._services.schemas.validators(connection, self._caller.tenant_id, handlers)
        refusals: dict[int, MainspringError] = {}
        for position, request in enumerate(chunk.requests if validators else ()):
            try:
                if request.handler in validators:
                    check_payload(validators[request.handler], request)
            except InvalidInput as error:
                refusals[position] = error
        if refusals:
            chunk.drop(refusals)

    def _forbidden(self, chunk: Chunk) -> dict[int, MainspringError]:
        actor, refusals = self._caller.actor(), dict[int, MainspringError]()
        for position, request in enumerate(chunk.requests):
            try:
                actor.permit(request.handler)
            except NotAllowed as error:
                refusals[position] = error
        return refusals

    def _chunk_key(self, chunk: Chunk) -> Key | None:
        if self._key is None:
            return None
        return Key(self._caller.tenant_id, self._key, chunk.digest, chunk.index)

    async def _replay(self, chunk: Chunk, key: Key) -> bool:
        """What became of the chunk when it was sent before, if it was."""
        async with connected(self._services.pool) as connection:
            stored = await key.find(connection)
        if stored is not None:
            _unpack(chunk, stored.answer)
        return stored is not None

    def _answer(self, chunk: Chunk) -> bytes:
        """A line for each: an id or a problem, in the order of the lines."""
        self.created += len(chunk.accepted)
        self.refused += len(chunk.refused)
        ids = iter(_ids(chunk))
        parts = []
        for line in chunk.lines:
            problem = chunk.refused.get(line.number)
            if problem is None:
                parts.append(f'{{"line":{line.number},"job_id":"{next(ids)}"}}\n')
            else:
                parts.append(_line({"line": line.number, "problem": problem}))
        return "".join(parts).encode()

    def _summary(self, **more: Any) -> bytes:
        return _line({"summary": {"created": self.created, "refused": self.refused, **more}}).encode()


class BatchResponse(Response):
    """Sends answers as the client takes them, while the request is still being read."""

    def __init__(self, answers: Callable[[], AsyncIterator[bytes]]) -> None:
        super().__init__(media_type=MEDIA_TYPE)
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with Spool() as spool:
            gone = False
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._fill(spool), name="api-batch-fill")
                    tasks.create_task(_drain(spool, send), name="api-batch-drain")
            except* (ClientDisconnect, OSError):
                gone = True
        if not gone:
            await send({"type": "http.response.body", "body": b""})

    async def _fill(self, spool: Spool) -> None:
        try:
            async for answers in self._answers():
                spool.write(answers)
        finally:
            spool.finish()


class Spool:
    """Answers between who makes them and who takes them; beyond some bytes, a file without a name."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115 (closed by __exit__)
        self._written = self._read = 0
        self._more = asyncio.Event()
        self._finished = False

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, answers: bytes) -> None:
        if self._read == self._written:  # all taken: begin anew, so that a fast reader needs no file
            self._file.seek(0)
            self._file.truncate()
            self._read = self._written = 0
        self._file.seek(self._written)
        self._written += self._file.write(answers)
        self._more.set()

    def finish(self) -> None:
        self._finished = True
        self._more.set()

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            self._more.clear()
            while self._read < self._written:
                self._file.seek(self._read)
                piece = self._file.read(min(_PIECE, self._written - self._read))
                self._read += len(piece)
                yield piece
            if self._finished and self._read == self._written:
                return
            if not self._finished:
                await self._more.wait()


async def _drain(spool: Spool, send: Send) -> None:
    async for piece in spool.pieces():
        await send({"type": "http.response.body", "body": piece, "more_body": True})


def _of_names(chunk: Chunk, error: NameTaken) -> dict[int, MainspringError]:
    """Those whose name exists; of those that have one name, all but the first."""
    taken, seen, refusals = set(error.names), set[str](), dict[int, MainspringError]()
    repeated = len({request.name for request in chunk.requests if request.name in taken}) < sum(
        request.name in taken for request in chunk.requests
    )
    for position, request in enumerate(chunk.requests):
        if request.name not in taken:
            continue
        assert request.name is not None
        if not repeated or request.name in seen:
            refusals[position] = NameTaken((request.name,))
        seen.add(request.name)
    return refusals


def _waiting(chunk: Chunk, error: WrongParents) -> dict[int, MainspringError]:
    """Those that wait for a job which cannot be waited for."""
    return {
        position: error
        for position, request in enumerate(chunk.requests)
        if not error.parents.isdisjoint(request.after)
    }


def _too_much() -> TooLarge:
    return TooLarge(
        "body", f"has more than {MOST_ATOMIC} lines or {MOST_ATOMIC_BYTES} bytes, too much for atomic"
    )


def _ids(chunk: Chunk) -> Iterator[str]:
    if chunk.first_id is None:
        return iter(())
    return format_job_ids(range(chunk.first_id, chunk.first_id + len(chunk.accepted)))


def _pack(chunk: Chunk, first_id: int) -> bytes:
    """What a chunk's key keeps: its ids are consecutive, so one of them is enough."""
    return json.dumps([first_id, chunk.accepted, list(chunk.refused.items())]).encode()


def _unpack(chunk: Chunk, answer: bytes) -> None:
    chunk.first_id, chunk.accepted, refused = json.loads(answer)
    chunk.requests, chunk.refused = [], dict(refused)


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"
