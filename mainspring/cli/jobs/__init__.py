"""`mainspring jobs`: everything about jobs. A JOB is an id or a name."""

from __future__ import annotations

import click

from mainspring.cli.lazy import LazyGroup

_HERE = "mainspring.cli.jobs"
_LAZY = {
    "apply": f"{_HERE}.applying:apply_files",
    "backfill": f"{_HERE}.running:backfill",
    "create": f"{_HERE}.writing:create",
    "delete": f"{_HERE}.changing:delete",
    "edit": f"{_HERE}.writing:edit",
    "explain": f"{_HERE}.reading:explain",
    "get": f"{_HERE}.reading:get",
    "import-crontab": f"{_HERE}.importing:import_crontab",
    "list": f"{_HERE}.reading:list_jobs",
    "pause": f"{_HERE}.changing:pause",
    "resume": f"{_HERE}.changing:resume",
    "runs": f"{_HERE}.reading:runs",
    "submit": f"{_HERE}.submitting:submit",
    "trigger": f"{_HERE}.running:trigger",
}


@click.group("jobs", cls=LazyGroup, lazy=_LAZY)
def command() -> None:
    """Create, look at and change jobs. A JOB is an id or a name."""
