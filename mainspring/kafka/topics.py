"""Topics are made when they are needed, and none is used that would lose or repeat runs.

`ensure` is safe to call from every process at once: whoever comes second finds the topic made. Brokers learn
of a new topic one after the other, and each question may go to another broker, so a topic can be there, and
not be there in the next answer; a broker that has just died is asked in vain (see `admin.py`). `ensure`
therefore repeats its questions until every topic and its configuration has been seen, or the time is over.

    ask for the layouts ─▶ make what is missing ─▶ ask again … ─▶ ask for the configurations ─▶ judge

What was found good is remembered, so that asking before every bucket costs a lookup, and is looked at again
after `recheck_after`, because an operator may have changed it. When that second look finds no cluster, what
was good stays good until the next: the publisher notices by itself that Kafka is gone. A refusal is not
remembered: the next call sees at once that it has been put right. One refused topic does not keep the others
from being remembered, so a caller may go on with those.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from mainspring.clock import Clock, SystemClock
from mainspring.kafka.admin import Admin, Layout
from mainspring.kafka.topic_rules import TopicFacts, TopicSettings, judge
from mainspring.schema.errors import InvalidInput, KafkaUnavailable, TopicRefused
from mainspring.settings import KafkaSettings

__all__ = ["TopicReport", "TopicSettings", "Topics"]

ANSWER_SECONDS = 15.0
REQUEST_SECONDS = 1.5  # a hundred times what a broker takes; after that, another is asked
RECHECK_AFTER = timedelta(minutes=5)
_PAUSE_SECONDS = 0.05

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class TopicReport:
    """A topic that may be used. `created`: made by this very call, and its answer was not lost."""

    name: str
    created: bool
    partitions: int
    warnings: tuple[str, ...]


class _Remembered(NamedTuple):
    report: TopicReport
    at: float


class Topics:
    """Makes topics at need and checks those that exist; see the page above."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic_settings: TopicSettings,
        *,
        timeout: float = ANSWER_SECONDS,
        recheck_after: timedelta = RECHECK_AFTER,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._topic_settings = topic_settings
        self._timeout = timeout
        self._recheck_after = recheck_after.total_seconds()
        self._clock = clock or SystemClock()
        self._remembered: dict[str, _Remembered] = {}

    async def ensure(self, names: Iterable[str]) -> list[TopicReport]:
        """A report for each name, in order; TopicRefused for the first that cannot be used.

        Raises KafkaUnavailable when the cluster does not answer in time. A topic made before that stays made.
        """
        wanted = [_check_name(name) for name in names]
        stale = list(dict.fromkeys(name for name in wanted if self._is_stale(name)))
        fresh = await self._look_at(stale) if stale else {}
        return [fresh.get(name) or self._remembered[name].report for name in wanted]

    async def partitions(self, name: str) -> int:
        """How many partitions a topic has; it is made if there is none."""
        [report] = await self.ensure([name])
        return report.partitions

    def forget(self, name: str) -> None:
        """Look at a topic anew, and make it again if it is gone, when it is next asked for."""
        self._remembered.pop(name, None)

    def _is_stale(self, name: str) -> bool:
        known = self._remembered.get(name)
        return known is None or self._clock.monotonic() - known.at >= self._recheck_after

    async def _look_at(self, names: list[str]) -> dict[str, TopicReport]:
        """The reports made now; none for topics that are known and cannot be looked at again."""
        asked_at = self._clock.monotonic()
        questions = _Questions(names, self._topic_settings)
        try:
            await self._ask(questions)
        except KafkaUnavailable:
            if not self._remembered.keys() >= set(names):
                raise
            self._remember([self._remembered[name].report for name in names], asked_at)
            return {}
        self._remember(questions.reports.values(), asked_at)
        for name in questions.refused:
            self._remembered.pop(name, None)
        if questions.refused:
            raise next(questions.refused[name] for name in names if name in questions.refused)
        return questions.reports

    def _remember(self, reports: Iterable[TopicReport], at: float) -> None:
        for report in reports:
            # From memory nothing has just been made: whoever logs it logs it once.
            self._remembered[report.name] = _Remembered(replace(report, created=False), at)

    async def _ask(self, questions: _Questions) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                while not await self._converse(questions):
                    pass
        except TimeoutError as error:
            reason = f"no complete answer within {self._timeout:g} s: {questions.trouble}"
            raise KafkaUnavailable(self._settings.brokers, reason) from error

    async def _converse(self, questions: _Questions) -> bool:
        """Go on where the last conversation broke off; whether all has been answered."""
        request_seconds = min(REQUEST_SECONDS, self._timeout / 4)
        async with Admin(self._settings, request_seconds, questions.hear) as admin:
            try:
                await questions.ask(admin)
            except KafkaUnavailable:  # `questions` has heard why
                await asyncio.sleep(_PAUSE_SECONDS)
                return False
        return True


class _Questions:
    """What one `ensure` wants to know, asked until each name has a report or a refusal."""

    def __init__(self, names: list[str], settings: TopicSettings) -> None:
        self._names = names
        self._settings = settings
        self._created: set[str] = set()
        self._brokers: int | None = None
        self._layouts: dict[str, Layout] = {}
        self.reports: dict[str, TopicReport] = {}
        self.refused: dict[str, TopicRefused] = {}
        self.trouble = "no broker answered"

    def hear(self, trouble: str) -> None:
        self.trouble = trouble

    async def ask(self, admin: Admin) -> None:
        """Ask what is not answered yet; raises KafkaUnavailable half-way, and may then be called again."""
        if self._brokers is None:
            self._brokers = await admin.brokers()
        while pending := self._without_answer(self._layouts):
            await self._look(admin, pending, self._brokers)
        while pending := self._without_answer(self.reports):
            await self._judge(admin, pending, self._brokers)

    def _without_answer(self, answered: Iterable[str]) -> list[str]:
        return [name for name in self._names if name not in {*answered, *self.refused}]

    async def _look(self, admin: Admin, names: list[str], brokers: int) -> None:
        layouts, refused = await admin.layouts(names)
        self._layouts |= layouts
        self.refused |= refused
        missing = self._without_answer(self._layouts)
        if missing:
            made, refused = await admin.create(missing, self._settings, brokers)
            self._created |= made.keys()
            self.refused |= refused
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _judge(self, admin: Admin, names: list[str], brokers: int) -> None:
        configurations, refused = await admin.configurations(names)
        self.refused |= refused
        for name, configuration in configurations.items():
            layout = self._layouts[name]
            facts = TopicFacts(name, *layout, brokers, configuration)
            try:
                warnings = judge(facts, self._settings)
            except TopicRefused as refusal:
                self.refused[name] = refusal
            else:
                self.reports[name] = TopicReport(
                    name=name,
                    created=name in self._created,
                    partitions=layout.partitions,
                    warnings=warnings,
                )
        if self._without_answer(self.reports):
            await asyncio.sleep(_PAUSE_SECONDS)


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidInput("topic", f"{name!r} is not 1–249 letters, digits, dots, underscores or hyphens")
    return name
