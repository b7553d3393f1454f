"""The parts of the stack that somebody else runs.

A part is outside when its address is set. Then everything that belongs to it (login, TLS) is checked as every
process checks it, passed on, and the server must answer. The same variables without the address are refused:
they would be applied to the server started here, which has no TLS and a password of its own.

The shell that ran `eval "$(mainspring local env)"` has all three addresses set. A stack started from it later
would have nothing to start and nobody to use; that servers must answer turns this into one clear line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from mainspring.local.probes import etcd_answers, kafka_answer, listens
from mainspring.postgres import connect
from mainspring.schema.errors import DatabaseUnavailable, InvalidSetting, LocalStackError
from mainspring.settings import EtcdSettings, KafkaSettings, PostgresSettings


async def _postgres_answers(variables: Mapping[str, str]) -> bool:
    try:
        connection = await connect(
            PostgresSettings.from_environment(variables), application="mainspring local"
        )
    except DatabaseUnavailable:
        return False
    await connection.close()
    return True


async def _kafka_answers(variables: Mapping[str, str]) -> bool:
    return bool(await kafka_answer(KafkaSettings.from_environment(variables).librdkafka()))


async def _etcd_answers(variables: Mapping[str, str]) -> bool:
    """One endpoint is enough. Behind TLS or a login only its port is tried: this is no etcd client."""
    settings = EtcdSettings.from_environment(variables)
    ask = listens if settings.tls_enabled or settings.login else etcd_answers
    for endpoint in settings.endpoints:
        if await ask(endpoint):
            return True
    return False


@dataclass(frozen=True)
class Part:
    """One of the three: its name, the variable with its address, who reads its variables, how it is asked."""

    name: str
    variable: str
    read: Callable[[Mapping[str, str]], object]
    answers: Callable[[Mapping[str, str]], Awaitable[bool]]

    def owns(self, variable: str) -> bool:
        """Whether a variable says where the server is or how to get in."""
        prefix = f"MAINSPRING_{self.name.upper()}_"
        belongings = tuple(prefix + word for word in ("TLS", "USERNAME", "PASSWORD", "SASL"))
        return variable in (self.variable, f"{self.variable}_FILE") or variable.startswith(belongings)

    def member(self, number: int) -> str:
        """The name of a member; Postgres has only one."""
        return self.name if self is POSTGRES else f"{self.name}-{number}"


POSTGRES = Part("postgres", "MAINSPRING_POSTGRES_DSN", PostgresSettings.from_environment, _postgres_answers)
KAFKA = Part("kafka", "MAINSPRING_KAFKA", KafkaSettings.from_environment, _kafka_answers)
ETCD = Part("etcd", "MAINSPRING_ETCD", EtcdSettings.from_environment, _etcd_answers)
PARTS = (POSTGRES, KAFKA, ETCD)


def outside_variables(part: Part, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a part that somebody else runs; none when it is to be started here.

    An empty variable counts as not set.
    """
    found = {name: value for name, value in variables.items() if value and part.owns(name)}
    if part.variable in found or f"{part.variable}_FILE" in found:
        part.read(found)
    elif found:
        raise InvalidSetting(
            min(found),
            f"is set without {part.variable}; set both to use an outside {part.name}, or neither",
        )
    return found


async def require_answer(part: Part, variables: Mapping[str, str]) -> None:
    """Refuse to go on with an outside part that does not answer."""
    if not await part.answers(variables):
        raise LocalStackError(
            f"{part.variable} is set, but no {part.name} answers there",
            f"start that server, or unset {part.variable} to have one started here",
        )
