"""What an audit row holds: what differs, long payloads described, nothing that jsonb cannot have."""

from __future__ import annotations

import json

import pytest

from mainspring.registry.audit import Actor, _jsonb, differences
from mainspring.registry.keys import Role, hash_secret, is_secret, new_secret
from mainspring.schema.errors import NotAllowed


def test_differences_are_the_fields_that_differ() -> None:
    assert differences({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3, "d": 4}) == (
        {"b": 2, "c": 3},
        {"b": 3, "d": 4},
    )


@pytest.mark.parametrize("text", ["\0", "a\0b", "\\u0000", "\\\0", "\\\\\0\\"])
def test_a_nul_is_replaced_and_a_backslash_is_not(text: str) -> None:
    stored = _jsonb({"x": text})
    assert stored is not None
    assert json.loads(stored)["x"] == text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def test_an_actor_uses_its_handlers() -> None:
    Actor(name="a").permit("anything", None)
    limited = Actor(name="a", handlers=frozenset({"h"}))
    limited.permit("h")
    for handler in ("x", None):
        with pytest.raises(NotAllowed):
            limited.permit("h", handler)


def test_secrets_are_long_and_look_like_themselves() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(is_secret(secret) and len(secret) == 35 for secret in secrets)
    assert not any(
        is_secret(text) for text in ("", "ms_", "ms_" + "A" * 32, "sk_" + "a" * 32, "ms_" + "a" * 33)
    )
    assert len(hash_secret("ms_x")) == 32


def test_each_role_covers_those_below() -> None:
    covered = [[role.covers(needed) for needed in Role] for role in Role]
    assert covered == [[True, False, False], [True, True, False], [True, True, True]]
