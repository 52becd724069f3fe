"""Pydantic AI: ``StrandlineHistory``, a capability that gives an agent's runs a history with memory.

pip install 'strandline[pydantic-ai]'
"""

from __future__ import annotations

from strandline.adapters.pydantic_ai.history import StrandlineHistory
from strandline.adapters.pydantic_ai.messages import messages_of, model_messages_of

__all__ = ["StrandlineHistory", "messages_of", "model_messages_of"]
