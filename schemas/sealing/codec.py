"""The drivers' interface for sealing parameters of a query and opening its rows; they know no key."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from enum import Enum
from itertools import chain
from typing import Any, TypeVar
from uuid import UUID

from strandline.schemas.errors import KeyUnavailableError
from strandline.schemas.sealing.marks import Marks
from strandline.schemas.sealing.owner_keys import OwnerKeys
from strandline.schemas.sealing.tokens import TOKEN_MARKS, is_bytes_token

T = TypeVar("T")
# As ``postgres.operations.Operation``, whose steps name this module; a query is one of ``postgres.query``.
Operation = Generator[Any, Any, T]


class Unknown(Enum):
    """Stands for the keys of an owner of whom a process does not know whether its content is sealed."""

    UNKNOWN = "unknown"


class ContentCodec:
    """Seals and opens; shared by all databases of a process that are the same one.

    This one has no keys: sealed content is refused, never shown.
    """

    def known_keys(self, namespace: str, shard_key: UUID) -> OwnerKeys | Unknown | None:
        """The keys of an owner, if known here; None: no keyring, or the namespace is known as unsealed."""
        return None

    def note_unused(self) -> None:
        """The whole database is unsealed: for a short time, ask no more."""

    def look_up_keys(self, namespace: str, shard_key: UUID) -> Operation[tuple[bool, OwnerKeys | None]]:
        """Whether a namespace is sealed, and the keys of an owner if it has any; raises as ``find_keys``."""
        return False, None
        yield

    def find_keys(self, shard_key: UUID) -> Operation[OwnerKeys | None]:
        """The keys of an owner; None: its content is not sealed.  Raises KeyUnavailableError."""
        return None
        yield

    def claim_keys(
        self, namespace: str, shard_key: UUID, *, anew: bool = False, first_number: int | None = None
    ) -> Operation[OwnerKeys | None]:
        """The keys of an owner before its first content is stored, made if its namespace is sealed.

        Args:
            anew: from the database, past the cache.
            first_number: of the first data key of the owner's present life, if it is known; it is looked for
                if keys were cached, which may predate an erasure.

        Raises: as ``find_keys``.
        """
        return None
        yield

    def check_keys(self, shard_key: UUID, first_number: int) -> Operation[None]:
        """Fetch cached keys again if they precede the owner's present life; raises as ``find_keys``."""
        return
        yield

    def seal_query(self, query: Any) -> Operation[Any]:
        """The query with its marked parameters sealed, if their owner's content is."""
        return query
        yield

    def open_rows(self, query: Any, rows: Sequence[Any]) -> Operation[list[Any]]:
        """The rows with their sealed values opened; SealedContentError: something cannot be opened."""
        raise KeyUnavailableError("This content is sealed, and this connection was made without a keyring.")
        yield


WITHOUT_KEYS = ContentCodec()


def holds_tokens(marks: Marks, rows: Sequence[Any]) -> bool:
    """Whether any marked column of the rows has to be opened."""
    within = {mark.place for mark in marks.opens if mark.form in ("within", "traces")}
    for place in within:
        if True in ['"sealed:' in value for row in rows if (value := row[place]) is not None]:
            return True
    for mark in marks.opens:
        place = mark.place
        if place in within or mark.form == "fingerprint":
            continue  # looked through already; its text has the same key, and is sealed if keyed
        if mark.form == "bytes":
            if any(row[place] is not None and is_bytes_token(row[place]) for row in rows):
                return True
        else:
            # Texts, or arrays of them; in list comprehensions, since most reads pass many rows and no token.
            values = [value for row in rows if (value := row[place])]
            texts = values if not values or isinstance(values[0], str) else chain.from_iterable(values)
            if True in [text is not None and text.startswith(TOKEN_MARKS) for text in texts]:
                return True
    return False
