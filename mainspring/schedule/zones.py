"""Time zones out of the pinned `tzdata` package, never out of the operating system.

A leader and a worker on two machines must agree on what “09:00 in Cairo” means. `zoneinfo` looks first at
the system's files, which differ from host to host, and its search path is a global that we do not own. So
each zone is read from the package's own file and kept; `tzdata_version()` says which release that was, and
what is stored from an evaluation (`cadences.next_at`) carries it.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module, resources
from zoneinfo import ZoneInfo

from mainspring.schema.errors import InvalidInput


def tzdata_version() -> str:
    """The IANA release in use, such as `2026f`."""
    version: str = import_module("tzdata").IANA_VERSION
    return version


def load_zone(name: str) -> ZoneInfo:
    """The zone of this IANA name; raises InvalidInput("timezone", …) for any other name."""
    if name not in zone_names():
        raise InvalidInput("timezone", f"{name!r} is not an IANA time zone{_suggest(name)}")
    return _read_zone(name)


@cache
def zone_names() -> frozenset[str]:
    """Every name the package knows, the old aliases included."""
    listing = resources.files("tzdata").joinpath("zones").read_text(encoding="ascii")
    return frozenset(listing.split())


@cache
def _read_zone(name: str) -> ZoneInfo:
    # Unbounded, but only names of the listing get here: at most six hundred.
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _suggest(name: str) -> str:
    by_lower_case = {known.lower(): known for known in zone_names()}
    close = get_close_matches(name.lower()[:64].replace(" ", "_"), by_lower_case, n=1, cutoff=0.8)
    return f"; did you mean {by_lower_case[close[0]]}?" if close else ""
