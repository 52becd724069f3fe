"""TFrameX: ``StrandlineMemoryStore``, for ``memory_store=`` of agents.

pip install 'strandline[tframex]'
"""

from strandline.adapters.legacy.tframex.store import StrandlineMemoryStore

__all__ = ["StrandlineMemoryStore"]
