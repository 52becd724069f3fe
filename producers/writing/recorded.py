"""Which namespaces have their puts recorded: a hint, by which a put chooses the statement that will do.

Each statement looks at the namespace's level itself.  One that does not suit does nothing, and ``put_v1``
decides: so a hint that is wrong costs a round trip, and is corrected by it.
"""

from __future__ import annotations

# More namespaces than this are forgotten together, and learnt again.
MAX_NAMESPACES = 4_096

_recorded: set[str] = set()


def looks_recorded(namespace: str) -> bool:
    """Whether puts of a namespace were recorded when this process last put to it."""
    return namespace in _recorded


def note_recorded(namespace: str, is_recorded: bool | None) -> None:
    """Note what a put has found; None says nothing."""
    if is_recorded is None or is_recorded is (namespace in _recorded):
        return
    if not is_recorded:
        _recorded.discard(namespace)
        return
    if len(_recorded) >= MAX_NAMESPACES:
        _recorded.clear()
    _recorded.add(namespace)
