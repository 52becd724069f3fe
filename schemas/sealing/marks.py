"""Marks: which parameters of a statement are sealed, and which columns of its rows are opened, and how.

They stand above the statement (``-- seals:``, ``-- opens:``), and ``make queries`` writes them into its
class.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Form = Literal[
    "text",
    "json",
    "bytes",
    "within",
    "name",
    "word",
    "query",
    "tsvector",
    "array",
    "digest",
    "hex",
    "fingerprint",
    "traces",
    "label",
    "transition",
]
"""How a value is treated:

- ``text``, ``json``, ``bytes``: a token; of JSON, as a JSON string;
- ``within``: JSON that holds such values at some paths;
- ``name``: a token that is the same for the same name, so SQL can compare it;
- ``word``, ``digest``, ``label``: keyed forms, for SQL to compare;
- ``query``, ``tsvector``, ``array``: words to look for, with those in clear while some rows may be; words in
  the literal of a text to search, or of an array;
- ``hex``: digests as hexadecimal digits; ``fingerprint``: that of the text it is bound to, which is found out
  again when it is opened; ``traces``: what tombstones recognise facts by;
- ``transition``: passed on in clear while some of the owner's rows may still be in clear, else NULL.
"""


class Mark(NamedTuple):
    """How one value is sealed or opened.

    Attributes:
        place: of the parameter or column.
        kind: of the content; bound to the ciphertext.
        bound: the place of a further value bound to it, such as the id of its message; None: nothing.
    """

    place: int
    form: Form
    kind: str = ""
    bound: int | None = None


class Marks(NamedTuple):
    """The marks of one statement.

    Attributes:
        owner: the place of the owner's key among the parameters; None: it is in each row.
        owner_column: its place in the row, if it is there.
    """

    owner: int | None
    owner_column: int | None = None
    seals: tuple[Mark, ...] = ()
    opens: tuple[Mark, ...] = ()


class SealedColumn(NamedTuple):
    """How a column is sealed where it lies, as ``schemas/tables`` declares it."""

    name: str
    form: str
    kind: str = ""
    bound: str = ""


class Resealed(NamedTuple):
    """The statements that seal the rows of a table.

    Attributes:
        read: the next rows that are not sealed under the newest data key.
        store: the same rows in the form that they are to have.
        key: the columns of the primary key, without the owner's.
    """

    read: type[Any]
    store: type[Any]
    key: tuple[str, ...]
    columns: tuple[SealedColumn, ...]
