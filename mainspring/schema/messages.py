"""The Kafka message: a fixed prefix, then the job's ready bytes.

In the hot second half a million messages leave. What differs between the runs of one cadence in one bucket
is only the job, so the prefix is encoded once per cadence and bucket, the job's bytes once per edit of the
job (they are stored in `jobs.body` and held ready by the leader), and a message costs one concatenation:
`assemble`.

    prefix, 48 bytes, big-endian; a reserved byte is zero, and refused otherwise: it may get a meaning later
      B version        of this prefix: 1
      B flags          bit 0: 25 bytes of trace context stand between prefix and body; other bits: refused
      H attempt        1 for a first attempt
      H retries        how many retries of the job's budget are spent; a redrive starts again at 0
      B losses         how often its worker died: after the first it is claimed alone, after the fifth dead
      B reserved
      H shard          with `second`, where the ledger counts this message
      H reserved
      I second         the bucket: the unix second in which it was due; lateness is counted from here
      q scheduled_at   µs since 1970, UTC
      q following      the cadence's next occurrence after this one, µs; 0: there is none
      q epoch          of the term that published it
      Q position       how far the publisher had read the change feed (an xid8)

    trace context, 25 bytes: trace id (16), parent span id (8), trace flags (1), as in W3C Trace Context

    body
      B version        of this body: 1; not the prefix's, because bodies are stored and prefixes are not
      B priority       0–9
      B missed window, B overlap, B backoff    positions in the tuples below
      B reserved
      H max_retries
      q job_id
      I tenant_id
      I version of the job
      I timeout_seconds
      I grace_seconds
      H H B H I        lengths of what follows, in bytes:
      handler, name, timezone, idempotency key template (all UTF-8; name and template may be empty: none),
      payload (JSON, not parsed here)

Whoever decodes refuses what it does not know, with the reason: an unknown version or flag, a length that does
not add up to the end exactly, a code without meaning. Guessing would execute the wrong thing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from mainspring.schema.errors import InvalidInput, UnreadableMessage
from mainspring.schema.ids import MAXIMUM_MICROSECONDS
from mainspring.schema.states import HIGHEST_PRIORITY, MAXIMUM_ATTEMPT, Backoff, MissedPolicy, Overlap

PREFIX_VERSION = 1
BODY_VERSION = 1
# Kafka's default limit of a message is 1 MiB; the table holds a body to the same bound.
MAXIMUM_BODY = 1_000_000

_PREFIX = struct.Struct(">BBHHBBHHIqqqQ")
_BODY = struct.Struct(">BBBBBBHqIIIIHHBHI")
_TRACE = struct.Struct(">16s8sB")
_SHARD = struct.Struct(">H")
_SECOND = struct.Struct(">I")
_HAS_TRACE = 0x01
_make = tuple.__new__
"""A named tuple from a tuple: its own call costs as much again as all the rest of decoding."""
_PREFIX_SIZE = _PREFIX.size
_BODY_SIZE = _BODY.size

# Codes on the wire are positions here: append only.
_MISSED_POLICIES = (MissedPolicy.SKIP, MissedPolicy.RUN_ONCE, MissedPolicy.RUN_ALL)
_OVERLAPS = (Overlap.ALLOW, Overlap.SKIP, Overlap.QUEUE_ONE, Overlap.CANCEL_RUNNING)
_BACKOFFS = (Backoff.EXPONENTIAL, Backoff.LINEAR, Backoff.FIXED, Backoff.NONE)


class TraceContext(NamedTuple):
    """Who asked for this, in the terms of W3C Trace Context."""

    trace_id: bytes
    span_id: bytes
    flags: int


class JobDefinition(NamedTuple):
    """What a worker must know of a job to run it."""

    job_id: int
    tenant_id: int
    version: int
    handler: str
    payload_json: bytes = b"null"
    name: str = ""
    timezone: str = "UTC"
    idempotency_key_template: str = ""
    priority: int = 5
    missed_window: MissedPolicy = MissedPolicy.RUN_ONCE
    overlap: Overlap = Overlap.ALLOW
    backoff: Backoff = Backoff.EXPONENTIAL
    max_retries: int = 3
    timeout_seconds: int = 300
    grace_seconds: int = 60

    def payload(self) -> Any:
        """The payload as Python sees it; bytes that are no JSON are an unreadable message."""
        try:
            return json.loads(self.payload_json)
        except (ValueError, RecursionError) as error:
            raise UnreadableMessage(f"the payload is not JSON: {error}") from error


class Message(NamedTuple):
    """One run to be executed, as a worker receives it."""

    attempt: int
    retries: int
    losses: int
    shard: int
    second: int
    scheduled_at: int
    following: int
    epoch: int
    position: int
    trace: TraceContext | None
    job: JobDefinition


def encode_prefix(
    *,
    attempt: int,
    shard: int,
    second: int,
    scheduled_at: int,
    epoch: int,
    position: int,
    following: int = 0,
    retries: int = 0,
    losses: int = 0,
    trace: TraceContext | None = None,
) -> bytes:
    """What stands before the job's bytes: the same for all runs of one cadence in one bucket."""
    if not 1 <= attempt <= MAXIMUM_ATTEMPT:
        raise InvalidInput("attempt", f"{attempt} is not in 1–{MAXIMUM_ATTEMPT}")
    fault = _instant_fault(scheduled_at, following)
    if fault:
        raise InvalidInput("scheduled_at", fault)
    if epoch < 0:
        raise InvalidInput("epoch", f"{epoch} is negative")
    flags = _HAS_TRACE if trace else 0
    try:
        prefix = _PREFIX.pack(
            PREFIX_VERSION,
            flags,
            attempt,
            retries,
            losses,
            0,
            shard,
            0,
            second,
            scheduled_at,
            following,
            epoch,
            position,
        )
    except struct.error as error:
        raise InvalidInput("message prefix", str(error)) from error
    return prefix + _encode_trace(trace) if trace else prefix


def encode_job(job: JobDefinition) -> bytes:
    """The job's ready bytes: made when the job is written, stored with it, sent as they are."""
    if not 0 <= job.priority <= HIGHEST_PRIORITY:
        raise InvalidInput("priority", f"{job.priority} is not in 0–{HIGHEST_PRIORITY}")
    if job.job_id < 1 or job.version < 1 or job.timeout_seconds < 1 or not job.handler:
        raise InvalidInput("job", "id, version and timeout must be positive and the handler not empty")
    try:
        texts = [
            text.encode() for text in (job.handler, job.name, job.timezone, job.idempotency_key_template)
        ]
        header = _BODY.pack(
            BODY_VERSION,
            job.priority,
            _MISSED_POLICIES.index(job.missed_window),
            _OVERLAPS.index(job.overlap),
            _BACKOFFS.index(job.backoff),
            0,
            job.max_retries,
            job.job_id,
            job.tenant_id,
            job.version,
            job.timeout_seconds,
            job.grace_seconds,
            *map(len, texts),
            len(job.payload_json),
        )
    except struct.error as error:
        raise InvalidInput("job", str(error)) from error
    except UnicodeEncodeError as error:
        raise InvalidInput("job", f"a text cannot be written as UTF-8: {error.reason}") from error
    body = b"".join((header, *texts, job.payload_json))
    if len(body) > MAXIMUM_BODY:
        raise InvalidInput("payload", f"the job takes {len(body)} bytes, more than {MAXIMUM_BODY}")
    return body


def assemble(prefix: bytes, bodies: Iterable[bytes]) -> list[bytes]:
    """The messages of one bucket. This is the hot path: one concatenation per run, and nothing else."""
    return [prefix + body for body in bodies]


def decode(message: bytes) -> Message:
    """Read a message, or raise UnreadableMessage saying what about it this version does not know."""
    if len(message) < _PREFIX_SIZE:
        raise UnreadableMessage(f"{len(message)} bytes are shorter than the prefix of {_PREFIX_SIZE}")
    flags, fields = _decode_prefix(message[:_PREFIX_SIZE])
    trace = _decode_trace(message) if flags else None
    job = decode_job(message, _PREFIX_SIZE + _TRACE.size if flags else _PREFIX_SIZE)
    return _make(Message, (*fields, trace, job))


@lru_cache(maxsize=1024)
def _decode_prefix(prefix: bytes) -> tuple[int, tuple[int, ...]]:
    """Flags, then the fields of a message in their order: in a hot second thousands have one prefix."""
    (
        version, flags, attempt, retries, losses, reserved, shard, reserved_too, second,
        scheduled_at, following, epoch, position,
    ) = _PREFIX.unpack(prefix)  # fmt: skip
    if version != PREFIX_VERSION:
        raise UnreadableMessage(f"prefix version {version}, this process reads {PREFIX_VERSION}")
    if flags & ~_HAS_TRACE:
        raise UnreadableMessage(f"unknown flags {flags:#04x}")
    if not 1 <= attempt <= MAXIMUM_ATTEMPT:
        raise UnreadableMessage(f"attempt {attempt} is not in 1–{MAXIMUM_ATTEMPT}")
    fault = _instant_fault(scheduled_at, following)
    if fault:
        raise UnreadableMessage(f"scheduled_at {fault}")
    if epoch < 0:
        raise UnreadableMessage(f"epoch {epoch} is negative")
    if reserved or reserved_too:
        raise UnreadableMessage("a reserved byte of the prefix is not zero")
    return flags, (attempt, retries, losses, shard, second, scheduled_at, following, epoch, position)


def peek_shard(message: bytes) -> int:
    """The shard of a message that this process itself has assembled, without decoding the rest."""
    shard: int = _SHARD.unpack_from(message, 8)[0]
    return shard


def peek_second(message: bytes) -> int:
    """The second in which such a message was due."""
    second: int = _SECOND.unpack_from(message, 12)[0]
    return second


def decode_job(data: bytes, start: int = 0) -> JobDefinition:
    """Read a job's bytes, as stored or from the given place of a message to its end."""
    if len(data) - start < _BODY_SIZE:
        raise UnreadableMessage(
            f"the body's {len(data) - start} bytes are fewer than its {_BODY_SIZE} fixed ones"
        )
    (
        body_version, priority, missed, overlap, backoff, reserved, max_retries, job_id, tenant_id, version,
        timeout, grace,
        handler_size, name_size, zone_size, template_size, payload_size,
    ) = _BODY.unpack_from(data, start)  # fmt: skip
    if body_version != BODY_VERSION:
        raise UnreadableMessage(f"body version {body_version}, this process reads {BODY_VERSION}")
    name_at = start + _BODY_SIZE + handler_size
    zone_at = name_at + name_size
    template_at = zone_at + zone_size
    payload_at = template_at + template_size
    if payload_at + payload_size != len(data):
        raise UnreadableMessage(
            f"the body's lengths end at {payload_at + payload_size}, it ends at {len(data)}"
        )
    if job_id < 1 or version < 1 or timeout < 1 or not handler_size or priority > HIGHEST_PRIORITY:
        raise UnreadableMessage("the body's id, version, timeout, handler or priority is out of range")
    if reserved:
        raise UnreadableMessage("a reserved byte of the body is not zero")
    try:
        return _make(
            JobDefinition,
            (
                job_id,
                tenant_id,
                version,
                data[start + _BODY_SIZE : name_at].decode(),
                data[payload_at:],
                data[name_at:zone_at].decode() if name_size else "",
                data[zone_at:template_at].decode() if zone_size else "",
                data[template_at:payload_at].decode() if template_size else "",
                priority,
                _MISSED_POLICIES[missed],
                _OVERLAPS[overlap],
                _BACKOFFS[backoff],
                max_retries,
                timeout,
                grace,
            ),
        )
    except UnicodeDecodeError as error:
        raise UnreadableMessage(f"a text of the body is not UTF-8: {error.reason}") from error
    except IndexError as error:
        raise UnreadableMessage(f"unknown policy codes {missed}, {overlap}, {backoff}") from error


def _instant_fault(scheduled_at: int, following: int) -> str | None:
    if not 0 <= scheduled_at <= MAXIMUM_MICROSECONDS:
        return f"{scheduled_at} is not between the years 1970 and 9999"
    if following and not scheduled_at < following <= MAXIMUM_MICROSECONDS:
        return f"{scheduled_at} does not lie before the following occurrence {following}"
    return None


def _encode_trace(trace: TraceContext) -> bytes:
    if len(trace.trace_id) != 16 or len(trace.span_id) != 8 or not 0 <= trace.flags <= 255:
        raise InvalidInput("trace", "a trace id has 16 bytes, a span id 8 and the flags one")
    return _TRACE.pack(*trace)


def _decode_trace(message: bytes) -> TraceContext:
    if len(message) < _PREFIX_SIZE + _TRACE.size:
        raise UnreadableMessage("the message ends inside its trace context")
    return TraceContext(*_TRACE.unpack_from(message, _PREFIX_SIZE))
