"""Each column of what users said has a form in which encrypted namespaces store it; the page says which."""

from __future__ import annotations

import re
from pathlib import Path

from strandline.schemas.queries.resealed import RESEALED
from strandline.schemas.tables import metadata
from strandline.schemas.tables.base import PERSONAL, SEALED
from tools.queries.headers import read_all

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
