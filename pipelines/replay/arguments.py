"""Arguments of ``strandline.replay``'s functions, checked before anything is done."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from functools import wraps
from typing import ParamSpec, TypeVar
from uuid import UUID

from strandline.pipelines.generations.registry import Generation
from strandline.pipelines.replay.records import Replay, Selection
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database, Transaction
from strandline.schemas.settings import Settings
from strandline.schemas.values.acts.retention import MAX_SECONDS, Retention
from strandline.schemas.values.foreign_values import plain_number
from strandline.schemas.values.identity import check_name
from strandline.schemas.values.policy import MAX_INTEGER

P = ParamSpec("P")
R = TypeVar("R")

# Postgres cannot keep much smaller numbers; every useful rate is far above.
MIN_CALLS_PER_SECOND = 1e-300

# Takes an argument's name and value, and raises if the value cannot be used.
Check = Callable[[str, object], object]


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, whose arguments are checked first, by their names."""
    signature = inspect.signature(function)
    checks = {
        name: _optional(_CHECKS[name]) if parameter.default is None else _CHECKS[name]
        for name, parameter in signature.parameters.items()
    }

    @wraps(function)
    def check_and_call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            checks[name](name, value)
        return function(*args, **kwargs)

    return check_and_call


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _instance(kind: str, *types: type) -> Check:
    def check(name: str, value: object) -> None:
        # Not quoted: a value given as a database may be a URL, and hold a password.
        if not isinstance(value, types):
            raise ConfigurationError(f"{name} must be {kind}, not {type(value).__name__}.")

    return check


def _number_from(least: float) -> Check:
    kind = f"a finite number, at least {least:g}"

    def check(name: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _unusable(name, value, kind)
        if not least <= plain_number(value) < math.inf:
            raise _unusable(name, value, kind)

    return check


def _check_whole(name: str, value: object) -> None:
    # A number beyond Postgres's integers is accepted: the function itself says that nothing has this number.
    if isinstance(value, bool) or not isinstance(value, int):
        raise _unusable(name, value, "a whole number")


def _check_positive(name: str, value: object) -> None:
    _check_whole(name, value)
    if not 1 <= int(str(value)) <= MAX_INTEGER:
        raise _unusable(name, value, f"a whole number from 1 to {MAX_INTEGER:,}")


def _check_seconds(name: str, value: object) -> None:
    _check_whole(name, value)
    if not 0 <= int(str(value)) <= MAX_SECONDS:
        raise _unusable(name, value, f"a whole number of seconds from 0 (never) to {MAX_SECONDS:,}")


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise _unusable(name, value, "True or False")


def _check_callable(name: str, value: object) -> None:
    if not callable(value):
        raise _unusable(name, value, "a function")


def _check_moment(name: str, value: object) -> None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise _unusable(name, value, "a datetime with a time zone")


def _check_selection(name: str, value: object) -> None:
    _instance("a strandline.replay.Selection", Selection)(name, value)
    for field in fields(Selection):
        check = _CHECKS[field.name]
        (_optional(check) if field.default is None else check)(field.name, getattr(value, field.name))


def _unusable(name: str, value: object, kind: str) -> ConfigurationError:
    return ConfigurationError(f"{name} is {quote(value)}; it must be {kind}.")


_CHECKS: dict[str, Check] = {
    "actor": check_name,
    "at_once": _check_flag,
    "calls_per_second": _number_from(MIN_CALLS_PER_SECOND),
    "database": _instance("a Database, as strandline.replay.connect() opens one", Database, Transaction),
    "force": _check_flag,
    "from_archive": _check_flag,
    "generation": _instance("a strandline.replay.Generation", Generation),
    "generation_id": _check_whole,
    "hold": _check_flag,
    "limit": _check_positive,
    "max_owners": _check_whole,
    "namespace": check_name,
    "new": _check_flag,
    "new_id": _check_whole,
    "old_id": _check_whole,
    "on_owners": _check_callable,
    "open_archive": _check_callable,
    "on_progress": _check_callable,
    "only_dead": _check_flag,
    "pipeline": check_name,
    "provide_input": _check_callable,
    "replay": _instance("a strandline.replay.Replay", Replay),
    "replay_id": _check_whole,
    "retention": _instance("a strandline.Retention", Retention),
    "selection": _check_selection,
    "session_id": check_name,
    "settings": _instance("Settings, as strandline.schemas.settings.load_settings() reads them", Settings),
    "shard_key": _instance("a UUID", UUID),
    "since": _check_moment,
    "stop": _instance("a threading.Event", threading.Event),
    "to": check_name,
    "ttl_seconds": _check_seconds,
    "unfinished": _check_flag,
    "until": _check_moment,
    "user_id": check_name,
    "wait_seconds": _number_from(0),
}
