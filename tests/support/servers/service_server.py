"""The HTTP service on a real socket, in a thread of the tests' process, and keys for it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Sequence
from typing import Any

import httpx2

from strandline.administration.keys import KeySpec, create_key
from strandline.cli.serve.server import DrainingServer, listen, make_server
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.wire.keys import NewKey
from strandline.service.app import ServiceApp, build_service
from strandline.service.service import Service
from tests.conftest import wait_until

# Clients here connect without TLS; each would read the list of authorities, for 30 ms of a processor.
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
ALL_BUT_OPERATING = ("read", "write", "facts", "erase")


class RunningService:
    """A service on a database; ``with`` starts and stops it.  ``port`` 0: one that is free."""

    def __init__(self, database_url: str, *, port: int = 0, **settings: Any) -> None:
        self.database_url = database_url
        self.settings: Settings = load_settings(database_url=database_url, **settings)
        self.app: ServiceApp = build_service(self.settings)
        self.database = Database.connect(
            ConnectionOptions.from_settings(database_url, self.settings, pool_size=2)
        )
        self._listening = listen("127.0.0.1", port, untaken_seconds=self.settings.service_body_seconds)
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server: DrainingServer = make_server(self.app, self.settings)
        self._thread = threading.Thread(target=self._serve, name="service", daemon=True)

    @property
    def service(self) -> Service:
        """What the process shares between requests."""
        service: Service = self.app.state.service
        return service

    def __enter__(self) -> RunningService:
        self._thread.start()
        wait_until(lambda: self.server.started, timeout=30, what="the service")
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        self._listening.close()
        self.database.close()

    def make_key(
        self,
        namespace: str | None = "default",
        *,
        user_id: str | None = None,
        scopes: Sequence[str] = ALL_BUT_OPERATING,
        **more: Any,
    ) -> NewKey:
        """A key; of all scopes but that of operators."""
        return self.database.run(create_key(KeySpec(namespace, scopes, user_id=user_id, **more)))

    def client(self, key: NewKey | str | None, *, user: str | None = None) -> httpx2.Client:
        """A client with this key, for this user."""
        text = key.key if isinstance(key, NewKey) else key
        headers = {} if text is None else {"Authorization": f"Bearer {text}"}
        if user is not None:
            headers["Strandline-User"] = user
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60, verify=NO_AUTHORITIES)

    def _serve(self) -> None:
        self.server.run(sockets=[self._listening])
