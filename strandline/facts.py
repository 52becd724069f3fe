"""``Facts``: an owner's facts without a session, wired to this process's settings and resources."""

from __future__ import annotations

from strandline.producers.execution import Closing
from strandline.producers.namespace_facts import NamespaceFacts
from strandline.producers.owner_facts import OwnerFacts
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, identify_session, identify_user
from strandline.wiring.environment import settings_with
from strandline.wiring.runtime import Pool, runtime_for


class Facts(OwnerFacts, Closing):
    """The facts of one owner; see ``OwnerFacts`` for its methods."""

    @classmethod
    def for_owner(
        cls,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        database_url: str | None = None,
        pool: Pool | None = None,
        schema: str | None = None,
    ) -> Facts:
        """The facts of a user, or of a session without a user; does no I/O.

        Args:
            user_id: the owner; or ``session_id``, for a session that was begun without a user.
            namespace: the tenant; nothing is shared between namespaces.
            database_url, pool, schema: as for ``Memory.from_defaults``.

        Raises:
            ConfigurationError: not exactly one of the two is given, or a setting cannot be used.
            InvalidMessageError: one of the names is not valid.
        """
        if user_id is not None and session_id is None:
            owner = identify_user(namespace, user_id)
        elif session_id is not None and user_id is None:
            owner = identify_session(namespace, session_id, None).owner
        else:
            raise ConfigurationError(
                "Facts.for_owner needs user_id=, or session_id= of a session without a user; not both."
            )
        settings = settings_with(database_url=database_url, database_schema=schema)
        return cls(runtime_for(settings, pool=pool, consume=None), owner)

    @classmethod
    def of_namespace(
        cls,
        namespace: str = DEFAULT_NAMESPACE,
        *,
        database_url: str | None = None,
        pool: Pool | None = None,
        schema: str | None = None,
    ) -> NamespaceFacts:
        """The facts of all users and sessions of a namespace, to clear them; does no I/O.

        Args:
            namespace: the tenant.
            database_url, pool, schema: as for ``Memory.from_defaults``.

        Raises:
            ConfigurationError: a setting cannot be used.
            InvalidMessageError: ``namespace`` is not a valid name.
        """
        settings = settings_with(database_url=database_url, database_schema=schema)
        return NamespaceFacts(runtime_for(settings, pool=pool, consume=None), namespace)
