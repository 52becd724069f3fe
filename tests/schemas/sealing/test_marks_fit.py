"""Each mark of a statement fits what it is of, and each statement that gives sealed columns opens them."""

from __future__ import annotations

import re

from tests.schemas.sealing.test_columns import listed
from tools.queries.headers import Field, Header, read_all

# By form: the types that a value of it has, and whether it is an array (None: either).
TYPES: dict[str, tuple[set[str], bool | None]] = {
    "text": ({"text"}, None),
    "json": ({"text", "json", "jsonb"}, None),
    "within": ({"text", "json", "jsonb"}, False),
    "traces": ({"text", "json", "jsonb"}, False),
    "bytes": ({"bytea"}, False),
    "name": ({"text"}, None),
    "word": ({"text"}, True),
    "query": ({"text", "bytea"}, True),
    "hex": ({"text"}, True),
    "tsvector": ({"text"}, None),
    "array": ({"text"}, None),
    "digest": ({"bytea"}, None),
    "fingerprint": ({"bytea"}, None),
    "label": ({"bigint"}, None),
    "transition": ({"text", "bytea", "bigint"}, None),
}
# What gives columns as they are stored: to seal them anew, and to archive them.
AS_STORED = ("unsealed_", "leaving_messages")
HEADERS = read_all()


def marked(header: Header) -> list[tuple[Field, tuple[str, ...], tuple[Field, ...]]]:
    """Each mark: what it is of, its words, and among what it stands."""
    found = []
    for words, fields in ((header.seals, header.params), (header.opens, header.row)):
        by_name = {field.name: field for field in fields}
        found += [(by_name[mark[0]], mark, fields) for mark in words]
    return found


def test_a_mark_fits_the_type_of_what_it_is_of() -> None:
    wrong = []
    for header in HEADERS.values():
        for field, words, fields in marked(header):
            types, is_array = TYPES[words[1]]
            if field.type not in types or is_array not in (None, field.is_array):
                wrong.append(f"{header.name}: {field.name} {field.type} as {words[1]}")
            bound = next((one for one in fields if len(words) == 4 and one.name == words[3]), None)
            if bound is not None and bound.is_array and not field.is_array:
                wrong.append(f"{header.name}: {field.name} is one value, {bound.name} are many")
    assert wrong == []


def test_a_statement_that_gives_a_sealed_column_opens_it() -> None:
    sealed = {column for column, form in listed().items() if form.startswith(("sealed", "name"))}
    lacking = [
        f"{header.name}: {table}.{field.name}"
        for header in HEADERS.values()
        if not header.name.startswith(AS_STORED)
        for table in set(re.findall(r"strandline\.(\w+)", header.sql))
        for field in header.row
        if f"{table}.{field.name}" in sealed and field.name not in {words[0] for words in header.opens}
    ]
    assert lacking == []


def test_a_statement_that_stores_a_sealed_column_seals_it() -> None:
    sealed = {column for column, form in listed().items() if form.startswith(("sealed", "name"))}
    lacking = [
        f"{header.name}: {table}.{column}"
        for header in HEADERS.values()
        if not header.name.startswith("reseal_")
        for table in set(re.findall(r"(?:INSERT INTO|UPDATE) strandline\.(\w+)", header.sql))
        for field in header.params
        for column in {field.name, field.name.removesuffix("s")}
        if f"{table}.{column}" in sealed and field.name not in {words[0] for words in header.seals}
    ]
    assert lacking == []
