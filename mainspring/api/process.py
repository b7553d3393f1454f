"""The API process: builds everything once, listens, and stops in order.

    signal ─▶ listen no more; requests under way are finished, for as long as the grace; then cut off; exit 0

It keeps nothing: start as many as you like behind any balancer. It starts only on a migrated database with
the number of shards that it expects; after that it outlives every outage of Postgres, and answers 503
meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator

import structlog
import uvicorn

from mainspring.api.app import make_app
from mainspring.api.services import Services
from mainspring.api.settings import SETTING, ApiSettings
from mainspring.postgres import connect, make_pool
from mainspring.schema.cluster import verify_shards
from mainspring.schema.errors import InvalidSetting
from mainspring.serving import parse_address
from mainspring.settings import PREFIX

COMMAND_SECONDS = 60.0
BACKLOG = 2048

log = structlog.get_logger()


class Api:
    """One process; `run` returns after an orderly stop."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self.address = ""

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop."""
        shards = await self._verify()
        # Filters are optional parameters: planned once for all callers, every list would read everything.
        pool = make_pool(
            self._settings.postgres,
            application="mainspring api",
            size=self._settings.connections,
            command_seconds=COMMAND_SECONDS,
            server_settings={"plan_cache_mode": "force_custom_plan"},
        )
        try:
            async with pool:
                await self._serve(Services.build(self._settings, pool, shards), stop)
        finally:
            pool.terminate()
        log.info("api_stopped")

    async def _serve(self, services: Services, stop: asyncio.Event) -> None:
        server = _Server(self._configuration(services))
        watching = asyncio.create_task(self._watch(server, stop), name="api-stop")
        try:
            await server.serve()
        except SystemExit as error:  # what uvicorn does when it cannot listen
            raise InvalidSetting(SETTING, f"{self._settings.address} cannot be listened on") from error
        finally:
            watching.cancel()

    async def _watch(self, server: _Server, stop: asyncio.Event) -> None:
        await server.listening.wait()
        self._announce(server)
        await stop.wait()
        log.info("api_stopping", grace_seconds=self._settings.grace_seconds)
        server.should_exit = True

    def _announce(self, server: _Server) -> None:
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        secure = self._settings.tls_certificate is not None
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{'https' if secure else 'http'}://{shown}:{port}"
        log.info("api_started", address=self.address)
        if self._settings.auth == "off":
            log.warning("keys_are_off", rule="everybody on this machine is admin of the tenant default")

    def _configuration(self, services: Services) -> uvicorn.Config:
        host, port = parse_address(self._settings.address, SETTING)
        configuration = uvicorn.Config(
            make_app(services),
            host=host,
            port=port,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=self._settings.grace_seconds,
            ssl_certfile=self._settings.tls_certificate,
            ssl_keyfile=None if self._settings.tls_key is None else str(self._settings.tls_key),
        )
        try:
            configuration.load()
        except (ssl.SSLError, OSError) as error:
            raise InvalidSetting(f"{PREFIX}API_TLS_CERT", f"cannot be used: {error}") from error
        return configuration

    async def _verify(self) -> int:
        connection = await connect(self._settings.postgres, application="mainspring api")
        try:
            return await verify_shards(connection, self._settings.shards)
        finally:
            await connection.close()


class _Server(uvicorn.Server):
    """Signals are the process's business; it says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        self.listening.set()
