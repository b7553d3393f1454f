"""When a client logs in."""

from __future__ import annotations

import pytest

from mainspring.etcd.session import Session
from mainspring.schema.errors import EtcdRefused
from mainspring.settings import Credentials

LOGIN = Credentials(username="mainspring", password="secret")


def refusal(status: str) -> EtcdRefused:
    return EtcdRefused(status, "why")


def test_without_a_user_there_is_nothing_to_ask_and_nothing_to_send() -> None:
    session = Session(None)

    assert session.login_request() is None
    assert session.metadata() == ()
    assert not session.can_renew(refusal("UNAUTHENTICATED"))


def test_a_token_is_asked_for_once_and_sent_from_then_on() -> None:
    session = Session(LOGIN)
    request = session.login_request()
    assert request is not None
    assert (request.name, request.password) == ("mainspring", "secret")

    session.accept("token.1")

    assert session.login_request() is None
    assert session.metadata() == (("token", "token.1"),)


def test_a_token_that_was_replaced_meanwhile_is_not_forgotten() -> None:
    session = Session(LOGIN)
    session.accept("token.1")
    used = session.metadata()
    session.forget(used)
    session.accept("token.2")

    session.forget(used)

    assert session.metadata() == (("token", "token.2"),)


@pytest.mark.parametrize("status", ["UNAUTHENTICATED", "INVALID_ARGUMENT"])
def test_these_refusals_may_be_about_the_token(status: str) -> None:
    assert Session(LOGIN).can_renew(refusal(status))
    assert not Session(LOGIN).can_renew(refusal("PERMISSION_DENIED"))


def test_an_etcd_without_authentication_gets_no_token_until_it_wants_one() -> None:
    session = Session(LOGIN)
    session.accept_refusal(refusal("FAILED_PRECONDITION"))

    assert session.login_request() is None
    assert session.metadata() == ()

    session.forget(session.metadata())
    assert session.login_request() is not None


def test_a_wrong_password_is_refused_for_good() -> None:
    with pytest.raises(EtcdRefused):
        Session(LOGIN).accept_refusal(refusal("INVALID_ARGUMENT"))
