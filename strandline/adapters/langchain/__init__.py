"""LangChain: ``StrandlineHistory``, for ``RunnableWithMessageHistory`` and custom chains.

pip install 'strandline[langchain]'
"""

from strandline.adapters.langchain.history import StrandlineHistory

__all__ = ["StrandlineHistory"]
