"""The API's settings: defaults, refusals, and keys that are off on loopback alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.api.settings import ApiSettings
from mainspring.schema.errors import InvalidSetting

DSN = {"MAINSPRING_POSTGRES_DSN": "postgresql://u@h/d"}


def read(**variables: str) -> ApiSettings:
    return ApiSettings.from_environment(
        DSN | {f"MAINSPRING_{name}": value for name, value in variables.items()}
    )


def test_it_needs_postgres_and_nothing_else() -> None:
    settings = read()
    assert (settings.address, settings.auth, settings.metrics) == ("127.0.0.1:8080", "keys", "loopback")
    assert (settings.body_bytes, settings.connections, settings.grace_seconds) == (2_000_000, 10, 30)
    with pytest.raises(InvalidSetting) as refused:
        ApiSettings.from_environment({})
    assert refused.value.field == "MAINSPRING_POSTGRES_DSN"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:1"])
def test_keys_may_be_off_on_loopback(address: str) -> None:
    assert read(API_ADDRESS=address, API_AUTH="off").is_loopback


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1"])
def test_keys_may_be_off_nowhere_else(address: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        read(API_ADDRESS=address, API_AUTH="off")
    assert refused.value.field == "MAINSPRING_API_AUTH"
    assert not read(API_ADDRESS=address).is_loopback


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_ADDRESS", "8080"),
        ("API_AUTH", "none"),
        ("API_METRICS", "closed"),
        ("API_BODY_BYTES", "10"),
        ("API_CONNECTIONS", "1"),
        ("API_GRACE_SECONDS", "-1"),
        ("API_TLS_CERT", "/nowhere"),
    ],
)
def test_a_refusal_names_the_variable(name: str, value: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        read(**{name: value})
    assert refused.value.field == f"MAINSPRING_{name}"


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.write_text("x")
    with pytest.raises(InvalidSetting) as refused:
        read(API_TLS_CERT=str(file))
    assert refused.value.field == "MAINSPRING_API_TLS_KEY"
