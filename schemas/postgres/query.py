"""Queries: a statement, the values of its parameters, and the type of its rows.

``schemas.queries`` has a class for each statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import get_annotations
from typing import Any, ClassVar, Generic, Self, TypeVar, dataclass_transform, get_args

from strandline.schemas.sealing.marks import Marks
from strandline.schemas.values.same_named import make_from

R_co = TypeVar("R_co", covariant=True)


class _Slotted(type):
    """Classes whose objects have no dictionary, which are faster to make."""

    def __new__(cls, title: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any) -> Any:
        return super().__new__(cls, title, bases, {"__slots__": (), **body}, **options)


@dataclass_transform(kw_only_default=True)
class Query(Generic[R_co], metaclass=_Slotted):
    """One statement as it is to be run; ``R_co`` is its row, a named tuple, or ``Never`` if it returns none.

    ``make queries`` writes the classes.  Their annotations are the parameters, in the order in which the
    statement numbers them, and are given by keyword.

    Attributes:
        name: the statement's.
        repeatable: running it again after a lost connection does no harm (reads, and puts by id).
        lone: Postgres refuses it in a transaction, so behind a pooler too no settings are sent before it.
        row: the type that its rows are made into.
        marks: which values hold content that may be sealed; None: none of them.
        values: the values of the parameters, in their order.
    """

    __slots__ = ("values",)
    name: ClassVar[str]
    repeatable: ClassVar[bool]
    lone: ClassVar[bool]
    row: ClassVar[type[tuple[Any, ...]]]
    marks: ClassVar[Marks | None] = None
    values: tuple[object, ...]

    def __init_subclass__(cls, *, name: str, repeatable: bool = False, lone: bool = False) -> None:
        (row,) = get_args(cls.__dict__["__orig_bases__"][0])
        cls.name, cls.repeatable, cls.lone = name, repeatable, lone
        cls.row = row if isinstance(row, type) else tuple

    def __init__(self, **values: object) -> None:
        """Give the class an ``__init__`` of its own, which the next queries call.

        It takes half the time of one for all classes, and is compiled for the statements that are run.
        """
        cls = type(self)
        cls.__init__ = _make_init(get_annotations(cls))  # type: ignore[method-assign]
        self.__init__(**values)  # type: ignore[misc]

    @classmethod
    def of(cls, source: object, /, **others: Any) -> Self:
        """The query with what ``source`` has under the names of its parameters, and with ``others``."""
        return make_from(cls, source, **others)

    @property
    def params(self) -> Mapping[str, Any]:
        """The values by the names of their parameters."""
        return dict(zip(get_annotations(type(self)), self.values, strict=True))

    def with_values(self, values: tuple[object, ...]) -> Self:
        """The same query with other values, in the order of its parameters."""
        query = object.__new__(type(self))
        query.values = values
        return query

    def __repr__(self) -> str:
        return f"<{self.name}>"  # not the values: they may be what people said


def _make_init(names: Mapping[str, object]) -> Any:
    keywords = "".join(f", {name}" for name in names)
    listed = "".join(f"{name}, " for name in names)
    namespace: dict[str, Any] = {}
    exec(  # noqa: S102  names from the statements' headers alone
        f"def __init__(self{', *' if names else ''}{keywords}):\n    self.values = ({listed})", namespace
    )
    return namespace["__init__"]
