"""Redaction hooks: functions that return a text as it may be stored, or shown to a model.

A hook sees one text at a time, and returns one.  The library finds the texts in a message (``json_texts``) or
in a task for a model, so a hook knows no format.  The same text must always give the same result: a put that
is repeated is the same put only then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeVar

from strandline.pipelines.own_code.bounded_calls import BoundedCalls, NoPlaceError, TimeLimitError
from strandline.pipelines.own_code.places import (
    check_version,
    find_installed,
    import_object,
    make_object,
    place_in,
)
from strandline.pipelines.redaction.contacts import NAME, VERSION, redact_contacts
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, ProviderDownError, RedactionError, RefusalError

T = TypeVar("T")

# A placeholder may be longer than the replaced text; the bounds on messages hold for the result as well.
MAX_TEXT_CHARACTERS = 8_000_000


class Redactor(Protocol):
    """A redaction hook; a plain function of a text is one.

    Optional attributes: ``name`` (default: where it was found) and ``version`` (default ``"1"``), which are
    recorded with derived memory: change the version when the results change.  A hook before storing may have
    a method ``caption(part)``: it gets each picture, sound, video or document, and returns text that is
    stored behind it, or None.  The same part must always give the same text.
    """

    def __call__(self, text: str, /) -> str:
        """The text as it may be stored, or shown to a model; called from many threads at once.

        Raises:
            RefusalError: the text must not be stored or sent; the sentence says why, without quoting it.
        """
        ...


class RedactionWaitsError(RedactionError):
    """The hook was not called: earlier calls occupy all threads and have not returned."""


@dataclass(frozen=True, slots=True)
class RedactionHook:
    """A checked hook; ``is_own``: Strandline's own, which needs no bound on its time."""

    name: str
    version: str
    code: Callable[[str], object]
    is_own: bool = False

    @classmethod
    def check(cls, source: object, where: str) -> RedactionHook:
        """Read a hook from a function, an object, or a class that is made without arguments.

        ``where`` is its name, unless it has an attribute ``name`` that is text.

        Raises:
            ConfigurationError: it cannot be called, or its name or version is not text; ``where`` names it.
        """
        code = make_object(source, "redaction hook", where) if isinstance(source, type) else source
        if not callable(code):
            raise ConfigurationError(f"{where} is not a redaction hook: it cannot be called with a text.")
        if iscoroutinefunction(code) or iscoroutinefunction(getattr(code, "__call__", None)):  # noqa: B004
            raise ConfigurationError(f"{where} is async; a redaction hook is a plain function of a text.")
        version = check_version(getattr(code, "version", "1"), where)
        name = getattr(code, "name", None)
        return cls(name if isinstance(name, str) and name and "," not in name else where, version, code)

    def captions(self, parts: Sequence[Mapping[str, Any]]) -> list[str]:
        """The caption of each part, by a hook that has the method; empty if it gives none."""
        return [str(self.code.caption(part) or "") for part in parts]  # type: ignore[attr-defined]

    def redact(self, texts: Sequence[str]) -> list[str]:
        """The texts, each as the hook returns it."""
        results: list[str] = []
        for text in texts:
            result = self.code(text)
            # A subclass of str can show another text.
            if type(result) is not str or len(result) > MAX_TEXT_CHARACTERS:
                raise RedactionError(
                    f"The redaction hook {self.name} returned {type(result).__name__}; it has to return"
                    f" text of at most {MAX_TEXT_CHARACTERS:,} characters."
                )
            results.append(result)
        return results


@dataclass(frozen=True, slots=True)
class Redaction:
    """Hooks that are applied one after another, each within the same time limit."""

    hooks: tuple[RedactionHook, ...]
    seconds: float
    calls: BoundedCalls

    @property
    def name(self) -> str:
        """The names, as settings spell them."""
        return ",".join(hook.name for hook in self.hooks)

    @property
    def version(self) -> str:
        """The versions, in the order of the names."""
        return ",".join(hook.version for hook in self.hooks)

    def texts(self, texts: Sequence[str], *, seconds: float | None = None) -> list[str]:
        """The texts as all hooks leave them; ``seconds`` is a shorter limit, if the caller has one.

        Raises:
            RefusalError: a hook refuses one of them.
            ProviderDownError: a hook knows that a service it needs is down.
            RedactionError: a hook failed, was late, or returned no text.
        """
        limit = self.seconds if seconds is None else min(self.seconds, seconds)
        done = list(texts)
        for hook in self.hooks if done else ():
            done = hook.redact(done) if hook.is_own else self._call(hook, partial(hook.redact, done), limit)
        return done

    def captions(self, parts: Sequence[Mapping[str, Any]]) -> list[str]:
        """For each part the captions that hooks give it; an empty list without such hooks."""
        hooks = [hook for hook in self.hooks if hasattr(hook.code, "caption")]
        captions_by_hook = [self._call(hook, partial(hook.captions, parts), self.seconds) for hook in hooks]
        return ["\n".join(filter(None, captions)) for captions in zip(*captions_by_hook, strict=True)]

    def _call(self, hook: RedactionHook, work: Callable[[], T], seconds: float) -> T:
        try:
            return self.calls.within(seconds, work)
        except (RefusalError, RedactionError, ProviderDownError, MemoryError):
            raise
        except NoPlaceError:
            raise RedactionWaitsError(
                f"The redaction hook {hook.name} was not called: {self.calls.late} earlier calls have not"
                " returned; restart this process."
            ) from None
        except TimeLimitError:
            raise RedactionError(
                f"The redaction hook {hook.name} did not return within {seconds:g} seconds"
                " (STRANDLINE_REDACT_TIMEOUT_SECONDS)."
            ) from None
        except Exception as error:  # the edge to foreign code: an application's hook
            # Its text may quote a message, so only its kind and its place are kept.
            raise RedactionError(
                f"The redaction hook {hook.name} raised {type(error).__name__} at {place_in(error)}."
            ) from error


ENTRY_POINT_GROUP = "strandline.redactors"


@lru_cache(maxsize=64)
def load_hooks(named: str, setting: str) -> tuple[RedactionHook, ...]:
    """The hooks of a setting in order: ``contacts``, entry points, ``package.module:callable``.

    Raises ConfigurationError if one does not exist, or cannot be imported or called.
    """
    return tuple(_load(name.strip(), setting) for name in named.split(",") if name.strip())


def load_redaction(named: str, setting: str, seconds: float, calls: BoundedCalls) -> Redaction | None:
    """The hooks of a setting with their time limit; None if it names none.  Raises as ``load_hooks``."""
    hooks = load_hooks(named, setting)
    return Redaction(hooks, seconds, calls) if hooks else None


def _load(name: str, setting: str) -> RedactionHook:
    if name == NAME:
        return RedactionHook(NAME, VERSION, redact_contacts, is_own=True)
    if ":" in name:
        return RedactionHook.check(import_object(name, "redaction hook", setting), name)
    place = find_installed(ENTRY_POINT_GROUP, name)
    if place is None:
        raise ConfigurationError(
            f"{setting} names {quote(name)}, and there is no such redaction hook: use {NAME}, the name of an"
            f" entry point of the group {ENTRY_POINT_GROUP} that an installed package has, or"
            " package.module:callable."
        )
    return RedactionHook.check(import_object(place, "redaction hook", setting), name)
