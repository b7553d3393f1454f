"""The wire format: pinned bytes, round trips, and a reason for every refusal."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schema.errors import InvalidInput, UnreadableMessage
from mainspring.schema.ids import MAXIMUM_ID, MAXIMUM_MICROSECONDS
from mainspring.schema.messages import (
    MAXIMUM_BODY,
    JobDefinition,
    Message,
    TraceContext,
    assemble,
    decode,
    decode_job,
    encode_job,
    encode_prefix,
)
from mainspring.schema.states import MAXIMUM_ATTEMPT, Backoff, MissedPolicy, Overlap

JOB = JobDefinition(
    job_id=0x0102_0304_0506_0708,
    tenant_id=9,
    version=3,
    handler="send-report",
    payload_json=b'{"to":"anna"}',
    name="daily",
    timezone="Europe/London",
    idempotency_key_template="report-{{week}}",
    priority=7,
    missed_window=MissedPolicy.RUN_ALL,
    overlap=Overlap.QUEUE_ONE,
    backoff=Backoff.LINEAR,
    max_retries=5,
    timeout_seconds=600,
    grace_seconds=90,
)
TRACE = TraceContext(bytes(range(16)), bytes(range(16, 24)), 1)
PREFIX: dict[str, Any] = {
    "attempt": 2,
    "retries": 1,
    "losses": 1,
    "shard": 63,
    "second": 0x6AFD_86C0,
    "scheduled_at": 0x0006_608C_30E3_4000,
    "following": 0x0006_608C_3476_9700,
    "epoch": 12,
    "position": 0x8000_0000_0000_0005,
}
# Written out by hand from the page at the top of the module, not printed by the code under test.
PREFIX_BYTES = bytes.fromhex(
    "01 00 0002 0001 01 00"  # version, flags, attempt, retries, losses, reserved
    "003f 0000 6afd86c0"  # shard, reserved, second
    "0006608c30e34000"  # scheduled_at
    "0006608c34769700"  # following
    "000000000000000c"  # epoch
    "8000000000000005"  # position
)
BODY_BYTES = (
    bytes.fromhex(
        "01 07 02 02 01 00 0005"  # version, priority, missed window, overlap, backoff, reserved, max_retries
        "0102030405060708 00000009 00000003"  # job_id, tenant_id, version of the job
        "00000258 0000005a"  # timeout, grace
        "000b 0005 0d 000f 0000000d"  # lengths
    )
    + b"send-report"
    + b"daily"
    + b"Europe/London"
    + b"report-{{week}}"
    + b'{"to":"anna"}'
)
TRACE_BYTES = bytes.fromhex("000102030405060708090a0b0c0d0e0f 1011121314151617 01")
MESSAGE = PREFIX_BYTES + BODY_BYTES
TRACED = PREFIX_BYTES[:1] + b"\x01" + PREFIX_BYTES[2:] + TRACE_BYTES + BODY_BYTES

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
definitions = st.builds(
    JobDefinition,
    job_id=st.integers(1, MAXIMUM_ID),
    tenant_id=st.integers(0, 2**32 - 1),
    version=st.integers(1, 2**32 - 1),
    handler=texts.filter(bool),
    payload_json=st.binary(max_size=200),
    name=texts,
    timezone=texts,
    idempotency_key_template=texts,
    priority=st.integers(0, 9),
    missed_window=st.sampled_from(MissedPolicy),
    overlap=st.sampled_from(Overlap),
    backoff=st.sampled_from(Backoff),
    max_retries=st.integers(0, 2**16 - 1),
    timeout_seconds=st.integers(1, 2**32 - 1),
    grace_seconds=st.integers(0, 2**32 - 1),
)
traces = st.builds(
    TraceContext, st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.integers(0, 255)
)
instants = st.integers(0, MAXIMUM_MICROSECONDS)


@st.composite
def prefixes(draw: st.DrawFn) -> dict[str, Any]:
    scheduled_at, following = sorted(draw(st.lists(instants, min_size=2, max_size=2, unique=True)))
    return {
        "attempt": draw(st.integers(1, MAXIMUM_ATTEMPT)),
        "retries": draw(st.integers(0, 2**16 - 1)),
        "losses": draw(st.integers(0, 255)),
        "shard": draw(st.integers(0, 2**16 - 1)),
        "second": draw(st.integers(0, 2**32 - 1)),
        "scheduled_at": scheduled_at,
        "following": draw(st.sampled_from([0, following])),
        "epoch": draw(st.integers(0, 2**63 - 1)),
        "position": draw(st.integers(0, 2**64 - 1)),
        "trace": draw(st.none() | traces),
    }


def changed(message: bytes, offset: int, value: bytes) -> bytes:
    return message[:offset] + value + message[offset + len(value) :]


def test_the_prefix_is_these_bytes() -> None:
    assert encode_prefix(**PREFIX) == PREFIX_BYTES
    assert len(PREFIX_BYTES) == 48


def test_the_body_is_these_bytes() -> None:
    assert encode_job(JOB) == BODY_BYTES


def test_the_codes_of_policies_are_these_bytes() -> None:
    codes: list[tuple[int, str, list[Any]]] = [
        (2, "missed_window", [MissedPolicy.SKIP, MissedPolicy.RUN_ONCE, MissedPolicy.RUN_ALL]),
        (3, "overlap", [Overlap.ALLOW, Overlap.SKIP, Overlap.QUEUE_ONE, Overlap.CANCEL_RUNNING]),
        (4, "backoff", [Backoff.EXPONENTIAL, Backoff.LINEAR, Backoff.FIXED, Backoff.NONE]),
    ]
    for offset, field, words in codes:
        written = [encode_job(JOB._replace(**{field: word}))[offset] for word in words]
        assert written == list(range(len(words)))


def test_trace_context_stands_between_prefix_and_body_and_a_flag_says_so() -> None:
    assert encode_prefix(**PREFIX, trace=TRACE) + encode_job(JOB) == TRACED
    assert decode(TRACED).trace == TRACE
    assert decode(TRACED)._replace(trace=None) == decode(MESSAGE)
    assert decode(MESSAGE).trace is None


def test_these_bytes_are_read_as_this_message() -> None:
    assert decode(MESSAGE) == Message(**PREFIX, trace=None, job=JOB)
    assert decode_job(BODY_BYTES) == JOB
    assert decode(MESSAGE).job.payload() == {"to": "anna"}


def test_a_bucket_is_one_prefix_before_many_bodies() -> None:
    others = [encode_job(JOB._replace(job_id=number)) for number in (1, 2)]
    messages = assemble(encode_prefix(**PREFIX), others)
    assert [decode(message).job.job_id for message in messages] == [1, 2]
    assert assemble(b"prefix", []) == []


@given(prefixes(), definitions)
def test_every_message_reads_back(prefix: dict[str, Any], job: JobDefinition) -> None:
    [message] = assemble(encode_prefix(**prefix), [encode_job(job)])
    assert decode(message) == Message(**prefix, job=job)


@given(definitions)
def test_every_stored_body_reads_back(job: JobDefinition) -> None:
    assert decode_job(encode_job(job)) == job


@pytest.mark.parametrize("message", [MESSAGE, TRACED])
def test_a_message_cut_at_any_length_is_refused(message: bytes) -> None:
    for length in range(len(message)):
        with pytest.raises(UnreadableMessage):
            decode(message[:length])


@pytest.mark.parametrize("message", [MESSAGE, TRACED])
def test_a_message_with_anything_behind_it_is_refused(message: bytes) -> None:
    with pytest.raises(UnreadableMessage, match=f"end at {len(message)}, it ends at {len(message) + 1}"):
        decode(message + b"\x00")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "0 bytes are shorter than the prefix of 48"),
        (MESSAGE[:47], "47 bytes are shorter than the prefix of 48"),
        (changed(MESSAGE, 0, b"\x00"), "prefix version 0, this process reads 1"),
        (changed(MESSAGE, 0, b"\x02"), "prefix version 2, this process reads 1"),
        (changed(MESSAGE, 1, b"\x02"), "unknown flags 0x02"),
        (changed(MESSAGE, 1, b"\x81"), "unknown flags 0x81"),
        (changed(MESSAGE, 2, b"\x00\x00"), "attempt 0 is not in 1–32767"),
        (changed(MESSAGE, 2, b"\x80\x00"), "attempt 32768 is not in 1–32767"),
        (changed(MESSAGE, 7, b"\x01"), "a reserved byte of the prefix is not zero"),
        (changed(MESSAGE, 10, b"\x00\x01"), "a reserved byte of the prefix is not zero"),
        (changed(MESSAGE, 16, b"\xff" * 8), "scheduled_at -1 is not between the years 1970 and 9999"),
        (
            changed(MESSAGE, 16, struct.pack(">q", MAXIMUM_MICROSECONDS + 1)),
            "is not between the years 1970 and 9999",
        ),
        (changed(MESSAGE, 24, MESSAGE[16:24]), "does not lie before the following occurrence"),
        (changed(MESSAGE, 24, b"\xff" * 8), "does not lie before the following occurrence -1"),
        (
            changed(MESSAGE, 24, struct.pack(">q", MAXIMUM_MICROSECONDS + 1)),
            "does not lie before the following occurrence",
        ),
        (changed(MESSAGE, 32, b"\xff" * 8), "epoch -1 is negative"),
        (TRACED[:72], "the message ends inside its trace context"),
        (TRACED[:73], "the body's 0 bytes are fewer than its 43 fixed ones"),
        (MESSAGE[:90], "the body's 42 bytes are fewer than its 43 fixed ones"),
        (MESSAGE[:-1], "the body's lengths end at 148, it ends at 147"),
    ],
)
def test_what_is_not_known_is_refused_with_the_reason(message: bytes, reason: str) -> None:
    with pytest.raises(UnreadableMessage) as refused:
        decode(message)
    assert reason in refused.value.reason
    assert str(refused.value) == f"unreadable message: {refused.value.reason}"


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (0, b"\x00", "body version 0, this process reads 1"),
        (0, b"\x02", "body version 2, this process reads 1"),
        (1, b"\x0a", "priority is out of range"),
        (2, b"\x03", "unknown policy codes 3, 2, 1"),
        (3, b"\x04", "unknown policy codes 2, 4, 1"),
        (4, b"\x04", "unknown policy codes 2, 2, 4"),
        (5, b"\x01", "a reserved byte of the body is not zero"),
        (8, bytes(8), "id, version, timeout, handler or priority is out of range"),
        (8, b"\xff" * 8, "id, version, timeout, handler or priority is out of range"),
        (20, bytes(4), "id, version, timeout, handler or priority is out of range"),
        (24, bytes(4), "id, version, timeout, handler or priority is out of range"),
        # A handler of no bytes, the name longer by as many: the lengths still add up.
        (32, b"\x00\x00\x00\x10", "id, version, timeout, handler or priority is out of range"),
        (32, b"\xff\xff", "the body's lengths end at"),
        (34, b"\x00\x06", "the body's lengths end at"),
        (39, b"\xff\xff\xff\xff", "the body's lengths end at"),
        (43, b"\xff", "a text of the body is not UTF-8: invalid start byte"),
        (58, b"\xc3", "a text of the body is not UTF-8"),
        (71, b"\x80", "a text of the body is not UTF-8"),
        (86, b"\xe2", "a text of the body is not UTF-8"),
    ],
)
def test_a_body_that_is_not_known_is_refused_stored_or_sent(offset: int, value: bytes, reason: str) -> None:
    body = changed(BODY_BYTES, offset, value)
    for read in (lambda: decode_job(body), lambda: decode(PREFIX_BYTES + body)):
        with pytest.raises(UnreadableMessage) as refused:
            read()
        assert reason in refused.value.reason


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused_and_nothing_else(data: bytes) -> None:
    with pytest.raises(UnreadableMessage):
        decode(data)


@given(st.sampled_from([MESSAGE, TRACED]), st.data())
def test_damage_is_refused_or_read_never_another_error(message: bytes, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(message) - 1))
    value = data.draw(st.binary(min_size=1, max_size=8))
    damaged = changed(message, offset, value)[: len(message)]
    try:
        read = decode(damaged)
    except UnreadableMessage:
        return
    prefix: dict[str, Any] = read._asdict()
    body = encode_job(prefix.pop("job"))
    assert encode_prefix(**prefix) + body == damaged


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[" * 200_000])
def test_a_payload_that_is_no_json_is_an_unreadable_message(payload: bytes) -> None:
    job = decode_job(encode_job(JOB._replace(payload_json=payload)))
    with pytest.raises(UnreadableMessage, match="the payload is not JSON"):
        job.payload()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"attempt": 0}, "attempt"),
        ({"attempt": MAXIMUM_ATTEMPT + 1}, "attempt"),
        ({"scheduled_at": -1}, "scheduled_at"),
        ({"scheduled_at": MAXIMUM_MICROSECONDS + 1, "following": 0}, "scheduled_at"),
        ({"following": PREFIX["scheduled_at"]}, "scheduled_at"),
        ({"following": PREFIX["scheduled_at"] - 1}, "scheduled_at"),
        ({"epoch": -1}, "epoch"),
        ({"epoch": 2**63}, "message prefix"),
        ({"retries": -1}, "message prefix"),
        ({"retries": 2**16}, "message prefix"),
        ({"losses": 256}, "message prefix"),
        ({"shard": 2**16}, "message prefix"),
        ({"second": -1}, "message prefix"),
        ({"second": 2**32}, "message prefix"),
        ({"position": -1}, "message prefix"),
        ({"position": 2**64}, "message prefix"),
        ({"trace": TRACE._replace(trace_id=b"short")}, "trace"),
        ({"trace": TRACE._replace(span_id=bytes(9))}, "trace"),
        ({"trace": TRACE._replace(flags=256)}, "trace"),
    ],
)
def test_a_prefix_that_nobody_could_read_is_not_written(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        encode_prefix(**PREFIX | change)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"priority": -1}, "priority"),
        ({"priority": 10}, "priority"),
        ({"job_id": 0}, "job"),
        ({"job_id": MAXIMUM_ID + 1}, "job"),
        ({"tenant_id": -1}, "job"),
        ({"version": 0}, "job"),
        ({"timeout_seconds": 0}, "job"),
        ({"timeout_seconds": 2**32}, "job"),
        ({"grace_seconds": -1}, "job"),
        ({"max_retries": -1}, "job"),
        ({"max_retries": 2**16}, "job"),
        ({"handler": ""}, "job"),
        ({"handler": "h" * 2**16}, "job"),
        ({"timezone": "z" * 256}, "job"),
        ({"name": "\ud800"}, "job"),
        ({"payload_json": bytes(MAXIMUM_BODY)}, "payload"),
    ],
)
def test_a_job_that_nobody_could_read_is_not_written(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        encode_job(JOB._replace(**change))
    assert refused.value.field == field


def test_the_largest_body_fits_and_one_byte_more_does_not() -> None:
    room = MAXIMUM_BODY - len(encode_job(JOB._replace(payload_json=b"")))
    assert len(encode_job(JOB._replace(payload_json=bytes(room)))) == MAXIMUM_BODY
    with pytest.raises(InvalidInput, match=f"^payload: the job takes {MAXIMUM_BODY + 1} bytes"):
        encode_job(JOB._replace(payload_json=bytes(room + 1)))
