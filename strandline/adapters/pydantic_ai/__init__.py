"""Pydantic AI: ``StrandlineHistory``, which gives runs a history with memory, and ``StrandlineToolset``.

pip install 'strandline[pydantic-ai]'
"""

from __future__ import annotations

from strandline.adapters.pydantic_ai.history import StrandlineHistory
from strandline.adapters.pydantic_ai.messages import messages_of, model_messages_of
from strandline.adapters.pydantic_ai.toolset import StrandlineToolset

__all__ = ["StrandlineHistory", "StrandlineToolset", "messages_of", "model_messages_of"]
