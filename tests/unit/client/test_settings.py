"""Where the API is, out of variables; and what importing the client loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mainspring.client import ClientSettings
from mainspring.schema.errors import InvalidSetting


def test_without_variables_it_is_the_api_of_this_machine() -> None:
    assert ClientSettings.from_environment({}).url == "http://127.0.0.1:8080"


def test_what_is_given_goes_before_the_variables() -> None:
    variables = {"MAINSPRING_URL": "https://a", "MAINSPRING_API_KEY": "ms_a"}
    settings = ClientSettings.from_environment(variables, url="https://b:1/", api_key="ms_b")
    assert (settings.url, settings.api_key) == ("https://b:1", "ms_b")


def test_a_key_comes_from_a_file_and_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("ms_secret\n")
    settings = ClientSettings.from_environment({"MAINSPRING_API_KEY_FILE": str(file)})
    assert settings.api_key == "ms_secret"
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    "url", ["api:8080", "ftp://api", "http://", "http://a:b@c", "http://a?x=1", "http://a:99999", "http://[x"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match="MAINSPRING_URL"):
        ClientSettings.from_environment({}, url=url)


def test_authorities_that_are_none_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    with pytest.raises(InvalidSetting, match="MAINSPRING_API_CA"):
        ClientSettings.from_environment({"MAINSPRING_API_CA": str(file)}).verify()


def test_a_key_with_a_line_break_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="MAINSPRING_API_KEY"):
        ClientSettings(api_key="ms_a\nHost: b")


def test_importing_it_loads_no_driver() -> None:
    heavy = "{'asyncpg', 'confluent_kafka', 'grpc', 'fastapi'}"
    code = f"import mainspring.client, sys; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
