"""No job reaches what it must not: whatever its URL, its name's addresses and its redirects are."""

from __future__ import annotations

import pytest

from mainspring.worker.builtin import NotRetryable
from mainspring.worker.builtin.addresses import Refused
from tests.integration.worker_builtin.receiver import Names, Receiver, reply
from tests.integration.worker_builtin.sending import http_handler, send


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0.0.0.0", "0"],
)
async def test_by_default_no_spelling_of_this_machine_is_connected_to(receiver: Receiver, host: str) -> None:
    with pytest.raises(NotRetryable):
        await send(receiver.url("/", host), http_handler(allow=""))
    assert receiver.connections == 0


@pytest.mark.parametrize(
    "host", ["[::1]", "[::ffff:127.0.0.1]", "[::]", "[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]"]
)
async def test_nor_is_any_in_ipv6(receiver: Receiver, host: str) -> None:
    with pytest.raises(Refused):
        await send(receiver.url("/", host), http_handler(allow="127.0.0.0/8"))
    assert receiver.connections == 0


async def test_a_name_with_one_refused_address_is_refused(receiver: Receiver) -> None:
    names = Names(hooks_test=[["127.0.0.1", "10.0.0.1"]])
    with pytest.raises(Refused, match=r"hooks\.test is 10\.0\.0\.1, which is refused: private"):
        await send(receiver.url("/", "hooks.test"), http_handler(resolver=names))
    assert receiver.connections == 0


async def test_a_name_that_changes_its_meaning_is_looked_up_once(
    receiver: Receiver, neighbour: Receiver
) -> None:
    names = Names(hooks_test=[["127.0.0.1"], ["127.0.0.2"]])
    await send(receiver.url("/", "hooks.test"), http_handler(resolver=names))
    assert names.asked == ["hooks.test"]
    [request] = receiver.requests
    assert request.headers["host"] == f"hooks.test:{receiver.port}"
    assert neighbour.connections == 0


async def test_a_name_that_changes_its_meaning_between_hops_is_checked_again(
    receiver: Receiver, neighbour: Receiver
) -> None:
    names = Names(hooks_test=[["127.0.0.1"], ["127.0.0.2"]])
    receiver.on("/here", reply(307, location="/there"))
    with pytest.raises(Refused, match=r"hooks\.test is 127\.0\.0\.2"):
        await send(receiver.url("/here", "hooks.test"), http_handler(resolver=names))
    assert [each.path for each in receiver.requests] == ["/here"]
    assert neighbour.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.2", "inside.test", "2130706434"])
async def test_a_redirect_leads_nowhere_that_the_url_could_not(
    receiver: Receiver, neighbour: Receiver, host: str
) -> None:
    names = Names(inside_test=[["127.0.0.2"]], **{"2130706434": [["127.0.0.2"]]})
    receiver.on("/", reply(302, location=neighbour.url("/", host)))
    with pytest.raises(Refused):
        await send(receiver.url(), http_handler(resolver=names))
    assert neighbour.connections == 0
    await send(receiver.url(), http_handler("127.0.0.0/8", names))
    assert neighbour.connections == 1


async def test_a_redirect_to_the_metadata_service_is_refused_even_where_its_network_is_allowed(
    receiver: Receiver,
) -> None:
    receiver.on("/", reply(302, location="http://169.254.169.254/latest/meta-data/"))
    with pytest.raises(Refused, match="metadata"):
        await send(receiver.url(), http_handler("127.0.0.1,169.254.0.0/16"))


async def test_an_address_where_nobody_listens_is_followed_by_the_next(
    receiver: Receiver, neighbour: Receiver
) -> None:
    await neighbour.__aexit__(None, None, None)
    names = Names(hooks_test=[["127.0.0.2", "127.0.0.1"]])
    handler = http_handler("127.0.0.0/8", names)
    assert (await send(receiver.url("/", "hooks.test"), handler, body={"n": 1}))["status"] == 200
    assert [each.body for each in receiver.requests] == [b'{"n":1}']


async def test_proxies_of_the_environment_are_not_asked(
    receiver: Receiver, neighbour: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, neighbour.url())
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    names = Names(hooks_test=[["127.0.0.1"]])
    await send(receiver.url("/", "hooks.test"), http_handler(resolver=names))
    assert (receiver.connections, neighbour.connections) == (1, 0)
