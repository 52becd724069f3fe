"""LangGraph: ``StrandlineStore``, for ``graph.compile(store=…)`` and wherever a ``BaseStore`` is taken.

pip install 'strandline[langgraph]'
"""

from strandline.adapters.langgraph.store import StrandlineStore

__all__ = ["StrandlineStore"]
