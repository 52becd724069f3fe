"""The offer to a client of the tools, whichever protocol it speaks."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class CallTool(Protocol):
    """``SessionMemory.acall_tool``."""

    def __call__(
        self, name: str, arguments: Mapping[str, Any] | None, *, read_only: bool
    ) -> Awaitable[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class Offer:
    """One client's offer: ``read_only`` tools alone, or all, and the answerer of its calls."""

    call_tool: CallTool
    read_only: bool
