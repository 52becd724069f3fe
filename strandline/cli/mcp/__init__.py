"""``strandline mcp``, and its parts."""

from __future__ import annotations

from strandline.cli.mcp.command import command

__all__ = ["command"]
