"""What a process that ends takes from under its own threads."""

from __future__ import annotations

import logging

from strandline.schemas.errors import DatabaseUnavailableError, StrandlineError


def level_of(error: StrandlineError, *, ending: bool) -> int:
    """How loudly to log a failure.

    A process that ends closes its connections under the threads that outlast its patience: what they were
    at is due to others, and nothing is wrong.
    """
    return logging.INFO if ending and isinstance(error, DatabaseUnavailableError) else logging.WARNING
