"""What a change to a job means in Postgres: once, for the API, the command line, the client and tests alike.

    JobRequest   a job as its owner writes it, checked
    Registry     create, edit, pause, resume, delete, trigger
    Job          a job as it stands
    render       the idempotency key of an occurrence
    Runs         what ran: read, cancel, backfill
    DeadLetters  what has no attempt left: find, redrive

Where to read: `registry` (what each change does), `definition`, `when` and `values` (the fields and their
rules), `cadences`, `timers` and `dependencies` (what hangs on a job), `bulk` (many at once), `templates`.
For the executing side: `endings` (what the end of a run means) and `letters`, called in its transactions.
The fields, defaults and rules are in docs/jobs.md, those about parents in docs/dependencies.md.
"""

from __future__ import annotations

from mainspring.registry.definition import FIELDS, JobRequest
from mainspring.registry.job import Job
from mainspring.registry.letters import DeadLetter, DeadLetters, LetterFilter, Redriven
from mainspring.registry.registry import Registry
from mainspring.registry.runs import Cancellation, LogLine, Run, Runs
from mainspring.registry.templates import DEFAULT_TEMPLATE, PLACEHOLDERS, render

__all__ = [
    "DEFAULT_TEMPLATE",
    "FIELDS",
    "PLACEHOLDERS",
    "Cancellation",
    "DeadLetter",
    "DeadLetters",
    "Job",
    "JobRequest",
    "LetterFilter",
    "LogLine",
    "Redriven",
    "Registry",
    "Run",
    "Runs",
    "render",
]
