"""Whose session it is: Agno's memory is asked for a session without its user."""

from __future__ import annotations

from collections.abc import Callable

from strandline import ConfigurationError
from strandline.adapters.legacy.agno_v1.memory_db import NO_USER
from strandline.adapters.recently_used import RecentlyUsed
from strandline.schemas.display.shown_text import quote
from strandline.schemas.values.identity import check_user_id

UserOf = Callable[[str], str]
MAX_KNOWN_SESSIONS = 1_024


class SessionUsers:
    """The users of the sessions of one memory.

    Args:
        user_id: the one user whom the memory serves, or a function of the session's id.
    """

    def __init__(self, user_id: str | UserOf | None) -> None:
        self._user_of = user_id if callable(user_id) else None
        self._user_id = None if user_id is None or callable(user_id) else check_user_id(user_id)
        self._sessions: RecentlyUsed[str, str] = RecentlyUsed(MAX_KNOWN_SESSIONS)

    @property
    def sessions(self) -> list[tuple[str, str]]:
        """The sessions used last, up to 1,024, each with its user."""
        return self._sessions.items()

    def bind(self, user_id: str) -> None:
        """Serve this user from now on, if the memory serves none yet."""
        if self._user_of is None and self._user_id is None:
            self._user_id = check_user_id(user_id)

    def of_session(self, session_id: str) -> str:
        """The user of a session.

        Raises:
            ConfigurationError: the memory was not told whom it serves.
            InvalidMessageError: the function did not give a name.
        """
        if self._user_of is not None:
            user = check_user_id(self._user_of(session_id))
        elif self._user_id is not None:
            user = self._user_id
        else:
            raise ConfigurationError(
                f"Whose session {quote(session_id)} is, was not said: make StrandlineMemory(user_id=…) for a"
                " user, give a function of the session's id as user_id=, or call initialize(user_id=…)."
            )
        self._sessions.put(session_id, user)
        return user

    def of_call(self, user_id: str | None) -> str:
        """The user that a call names; without one, the one whom the memory serves, else ``default``.

        Raises:
            ConfigurationError: the memory serves another one.
        """
        if user_id in (None, "", NO_USER):
            return self._user_id or NO_USER
        name = check_user_id(user_id)
        if self._user_id is not None and name != self._user_id:
            raise ConfigurationError(
                f"This memory serves user {quote(self._user_id)}, and is asked for {quote(name)}; make one"
                " for each user, or give a function of the session's id as user_id=."
            )
        return name

    def check_session(self, session_id: str, user_id: str | None) -> str:
        """The user of a session, who must be the user that a call names.

        Raises:
            ConfigurationError: it is another one.
            InvalidMessageError: one of the names is not valid.
        """
        user = self.of_session(session_id)
        if user_id not in (None, "", NO_USER) and user_id != user:
            raise ConfigurationError(
                f"Session {quote(session_id)} is of user {quote(user)}, and not of {quote(str(user_id))}."
            )
        return user
