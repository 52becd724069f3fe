"""``strandline erasures``, and its parts."""

from __future__ import annotations

from strandline.cli.erasures.command import command

__all__ = ["command"]
