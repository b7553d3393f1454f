"""What is sent, and what becomes of the answers: over real sockets."""

from __future__ import annotations

import gzip
import ssl
from base64 import b64decode
from pathlib import Path

import pytest

from mainspring.worker.builtin import InvalidPayload, NotRetryable, RequestFailed
from mainspring.worker.signals import Retry
from tests.integration.worker_builtin.receiver import Names, Received, Receiver, reply
from tests.integration.worker_builtin.sending import SECRET, http_handler, send
from tests.unit.worker_builtin.runs import python_of_the_page, run_of

CERTIFICATES = Path(__file__).parents[1] / "etcd" / "certificates"


def is_genuine(request: Received, secret: str = SECRET) -> bool:
    """As a receiver would find out, with the example of the page."""
    verify = python_of_the_page()["is_genuine"]
    return bool(verify(secret, request.method, request.path, request.headers, request.body))


async def test_a_request_arrives_as_the_payload_says(receiver: Receiver) -> None:
    receiver.on("/a b", reply(200, b"unreachable"))
    receiver.on("/report", reply(201, b'{"id":1}', content_type="application/json", set_cookie="s=1"))
    result = await send(
        receiver.url("/report?week=1#part"),
        method="PUT",
        headers={"Authorization": "Bearer x", "Accept": "text/csv"},
        body={"ü": 1},
    )
    assert result == {
        "status": 201,
        "headers": {"content-type": "application/json"},
        "body": '{"id":1}',
        "truncated": False,
    }
    [request] = receiver.requests
    assert (request.method, request.path) == ("PUT", "/report?week=1")
    assert request.body == '{"ü":1}'.encode()
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["authorization"] == "Bearer x"
    assert request.headers["accept"] == "text/csv"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["user-agent"].startswith("mainspring/")


async def test_every_request_says_which_run_it_is(receiver: Receiver) -> None:
    payload = {"url": receiver.url()}
    for attempt in (1, 2):
        context = run_of(payload, attempt=attempt, key="weekly ü 100% {{unix}}")
        await send("", context=context)
    first, second = receiver.requests
    assert first.headers["idempotency-key"] == "weekly%20%C3%BC%20100%25%201767225600"
    assert second.headers["idempotency-key"] == first.headers["idempotency-key"]
    assert first.headers["x-mainspring-run"] == run_of(payload).run_id
    assert first.headers["x-mainspring-scheduled-at"] == "2026-01-01T00:00:00Z"
    assert [each.headers["x-mainspring-attempt"] for each in receiver.requests] == ["1", "2"]


async def test_a_signature_is_verified_as_the_page_shows(receiver: Receiver) -> None:
    handler = http_handler(SIGNING_SECRET=SECRET)
    await send(receiver.url("/ü/%20?a=b c".replace(" ", "%20")), handler, body={"n": 1})
    await send(receiver.url("/"), handler, method="GET")
    await send(receiver.url("/"), body=1)
    signed, empty, unsigned = receiver.requests
    assert is_genuine(signed)
    assert is_genuine(empty)
    assert not is_genuine(signed, "another secret of some length")
    assert not is_genuine(signed._replace(body=b"{}"))
    assert "x-mainspring-signature" not in unsigned.headers


async def test_an_invalid_payload_sends_nothing(receiver: Receiver) -> None:
    with pytest.raises(InvalidPayload):
        await send(receiver.url(), timeout=5)
    assert receiver.connections == 0


async def test_the_status_decides(receiver: Receiver) -> None:
    receiver.on("/404", reply(404, b"no such report"))
    receiver.on("/429", reply(429, retry_after="120"))
    receiver.on("/500", reply(500, b"no disk"))
    receiver.on("/503", reply(503, retry_after="86400"))
    with pytest.raises(NotRetryable, match="404 Not Found: no such report"):
        await send(receiver.url("/404"))
    assert (await send(receiver.url("/404"), expected_status=["4xx"]))["body"] == "no such report"
    with pytest.raises(RequestFailed, match="500 Internal Server Error: no disk"):
        await send(receiver.url("/500"))
    waits = []
    for path in ("/429", "/503"):
        with pytest.raises(Retry) as retry:
            await send(receiver.url(path))
        assert retry.value.after is not None
        waits.append(retry.value.after.total_seconds())
    assert waits == [120, 3600]


async def test_a_redirect_at_home_is_signed_for_its_own_path(receiver: Receiver) -> None:
    receiver.on("/here", reply(307, location="/there?x=1"))
    receiver.on("/there", reply(303, location="done"))
    handler = http_handler(SIGNING_SECRET=SECRET)
    context = run_of({"url": receiver.url("/here"), "headers": {"Authorization": "x"}, "body": {"n": 1}})
    await send("", handler, context=context)
    assert [(each.method, each.path, each.body) for each in receiver.requests] == [
        ("POST", "/here", b'{"n":1}'),
        ("POST", "/there?x=1", b'{"n":1}'),
        ("GET", "/done", b""),
    ]
    assert all(is_genuine(each) and "authorization" in each.headers for each in receiver.requests)
    assert len({each.headers["idempotency-key"] for each in receiver.requests}) == 1
    assert len(context.lines()) == 2


async def test_another_origin_learns_neither_login_nor_signature(receiver: Receiver) -> None:
    names = Names(a_test=[["127.0.0.1"]], b_test=[["127.0.0.1"]])
    receiver.on("/here", reply(307, location=receiver.url("/there", "b.test")))
    receiver.on("/there", reply(307, location=receiver.url("/back", "a.test")))
    secrets = {"Authorization": "x", "X-Api-Key": "x", "Cookie": "x"}
    handler = http_handler(resolver=names, SIGNING_SECRET=SECRET)
    await send(receiver.url("/here", "a.test"), handler, headers=secrets, body={"n": 1})
    home, *others = receiver.requests
    assert {name.lower() for name in secrets} <= home.headers.keys()
    assert is_genuine(home)
    assert [each.headers["host"] for each in others] == [
        f"b.test:{receiver.port}",
        f"a.test:{receiver.port}",
    ]
    for each in others:
        assert each.body == b'{"n":1}'
        assert each.headers["idempotency-key"] == home.headers["idempotency-key"]
        hidden = {name.lower() for name in secrets} | {"x-mainspring-signature", "x-mainspring-timestamp"}
        assert not hidden & each.headers.keys()


async def test_five_redirects_are_followed_and_no_more(receiver: Receiver) -> None:
    for number in range(1, 7):
        receiver.on(f"/{number}", reply(307, location=f"/{number + 1}"))
    assert (await send(receiver.url("/2")))["status"] == 200
    assert [each.path for each in receiver.requests] == ["/2", "/3", "/4", "/5", "/6", "/7"]
    with pytest.raises(RequestFailed, match="more than 5 times"):
        await send(receiver.url("/1"))
    assert [each.path for each in receiver.requests[6:]] == ["/1", "/2", "/3", "/4", "/5", "/6"]


async def test_nobody_there_is_an_ordinary_failure(receiver: Receiver) -> None:
    await receiver.__aexit__(None, None, None)
    with pytest.raises(RequestFailed, match="failed"):
        await send(receiver.url())
    with pytest.raises(RequestFailed, match=r"nobody\.test has no address"):
        await send("http://nobody.test/", http_handler(resolver=Names()))


async def test_a_compressed_body_is_kept_as_it_came(receiver: Receiver) -> None:
    packed = gzip.compress(b"\0" * 10_000_000)
    receiver.on("/", reply(200, packed, content_encoding="gzip"))
    result = await send(receiver.url())
    assert b64decode(result["body_base64"]) == packed


async def test_tls_is_checked_against_the_name_although_the_address_is_connected_to() -> None:
    named: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    context.sni_callback = lambda _socket, name, _context: named.append(name)
    names = Names(localhost=[["127.0.0.1"]], stranger_test=[["127.0.0.1"]])
    handler = http_handler(resolver=names, TLS_CA=str(CERTIFICATES / "ca.pem"))
    async with Receiver(tls=context) as receiver:
        assert (await send(receiver.url("/", "localhost", "https"), handler))["status"] == 200
        with pytest.raises(RequestFailed, match="certificate verify failed"):
            await send(receiver.url("/", "stranger.test", "https"), handler)
        trusting_others = http_handler(resolver=names, TLS_CA=str(CERTIFICATES / "stranger.pem"))
        with pytest.raises(RequestFailed, match="certificate verify failed"):
            await send(receiver.url("/", "localhost", "https"), trusting_others)
        [request] = receiver.requests
        assert request.headers["host"] == f"localhost:{receiver.port}"
    assert named == ["localhost", "stranger.test", "localhost"]
