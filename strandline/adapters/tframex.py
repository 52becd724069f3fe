"""TFrameX: ``StrandlineMemoryStore``, for ``memory_store=`` of agents."""

from strandline.adapters.legacy.tframex import StrandlineMemoryStore

__all__ = ["StrandlineMemoryStore"]
