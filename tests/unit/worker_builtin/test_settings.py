"""The operator's settings: refused with the variable and the rule, and a secret is never shown."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from mainspring.schema.errors import InvalidSetting
from mainspring.settings import describe
from mainspring.worker.builtin import HttpHandlerSettings
from mainspring.worker.builtin.addresses import EVERYTHING

SECRET = "a secret of some length"


def read(**variables: str) -> HttpHandlerSettings:
    return HttpHandlerSettings.from_environment(
        {f"MAINSPRING_HTTP_{name}": value for name, value in variables.items()}
    )


def test_by_default_nothing_is_signed_and_nothing_private_is_allowed() -> None:
    assert read() == HttpHandlerSettings(signing_secret=None, allow_private=(), tls_ca=None)
    assert read(ALLOW_PRIVATE="").allow_private == ()


def test_networks_and_addresses_are_allowed_by_name() -> None:
    settings = read(ALLOW_PRIVATE="10.1.0.0/16, fd12::/48,127.0.0.1")
    assert settings.allow_private == (
        ip_network("10.1.0.0/16"),
        ip_network("fd12::/48"),
        ip_network("127.0.0.1/32"),
    )
    assert read(ALLOW_PRIVATE="all").allow_private == EVERYTHING


@pytest.mark.parametrize("value", ["10.1.0.0/15", "private", "10.0.0.0/8,", "all,10.0.0.0/8", "10.0.0.0/33"])
def test_what_is_no_network_is_refused(value: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        read(ALLOW_PRIVATE=value)
    assert refused.value.field == "MAINSPRING_HTTP_ALLOW_PRIVATE"


def test_the_secret_may_come_from_a_file_and_is_never_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    settings = read(SIGNING_SECRET_FILE=str(tmp_path / "secret"))
    assert settings.signing_secret == SECRET
    assert SECRET not in repr(settings) + repr(describe(settings))


def test_a_short_secret_is_refused_without_repeating_it() -> None:
    with pytest.raises(InvalidSetting) as refused:
        read(SIGNING_SECRET="hunter2")
    assert refused.value.field == "MAINSPRING_HTTP_SIGNING_SECRET"
    assert "hunter2" not in str(refused.value)


def test_authorities_must_be_a_file_of_certificates(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as refused:
        read(TLS_CA=str(tmp_path / "nothing.pem"))
    assert refused.value.field == "MAINSPRING_HTTP_TLS_CA"
    (tmp_path / "empty.pem").write_text("-")
    with pytest.raises(InvalidSetting) as refused:
        read(TLS_CA=str(tmp_path / "empty.pem")).ssl()
    assert refused.value.field == "MAINSPRING_HTTP_TLS_CA"
