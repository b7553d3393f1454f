"""`mainspring jobs create, edit`: a job's fields as options."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from mainspring.cli.jobs.documents import read_documents, read_value
from mainspring.cli.jobs.views import JOBS
from mainspring.cli.output import Output, say, with_output
from mainspring.cli.remote import pairs, reason_option, with_client
from mainspring.client import Client

F = TypeVar("F", bound=Callable[..., Any])


def field_options(command: F) -> F:
    """The fields that people set most; every other one with --set."""
    for option in (
        click.option(
            "--set", "others", multiple=True, metavar="FIELD=VALUE", help="Any other field; repeatable."
        ),
        click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label; repeatable."),
        click.option("--after", multiple=True, metavar="JOB", help="Wait for this job; repeatable."),
        click.option("--priority", metavar="0–9", help="Or high, normal, low."),
        click.option("--pool", help="Whose workers run it."),
        click.option("--payload", metavar="JSON", help="What the handler receives."),
        click.option("--handler", help="What runs; default: the name."),
        click.option("--timezone", "--tz", "timezone", metavar="ZONE", help="IANA time zone; default: UTC."),
        click.option("--schedule", metavar="EXPR", help="Cron, `every 15m`, or an ISO-8601 instant."),
    ):
        command = option(command)
    return command


@click.command("create")
@click.argument("name", required=False)
@field_options
@click.option("-f", "--file", "file", metavar="FILE", help="YAML or JSON with one job; - is stdin.")
@reason_option
@with_output
@with_client
def create(
    name: str | None, *, client: Client, output: Output, file: str | None, reason: str | None, **given: Any
) -> None:
    """Create a job; refused if one of this name exists (`jobs apply` changes it then)."""
    fields = {} if file is None else _only_document(file)
    fields |= _fields(given) | ({} if name is None else {"name": name})
    job = client.jobs.create(fields, reason=reason)
    say(f"created {job.label} ({job.job_id}), next run {output.times.whole(job.next_run_at) or 'not known'}")
    output.show(JOBS, [job])


@click.command("edit")
@click.argument("job")
@field_options
@click.option("--unset", multiple=True, metavar="FIELD", help="Back to its default; repeatable.")
@click.option("--if-version", "version", type=int, metavar="N", help="Only if it is still at this version.")
@reason_option
@with_output
@with_client
def edit(
    job: str,
    *,
    client: Client,
    output: Output,
    unset: tuple[str, ...],
    version: int | None,
    reason: str | None,
    **given: Any,
) -> None:
    """Change some fields of a job, or without any open its definition in $EDITOR."""
    changes = _fields(given) | dict.fromkeys(unset)
    if not changes:
        found = client.jobs.get(job)
        changes, version = _edited(found.definition()), found.version if version is None else version
        if not changes:
            say("nothing was changed")
            return
    changed = client.jobs.edit(job, changes, version=version, reason=reason)
    say(f"changed {changed.label}: now at version {changed.version}")
    output.show(JOBS, [changed])


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, as the API has them."""
    fields: dict[str, Any] = {
        name: given[name]
        for name in ("schedule", "timezone", "handler", "pool", "priority")
        if given[name] is not None
    }
    if fields.get("priority", "").isdigit():
        fields["priority"] = int(fields["priority"])
    if given["payload"] is not None:
        fields["payload"] = _json(given["payload"])
    if given["after"]:
        fields["after"] = list(given["after"])
    if given["labels"]:
        fields["labels"] = pairs(given["labels"], "--label")
    others = pairs(given["others"], "--set")
    return fields | {name: read_value(text, f"--set {name}") for name, text in others.items()}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint="--payload") from None


def _only_document(file: str) -> dict[str, Any]:
    documents = read_documents([file])
    if len(documents) != 1:
        raise click.UsageError(f"{file} has {len(documents)} jobs, not one; `jobs apply` takes many")
    return dict(documents[0].fields)


def _edited(definition: Mapping[str, Any]) -> dict[str, Any]:
    """What a person changed in the editor; what was taken out goes back to its default."""
    before = json.loads(json.dumps(definition, default=str))
    text = click.edit(json.dumps(before, indent=2, ensure_ascii=False), extension=".json")
    if text is None:
        return {}
    after = _json(text)
    if not isinstance(after, dict):
        raise click.UsageError("what was written is not an object")
    return {name: after.get(name) for name in {**before, **after} if after.get(name) != before.get(name)}
