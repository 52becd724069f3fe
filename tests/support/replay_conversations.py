"""Sessions to replay: real conversations where they are at hand, made ones otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "data"


@dataclass(frozen=True, slots=True)
class Talk:
    """One session: whose it is, and its messages."""

    session_id: str
    user_id: str
    messages: tuple[dict[str, Any], ...]


def talks(count: int, *, real: bool = True) -> list[Talk]:
    """``count`` sessions: LoCoMo's by session and BEAM's by batch, as far as they go; then made ones."""
    found = [*_locomo(), *_beam()] if real else []
    return [*found, *_made(max(0, count - len(found)))][:count]


def _locomo() -> Iterator[Talk]:
    for path in sorted((DATA / "locomo").glob("conv-*.jsonl")):
        sessions: dict[int, list[dict[str, Any]]] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            message = json.loads(line)
            kept = {name: message[name] for name in ("role", "name", "content", "created_at")}
            sessions.setdefault(message["metadata"]["session"], []).append(kept)
        for number, messages in sessions.items():
            yield Talk(f"{path.stem}-{number}", path.stem, tuple(messages))


def _beam() -> Iterator[Talk]:
    for path in sorted((DATA / "beam100k").glob("*/chat.json")):
        owner = f"beam-{path.parent.name}"
        for batch in json.loads(path.read_text(encoding="utf-8")):
            turns = [turn for exchange in batch["turns"] for turn in exchange]
            messages = tuple({"role": turn["role"], "content": turn["content"]} for turn in turns[:40])
            yield Talk(f"{owner}-{batch['batch_number']}", owner, messages)


def _made(count: int) -> Iterator[Talk]:
    for number in range(count):
        lines = [f"In year {n} of voyage {number} I sailed to harbour {n * number}" for n in range(6)]
        messages = [{"role": role, "content": line} for line in lines for role in ("user", "assistant")]
        yield Talk(f"voyage-{number}", f"sailor-{number // 4}", tuple(messages))
