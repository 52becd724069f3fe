"""Waits for transactions: an unused thing may still be in use by an uncommitted one."""

from __future__ import annotations

import time

from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.derived.generations import TransactionsBegun, TransactionsUnderWay

POLL_SECONDS = 0.1
WAIT_SECONDS = 30.0


def older_have_ended(database: Database, seconds: float = WAIT_SECONDS) -> bool:
    """Wait until every transaction that has written so far has ended; False if one has not after ``seconds``.

    Prepared transactions count, and so do those of other databases of the server.
    """
    (target,) = database.fetch(TransactionsBegun())
    deadline = time.monotonic() + seconds
    while database.fetch(TransactionsUnderWay())[0].number < target.number:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
