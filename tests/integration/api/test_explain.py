"""Why a job ran or did not: one case for each verdict."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring.schema.states import Outcome
from tests.integration.api.house import Client, Tenant

HOUR = timedelta(hours=1)


class Case:
    """One job, and an hour of its past or future."""

    def __init__(self, client: Client, tenant: Tenant, job: Any) -> None:
        self.client, self.tenant, self.house = client, tenant, tenant.house
        self.job_id = job["job_id"]
        self.next = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + HOUR

    async def explain(self, at: datetime, by: str | None = None) -> Any:
        path = f"/jobs/{by or self.job_id}/explain?at={at:%Y-%m-%dT%H:%M:%SZ}"
        return await self.client.ask(200, "GET", path)

    async def verdict(self, at: datetime) -> str:
        return str((await self.explain(at))["verdict"])

    async def internal(self) -> Any:
        return await self.house.registry.find(self.tenant.id, self.job_id)

    async def own_since(self, at: datetime) -> None:
        await self.house.fetch(
            "UPDATE jobs SET valid_from = $2 WHERE id = $1", (await self.internal()).id, at
        )

    async def mark_at(self, at: datetime) -> None:
        """The mark never goes back, so it is set aside for one statement and nobody else reads it."""
        job = await self.internal()
        await self.house.fetch(
            "UPDATE shards SET fired_through = greatest(fired_through, $2) WHERE shard = $1", job.shard, at
        )

    async def ran(self, at: datetime, *outcomes: Outcome) -> None:
        job = await self.internal()
        claim = await self.house.value("SELECT nextval('audit_id_seq') + 9000000")
        await self.house.fetch(
            "INSERT INTO claims (id, worker_id, outcomes) VALUES ($1, 'w', $2)", claim, bytes(outcomes)
        )
        for position in range(len(outcomes)):
            await self.house.fetch(
                "INSERT INTO runs VALUES ($1, $2, $3, $4, $5)", job.id, at, claim, position, position + 1
            )


@pytest.fixture
async def case(operator: Client, tenant: Tenant) -> Case:
    return Case(operator, tenant, await operator.job(name="hourly", schedule="0 * * * *"))


@pytest.mark.parametrize(
    "outcome", [outcome for outcome in Outcome if outcome not in (Outcome.VOID,)], ids=lambda each: each.word
)
async def test_a_run_is_its_own_answer(case: Case, outcome: Outcome) -> None:
    await case.ran(case.next, Outcome.FAILED, outcome)
    answer = await case.explain(case.next)
    assert (answer["verdict"], answer["facts"]["attempt"]) == (outcome.word, 2)
    assert [run["status"] for run in answer["runs"]] == ["failed", outcome.word]


async def test_not_due_says_when_it_is(case: Case) -> None:
    answer = await case.explain(case.next + timedelta(minutes=5))
    assert answer["verdict"] == "not_due"
    assert answer["facts"]["next_at"] == f"{case.next + HOUR:%Y-%m-%dT%H:%M:%SZ}"


async def test_before_the_job_owned_it(case: Case) -> None:
    assert await case.verdict(case.next - HOUR) == "before_valid_from"


async def test_still_to_come(case: Case) -> None:
    assert await case.verdict(case.next) == "scheduled"


async def test_paused(case: Case) -> None:
    await case.client.ask(200, "POST", "/jobs/hourly/pause", {"reason": "flood"})
    answer = await case.explain(case.next)
    assert (answer["verdict"], answer["facts"]["paused_reason"]) == ("paused", "flood")


async def test_deleted(case: Case) -> None:
    await case.client.ask(204, "DELETE", "/jobs/hourly")
    assert await case.verdict(case.next) == "deleted"
    await case.client.ask(404, "GET", "/jobs/hourly/explain?at=2027-01-01T00:00:00Z")
    await case.client.ask(404, "GET", "/jobs/j_0000000000001/explain?at=2027-01-01T00:00:00Z")


async def test_outside_its_window(operator: Client, tenant: Tenant) -> None:
    window = {"starts_at": "2030-01-01T00:00:00Z", "ends_at": "2030-01-02T00:00:00Z"}
    case = Case(operator, tenant, await operator.job(name="w", schedule="0 * * * *", **window))
    assert await case.verdict(datetime(2029, 12, 31, 23, tzinfo=UTC)) == "before_start"
    assert await case.verdict(datetime(2030, 1, 2, tzinfo=UTC)) == "after_end"
    assert await case.verdict(datetime(2030, 1, 1, 5, tzinfo=UTC)) == "scheduled"


async def test_missed_in_a_gap(case: Case) -> None:
    job, past = await case.internal(), case.next - HOUR
    await case.own_since(past - HOUR)
    await case.house.fetch(
        "INSERT INTO missed (cadence_id, gap_from, gap_to, skipped) VALUES ($1, $2, $3, 1)",
        job.cadence_id,
        past - timedelta(minutes=1),
        past + timedelta(minutes=1),
    )
    assert await case.verdict(past) == "missed"
    await case.house.fetch("DELETE FROM missed")


async def test_published_and_not_taken_or_without_a_trace(case: Case) -> None:
    job, past = await case.internal(), case.next - HOUR
    await case.own_since(past - HOUR)
    await case.mark_at(past)
    assert await case.verdict(past) == "unknown"
    await case.house.fetch(
        "INSERT INTO ledger (second, published, shard) VALUES ($1, 1, $2)"
        " ON CONFLICT (shard, second) DO UPDATE SET published = ledger.claimed + 1",
        past,
        job.shard,
    )
    assert await case.verdict(past) == "queued"
    await case.house.fetch("DELETE FROM ledger")


async def test_a_one_off_that_has_run(operator: Client, tenant: Tenant) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + HOUR
    case = Case(operator, tenant, await operator.job(name="once", schedule=f"{at:%Y-%m-%dT%H:%M:%SZ}"))
    answer = await case.explain(at)
    assert (answer["verdict"], answer["facts"]["cause"]) == ("scheduled", "one_off")
    job = await case.internal()
    await case.house.fetch("DELETE FROM timers WHERE job_id = $1", job.id)
    await case.house.fetch("UPDATE jobs SET status = 'completed', closed_at = now() WHERE id = $1", job.id)
    assert await case.verdict(at) == "completed"


async def test_a_dependent_waits_is_skipped_or_released(operator: Client, tenant: Tenant) -> None:
    parents = [(await operator.job(name=name))["job_id"] for name in ("p", "q")]
    made = await operator.ask(201, "POST", "/jobs", {"name": "child", "after": parents})
    case = Case(operator, tenant, made)
    assert await case.verdict(case.next) == "not_due"
    job = await case.internal()
    first = (await case.house.registry.find(tenant.id, "p")).id
    await case.house.fetch(
        "INSERT INTO arrivals (job_id, scheduled_at, succeeded) VALUES ($1, $2, $3)",
        job.id,
        case.next,
        [first],
    )
    assert await case.verdict(case.next) == "waiting"
    await case.house.fetch("UPDATE arrivals SET released_at = now() WHERE job_id = $1", job.id)
    assert await case.verdict(case.next) == "queued"
    await case.house.fetch("UPDATE arrivals SET failed = ARRAY[job_id] WHERE job_id = $1", job.id)
    assert await case.verdict(case.next) == "skipped"


async def test_an_instant_is_needed(operator: Client) -> None:
    await operator.job()
    assert (await operator.ask(422, "GET", "/jobs/daily/explain"))["field"] == "at"
    assert (await operator.ask(422, "GET", "/jobs/daily/explain?at=noon"))["field"] == "at"
    assert (await operator.ask(422, "GET", "/jobs/daily/explain?at=9999-12-31T00:00:00Z"))["field"] == "at"
