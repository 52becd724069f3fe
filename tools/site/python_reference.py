"""The page of Python's names: signatures and docstrings of ``strandline.__all__``, as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import strandline

_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
_HEADER = """\
# Python

Every public name of `strandline`, written from its signature and docstring.
The methods of a `Memory` come first; each but `import_messages` has an `a…` twin that is awaited.
"""
# Made by a method of their own, or handed out.
_MADE_BY_OTHERS = ("Memory", "Facts", "Audit")
_WIDTH = 100
_EMPTY = inspect.Parameter.empty
_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_METHODS_FIRST = ("from_defaults", "put", "put_messages", "get", "get_all", "search", "flush", "deliver")
_FIRST = ("Memory", "Facts", "Audit", "MemoryContext", "Fact", "Message")


def python_reference() -> str:
    """The page; names in the order of the alphabet, the most used ones first."""
    names = [*_FIRST, *sorted(set(strandline.__all__) - set(_FIRST), key=str.lower)]
    return "\n".join([_HEADER, *(line for name in names for line in _entry(name))])


def _entry(name: str) -> Iterator[str]:
    thing = getattr(strandline, name)
    yield f"## {name}\n"
    if inspect.isclass(thing) and issubclass(thing, Exception):
        yield from _prose(thing)
        return
    if name not in _MADE_BY_OTHERS:
        yield from _signature(name, thing)
    yield from _prose(thing)
    if inspect.isclass(thing):
        for member, value in _methods(thing):
            yield f"### {name}.{member}\n"
            yield from _signature(member, value)
            yield from _prose(value)


def _methods(thing: type) -> Iterator[tuple[str, Any]]:
    """The public methods with a docstring; of sync and async twins the sync one."""
    found = dict(inspect.getmembers(thing, inspect.isroutine))
    for name, method in sorted(found.items(), key=lambda one: (_place(one[0]), one[0])):
        is_twin = name.startswith("a") and name[1:] in found
        of_ours = (getattr(method, "__module__", "") or "").startswith("strandline")
        if not name.startswith("_") and not is_twin and of_ours and inspect.getdoc(method):
            yield name, method


def _place(method: str) -> int:
    return _METHODS_FIRST.index(method) if method in _METHODS_FIRST else len(_METHODS_FIRST)


def _signature(name: str, thing: Any) -> Iterator[str]:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return
    parts = [_parameter(one) for one in signature.parameters.values() if one.name != "self"]
    returns = "" if signature.return_annotation is _EMPTY else f" -> {_type(signature.return_annotation)}"
    line = f"{name}({', '.join(parts)}){returns}"
    if len(line) > _WIDTH:
        line = f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"
    yield f"```python\n{line}\n```\n"


def _parameter(parameter: inspect.Parameter) -> str:
    shown = _STARS.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not _EMPTY:
        shown += f": {_type(parameter.annotation)}"
    if parameter.default is not _EMPTY:
        default = parameter.default
        shown += f" = {default if isinstance(default, Enum) else repr(default)}"
    return shown


def _type(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else str(getattr(annotation, "__name__", annotation))


def _prose(thing: Any) -> Iterator[str]:
    """A docstring as Markdown: its sections as lists, its literals as code."""
    in_section = False
    for line in (inspect.getdoc(thing) or "").replace("``", "`").splitlines():
        if section := _SECTION.match(line):
            in_section = True
            yield f"\n**{section[1]}**\n"
        elif in_section and (entry := re.match(r" {4}(\S.*?): (.*)", line)) and not line.startswith("     "):
            yield f"- `{entry[1]}`: {entry[2]}"
        elif in_section and line.startswith("    "):
            yield f"  {line.strip()}"
        else:
            in_section = in_section and not line.strip()
            yield line
    yield ""
