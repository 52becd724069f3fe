"""The conversations that recall is measured on, read from where whoever measures has put them.

They may be run and measured with, and not passed on with the project, so they are not part of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCOMO = "LoCoMo"
BEAM = "BEAM-100K"
# What collections are called by the folders that hold them; others by the folder.
TITLES = {"locomo": LOCOMO, "beam100k": BEAM}
DEFAULT_FOLDER = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "data"

# LoCoMo names its kinds of questions by number, and sets in its form perhaps others.
_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}

WHERE = """\
The conversations are not part of Strandline. Put them into one folder, and name it with --data:
  locomo/conv-NN.jsonl             LoCoMo (github.com/snap-research/locomo, CC BY-NC 4.0), a message a line:
                                   id, role, name, content, created_at, metadata.session
  locomo/conv-NN.qa.json           its questions: question, category, evidence (ids of messages)
  NAME/conv-NN.jsonl, .qa.json     any other set in that form, measured as NAME
  beam100k/N/chat.json             the 100K-token chats of BEAM (CC BY-SA 4.0), as they are published
  beam100k/N/probing_questions.json
"""


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its kind, and the ids of the messages that hold the answer."""

    text: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One user's sessions, each a list of OpenAI messages with ids, and the questions about them."""

    collection: str
    name: str
    sessions: Sequence[Sequence[dict[str, Any]]]
    questions: Sequence[Question]


def conversations(folder: Path) -> list[Conversation]:
    """All that ``folder`` holds; empty if it holds none."""
    in_locomos_form = sorted({file.parent for file in folder.glob("*/**/conv-*.jsonl")})
    return [one for each in in_locomos_form for one in _locomo(each, folder)] + [*_beam(folder / "beam100k")]


def _locomo(folder: Path, within: Path) -> Iterator[Conversation]:
    # Also of NAME/locomo, as several sets beside one another are.
    name = folder.relative_to(within).parts[0]
    for file in sorted(folder.glob("conv-*.jsonl")):
        sessions: dict[int, list[dict[str, Any]]] = {}
        for line in file.read_text(encoding="utf-8").splitlines():
            message = json.loads(line)
            number = message.get("metadata", {}).get("session", 1)
            sessions.setdefault(number, []).append(message)
        asked = json.loads((folder / f"{file.stem}.qa.json").read_text(encoding="utf-8"))
        questions = [
            Question(
                one["question"],
                _CATEGORIES.get(one["category"], str(one["category"])),
                frozenset(one["evidence"]),
            )
            for one in asked
            if one["evidence"]
        ]
        yield Conversation(TITLES.get(name, name), file.stem, list(sessions.values()), questions)


def _beam(folder: Path) -> Iterator[Conversation]:
    for file in sorted(folder.glob("*/chat.json"), key=lambda file: int(file.parent.name)):
        batches = json.loads(file.read_text(encoding="utf-8"))
        messages = [
            {"id": str(message["id"]), "role": message["role"], "content": message["content"]}
            for batch in batches
            for turn in batch["turns"]
            for message in turn
        ]
        asked = json.loads((file.parent / "probing_questions.json").read_text(encoding="utf-8"))
        questions = [
            Question(one["question"], kind.replace("_", " "), evidence)
            for kind, several in asked.items()
            for one in several
            if (evidence := frozenset(_ids(one.get("source_chat_ids"))))
        ]
        yield Conversation(BEAM, f"beam-{file.parent.name}", [messages], questions)


def _ids(named: object) -> Iterator[str]:
    """The ids in BEAM's lists, or lists by role, of them."""
    if isinstance(named, int):
        yield str(named)
    elif isinstance(named, dict):
        yield from _ids(list(named.values()))
    elif isinstance(named, list):
        for one in named:
            yield from _ids(one)
