"""Agno 1: ``StrandlineMemory``, for ``memory=`` of agents and teams, and ``StrandlineMemoryDb``."""

from strandline.adapters.legacy.agno_v1 import StrandlineMemory, StrandlineMemoryDb

__all__ = ["StrandlineMemory", "StrandlineMemoryDb"]
