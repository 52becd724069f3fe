"""What speaks for a message beside its words and its vector: who speaks, how, and when.

``search_v1`` weighs by the same factors (``schemas/sql/fragments/search.sql``); here they weigh the messages
that it cannot find yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.pipelines.text.tone import QUESTION, WISH
from strandline.pipelines.vectors.voice import Voice, voice_of
from strandline.producers.search.ranking import SearchQuery
from strandline.schemas.values.message import Message

# The query names a speaker: what others say, and what only asks.
OTHER_SPEAKER = 0.7
ASKS = 0.85
# The query speaks of the asker: what an assistant says.
ASSISTANT = 0.8
# What reads like a standing wish, if no speaker is named.
STANDING_WISH = 1.3
# The query names a date: what was said on others.
OTHER_DAY = 0.5


def factors(messages: Sequence[Message], query: SearchQuery) -> list[float]:
    """What the score of each message is multiplied by."""
    voices = [voice_of(message) for message in messages]
    names = frozenset(query.aim.names)
    names_speaker = any(not names.isdisjoint(voice.name) for voice in voices)
    return [_factor(voice, query, names, names_speaker) for voice in voices]


def _factor(voice: Voice, query: SearchQuery, names: frozenset[str], names_speaker: bool) -> float:
    factor = 1.0
    if names_speaker:
        factor *= OTHER_SPEAKER if names.isdisjoint(voice.name) else 1.0
        factor *= ASKS if voice.tone == QUESTION else 1.0
    else:
        factor *= ASSISTANT if query.aim.is_own and voice.role == "assistant" else 1.0
        factor *= STANDING_WISH if voice.tone == WISH else 1.0
    if query.aim.days:
        fit = 0.0 if voice.said_on is None else query.aim.fit(voice.said_on)
        factor *= OTHER_DAY + (1 - OTHER_DAY) * fit
    return factor
