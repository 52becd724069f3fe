"""``strandline doctor``, and its parts."""

from __future__ import annotations

from strandline.cli.doctor.command import command

__all__ = ["command"]
