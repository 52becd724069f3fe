"""Pictures of the page as SVG; each has its content in words, and its colours from the CSS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

_WIDTH, _HEIGHT = 120, 24


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
