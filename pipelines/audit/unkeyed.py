"""Seals without a key: who may write to the tables can have made them, so whoever has keys accepts none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class UnkeyedSeals:
    """The numbers of such seals, as ranges; a chain may have millions of them."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def note(self, number: int) -> None:
        """Keep a number; they come in order."""
        if self.ranges and self.ranges[-1][1] == number - 1:
            self.ranges[-1] = (self.ranges[-1][0], number)
        else:
            self.ranges.append((number, number))

    def sentences_after(self, vouched: int) -> Iterator[tuple[int, str]]:
        """What is found after the last seal that an anchor vouches for: the first seal, and a sentence."""
        for begin, last in self.ranges:
            first = max(begin, vouched + 1)
            if first > last:
                continue
            which = f"Seal {first} has" if first == last else f"Seals {first} to {last} have"
            yield first, f"{which} no key: anyone who may write to the tables can have made this part."
