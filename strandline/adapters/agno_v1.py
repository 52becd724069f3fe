"""Agno 1: ``StrandlineMemory``, for ``memory=`` of agents and teams, and ``StrandlineMemoryDb``.

pip install 'strandline[agno1]'
"""

from strandline.adapters.legacy.agno_v1.memory import StrandlineMemory
from strandline.adapters.legacy.agno_v1.memory_db import StrandlineMemoryDb

__all__ = ["StrandlineMemory", "StrandlineMemoryDb"]
