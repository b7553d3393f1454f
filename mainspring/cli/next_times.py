"""`mainspring next`: when a schedule fires, answered on the spot, without any server."""

from __future__ import annotations

import json
from datetime import datetime

import click

from mainspring.clock import SystemClock
from mainspring.schedule import (
    Cadence,
    DstPolicy,
    Gap,
    Kind,
    Repeat,
    describe,
    format_instant,
    load_zone,
    parse_instant,
)
from mainspring.schema.errors import InvalidInput

_EXAMPLES = """\b
Examples:
  mainspring next '0 9 * * MON-FRI' --tz Europe/London
  mainspring next '30 2 * * *' --tz America/New_York --from 2026-03-07T00:00:00Z -n 3
  mainspring next every 90s
  mainspring next every PT15M --json
  mainspring next 2027-01-01T00:00 --tz Asia/Tokyo
"""


@click.command(epilog=_EXAMPLES)
@click.argument("expression", nargs=-1, required=True, metavar="EXPR")
@click.option("--tz", "timezone", default="UTC", show_default=True, metavar="ZONE", help="IANA time zone.")
@click.option("--from", "start", metavar="ISO", help="Strictly after this instant (default: now).")
@click.option("-n", "count", type=click.IntRange(1, 10_000), default=5, show_default=True, help="How many.")
@click.option(
    "--gap",
    type=click.Choice([choice.value for choice in Gap]),
    default=Gap.RUN_AFTER.value,
    show_default=True,
    help="A fixed time that the clock jumps over.",
)
@click.option(
    "--repeat",
    type=click.Choice([choice.value for choice in Repeat]),
    default=Repeat.FIRST.value,
    show_default=True,
    help="A fixed time that happens twice.",
)
@click.option("--json", "as_json", is_flag=True, help="Print an array of UTC instants and nothing else.")
def command(
    expression: tuple[str, ...],
    timezone: str,
    start: str | None,
    count: int,
    gap: str,
    repeat: str,
    as_json: bool,  # noqa: FBT001  (click passes options by name)
) -> None:
    """Show when EXPR fires next.

    EXPR is a cron expression (five fields, six with leading seconds, or a nickname such as @daily), an
    interval (`every 90s`, `every PT15M`), or an ISO-8601 instant. Quote it, or the shell will read the stars.
    An instant without an offset is read in --tz.
    """
    now = SystemClock().now()
    cadence = _read_expression(expression, timezone, DstPolicy(Gap(gap), Repeat(repeat)))
    base = now if start is None else parse_instant(start, timezone, field="--from")
    times = _list_times(cadence, base, count)
    if as_json:
        click.echo(json.dumps([format_instant(moment) for moment in times]))
    else:
        _show(cadence, times, count, base, now)


def _read_expression(words: tuple[str, ...], timezone: str, dst: DstPolicy) -> Cadence:
    try:
        return Cadence.parse(" ".join(words), timezone, dst)
    except InvalidInput as error:
        if len(words) == 1 or words[0].lower() == "every" or error.field == "timezone":
            raise
        hint = "not quoted, so the shell may have put file names in place of *; quote it: '0 9 * * *'"
        raise InvalidInput(error.field, f"{error.rule} ({hint})") from None


def _list_times(cadence: Cadence, base: datetime, count: int) -> list[datetime]:
    times: list[datetime] = []
    following = cadence.next_after(base)
    while following is not None and len(times) < count:
        times.append(following)
        following = cadence.next_after(following)
    return times


def _show(cadence: Cadence, times: list[datetime], count: int, base: datetime, now: datetime) -> None:
    """The view for people: the schedule in words, then one line for each time."""
    words = describe(cadence)
    click.echo(
        f"{words[0].upper()}{words[1:]}" + (f" ({cadence.timezone})" if cadence.kind is Kind.CRON else "")
    )
    if times:
        click.echo()
        for line in _table(cadence, times, now):
            click.echo(line)
    if len(times) < count:
        more = "Nothing more" if times else "Nothing"
        last = times[-1] if times else base
        click.echo(f"{more} after {format_instant(last)}.", err=True)


def _table(cadence: Cadence, times: list[datetime], now: datetime) -> list[str]:
    zone = load_zone(cadence.timezone)
    rows = [("local time", "UTC", "from now")]
    for moment in times:
        local = moment.astimezone(zone)
        shown = f"{local:%a} {local:%Y-%m-%d %H:%M:%S} {local.tzname()}"
        rows.append((shown, format_instant(moment), distance(moment, now)))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return [f"{first:<{widths[0]}}  {second:<{widths[1]}}  {third}" for first, second, third in rows]


def distance(moment: datetime, now: datetime) -> str:
    """`in 2 h 5 min`, `3 d 4 h ago`: the two largest units, cut off, not rounded."""
    seconds = round((moment - now).total_seconds())
    if seconds == 0:
        return "now"
    rest = abs(seconds)
    parts: list[str] = []
    for unit, size in (("y", 31_536_000), ("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        amount, rest = divmod(rest, size)
        if amount or parts:
            parts.append(f"{amount} {unit}" if amount else "")
    text = " ".join(part for part in parts[:2] if part)
    return f"in {text}" if seconds > 0 else f"{text} ago"
