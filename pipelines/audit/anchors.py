"""Anchors: where a namespace's chain ended at a moment, kept elsewhere, so that it cannot be rewritten."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.foreign_json import read_json

Export = Callable[[Sequence["Anchor"]], None]


@dataclass(frozen=True, slots=True)
class Anchor:
    """A seal of a chain, to be kept outside of the database.

    Attributes:
        namespace: the chain's.
        seal: the seal's number.
        entries: the chain's entries up to it, pruned ones included.
        mac: the seal's MAC, in hexadecimal.
        sealed_at: when it was made.
    """

    namespace: str
    seal: int
    entries: int
    mac: str
    sealed_at: datetime

    def as_line(self) -> str:
        """As a line of a file of anchors."""
        return json.dumps(asdict(self), default=datetime.isoformat)


def read_anchors(lines: Iterable[str], place: str) -> list[Anchor]:
    """The anchors of a file.

    Raises:
        ConfigurationError: a line is not an anchor.
    """
    anchors = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = read_json(line)
            anchors.append(
                Anchor(
                    str(fields["namespace"]),
                    int(fields["seal"]),
                    int(fields["entries"]),
                    bytes.fromhex(fields["mac"]).hex(),
                    datetime.fromisoformat(fields["sealed_at"]),
                )
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConfigurationError(
                f"{place}, line {number}: is not an anchor, as `strandline audit anchors --json` prints it."
            ) from None
    return anchors
