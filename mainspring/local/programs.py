"""The three programs as a local stack runs them: commands, with addresses that stay while it runs.

Development mode: the API asks for no keys, which it does on loopback only. Stops are short: a run that is
under way has five seconds to end, then it is handed back. What the user's variables say otherwise counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mainspring.local.ports import HOST, free_port, is_free, require_free
from mainspring.local.processes import Program
from mainspring.schema.errors import InvalidSetting
from mainspring.serving import is_loopback, parse_address
from mainspring.settings import PREFIX, Environment

API_OPTION = "--api"
_PREFERRED_PORT = 8080
_GRACE_SECONDS = 5
# How long each may take beyond its grace before it is killed: what the programs themselves promise, and some.
_WORKER_END_SECONDS, _SCHEDULER_END_SECONDS, _API_END_SECONDS = 17.0, 14.0, 5.0
# Somebody's settings for a real API: it would not be found where we say, or not without its key. And the
# number of shards, which whoever migrated has compared.
_NOT_FOR_DEVELOPMENT = tuple(PREFIX + name for name in ("API_TLS_CERT", "API_TLS_KEY", "API_AUTH", "SHARDS"))


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """How many of each, and what the workers execute."""

    schedulers: int = 2
    workers: int = 2
    app: str | None = None
    api: str | None = None
    """host:port; None: port 8080, or a free one where that is taken."""
    grace_seconds: int | None = None
    """How long runs may take to end; None: what MAINSPRING_WORKER_GRACE_SECONDS says, or five."""

    def groups(self, variables: Mapping[str, str]) -> list[list[Program]]:
        """Every program, in the order of starting; ports are chosen now."""
        statuses, api = _status_addresses(), choose_api_address(self.api)
        grace = self._grace(variables)
        worker = ("worker", "--grace", str(grace), *(() if self.app is None else ("--app", self.app)))
        return [
            [_api(api)],
            [
                _program(f"scheduler-{number}", ("scheduler",), next(statuses), _SCHEDULER_END_SECONDS)
                for number in range(1, self.schedulers + 1)
            ],
            [
                _program(f"worker-{number}", worker, next(statuses), grace + _WORKER_END_SECONDS)
                for number in range(1, self.workers + 1)
            ],
        ]

    def _grace(self, variables: Mapping[str, str]) -> int:
        if self.grace_seconds is not None:
            return self.grace_seconds
        given = Environment(variables).integer("WORKER_GRACE_SECONDS", 0, 86_400)
        return _GRACE_SECONDS if given is None else given


def choose_api_address(given: str | None) -> str:
    """A definite one: an API that is started again must be found where it was."""
    if given is None:
        return f"{HOST}:{_PREFERRED_PORT if is_free(_PREFERRED_PORT) else free_port()}"
    host, port = parse_address(given, API_OPTION)
    if not is_loopback(host):
        raise InvalidSetting(
            API_OPTION, f"{given} is no loopback address: there are no keys here; see `mainspring api`"
        )
    if port != 0:
        require_free("the api", port)
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port or free_port()}"


def development(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of every program: all that the user has set, handlers need it, but keys off."""
    kept = {name: value for name, value in variables.items() if name not in _NOT_FOR_DEVELOPMENT}
    return kept | {f"{PREFIX}API_AUTH": "off"}


def _api(address: str) -> Program:
    return Program(
        name="api",
        arguments=("api", "--address", address),
        status=address,
        stop_seconds=_GRACE_SECONDS + _API_END_SECONDS,
        variables={f"{PREFIX}API_GRACE_SECONDS": str(_GRACE_SECONDS)},
    )


def _program(name: str, arguments: tuple[str, ...], status: str, stop_seconds: float) -> Program:
    return Program(
        name=name, arguments=(*arguments, "--status", status), status=status, stop_seconds=stop_seconds
    )


def _status_addresses() -> Iterator[str]:
    given: list[int] = []
    while True:
        given.append(free_port(avoid=given))
        yield f"{HOST}:{given[-1]}"
