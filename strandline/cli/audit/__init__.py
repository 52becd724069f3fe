"""``strandline audit``, and its parts."""

from __future__ import annotations

from strandline.cli.audit.command import command

__all__ = ["command"]
