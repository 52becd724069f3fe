"""JSON of others: what has a key twice is read by none of the readers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.chat_import.exports.source import ExportSource
from strandline.chat_import.file_lines import object_in as chat_line
from strandline.chat_import.records import Omission
from strandline.chat_import.tables.values import read_json as column
from strandline.pipelines.audit.anchors import read_anchors
from strandline.pipelines.models.answers import parse_extract
from strandline.producers.tools.calling import read_arguments
from strandline.producers.tools.definitions import SEARCH
from strandline.schemas.errors import StrandlineError
from strandline.schemas.foreign_json import read_json

READERS: dict[str, Callable[[str], Any]] = {
    "any": read_json,
    "line of a chat": chat_line,
    "column of an import": column,
    "answer of a model": lambda text: parse_extract(text, 1),
    "answer in a fence": lambda text: parse_extract(f"Here:\n```json\n{text}\n```", 1),
    "arguments of a tool": lambda text: read_arguments(SEARCH, text),
    "anchor": lambda text: read_anchors([text], "file"),
}
REPEATED = (
    '{"facts":[],"facts":[1]}',
    '{"a":{"b":1,"b":2}}',
    '{"a":[{"b":1,"b":1}]}',
    '{"query":"a","qu\\u0065ry":"b"}',
)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", REPEATED)
def test_no_reader_takes_one_of_two(reader: str, text: str) -> None:
    with pytest.raises((ValueError, StrandlineError)):
        READERS[reader](text)


def test_a_conversation_of_an_export_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text('[{"uuid":"1","uuid":"2"}]')
    (left_out,) = ExportSource(path, "Claude", ("uuid",), lambda *_: iter(())).records()
    assert isinstance(left_out, Omission)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "1e999", "[-1e400]", '{"a":1} x', "\ufeff1"])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|too large|Extra data|BOM"):
        read_json(text)


def test_what_is_json_is_read_as_ever() -> None:
    text = '{"a": [1, 2.5, true, null, "\\u0034"], "b": {"a": -1e300}}'
    assert read_json(text) == json.loads(text)
