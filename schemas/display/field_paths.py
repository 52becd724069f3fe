"""Paths of fields, in which an error says where in a caller's value its fault is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from strandline.schemas.display.shown_text import MAX_QUOTED_CHARACTERS, shown

Step = str | int
# So much of a key is shown: a path may have many.
_MAX_KEY_CHARACTERS = 80


class FieldPath(str):
    """A path as a sentence names it, with its steps below the field that it begins at: keys as they are."""

    field: str
    steps: tuple[Step, ...]


def below(path: str, step: Step) -> FieldPath:
    """The path of what stands under a key, or at a place of a list; its sentence ends with a whole step."""
    if len(path) >= MAX_QUOTED_CHARACTERS:
        return _path(path, path, (step,))
    return _path(f"{path}[{step}]" if isinstance(step, int) else f"{path}.{_shown(step)}", path, (step,))


def rename(path: str, text: str) -> FieldPath:
    """The path, under another name in sentences."""
    return _path(text, path, ())


def values_in(path: str, value: object) -> Iterator[tuple[str, object]]:
    """Every value inside a JSON-like one, itself first, with its path; the keys of an object before it."""
    yield path, value
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield _path(f"{path} key", path, ()), key
            yield from values_in(below(path, str(key)), item)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        for index, item in enumerate(value):
            yield from values_in(below(path, index), item)


def steps_of(path: str) -> tuple[str, tuple[Step, ...]]:
    """The field that a path begins at, and its steps below that."""
    return (path.field, path.steps) if isinstance(path, FieldPath) else (path, ())


def _shown(key: str) -> str:
    return shown(key, most=_MAX_KEY_CHARACTERS)


def _path(text: str, above: str, steps: tuple[Step, ...]) -> FieldPath:
    path = FieldPath(text)
    path.field, path.steps = steps_of(above)
    path.steps += steps
    return path
