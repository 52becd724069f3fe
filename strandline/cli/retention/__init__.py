"""``strandline retention``, and its parts."""

from __future__ import annotations

from strandline.cli.retention.command import command

__all__ = ["command"]
