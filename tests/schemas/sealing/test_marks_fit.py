"""Each mark of a statement fits what it is of, and each statement that gives sealed columns opens them."""

from __future__ import annotations

import re
from pathlib import Path

from strandline.schemas.queries.resealed import RESEALED
from strandline.schemas.tables import metadata
from strandline.schemas.tables.base import PERSONAL, SEALED
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


# Each column of what users said has a form in which encrypted namespaces store it; the page says which.
PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "architecture" / "encryption.md"
ROW = re.compile(r"^\| `(\w+\.\w+)` \| ([^|:]+)(?:: [^|]*)? \|", re.MULTILINE)
# What a reseal changes: the sealed and keyed columns of a table.
CHANGED = re.compile(r"UPDATE strandline\.(\w+) \w+\s+SET (.*?)\n(?:FROM|WHERE)", re.DOTALL)


def listed() -> dict[str, str]:
    return dict(ROW.findall(PAGE.read_text(encoding="utf-8").partition("## Columns")[2]))


def test_every_column_of_what_users_said_is_decided_on() -> None:
    personal = {
        f"{table.name}.{column.name}"
        for table in metadata.tables.values()
        for column in table.columns
        if column.info.get(PERSONAL)
    }
    assert set(listed()) == personal


def test_what_is_sealed_or_keyed_is_sealed_and_keyed_where_it_lies_already() -> None:
    changed = {
        f"{table}.{assignment.partition('=')[0].strip()}"
        for header in read_all().values()
        if header.name.startswith("reseal_")
        for table, assignments in CHANGED.findall(header.sql)
        for assignment in re.split(r",(?![^(]*\))", assignments)
        if "=" in assignment
    }
    hidden = {column for column, form in listed().items() if not form.startswith("clear")}
    assert hidden <= changed
    assert len(RESEALED) == sum(header.name.startswith("reseal_") for header in read_all().values())


def test_the_page_says_how_a_column_is_sealed_as_its_table_does() -> None:
    forms = {
        f"{table.name}.{column.name}": column.info[SEALED].partition(" ")[0]
        for table in metadata.tables.values()
        for column in table.columns
        if SEALED in column.info
    }
    in_words = {"": "clear", "name": "name", "vector": "clear", "within": "sealed inside"}
    in_words |= dict.fromkeys(["text", "json", "bytes"], "sealed") | {"traces": "keyed and sealed inside"}
    said = {name: form.removesuffix(" or none") for name, form in listed().items()}
    assert said == {
        name: in_words.get(form, "keyed").removesuffix(" or none") for name, form in forms.items()
    }
