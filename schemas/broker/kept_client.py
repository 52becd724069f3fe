"""One client for a channel to Redis.

Kombu makes a new client for each command outside a transaction, which costs more than sending the command:
with its table of a hundred ways to read answers, a tenth of a busy worker's time.
"""

from __future__ import annotations

from typing import Any


class KeptClient:
    """To be mixed into Kombu's channel to Redis: keeps the client of its pool of connections."""

    pool: Any
    _kept: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        made_by: Any = super()
        if asynchronous:
            return made_by._create_client(asynchronous)
        # After the connection was lost the channel has another pool.
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = made_by._create_client()
        return self._kept
