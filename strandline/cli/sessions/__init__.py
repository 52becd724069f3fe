"""``strandline sessions``, and its parts."""

from __future__ import annotations

from strandline.cli.sessions.command import command

__all__ = ["command"]
