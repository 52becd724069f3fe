"""Finding an application's code: an object by ``package.module:name``, or by an entry point."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError

MAX_VERSION_CHARACTERS = 64


def place_in(error: BaseException) -> str:
    """The line of code that raised, without the error's message."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def make_object(source: type[Any], kind: str, where: str) -> Any:
    """An object of a class that takes no arguments.

    Raises:
        ConfigurationError: it cannot be made; ``where`` names the class.
    """
    try:
        return source()
    except Exception as error:
        raise ConfigurationError(
            f"{where} cannot be made: {type(error).__name__} at {place_in(error)}. Strandline calls the class"
            f" of a {kind} without arguments; name an instance if it needs some."
        ) from error


def check_version(version: object, where: str) -> str:
    """The version of a block or a hook, at ``where``; raises ConfigurationError unless it is text."""
    if not isinstance(version, str) or not 0 < len(version) <= MAX_VERSION_CHARACTERS:
        raise ConfigurationError(
            f"{where}.version is {quote(version)}; it must be text of at most {MAX_VERSION_CHARACTERS}"
            ' characters, such as version = "1".'
        )
    return version


class _MissingError(Exception):
    """A module has no such name."""


def import_object(place: str, what: str, where: str, form: str = "package.module:name") -> Any:
    """The object at ``package.module:name``.

    Args:
        what: its kind, such as ``memory block``.
        where: its source, such as a setting.
        form: of a place.

    Raises:
        ConfigurationError: the place has another form, or nothing can be imported from there.
    """
    module, colon, attribute = place.partition(":")
    if not colon or not module or not attribute:
        raise ConfigurationError(f"{where} names {quote(place)}; write {form}.")
    try:
        value: Any = importlib.import_module(module)
        for name in attribute.strip().split("."):
            if (value := getattr(value, name, None)) is None:
                raise _MissingError(name)
    except Exception as error:
        raise ConfigurationError(
            f"The {what} {place} cannot be imported: {_problem(error, module)}."
            " Is its package installed in this environment, or its folder on PYTHONPATH?"
        ) from error
    return value


@lru_cache(maxsize=16)
def load_function(name: str, *, setting: str, group: str) -> Callable[..., Any]:
    """The function that a setting names.

    Args:
        name: ``package.module:function``, or the name of an entry point.
        setting: the variable, for messages.
        group: the group of the entry points.

    Raises:
        ConfigurationError: there is none, it cannot be imported, or it cannot be called.
    """
    place = name if ":" in name else find_installed(group, name)
    if place is None:
        raise ConfigurationError(
            f"{setting} is {quote(name)}, and no installed package has an entry point of this name in the"
            f" group {group}; name another, or write package.module:function."
        )
    function: Callable[..., Any] = import_object(place, f"{setting} function", setting)
    if not callable(function):
        raise ConfigurationError(f"{setting}: {place} cannot be called; name a function.")
    return function


def find_installed(group: str, name: str) -> str | None:
    """The place that installed packages name by an entry point; None: there is no such entry point.

    Raises:
        ConfigurationError: several packages have one of this name, for different objects.
    """
    places = sorted({point.value for point in entry_points(group=group, name=name)})
    if len(places) > 1:
        raise ConfigurationError(
            f"Several installed packages have an entry point {quote(name)} in the group {group}:"
            f" {', '.join(places)}. Name one of them as package.module:name."
        )
    return places[0] if places else None


def _problem(error: Exception, module: str) -> str:
    """Why an import failed; without the error's message, which may quote anything."""
    if isinstance(error, _MissingError):
        return f"{quote(module)} has no {quote(str(error))}"
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return f"there is no module named {quote(str(error.name))}"
    return f"{type(error).__name__} at {place_in(error)}"
