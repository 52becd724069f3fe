"""What tests have processes of a pool do: apart, since such a process imports the module that has it."""

from __future__ import annotations

from typing import Any

from strandline import Memory


def put_nowhere(message: dict[str, Any]) -> str:
    """Bad messages are refused before anything is sent."""
    Memory.from_defaults("chat", database_url="postgresql://nobody@127.0.0.1:1/none").put(message)
    return "put"


def put_text(memory: Memory, text: str) -> list[int]:
    """Put a message, and return its number."""
    return [memory.put({"role": "user", "content": text})]


def count_words(text: str) -> int:
    """Tokens, as a caller's own function counts them."""
    return len(text.split())
