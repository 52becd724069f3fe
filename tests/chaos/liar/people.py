"""People who say what is true, by construction: statements that follow one another, and such that stay.

Aspects are of different kinds of statement, so that code can know that a statement of one says nothing of
another; ``test_liar.py`` holds that.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

# Of each the statements that end one another, in the order in which they may be said, in one language.
ASPECTS: dict[str, tuple[str, ...]] = {
    "residence": ("I live in Porto.", "I moved to Lisbon.", "I live in Bergen now.", "I have moved to Oslo."),
    "work": (
        "Ich arbeite als Lehrer.",
        "Ich arbeite jetzt als Koch.",
        "Ich arbeite bei Siemens.",
        "Ich bin arbeitslos.",
    ),
    "food": ("Je suis végétarien.", "Je mange du poulet.", "Je mange du porc et du bœuf.", "Je suis végan."),
    "pets": ("Tengo un perro.", "Tengo dos gatos.", "No tengo mascotas.", "Tengo un loro que silba."),
    "partner": ("Я не женат.", "Я женился на Ольге.", "Я развёлся.", "Я помолвлен с Верой."),
    "devices": ("我用苹果手机。", "我换成了安卓手机。", "我没有手机。", "我买了华为手机。"),
}
# Said once, and true from then on, whatever follows.
LASTING = (
    "I am allergic to penicillin.",
    "My sister Maria has 3 children.",
    "J'ai peur des araignées.",
    "Mein Führerschein gilt bis 2031.",
    "Mi cumpleaños es el 14 de mayo.",
    "Я не курю и не пью.",
    "我不会游泳。",
)


class Statement(NamedTuple):
    aspect: str
    place: int
    text: str


def statement_of(text: str) -> Statement:
    for aspect, texts in ASPECTS.items():
        if text in texts:
            return Statement(aspect, texts.index(text), text)
    return Statement(text, 0, text)


@dataclass
class Person:
    """What is true of a person, and what they deleted and have not said since."""

    name: str
    chance: random.Random
    now: dict[str, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    said: set[str] = field(default_factory=set)

    def say(self) -> str:
        """Another statement: mostly news, sometimes once more what is true."""
        if self.now and self.chance.random() < 0.2:
            return self.chance.choice(sorted(self.now.values()))
        fresh = [text for text in LASTING if text not in self.said]
        if fresh and self.chance.random() < 0.3:
            return self.chance.choice(fresh)
        aspect = self.chance.choice(sorted(ASPECTS))
        left = [text for text in ASPECTS[aspect] if text not in self.said]
        # Nothing that was deleted: by its time it is said before the deletion, and stays away.
        return left[0] if left else self.chance.choice(sorted(self.now.values()) or ["Good morning."])

    def hear(self, text: str) -> None:
        """It is said now: it ends what was said of the same before, and is no longer deleted."""
        aspect = statement_of(text).aspect
        before = self.now.get(aspect)
        if before is not None and before != text:
            self.ended[before] = text
        self.now[aspect] = text
        self.ended.pop(text, None)
        self.deleted.discard(text)
        self.said.add(text)

    def delete(self, text: str) -> None:
        self.now = {aspect: held for aspect, held in self.now.items() if held != text}
        self.deleted.add(text)

    def remember(self) -> str | None:
        """An older statement, which comes late: something of an aspect that was said of since."""
        aspects = [a for a in sorted(self.now) if a in ASPECTS]
        if not aspects:
            return None
        left = [text for text in ASPECTS[self.chance.choice(aspects)] if text not in self.said]
        if not left:
            return None
        self.said.add(left[-1])
        return left[-1]
