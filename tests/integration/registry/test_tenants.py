"""Tenants and their limits: who may change them is who reaches the database, and the audit says who did."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from mainspring.registry.audit import Actor
from mainspring.registry.tenants import LARGEST_LIMIT, Tenants
from mainspring.schema.errors import InvalidInput, NameTaken, NotFound
from tests.integration.registry.bench import Bench

ANNA = Actor(name="cli:anna", reason="asked for")


def new_name() -> str:
    return f"acme-{uuid4().hex[:12]}"


async def audit(bench: Bench, tenant_id: int) -> list[tuple[Any, ...]]:
    rows = await bench.pool.fetch(
        "SELECT actor, action, before, after, reason FROM audit WHERE tenant_id = $1 ORDER BY id", tenant_id
    )
    return [
        (actor, action, before and json.loads(before), after and json.loads(after), reason)
        for actor, action, before, after, reason in rows
    ]


async def test_limits_that_are_given_change_and_the_others_stay(bench: Bench) -> None:
    tenants, name = Tenants(bench.pool), new_name()
    made = await tenants.create(name, {"maximum_jobs": 7, "requests_per_second": 3}, by=ANNA)
    assert made.limits == {"maximum_jobs": 7, "maximum_running": None, "requests_per_second": 3}
    changed = await tenants.limit(name, {"maximum_jobs": None, "maximum_running": 2}, by=ANNA)
    assert changed.limits == {"maximum_jobs": None, "maximum_running": 2, "requests_per_second": 3}
    assert changed in await tenants.list()
    assert await audit(bench, made.id) == [
        ("cli:anna", "create_tenant", None, made.limits, "asked for"),
        (
            "cli:anna",
            "limit_tenant",
            {"maximum_jobs": 7, "maximum_running": None},
            {"maximum_jobs": None, "maximum_running": 2},
            "asked for",
        ),
    ]


async def test_a_limit_that_is_the_same_already_leaves_no_trace(bench: Bench) -> None:
    tenants, name = Tenants(bench.pool), new_name()
    made = await tenants.create(name, {"maximum_jobs": 7}, by=ANNA)
    assert await tenants.limit(name, {"maximum_jobs": 7}, by=ANNA) == made
    assert len(await audit(bench, made.id)) == 1


async def test_a_name_is_given_once_and_is_one(bench: Bench) -> None:
    tenants, name = Tenants(bench.pool), new_name()
    await tenants.create(name, {}, by=ANNA)
    with pytest.raises(NameTaken):
        await tenants.create(name, {}, by=ANNA)
    for wrong in ("", "Acme", "-a", "a_b", "x" * 64):
        with pytest.raises(InvalidInput, match="name"):
            await tenants.create(wrong, {}, by=ANNA)
    with pytest.raises(NotFound):
        await tenants.limit(new_name(), {"maximum_jobs": 1}, by=ANNA)


@pytest.mark.parametrize(
    "limits",
    [
        {"maximum_jobs": -1},
        {"maximum_running": 0},
        {"requests_per_second": 0},
        {"maximum_jobs": LARGEST_LIMIT + 1},
    ],
)
async def test_a_limit_that_is_none_is_refused(bench: Bench, limits: dict[str, int | None]) -> None:
    tenants, name = Tenants(bench.pool), new_name()
    with pytest.raises(InvalidInput, match=next(iter(limits))):
        await tenants.create(name, limits, by=ANNA)
