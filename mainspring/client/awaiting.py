"""The client for an event loop: the same routes, awaited."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, overload

from mainspring.client.binding import AsyncResource, awaits, awaits_each, awaits_page
from mainspring.client.core import Call, Patience
from mainspring.client.errors import NotFound
from mainspring.client.models import RunDetail, Submitted, Triggered
from mainspring.client.routes import installation, jobs, runs
from mainspring.client.settings import ClientSettings
from mainspring.client.submission import Batch, JobLine, OnAnswer, OnProgress, Submission
from mainspring.client.transport import AsyncTransport
from mainspring.client.waiting import Waiting


class AsyncJobs(AsyncResource):
    """Jobs, by id or name."""

    create = awaits(jobs.create)
    put = awaits(jobs.put)
    validate = awaits(jobs.validate)
    get = awaits(jobs.get)
    list = awaits_each(jobs.find)
    page = awaits_page(jobs.find)
    edit = awaits(jobs.edit)
    delete = awaits(jobs.delete)
    pause = awaits(jobs.pause)
    resume = awaits(jobs.resume)
    backfill = awaits(jobs.backfill)
    explain = awaits(jobs.explain)

    @overload
    async def trigger(
        self, job: str, *, wait: Literal[False] = False, timeout: None = None, reason: str | None = None
    ) -> Triggered: ...
    @overload
    async def trigger(
        self, job: str, *, wait: Literal[True], timeout: float | None = None, reason: str | None = None
    ) -> RunDetail: ...

    async def trigger(
        self, job: str, *, wait: bool = False, timeout: float | None = None, reason: str | None = None
    ) -> Triggered | RunDetail:
        """Run a job once, now; with `wait` the run when it has ended, its retries included."""
        asked = await self._transport.send(jobs.trigger(job, reason=reason))
        return await AsyncRuns(self._transport).wait(asked.run_id, timeout) if wait else asked

    async def submit_many(
        self,
        lines: Iterable[JobLine] | AsyncIterable[JobLine],
        *,
        atomic: bool = False,
        reason: str | None = None,
        progress: OnProgress | None = None,
        on_answer: OnAnswer | None = None,
    ) -> Submitted:
        """Create many jobs, each a mapping or a line of JSON; returns when each has its answer.

        A line that is refused stops nothing, unless `atomic`: then all are created, or none. `progress` is
        called after each body, `on_answer` for each line.
        """
        submission = Submission(atomic=atomic, reason=reason, progress=progress, on_answer=on_answer)
        if isinstance(lines, AsyncIterable):
            async for job in lines:
                await self._submit(submission, submission.add(job))
        else:
            for job in lines:
                await self._submit(submission, submission.add(job))
        await self._submit(submission, submission.rest())
        return submission.result()

    async def _submit(self, submission: Submission, call: Call[Batch] | None) -> None:
        if call is not None:
            submission.settle(await self._transport.send(call))


class AsyncRuns(AsyncResource):
    """Runs and their logs."""

    get = awaits(runs.get)
    iterate = awaits_each(jobs.runs)
    page = awaits_page(jobs.runs)
    log = awaits_each(runs.log)
    cancel = awaits(runs.cancel)

    async def wait(self, run_id: str, timeout: float | None = None, *, retries: bool = True) -> RunDetail:
        """The run when it has ended; after a failure, its next attempt when that has, unless not `retries`.

        Raises StillGoing after `timeout` seconds; None waits for as long as it takes.
        """
        waiting = Waiting(run_id, timeout, retries=retries, now=time.monotonic)
        while True:
            run = await self._look(waiting.run_id)
            if run is not None and waiting.is_over(run):
                return run
            await self._transport.sleep(waiting.pause(run))

    async def _look(self, run_id: str) -> RunDetail | None:
        try:
            return await self._transport.send(runs.get(run_id))
        except NotFound:
            return None


class AsyncDeadLetters(AsyncResource):
    """Runs that have no attempt left."""

    get = awaits(runs.get_letter)
    list = awaits_each(runs.find_letters)
    page = awaits_page(runs.find_letters)
    summary = awaits_each(runs.summary)
    redrive = awaits(runs.redrive)
    redrive_many = awaits(runs.redrive_many)


class AsyncSchemas(AsyncResource):
    """JSON Schemas of payloads, by handler."""

    list = awaits_each(installation.list_schemas)
    get = awaits(installation.get_schema)
    put = awaits(installation.put_schema)
    delete = awaits(installation.delete_schema)


class AsyncKeys(AsyncResource):
    """API keys."""

    list = awaits_each(installation.list_keys)
    create = awaits(installation.create_key)
    revoke = awaits(installation.revoke_key)


class AsyncClient(AsyncResource):
    """Talks to the API, in one event loop. Without arguments the variables say where it is.

    `timeout` is in seconds without a byte; `retry_seconds` bounds all attempts of a request together, and 0
    means one attempt; `unreachable_seconds` while no connection is made at all.
    """

    shards = awaits_each(installation.shards)
    workers = awaits_each(installation.workers)
    pools = awaits_each(installation.pools)
    forecast = awaits(installation.forecast)
    tenant = awaits(installation.tenant)
    audit = awaits_each(installation.audit)
    audit_page = awaits_page(installation.audit)

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        ca: Path | None = None,
        timeout: float = 60.0,
        retry_seconds: float = 30.0,
        unreachable_seconds: float | None = None,
    ) -> None:
        settings = ClientSettings.from_environment(os.environ, url=url, api_key=api_key, ca=ca)
        reach = retry_seconds if unreachable_seconds is None else unreachable_seconds
        super().__init__(AsyncTransport(settings, timeout, Patience(retry_seconds, reach)))
        self.url = settings.url
        self.jobs = AsyncJobs(self._transport)
        self.runs = AsyncRuns(self._transport)
        self.dead_letters = AsyncDeadLetters(self._transport)
        self.schemas = AsyncSchemas(self._transport)
        self.keys = AsyncKeys(self._transport)

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
