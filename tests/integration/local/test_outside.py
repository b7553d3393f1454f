"""A part whose variable is set is used and not started."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.local import LocalStack
from mainspring.local.ports import free_port
from mainspring.schema.errors import LocalStackError
from tests.integration.local import clients
from tests.integration.local.environments import own


async def test_with_everything_outside_nothing_is_started(stack: LocalStack, tmp_path: Path) -> None:
    outside = stack.environment()
    said: list[str] = []
    async with LocalStack(tmp_path / "data", environment=own(**outside), progress=said.append) as second:
        assert second.members == []
        assert second.environment() == outside
        await clients.write(second.environment(), "through the second")
    assert sorted(said) == [
        "etcd: using the one that MAINSPRING_ETCD names",
        "kafka: using the one that MAINSPRING_KAFKA names",
        "postgres: using the one that MAINSPRING_POSTGRES_DSN names",
    ]
    words = await clients.read(outside)
    assert all("through the second" in found for found in words.values())


async def test_an_outside_kafka_is_used_beside_a_postgres_and_an_etcd_of_our_own(
    stack: LocalStack, tmp_path: Path
) -> None:
    kafka = stack.environment()["MAINSPRING_KAFKA"]
    async with LocalStack(tmp_path / "data", environment=own(MAINSPRING_KAFKA=kafka)) as mixed:
        assert [member.name for member in mixed.members] == ["postgres", "etcd-1"]
        assert mixed.environment()["MAINSPRING_KAFKA"] == kafka
        assert await mixed.members[0].answers()
        assert await mixed.members[1].answers()


async def test_an_address_in_a_file_is_used_and_passed_on_as_that_file(
    stack: LocalStack, tmp_path: Path
) -> None:
    (tmp_path / "dsn").write_text(stack.environment()["MAINSPRING_POSTGRES_DSN"])
    variables = own(MAINSPRING_POSTGRES_DSN_FILE=str(tmp_path / "dsn"))
    async with LocalStack(tmp_path / "data", kafka=False, etcd=0, environment=variables) as second:
        assert second.members == []
        assert second.environment() == {"MAINSPRING_POSTGRES_DSN_FILE": str(tmp_path / "dsn")}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MAINSPRING_POSTGRES_DSN", "postgresql://somebody:secret@127.0.0.1:{port}/jobs"),
        ("MAINSPRING_KAFKA", "127.0.0.1:{port}"),
        ("MAINSPRING_ETCD", "127.0.0.1:{port}"),
    ],
)
async def test_an_outside_part_that_does_not_answer_is_one_line(
    tmp_path: Path, variable: str, value: str
) -> None:
    """Such as the shell that still has the variables of a stack which is no more."""
    second = LocalStack(tmp_path / "data", environment=own(**{variable: value.format(port=free_port())}))
    told = (
        rf"^{variable} is set, but no \w+ answers there; start that server, or unset {variable} to have one"
    )
    with pytest.raises(LocalStackError, match=told) as refused:
        await second.start()
    assert "secret" not in str(refused.value)
    assert second.members == []
