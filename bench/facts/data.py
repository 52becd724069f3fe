"""Conversations with the observations that people recorded of them, which facts are held against."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.recall.data import LOCOMO, conversations

WHERE = """\
The conversations are not part of Strandline. Put them into one folder, and name it with --data:
  locomo/conv-NN.jsonl               LoCoMo (github.com/snap-research/locomo, CC BY-NC 4.0), a message a line:
                                     id, role, name, content, created_at, metadata.session
  locomo/conv-NN.qa.json             its questions: question, category, evidence (ids of messages)
  locomo/conv-NN.observations.json   what was observed: subject, fact, evidence (ids of messages)
"""


@dataclass(frozen=True, slots=True)
class Observation:
    """Something that a reader of the conversation wrote down, and the ids of the messages that say it."""

    text: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class ObservedConversation:
    """Sessions, each a list of OpenAI messages with ids, names and times, and what was observed in them."""

    name: str
    sessions: Sequence[Sequence[dict[str, Any]]]
    observations: Sequence[Observation]

    @property
    def speakers(self) -> frozenset[str]:
        return frozenset(said["name"] for session in self.sessions for said in session if said.get("name"))


def observed_conversations(folder: Path) -> Iterator[ObservedConversation]:
    """All that ``folder`` holds with observations; none if it holds none."""
    for conversation in conversations(folder):
        file = folder / "locomo" / f"{conversation.name}.observations.json"
        if conversation.collection == LOCOMO and file.exists():
            recorded = json.loads(file.read_text(encoding="utf-8"))
            observations = [Observation(one["fact"], frozenset(one["evidence"])) for one in recorded]
            yield ObservedConversation(conversation.name, conversation.sessions, observations)
