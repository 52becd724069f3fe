"""Queries: a statement, the values of its parameters, and the type of its rows.

``schemas.queries`` has a class for each statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

from strandline.schemas.sealing.marks import Marks

R_co = TypeVar("R_co", covariant=True)


class Query(Generic[R_co]):
    """One statement as it is to be run; ``R_co`` is its row, a named tuple, or ``Never`` if it returns none.

    The classes are written by ``make queries``.

    Attributes:
        name: the statement's.
        repeatable: running it again after a lost connection does no harm (reads, and puts by id).
        row: the type that its rows are made into.
        marks: which values hold content that may be sealed; None: none of them.
        values: the values of the parameters, in the order in which the statement numbers them.
    """

    __slots__ = ("values",)
    name: ClassVar[str]
    repeatable: ClassVar[bool] = False
    row: ClassVar[type[tuple[Any, ...]]] = tuple
    marks: ClassVar[Marks | None] = None
    values: tuple[object, ...]

    def __init__(self) -> None:
        self.values = ()

    @property
    def params(self) -> Mapping[str, Any]:
        """The values by the names of their parameters."""
        names = type(self).__init__.__code__.co_varnames[1:]
        return dict(zip(names, self.values, strict=True))

    def with_values(self, values: tuple[object, ...]) -> Self:
        """The same query with other values, in the order of its parameters."""
        query = object.__new__(type(self))
        query.values = values
        return query

    def __repr__(self) -> str:
        return f"<{self.name}>"  # not the values: they may be what people said
