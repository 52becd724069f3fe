"""Agno 3: ``StrandlineMemoryManager`` with its hooks, and ``StrandlineSummaryManager``.

pip install 'strandline[agno]'
"""

from strandline.adapters.agno.manager import StrandlineMemoryManager
from strandline.adapters.agno.messages import messages_of
from strandline.adapters.agno.summaries import StrandlineSummaryManager

__all__ = ["StrandlineMemoryManager", "StrandlineSummaryManager", "messages_of"]
