"""OpenAI's Agents SDK: ``StrandlineSession`` and ``StrandlineContextSession``, for ``session=`` of a run.

pip install 'strandline[agents]'
"""

from strandline.adapters.agents.context_session import StrandlineContextSession
from strandline.adapters.agents.session import StrandlineSession

__all__ = ["StrandlineContextSession", "StrandlineSession"]
