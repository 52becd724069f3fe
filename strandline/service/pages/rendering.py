"""Templates of the page, and the form of stored values in them: always text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from strandline.schemas.display.shown_text import quantity, seen, shown
from strandline.service.pages.drawing import budget_bar, derivation_graph, session_line, sparkline

FOLDER = Path(__file__).parent / "templates"
MAX_SHOWN_CHARACTERS = 10_000
# A browser's form would change or lose them.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SECONDS = (("d", 86_400), ("h", 3_600), ("min", 60))


def render(template: str, **values: Any) -> str:
    """A template with these values."""
    return _ENVIRONMENT.get_template(template).render(**values)


def isolate(text: object) -> Markup:
    """Stored text as it is read: escaped, hidden characters visible, its direction kept to itself."""
    whole = _text_of(text).replace("\r\n", "\n")
    escaped = Markup.escape(seen(whole[:MAX_SHOWN_CHARACTERS])).replace("\n", Markup("<br>"))
    isolated = Markup('<bdi dir="auto" class="stored">{}</bdi>').format(escaped)
    rest = len(whole) - MAX_SHOWN_CHARACTERS
    return isolated + f" (and {rest:,} characters more, which are not shown)" if rest > 0 else isolated


def show_name(text: object) -> Markup:
    """A stored name on one line."""
    return Markup("<bdi>{}</bdi>").format(shown(str(text), most=200))


def age(seconds: float | None) -> str:
    """A time that has gone by, in the unit that people would use."""
    if seconds is None:
        return "–"
    for unit, size in _SECONDS:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def moment(value: str | None) -> Markup:
    """A time of JSON, to the second, in UTC."""
    if value is None:
        return Markup("–")
    at = datetime.fromisoformat(value).astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        at.isoformat(timespec="seconds"), at.strftime("%Y-%m-%d %H:%M:%S")
    )


def number(value: float | None) -> str:
    """A number with its thousands apart."""
    return "–" if value is None else f"{value:,}"


def _text_of(value: object) -> str:
    """The text of a message's content, which may be parts."""
    return value if isinstance(value, str) else "\n".join(_texts_in(value))


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts_in(part)


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {
    "seen": seen,
    "stored": isolate,
    "named": show_name,
    "age": age,
    "moment": moment,
    "number": number,
    "quantity": quantity,
    "place": lambda text: quote(str(text), safe=""),
}
_ENVIRONMENT.tests["editable"] = lambda text: isinstance(text, str) and not _CONTROL.search(text)
_ENVIRONMENT.tests["holds"] = lambda values, value: value in values
_ENVIRONMENT.globals |= {
    "sparkline": sparkline,
    "session_line": session_line,
    "budget_bar": budget_bar,
    "derivation_graph": derivation_graph,
}
