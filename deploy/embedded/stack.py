"""The embedded stack: Postgres, and a broker if one is wanted, in one home directory.

Servers are shared by the processes of one user and end with the last that stops.  ``embedded.json`` in the
home directory announces them: a second terminal finds the stack there, and so can a person.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal

from strandline.deploy.embedded.broker import EmbeddedBroker, recorded_broker
from strandline.deploy.embedded.postgres import EmbeddedPostgres
from strandline.deploy.embedded.shared_use import SharedUse
from strandline.schemas.errors import ConfigurationError, EmbeddedUnavailableError, StrandlineError
from strandline.schemas.private_files import write_private

logger = logging.getLogger("strandline.embedded")

STATE_FILE = "embedded.json"


@dataclass(frozen=True, slots=True)
class EmbeddedStack:
    """The running embedded servers as this process uses them; ``with`` stops them at its end."""

    home: Path
    database_url: str = field(repr=False)
    broker_url: str | None = field(repr=False)
    _postgres: EmbeddedPostgres = field(repr=False)
    _broker: EmbeddedBroker | None = field(repr=False)
    joined: bool = True
    _ended: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    def find_database(self) -> str:
        """The URL of Postgres, which is started again if it ended while this process uses it.

        If it does not start, the URL is returned all the same: the caller learns why when it connects.
        """
        if self._postgres.pid() is None:
            with _home_lock(self.home):
                self._start_again()
        return self._postgres.url

    def mend(self) -> bool:
        """Restart, at the same address, servers that ended while this process uses them; the log says so.

        Returns:
            Whether all servers run now.
        """
        self.find_database()
        if self._broker is not None and self._broker.has_ended():
            with _home_lock(self.home):
                if not self._ended.is_set():
                    mend_broker(self._broker)
                    _announce(self.home)
        return self._postgres.pid() is not None and not (self._broker and self._broker.has_ended())

    def _start_again(self) -> None:
        if self._ended.is_set() or self._postgres.pid() is not None:
            return
        try:
            self._postgres.start()
        except StrandlineError as error:
            logger.warning(
                "embedded database ended and does not start",
                extra={"action": "embedded_database_down", "reason": str(error)},
            )
        else:
            logger.warning(
                "embedded database ended, and was started again",
                extra={"action": "embedded_database_restarted"},
            )
        _announce(self.home)

    def stop(self) -> None:
        """End this process's use, and stop servers without users. Safe to repeat."""
        self._end(self._postgres.stop)

    def detach(self) -> None:
        """End this process's use and leave Postgres running; the broker still ends with its last user."""
        self._end(self._postgres.detach)

    def _end(self, end_postgres: Callable[[], object]) -> None:
        with _home_lock(self.home):
            self._ended.set()
            if self._broker is not None:
                self._broker.stop()
            end_postgres()
            _announce(self.home)

    def __enter__(self) -> EmbeddedStack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_stack(
    home: Path, *, with_broker: bool, embedded: Literal["auto", "never"] = "auto"
) -> EmbeddedStack:
    """Start the embedded servers in ``home``, or join running ones.

    Args:
        home: made if missing, readable only by its owner.
        with_broker: start a broker as well, or use a running one.
        embedded: the setting ``STRANDLINE_EMBEDDED``.

    Raises:
        EmbeddedUnavailableError: forbidden by the setting, or the wheels are not installed.
        ConfigurationError: ``home`` cannot be written, or holds something other than a cluster of Strandline.
        DatabaseUnavailableError: Postgres did not come up.
    """
    if embedded == "never":
        raise EmbeddedUnavailableError(
            "STRANDLINE_EMBEDDED=never forbids the embedded servers, and no database is configured. "
            "Set STRANDLINE_DATABASE_URL, or unset STRANDLINE_EMBEDDED."
        )
    postgres = EmbeddedPostgres(home / "postgres")
    broker = EmbeddedBroker(home / "broker") if with_broker else None
    prepare_home(home)
    with _home_lock(home):
        joined = postgres.pid() is not None
        database_url = postgres.start()
        try:
            broker_url = broker.start() if broker is not None else None
        except BaseException:
            postgres.stop()
            raise
        _announce(home)
    return EmbeddedStack(home, database_url, broker_url, postgres, broker, joined)


def runs_in(home: Path) -> bool:
    """Whether an embedded Postgres runs in ``home``, as it does for as long as any process uses it."""
    return (home / "postgres").is_dir() and EmbeddedPostgres(home / "postgres").pid() is not None


def mend_broker(broker: EmbeddedBroker) -> None:
    """Restart a broker that ended, and log the outcome in one line."""
    try:
        started = broker.start_again()
    except StrandlineError as error:
        logger.warning(
            "embedded broker ended and does not start",
            extra={"action": "embedded_broker_down", "reason": str(error)},
        )
    else:
        if started:
            logger.warning(
                "embedded broker ended, and was started again", extra={"action": "embedded_broker_restarted"}
            )


def running_stack(home: Path) -> EmbeddedStack | None:
    """Join the stack that runs in ``home``; None when Postgres does not run there.

    The caller counts as a user until it stops or detaches.  An observer should ``detach``, which leaves a
    running server alive.

    Raises:
        EmbeddedUnavailableError: the wheels are not installed.
    """
    if not (home / STATE_FILE).exists():
        return None
    postgres, broker = EmbeddedPostgres(home / "postgres"), EmbeddedBroker(home / "broker")
    with _home_lock(home):
        database_url = postgres.attach()
        if database_url is None:
            (home / STATE_FILE).unlink(missing_ok=True)
            return None
        broker_url = broker.attach()
    return EmbeddedStack(home, database_url, broker_url, postgres, broker if broker_url else None)


def _announce(home: Path) -> None:
    postgres = EmbeddedPostgres(home / "postgres")
    if postgres.pid() is None:
        (home / STATE_FILE).unlink(missing_ok=True)
        return
    broker = recorded_broker(home / "broker")
    state = {
        "database_url": postgres.url,
        "database_pid": postgres.pid(),
        "broker_url": broker.url if broker else None,
        "broker_pid": broker.server_pid if broker else None,
    }
    write_private(home / STATE_FILE, json.dumps(state, indent=2) + "\n")


@contextmanager
def _home_lock(home: Path) -> Iterator[None]:
    with SharedUse(home / "embedded").exclusive():
        yield


def prepare_home(home: Path) -> None:
    """Make the home directory if it is missing.

    Raises:
        ConfigurationError: it cannot be made or written.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        writable = os.access(home, os.W_OK | os.X_OK)
        problem = "permission denied"
    except FileExistsError:
        writable, problem = False, "it is a file, not a directory"
    except OSError as error:
        writable, problem = False, (error.strerror or str(error)).lower()
    if not writable:
        raise ConfigurationError(
            f"The home directory {home} cannot be written ({problem}). "
            "Set STRANDLINE_HOME to a directory that you can write."
        )
