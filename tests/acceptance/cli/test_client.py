"""The client when things break: what is done twice means the same once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring.client import (
    AsyncClient,
    Client,
    InvalidInput,
    NoAnswer,
    NotFound,
    RateLimited,
    StillGoing,
    VersionMismatch,
)
from mainspring.client.models import Answered, Progress
from tests.acceptance.cli.breaking import Losing
from tests.acceptance.cli.installation import ROOT, Installation


def test_a_lost_answer_does_nothing_twice(own: Installation, client: Client) -> None:
    with Losing.between(own.url, losses=2) as network, Client(network.url, own.key) as cut:
        job = cut.jobs.create(name="once", schedule="@daily")
        assert network.lost == 2
    assert [each.job_id for each in client.jobs.list()] == [job.job_id]
    with Losing.between(own.url, losses=1) as network, Client(network.url, own.key) as cut:
        cut.jobs.trigger("once")
    with Losing.between(own.url, losses=1) as network, Client(network.url, own.key) as cut:
        cut.jobs.delete("once")
        assert network.lost == 1
    assert [row.action for row in client.audit(subject=job.job_id)] == ["delete", "trigger", "create"]


def test_what_may_not_happen_twice_is_sent_once(own: Installation, client: Client) -> None:
    with Losing.between(own.url, losses=9) as network, Client(network.url, own.key) as cut:
        with pytest.raises(NoAnswer, match="may have happened") as caught:
            cut.keys.create("reader", "viewer")
        assert caught.value.address == network.url
    assert network.lost == 1
    assert [key.name for key in client.keys.list()] == ["first", "reader"]


def test_lines_whose_answer_was_lost_are_there_once(own: Installation, client: Client) -> None:
    answers: list[Answered] = []
    progress: list[Progress] = []
    jobs = ({"name": f"n-{number}", "schedule": "@daily"} for number in range(12_000))
    with Losing.between(own.url, losses=3) as network, Client(network.url, own.key) as cut:
        done = cut.jobs.submit_many(jobs, on_answer=answers.append, progress=progress.append)
        assert network.lost == 3
    assert (done.created, done.refused) == (12_000, 0)
    assert [answer.line for answer in answers] == list(range(1, 12_001))
    assert {answer.job_id for answer in answers} == {job.job_id for job in client.jobs.list()}
    assert [each.sent for each in progress] == [5_000, 10_000, 12_000]


def test_all_or_nothing(client: Client) -> None:
    lines: list[dict[str, Any]] = [{"name": f"n-{number}", "schedule": "@daily"} for number in range(6_000)]
    done = client.jobs.submit_many([*lines, {"name": "x", "schedule": "nonsense"}], atomic=True)
    assert (done.created, done.refused, done.refusals[0].line) == (0, 1, 6_001)
    assert isinstance(done.refusals[0].refusal, InvalidInput)
    assert list(client.jobs.list()) == []
    assert client.jobs.submit_many(lines, atomic=True).created == 6_000


def test_a_rate_limit_is_waited_for(own: Installation, client: Client) -> None:
    def hurry() -> None:
        for _ in range(10_000):
            impatient.tenant()

    own.ok("tenants", "limit", client.tenant().tenant, "--requests-per-second", "1")
    with Client(own.url, own.key, retry_seconds=0) as impatient, pytest.raises(RateLimited) as caught:
        hurry()
    assert (caught.value.status, caught.value.retry_after) == (429, 1.0)
    assert {client.tenant().requests_per_second for _ in range(3)} == {1}


def test_an_edit_of_an_older_version_is_refused(client: Client) -> None:
    job = client.jobs.create(name="edited", schedule="@daily")
    client.jobs.edit("edited", priority=9, version=job.version)
    with pytest.raises(VersionMismatch) as caught:
        client.jobs.edit("edited", priority=1, version=job.version)
    assert caught.value.actual == 2


def test_names_of_any_kind_and_reasons_in_any_language(client: Client) -> None:
    for name in ("a/b c", "..", "täglich um 9?", "100%", "jobs:batch", "#1 & more"):
        job = client.jobs.put(name, schedule="@daily", reason="größer “besser”")
        assert client.jobs.get(name).job_id == job.job_id
        assert [row.reason for row in client.audit(subject=job.job_id)] == ["größer “besser”"]
        client.jobs.delete(name)
        with pytest.raises(NotFound):
            client.jobs.get(name)


def test_a_definition_put_again_changes_nothing(client: Client) -> None:
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    first = client.jobs.put("a", schedule="every 5m", starts_at=start, jitter_seconds=10, labels={"a": "b"})
    client.jobs.put("b", after=["a"], on_failure="run")
    assert client.jobs.get("a").starts_at == start
    for name in ("a", "b"):
        job = client.jobs.get(name)
        assert client.jobs.put(name, job.definition()).version == job.version == first.version


def test_a_wait_that_is_too_short_says_what_it_saw(own: Installation, client: Client) -> None:
    client.jobs.create(name="endless", handler="crunch", schedule="2099-01-01T00:00:00Z", pool=own.pool)
    asked = client.jobs.trigger("endless")
    with pytest.raises(StillGoing) as caught:
        client.runs.wait(asked.run_id, timeout=0.3)
    assert caught.value.run_id == asked.run_id
    client.runs.cancel(asked.run_id)
    assert client.runs.wait(asked.run_id, timeout=120).status == "cancelled"


def test_a_wait_goes_on_to_the_last_attempt(own: Installation, client: Client) -> None:
    client.jobs.create(
        name="charge",
        handler="charge",
        schedule="2099-01-01T00:00:00Z",
        pool=own.pool,
        payload={"file": "nowhere"},
        max_retries=1,
        retry_backoff="none",
    )
    run = client.jobs.trigger("charge", wait=True, timeout=120)
    assert (run.status, run.attempt, run.error) == ("dead", 2, "RuntimeError: the card was declined")
    assert [each.status for each in client.runs.iterate("charge")] == ["dead", "failed"]


async def test_an_event_loop_submits_from_an_async_iterable_over_a_network_that_loses(
    own: Installation,
) -> None:
    async def jobs() -> AsyncIterator[str]:
        for number in range(5_100):
            yield f'{{"name":"n-{number}","schedule":"@daily"}}'

    with Losing.between(own.url, losses=2) as network:
        async with AsyncClient(network.url, own.key) as client:
            done = await client.jobs.submit_many(jobs())
            assert (done.created, network.lost) == (5_100, 2)
            assert len([job async for job in client.jobs.list()]) == 5_100
            page = await client.jobs.page(None, 7, name_prefix="n-50")
            assert (len(page.items), page.total) == (7, 111)


def test_a_certificate_of_ones_own_is_trusted_when_its_authority_is_named(own: Installation) -> None:
    files = ROOT / "tests" / "integration" / "etcd" / "certificates"
    own.start(
        "tls",
        *("api", "--address", "127.0.0.1:0"),
        MAINSPRING_API_TLS_CERT=str(files / "server.pem"),
        MAINSPRING_API_TLS_KEY=str(files / "server.key"),
    )
    address = own.said("tls", "api_started")["address"]
    assert address.startswith("https://")
    with Client(address, own.key, ca=files / "ca.pem") as trusting:
        assert trusting.tenant().role == "admin"
    with (
        Client(address, own.key, ca=files / "stranger.pem", retry_seconds=0) as stranger,
        pytest.raises(NoAnswer, match="certificate verify failed"),
    ):
        stranger.tenant()
    own.ok("jobs", "list", MAINSPRING_URL=address, MAINSPRING_API_CA=str(files / "ca.pem"))
    wrong = own.run("jobs", "list", MAINSPRING_URL=address)
    assert (wrong.returncode, "certificate verify failed" in wrong.stderr) == (1, True)
