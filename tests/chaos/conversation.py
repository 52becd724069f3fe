"""The producers' conversations: sessions, owners and messages, all derived from numbers.

So a restarted producer repeats the very words it was about to put, and the judge knows which facts each
owner is to have: the stand-in for the model makes a fact of each user line, and users repeat themselves,
within a session and between those of one user.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

USERS = 24
OWN_SESSIONS = 60
SHARED_SESSIONS = 6
# More than merge is shown at once (60), so that a repeated fact is not always among them.
FACTS_PER_USER = 90

_THINGS = (
    "a rope",
    "two lamps",
    "the old chart",
    "spare oars",
    "a tin of tea",
    "the signal flags",
    "an anchor",
)


@dataclass(frozen=True, slots=True)
class Speaker:
    """A user of one session: messages of one speaker are put one after the other.

    ``user`` is None for a session that owns its own facts; ``idle_seconds`` is its policy.
    """

    session: str
    writer: str
    user: str | None
    idle_seconds: int


def speakers_of(slot: int, sessions: int = OWN_SESSIONS) -> list[Speaker]:
    """The speakers of producer ``slot``: its separate sessions, and some in which all producers speak."""
    own = [
        Speaker(
            session=f"s{slot}-{number}",
            writer=f"p{slot}",
            user=None if number % 10 == 9 else f"u{(7 * number + slot) % USERS}",
            idle_seconds=4 if number % 3 == 0 else 600,
        )
        for number in range(sessions)
    ]
    shared = [
        Speaker(f"shared-{number}", f"p{slot}", f"u{number}", idle_seconds=600)
        for number in range(SHARED_SESSIONS)
    ]
    return own + shared


def user_of(session: str) -> str | None:
    """Whose a session is."""
    place = session.removeprefix("s").partition("-")[0]
    speakers = speakers_of(int(place)) if place.isdigit() else speakers_of(0)
    return next(speaker.user for speaker in speakers if speaker.session == session)


def message_of(speaker: Speaker, number: int) -> dict[str, str]:
    """Message ``number`` (1, 2, …) of a speaker, with its id."""
    message_id = f"{speaker.session}.{speaker.writer}.{number}"
    if number % 2:
        place = (number * 31 + sum(speaker.session.encode())) % FACTS_PER_USER
        thing = _THINGS[place % len(_THINGS)]
        text = f"Locker {place} of my boat holds {thing}; I look at it before each trip along the coast."
        return {"id": message_id, "role": "user", "content": text}
    text = f"Noted as {message_id}. Shall I remind you of it when the next trip begins?"
    return {"id": message_id, "role": "assistant", "content": text}


def digest_of(role: str, content: str) -> str:
    """What makes two messages the same words."""
    return blake2b(f"{role}\0{content}".encode(), digest_size=12).hexdigest()
