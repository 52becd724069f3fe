"""How loudly a failure of a thread is logged, that others or the end of the process may explain."""

from __future__ import annotations

import logging

from strandline.schemas.errors import (
    DatabaseBusyError,
    DatabaseTimeoutError,
    DatabaseUnavailableError,
    StrandlineError,
)


def level_of(error: StrandlineError, *, ending: bool) -> int:
    """How loudly to log a failure.

    That the database is away is said once, by the pool that finds it so, and not by each thread
    that meets it (``schemas.postgres.pools.reaching``).  And a process that ends closes its connections under
    the threads that outlast its patience: what they were at is due to others, and nothing is wrong.
    """
    if not isinstance(error, DatabaseUnavailableError):
        return logging.WARNING
    is_loud = isinstance(error, (DatabaseTimeoutError, DatabaseBusyError)) and not ending
    return logging.WARNING if is_loud else logging.INFO
