"""Templates of the page, and the form of stored values in them: always text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from strandline.schemas.display.shown_text import quantity, seen, shown

_WIDTH, _HEIGHT = 120, 24
FOLDER = Path(__file__).parent / "templates"
MAX_SHOWN_CHARACTERS = 10_000
# A browser's form would change or lose them.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SECONDS = (("d", 86_400), ("h", 3_600), ("min", 60))
_ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _picture(width: int, height: int, title: str, words: str, shapes: Sequence[Markup], kind: str) -> Markup:
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="{}">'
        "<title>{}</title><desc>{}</desc>{}</svg>"
    ).format(kind, width, height, width, height, f"{title}: {words}", title, words, Markup("").join(shapes))


def sparkline(counts: Sequence[int], name: str) -> Markup:
    """Events in each minute of the last hour."""
    most = max(counts, default=0)
    step = _WIDTH / max(1, len(counts) - 1)
    points = " ".join(
        f"{index * step:.1f},{_HEIGHT - 2 - (_HEIGHT - 4) * count / max(1, most):.1f}"
        for index, count in enumerate(counts)
    )
    words = f"{sum(counts):,} events in the last hour, at most {most:,} in a minute"
    line = Markup('<polyline points="{}"/>').format(points)
    return _picture(_WIDTH, _HEIGHT, f"Events done by {name}", words, [line], "spark")


def token_parts(context: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The tokens of each part of a context."""
    facts = sum(fact["tokens"] for fact in context["facts"])
    hits = sum(hit["tokens"] for hit in context["hits"])
    summary = context["summary"]["tokens"] if context["summary"] else 0
    others = max(0, context["tokens"] - facts - hits - summary)
    return [("messages", others), ("facts", facts), ("summary", summary), ("found messages", hits)]


def budget_bar(parts: Sequence[tuple[str, int]], limit: int) -> Markup:
    """The tokens of each part of a context, within its limit."""
    width, x = 600, 0.0
    whole = max(limit, sum(tokens for _, tokens in parts), 1)
    shapes = []
    for index, (_, tokens) in enumerate(parts):
        size = width * tokens / whole
        shapes.append(
            Markup('<rect class="part{}" x="{}" y="2" width="{}" height="20"/>').format(
                index, f"{x:.1f}", f"{size:.1f}"
            )
        )
        x += size
    words = ", ".join(f"{name} {tokens:,}" for name, tokens in parts) + f"; the limit is {limit:,}"
    return _picture(width, _HEIGHT, "Tokens", words, shapes, "bar")


def session_line(session: Mapping[str, Any], flushes: Sequence[Mapping[str, Any]], coverage: Any) -> Markup:
    """The log of a session from its first number to its last, with flushes, window and coverage."""
    width, row = 600, 18
    first: int = session["log_start_seq"]
    last: int = max(session["last_seq"], first)

    def at(seq: float) -> float:
        return width * (seq - first) / max(1, last - first + 1)

    def band(kind: str, from_seq: int, through_seq: int, line: int) -> Markup:
        left = at(max(first, from_seq))
        size = max(0.0, at(through_seq + 1) - left)
        return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="14"/>').format(
            kind, f"{left:.1f}", line * row + 2, f"{size:.1f}"
        )

    shapes = [band("log", first, last, 0), band("window", session["window_from"], last, 0)]
    if session["pinned_through"]:
        shapes.append(band("pinned", first, session["pinned_through"], 0))
    shapes += [band("flush", one["from_seq"], one["through_seq"], 1) for one in flushes]
    words = [
        f"messages {first} to {last}",
        f"window from {session['window_from']}",
        f"flushed through {session['flushed_through']}",
    ]
    for line, one in enumerate(coverage, start=2):
        through = one["covered_through"] or 0
        shapes.append(band("covered", first, through, line))
        words.append(f"{one['pipeline']} covers through {through}")
    height = row * (2 + len(coverage))
    return _picture(width, height, "The log", ", ".join(words), shapes, "line")


def derivation_graph(steps: Sequence[tuple[str, str]]) -> Markup:
    """The way from a message to its facts: each step's name, and its state."""
    box, gap, height = 120, 24, 44
    shapes = []
    for index, (name, state) in enumerate(steps):
        x = index * (box + gap)
        if index:
            shapes.append(
                Markup('<path d="M{} 22h{}"/><path d="M{} 18l5 4l-5 4"/>').format(x - gap, gap, x - 5)
            )
        shapes.append(
            Markup(
                '<rect class="{}" x="{}" y="1" width="{}" height="42" rx="5"/>'
                '<text x="{}" y="18">{}</text><text x="{}" y="34">{}</text>'
            ).format(f"step {state}", x + 1, box - 2, x + 8, name[:17], x + 8, state[:17])
        )
    words = ", then ".join(f"{name}: {state}" for name, state in steps)
    width = max(1, len(steps)) * (box + gap) - gap
    return _picture(width, height, "Way to memory", words, shapes, "way")


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
    "token_parts": token_parts,
    "derivation_graph": derivation_graph,
}
