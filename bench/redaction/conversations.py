"""What the hook that ships finds in real conversations: to be looked at by whoever measures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bench.recall.data import Conversation
from strandline.pipelines.redaction.contacts import find_contacts

AROUND = 40


@dataclass(slots=True)
class Findings:
    """Of one collection: how much was read, what was found, and where."""

    messages: int = 0
    characters: int = 0
    seconds: float = 0.0
    found: Counter[str] = field(default_factory=Counter)
    places: list[str] = field(default_factory=list)


def read_collections(conversations: Iterable[Conversation]) -> dict[str, Findings]:
    """What is found, by collection."""
    by_name: dict[str, Findings] = {}
    for conversation in conversations:
        findings = by_name.setdefault(conversation.collection, Findings())
        for text in _texts(conversation):
            _read(text, findings)
    return by_name


def _texts(conversation: Conversation) -> Iterator[str]:
    for session in conversation.sessions:
        for message in session:
            yield str(message["content"])


def _read(text: str, findings: Findings) -> None:
    began = time.process_time()
    spans = find_contacts(text)
    findings.seconds += time.process_time() - began
    findings.messages += 1
    findings.characters += len(text)
    for start, end, placeholder in spans:
        findings.found[placeholder] += 1
        before, after = text[max(0, start - AROUND) : start], text[end : end + AROUND]
        findings.places.append(f"{placeholder} {before!r} >> {text[start:end]!r} << {after!r}")
