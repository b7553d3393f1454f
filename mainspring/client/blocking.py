"""The blocking client."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, overload

from mainspring.client.binding import Resource, iterates, sends, turns
from mainspring.client.core import Call, Patience
from mainspring.client.errors import NotFound
from mainspring.client.models import RunDetail, Submitted, Triggered
from mainspring.client.routes import installation, jobs, runs
from mainspring.client.settings import ClientSettings
from mainspring.client.submission import Batch, JobLine, OnAnswer, OnProgress, Submission
from mainspring.client.transport import Transport
from mainspring.client.waiting import Waiting


class Jobs(Resource):
    """Jobs, by id or name."""

    create = sends(jobs.create)
    put = sends(jobs.put)
    validate = sends(jobs.validate)
    get = sends(jobs.get)
    list = iterates(jobs.find)
    page = turns(jobs.find)
    edit = sends(jobs.edit)
    delete = sends(jobs.delete)
    pause = sends(jobs.pause)
    resume = sends(jobs.resume)
    backfill = sends(jobs.backfill)
    explain = sends(jobs.explain)

    @overload
    def trigger(
        self, job: str, *, wait: Literal[False] = False, timeout: None = None, reason: str | None = None
    ) -> Triggered: ...
    @overload
    def trigger(
        self, job: str, *, wait: Literal[True], timeout: float | None = None, reason: str | None = None
    ) -> RunDetail: ...

    def trigger(
        self, job: str, *, wait: bool = False, timeout: float | None = None, reason: str | None = None
    ) -> Triggered | RunDetail:
        """Run a job once, now; with `wait` the run when it has ended, its retries included."""
        asked = self._transport.send(jobs.trigger(job, reason=reason))
        return Runs(self._transport).wait(asked.run_id, timeout) if wait else asked

    def submit_many(
        self,
        lines: Iterable[JobLine],
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
        for job in lines:
            self._submit(submission, submission.add(job))
        self._submit(submission, submission.rest())
        return submission.result()

    def _submit(self, submission: Submission, call: Call[Batch] | None) -> None:
        if call is not None:
            submission.settle(self._transport.send(call))


class Runs(Resource):
    """Runs and their logs."""

    get = sends(runs.get)
    iterate = iterates(jobs.runs)
    page = turns(jobs.runs)
    log = iterates(runs.log)
    cancel = sends(runs.cancel)

    def wait(self, run_id: str, timeout: float | None = None, *, retries: bool = True) -> RunDetail:
        """The run when it has ended; after a failure, its next attempt when that has, unless not `retries`.

        Raises StillGoing after `timeout` seconds; None waits for as long as it takes.
        """
        waiting = Waiting(run_id, timeout, retries=retries, now=time.monotonic)
        while True:
            run = self._look(waiting.run_id)
            if run is not None and waiting.is_over(run):
                return run
            self._transport.sleep(waiting.pause(run))

    def _look(self, run_id: str) -> RunDetail | None:
        try:
            return self._transport.send(runs.get(run_id))
        except NotFound:
            return None


class DeadLetters(Resource):
    """Runs that have no attempt left."""

    get = sends(runs.get_letter)
    list = iterates(runs.find_letters)
    page = turns(runs.find_letters)
    summary = iterates(runs.summary)
    redrive = sends(runs.redrive)
    redrive_many = sends(runs.redrive_many)


class Schemas(Resource):
    """JSON Schemas of payloads, by handler."""

    list = iterates(installation.list_schemas)
    get = sends(installation.get_schema)
    put = sends(installation.put_schema)
    delete = sends(installation.delete_schema)


class Keys(Resource):
    """API keys."""

    list = iterates(installation.list_keys)
    create = sends(installation.create_key)
    revoke = sends(installation.revoke_key)


class Client(Resource):
    """Talks to the API; safe to share between threads. Without arguments the variables say where it is.

    `timeout` is in seconds without a byte; `retry_seconds` bounds all attempts of a request together, and 0
    means one attempt; `unreachable_seconds` while no connection is made at all.
    """

    shards = iterates(installation.shards)
    workers = iterates(installation.workers)
    pools = iterates(installation.pools)
    forecast = sends(installation.forecast)
    tenant = sends(installation.tenant)
    audit = iterates(installation.audit)
    audit_page = turns(installation.audit)

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
        super().__init__(Transport(settings, timeout, Patience(retry_seconds, reach)))
        self.url = settings.url
        self.jobs = Jobs(self._transport)
        self.runs = Runs(self._transport)
        self.dead_letters = DeadLetters(self._transport)
        self.schemas = Schemas(self._transport)
        self.keys = Keys(self._transport)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
