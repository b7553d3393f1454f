"""`mainspring jobs apply`: schedules as code. Shows the plan, asks, then applies it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import click

from mainspring.cli.confirmation import confirm, counted, dry_run_option, yes_option
from mainspring.cli.jobs.documents import Document, read_documents
from mainspring.cli.jobs.plan import Action, Step, differences, in_order, named, prune, read, step_of
from mainspring.cli.output import Format, Output, is_coloured, record, say, with_output
from mainspring.cli.remote import pairs, reason_option, with_client
from mainspring.client import Client, InvalidInput, MainspringError, NotFound
from mainspring.client.models import JobDetail
from mainspring.schema import errors

_AT_ONCE = 8
_SHOWN_TIMES = 3
_MARKS = {Action.CREATE: "+", Action.CHANGE: "~", Action.DELETE: "-"}
_COLOURS = {Action.CREATE: "green", Action.CHANGE: "yellow", Action.DELETE: "red"}
_DONE = {Action.CREATE: "created", Action.CHANGE: "changed", Action.DELETE: "deleted"}


@click.command("apply")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--prune", "pruned", metavar="KEY=VALUE", help="Delete what has this label and is in no file.")
@reason_option
@dry_run_option
@yes_option
@with_output
@with_client
def apply_files(
    files: tuple[str, ...],
    *,
    client: Client,
    output: Output,
    pruned: str | None,
    reason: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Make the jobs be what the FILEs say: YAML or JSON, directories, or - for stdin.

    Jobs go by their names. The plan shows what would be created and changed, field by field, and the next
    fire times that change; then it asks. A field that is not in the file goes to its default.
    """
    documents = named(read_documents(files))
    steps = in_order([*_plan(client, documents), *_prunable(client, pruned, documents)])
    _show(steps, output)
    todo = [step for step in steps if step.action is not Action.UNCHANGED]
    say(_summary(steps))
    if dry_run or not todo:
        return
    if "-" in files and not yes:
        raise click.UsageError("the jobs came from stdin, so nobody can be asked: give --yes")
    confirm(f"apply to {counted(len(todo), 'job')}?", yes=yes)
    _apply(client, todo, reason)


def _plan(client: Client, documents: dict[str, Document]) -> list[Step]:
    """Each job looked up and, where it is new or changes, checked by the API."""
    for document in documents.values():
        read(document)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        current = dict(zip(documents, threads.map(lambda name: _find(client, name), documents), strict=True))
        ids = _parents(client, documents, current)

        def one(document: Document) -> Step:
            found = current[str(document.fields["name"])]
            changes = () if found is None else differences(document, found, ids)
            if found is not None and not changes:
                return step_of(document, found, (), None)
            try:
                return step_of(document, found, changes, client.jobs.validate(document.fields))
            except InvalidInput as refusal:
                raise errors.InvalidInput(f"{document.source}: {refusal.field}", refusal.rule) from None

        return list(threads.map(one, documents.values()))


def _find(client: Client, name: str) -> JobDetail | None:
    try:
        return client.jobs.get(name)
    except NotFound:
        return None


def _parents(
    client: Client, documents: dict[str, Document], current: dict[str, JobDetail | None]
) -> dict[str, str]:
    """The ids of all parents that exist, by name."""
    names = {parent for document in documents.values() for parent in document.fields.get("after") or ()}
    found = {name: current[name] if name in current else _find(client, name) for name in names}
    return {name: job.job_id for name, job in found.items() if job is not None}


def _prunable(client: Client, pruned: str | None, documents: dict[str, Document]) -> list[Step]:
    if pruned is None:
        return []
    listed = client.jobs.list(labels=pairs((pruned,), "--prune"))
    unwanted = [job.job_id for job in listed if job.label not in documents]
    found = [_find(client, job_id) for job_id in unwanted]
    return prune([job for job in found if job is not None], documents)


def _apply(client: Client, steps: Sequence[Step], reason: str | None) -> None:
    refused = 0
    hidden = not sys.stderr.isatty() or len(steps) < 100
    with click.progressbar(steps, file=sys.stderr, hidden=hidden, label="applying") as progress:
        for step in progress:
            try:
                _do(client, step, reason)
            except MainspringError as error:
                refused += 1
                say(f"mainspring: {step.name}: {error}")
            else:
                if hidden:
                    say(f"{_DONE[step.action]} {step.name}")
    if refused:
        say(f"{counted(refused, 'job')} of {len(steps):,} could not be applied")
        raise click.exceptions.Exit(1)


def _do(client: Client, step: Step, reason: str | None) -> None:
    if step.action is Action.CREATE:
        client.jobs.create(step.fields, reason=reason)
        return
    assert step.current is not None
    if step.action is Action.DELETE:
        client.jobs.delete(step.current.job_id, reason=reason)
    else:
        client.jobs.edit(step.current.job_id, step.fields, version=step.current.version, reason=reason)


def _show(steps: Sequence[Step], output: Output) -> None:
    if output.format is Format.JSON:
        click.echo(json.dumps([_record(step) for step in steps], indent=2, ensure_ascii=False))
    for step in steps if output.format is not Format.JSON else ():
        if output.format is Format.JSONL:
            click.echo(json.dumps(_record(step), ensure_ascii=False))
        elif step.action is Action.UNCHANGED:
            continue
        elif output.format is Format.NAME:
            click.echo(step.name)
        else:
            click.echo("\n".join(_lines(step, output)))


def _lines(step: Step, output: Output) -> list[str]:
    head = f"{_MARKS[step.action]} {step.action} {step.name}"
    if is_coloured(sys.stdout):
        head = click.style(head, fg=_COLOURS[step.action])
    lines = [f"{head}  {step.words}".rstrip()]
    lines += [f"    {name}: {_json(before)} → {_json(after)}" for name, before, after in step.changes]
    if step.current is not None and step.current.status == "paused":
        lines.append("    it is paused, and stays so")
    if step.fires_otherwise:
        if step.before:
            lines.append(f"    next so far  {_times(step.before, output)}")
        if step.after:
            lines.append(f"    next then    {_times(step.after, output)}")
        elif step.action is Action.CHANGE:
            lines.append("    it will not fire by itself any more")
    return lines


def _times(moments: Sequence[datetime], output: Output) -> str:
    shown = [str(output.times.whole(moment)) for moment in moments[:_SHOWN_TIMES]]
    return ("\n" + " " * 17).join(shown)


def _json(value: object) -> str:
    text = json.dumps(record(value), ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _record(step: Step) -> dict[str, object]:
    return {
        "action": step.action.value,
        "name": step.name,
        "changes": {name: {"before": before, "after": after} for name, before, after in step.changes},
        "next_runs_before": record(step.before),
        "next_runs_after": record(step.after),
    }


def _summary(steps: Sequence[Step]) -> str:
    count = Counter(step.action for step in steps)
    return (
        ", ".join(f"{count[action]:,} to {action}" for action in _MARKS)
        + f", {count[Action.UNCHANGED]:,} unchanged"
    )
