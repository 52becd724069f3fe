"""``strandline serve``, and its parts."""

from __future__ import annotations

from strandline.cli.serve.command import command

__all__ = ["command"]
