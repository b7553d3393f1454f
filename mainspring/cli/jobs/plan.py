"""What applying files would do: each job created, changed, left alone or deleted. Pure: the command fetches
and sends.

A file says everything about a job, so a field that is not in it goes to its default. Whether a field
changes is decided on both sides as the registry reads it: `high` and 8 are one priority, an instant is one
however it is written, and parents are compared as jobs, not as the names they were given by.

Only fields that differ are sent, with the version that was looked at: a job that somebody else changes
between the plan and its application is refused, and not overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from mainspring.cli.jobs.documents import Document
from mainspring.client.models import JobDetail, Validated
from mainspring.registry import JobRequest
from mainspring.schema.errors import InvalidInput


class Action(StrEnum):
    """What happens to a job."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    UNCHANGED = "unchanged"


class Change(NamedTuple):
    """A field before and after."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One job of the plan; fire times only where they change."""

    action: Action
    name: str
    fields: Mapping[str, Any]
    """What is sent: the whole job, or the fields that change."""
    changes: tuple[Change, ...] = ()
    words: str = ""
    before: tuple[datetime, ...] = ()
    after: tuple[datetime, ...] = ()
    current: JobDetail | None = None

    @property
    def fires_otherwise(self) -> bool:
        return self.before != self.after


def named(documents: Sequence[Document]) -> dict[str, Document]:
    """The documents by the name of their job: each needs one, and none may stand twice."""
    found: dict[str, Document] = {}
    for document in documents:
        name = document.fields.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidInput(document.source, "has no name; jobs are applied by name")
        if name in found:
            raise InvalidInput(document.source, f"{name!r} stands in {found[name].source} too")
        found[name] = document
    return found


def differences(document: Document, current: JobDetail, ids: Mapping[str, str]) -> tuple[Change, ...]:
    """The fields that applying it would change; `ids` are those of the parents that exist, by name."""
    wanted, has = read(document).as_mapping(), JobRequest.from_mapping(current.definition()).as_mapping()
    wanted["after"] = _parents(wanted.get("after"), ids)
    has["after"] = _parents(has.get("after"), {})
    return tuple(
        Change(name, has.get(name), wanted.get(name))
        for name in dict.fromkeys([*wanted, *has])
        if has.get(name) != wanted.get(name)
    )


def step_of(
    document: Document,
    current: JobDetail | None,
    changes: tuple[Change, ...],
    validated: Validated | None,
) -> Step:
    """What happens to one job."""
    name = str(document.fields["name"])
    coming = () if validated is None else validated.next_runs
    words = "" if validated is None else validated.words
    if current is None:
        return Step(action=Action.CREATE, name=name, fields=document.fields, words=words, after=coming)
    if not changes:
        return Step(action=Action.UNCHANGED, name=name, fields={}, current=current)
    return Step(
        action=Action.CHANGE,
        name=name,
        fields=_sent(document, changes),
        changes=changes,
        words=words,
        before=current.next_runs,
        after=coming if current.status != "paused" else (),
        current=current,
    )


def prune(candidates: Iterable[JobDetail], kept: Iterable[str]) -> list[Step]:
    """Deletions of what carries the label and stands in no file."""
    names = set(kept)
    return [
        Step(action=Action.DELETE, name=job.label, fields={}, before=job.next_runs, current=job)
        for job in candidates
        if job.label not in names
    ]


def in_order(steps: Sequence[Step]) -> list[Step]:
    """Parents before those that wait for them, deletions last; otherwise as they came."""
    by_name = {step.name: step for step in steps}
    done: dict[str, Step] = {}

    def visit(step: Step, path: tuple[str, ...]) -> None:
        if step.name in done or step.name in path:  # a cycle is refused by the API, with its members
            return
        for parent in step.fields.get("after") or ():
            if parent in by_name:
                visit(by_name[parent], (*path, step.name))
        done[step.name] = step

    for step in steps:
        visit(step, ())
    return sorted(done.values(), key=lambda step: step.action is Action.DELETE)


def read(document: Document) -> JobRequest:
    """The job of a document, checked; a refusal says where it stands."""
    try:
        return JobRequest.from_mapping(document.fields)
    except InvalidInput as refusal:
        raise InvalidInput(f"{document.source}: {refusal.field}", refusal.rule) from None


def _sent(document: Document, changes: Sequence[Change]) -> dict[str, Any]:
    """The new values as they were written; what means nothing for the new kind falls away by itself."""
    wanted = read(document).as_mapping()
    return {
        change.field: document.fields.get(change.field, wanted[change.field])
        for change in changes
        if change.field in wanted
    }


def _parents(after: Iterable[str] | None, ids: Mapping[str, str]) -> list[str] | None:
    """As ids where they are known, and in no order: it means nothing."""
    return sorted(ids.get(parent, parent) for parent in after) if after else None
