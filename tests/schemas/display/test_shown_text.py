"""Stored text as it is shown: it neither steers the terminal nor passes for a line of the program."""

from __future__ import annotations

import ast
import io
import json
import logging
import unicodedata
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.terminal.output import say, styled_text
from strandline.cli.terminal.streams import FieldFormatter, JsonFormatter
from strandline.schemas.display.shown_text import (
    json_seen,
    json_shown,
    quantity,
    quote,
    seen,
    shown,
    shown_lines,
)
from strandline.schemas.errors import (
    ConfigurationError,
    ConflictError,
    InvalidMessageError,
    OwnerError,
    StrandlineError,
)
from tests.conftest import MakeMemory
from tests.support.processes.commands import Ended, run_here

CLI = Path(__file__).resolve().parent.parent.parent.parent / "strandline" / "cli"
# A write to the clipboard, a wiped screen, C1 controls, both directions, zero width, tags, and forged lines.
HOSTILE = (
    "a\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202eb\u2066\u200b\U000e0041\x7f\x85c\u2028forged: 1\nforged: 2"
    "\r\nforged: 3\rforged: 4"
)
# What of it a name may hold, with quotes and markup; control characters are refused.
HOSTILE_NAME = "a\u202eb\u2066\u200b\U000e0041[red]c\u2028forged: 1'; <b> %s {0} \"d"
ANY_TEXT = st.text(st.characters(codec=None), max_size=60)
SEEN_TEXT = st.text(st.characters(categories=["L", "N", "P", "S", "Mn", "Mc", "Zs"]), max_size=60)


def hidden_in(text: str) -> list[str]:
    """What must not reach a terminal; the ends of lines are the program's own."""
    return [
        character
        for character in text
        if character != "\n"
        and (
            unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
            or 0xE0000 <= ord(character) < 0xE1000
            or 0xFE00 <= ord(character) < 0xFE10
        )
    ]


@given(ANY_TEXT)
def test_any_text_is_shown_on_one_line_without_a_character_that_is_not_seen(text: str) -> None:
    found = shown(text)
    assert hidden_in(found) == [] and "\n" not in found
    assert shown(found) == found
    found.encode()


@given(SEEN_TEXT)
def test_text_that_is_seen_is_shown_as_it_is(text: str) -> None:
    undrawn = set("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")
    undrawn |= {chr(selector) for selector in range(0xFE00, 0xFE10)}
    plain = "".join(c for c in text if c not in undrawn and not 0xE0000 <= ord(c) < 0xE1000)
    assert shown(plain) == plain


SELECTORS = [chr(number) for number in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))]


@given(st.text(st.sampled_from(SELECTORS), min_size=1, max_size=60))
def test_what_is_spelled_in_variation_selectors_is_seen(text: str) -> None:
    """A byte in each, after one letter that is seen."""
    assert hidden_in(shown(f"a{text}")) == hidden_in(json_shown(json.dumps(f"a{text}"))) == []
    assert set(hidden_in(seen(f"a{text}b"))) <= {"\ufe0e", "\ufe0f"}
    written = json.dumps(f"a{text}b", ensure_ascii=False)
    assert json.loads(json_seen(written)) == f"a{text}b"
    assert hidden_in(json_seen(written)) == hidden_in(seen(f"a{text}b"))


@pytest.mark.parametrize(
    "emoji", ["\u2764\ufe0f", "\u2764\ufe0f\u200d\U0001f525", "1\ufe0f\u20e3", "\u2708\ufe0e"]
)
def test_emoji_stay_in_prompts_what_they_are(emoji: str) -> None:
    assert seen(emoji * 3) == json_seen(emoji * 3) == emoji * 3


@pytest.mark.parametrize("spelled", ["\ufe0f\u200d\ufe0f", "\u200d\ufe0e\u200d\u200c", "\u200d\u200d"])
def test_joiners_and_selectors_in_a_row_are_seen_in_prompts(spelled: str) -> None:
    assert hidden_in(seen(f"a{spelled}b")) == []


@given(ANY_TEXT)
def test_lines_are_kept_apart_and_each_is_shown(text: str) -> None:
    lines = shown_lines(text)
    assert len(lines) == text.replace("\r\n", "\n").count("\n") + 1
    assert all(shown(line) == line for line in lines)


@given(ANY_TEXT)
def test_printed_text_adds_no_line_end_of_its_own(text: str) -> None:
    out = io.StringIO()
    with redirect_stdout(out):
        say(text, f"second {text}")
    assert out.getvalue().count("\n") == 2
    assert hidden_in(out.getvalue()) == []
    assert hidden_in(styled_text(text).plain) == [] and "\n" not in styled_text(text).plain


@given(st.recursive(ANY_TEXT.filter(str.isprintable) | ANY_TEXT, lambda inner: st.lists(inner, max_size=3)))
def test_json_says_the_same_and_shows_nothing_hidden(value: object) -> None:
    document = json.dumps(value, indent=2, ensure_ascii=False)
    found = json_shown(document)
    assert hidden_in(found) == []
    assert json.loads(found) == json.loads(json.dumps(value))


@given(ANY_TEXT, ANY_TEXT)
def test_no_error_says_what_is_not_seen(field: str, text: str) -> None:
    for error in (InvalidMessageError(field, text), ConfigurationError(text), StrandlineError(f"x {text}")):
        assert hidden_in(str(error)) == [] and "\n" not in str(error)
    assert hidden_in(InvalidMessageError(field, text).field) == []


@given(ANY_TEXT, st.integers(1, 10_000))
def test_an_error_quotes_a_bounded_part_of_a_text(text: str, times: int) -> None:
    assert len(quote(text * times)) <= 200 * len("\\U000e0041") + 3
    assert len(str(InvalidMessageError(text * times, "is wrong"))) <= 200 * len("\\U000e0041") + 20


def test_a_value_that_cannot_write_itself_is_quoted_all_the_same() -> None:
    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError

    assert "Silent" in quote(Silent())
    assert len(quote(list(range(10**5)))) < 100


@given(ANY_TEXT)
def test_a_log_line_is_one_line_whatever_its_fields_hold(text: str) -> None:
    record = logging.makeLogRecord({"msg": "said %s", "args": (text,), "levelname": "INFO", "reason": text})
    found = FieldFormatter("%(levelname)s: %(message)s").format(record)
    assert found.startswith("INFO: said ") and "\n" not in found and hidden_in(found) == []


@given(ANY_TEXT)
def test_a_log_line_in_json_is_one_object_whatever_its_fields_hold(text: str) -> None:
    fields = {"reason": text, "time": text, "level": text, "at": object()}
    record = logging.makeLogRecord({"msg": "said %s", "args": (text,), "levelname": "INFO", **fields})
    found = JsonFormatter().format(record)
    assert "\n" not in found and found.isascii()
    line = json.loads(found)
    assert (line["message"], line["reason"], line["level"]) == (f"said {text}", text, "INFO")
    assert datetime.fromisoformat(line["time"]).tzinfo == UTC


def test_a_traceback_in_the_log_cannot_pass_for_a_line_of_the_log() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": (type(error), error, None)})
    first, *rest = FieldFormatter("%(message)s").format(record).split("\n")
    assert first == "failed" and rest and all(line.startswith("  ") for line in rest)
    assert hidden_in("".join(rest)) == []


def command(database_url: str, *arguments: str) -> Ended:
    return run_here(*arguments, on=database_url)


def is_harmless(ended: Ended) -> bool:
    written = ended.out + ended.err
    return hidden_in(written) == [] and not any(line.startswith("forged") for line in written.splitlines())


@pytest.fixture
def hostile(make_memory: MakeMemory) -> str:
    """A database in which whatever a user may name or say is hostile; gives the id of a fact."""
    names = {"user_id": f"u{HOSTILE_NAME}", "namespace": f"n{HOSTILE_NAME}"}
    memory = make_memory(f"s{HOSTILE_NAME}", **names)
    memory.put({"role": "user", "content": f"I am Anna. {HOSTILE}", "id": f"m{HOSTILE}", "name": "Anna"})
    fact = memory.facts.add(f"Anna likes {HOSTILE}", topics=[HOSTILE[:40]], actor=f"x{HOSTILE_NAME}")
    memory.flush(all=True)
    return str(fact.fact_id)


def test_explain_shows_hostile_text_harmlessly(hostile: str, database_url: str) -> None:
    within = ("--namespace", f"n{HOSTILE_NAME}", "--user", f"u{HOSTILE_NAME}")
    of_message = command(database_url, "explain", f"m{HOSTILE}", *within)
    assert of_message.code == 0 and is_harmless(of_message)
    assert "message ma\\x1b]52;c;" in of_message.out and "\\nforged: 2" in of_message.out
    of_fact = command(database_url, "explain", hostile, *within)
    assert of_fact.code == 0 and is_harmless(of_fact) and "Anna likes a\\x1b]52" in of_fact.out

    as_json = command(database_url, "explain", f"m{HOSTILE}", *within, "--json")
    assert is_harmless(as_json)
    found = json.loads(as_json.out)
    assert (found["session_id"], found["message"]["id"]) == (f"s{HOSTILE_NAME}", f"m{HOSTILE}")

    unknown = command(database_url, "explain", f"z{HOSTILE}", *within)
    assert unknown.code != 0 and is_harmless(unknown) and len(unknown.err.splitlines()) == 1


def test_dead_letters_are_listed_harmlessly(hostile: str, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO strandline.dead_letter (shard_key, session_key, generation_id, stage, from_seq,"
            " through_seq, scope_key, event_id, incarnation, batch_id, reason)"
            " SELECT shard_key, session_key, generation_id, stage, from_seq, through_seq, scope_key,"
            " event_id, incarnation, gen_random_uuid(), %s FROM strandline.due WHERE stage = 'summary'",
            [f"refused: {HOSTILE}"],
        )
    listed = command(database_url, "dead-letters", "list")
    assert listed.code == 0 and is_harmless(listed) and len(listed.out.splitlines()) == 1
    assert "refused: a\\x1b]52" in listed.out
    (letter,) = json.loads(command(database_url, "dead-letters", "list", "--json").out)["dead_letters"]
    assert letter["reason"] == f"refused: {HOSTILE}" and letter["namespace"] == f"n{HOSTILE_NAME}"
    assert is_harmless(command(database_url, "dead-letters", "list", "--json"))
    assert is_harmless(command(database_url, "dead-letters", "show", letter["id"]))
    assert is_harmless(command(database_url, "dead-letters", "drop", f"{HOSTILE}/summary"))
    assert is_harmless(command(database_url, "verify", "--namespace", f"n{HOSTILE_NAME}"))


def test_errors_of_the_library_quote_hostile_text_harmlessly(hostile: str, make_memory: MakeMemory) -> None:
    names = {"user_id": f"u{HOSTILE_NAME}", "namespace": f"n{HOSTILE_NAME}"}
    session = f"s{HOSTILE_NAME}"
    memory = make_memory(session, **names)
    with pytest.raises(ConflictError) as conflict:
        memory.put({"role": "user", "content": "other", "id": f"m{HOSTILE}"})
    with pytest.raises(OwnerError) as foreign:
        make_memory(session, namespace=names["namespace"]).put({"role": "user", "content": "hello"})
    with pytest.raises(InvalidMessageError) as invalid:
        memory.put({"role": HOSTILE * 1_000, "content": "hello"})
    for caught in (conflict, foreign, invalid):
        assert hidden_in(str(caught.value)) == [] and "\n" not in str(caught.value)
        assert len(str(caught.value)) < 4_000


@pytest.mark.parametrize("field", ["session_id", "user_id", "namespace"])
def test_a_name_with_control_characters_is_refused_harmlessly(
    make_memory: MakeMemory, database_url: str, field: str
) -> None:
    names = {"session_id": "s", "user_id": "u", "namespace": "n"} | {field: f"x{HOSTILE}"}
    with pytest.raises(InvalidMessageError, match=f"^{field}: must not hold control characters") as refused:
        make_memory(**names)
    assert hidden_in(str(refused.value)) == [] and "\n" not in str(refused.value)
    within = ("--namespace", names["namespace"], "--user", names["user_id"])
    ended = command(database_url, "sessions", "show", names["session_id"], *within)
    assert ended.code != 0 and is_harmless(ended) and len(ended.err.splitlines()) == 1


def test_wrong_usage_quotes_what_was_typed_harmlessly(database_url: str) -> None:
    for arguments in ((f"x{HOSTILE}",), ("status", f"--{HOSTILE}"), ("generations", "promote", HOSTILE)):
        ended = command(database_url, *arguments)
        assert ended.code == 2 and hidden_in(ended.out + ended.err) == []


PRINTED_ELSEWHERE = {
    # Where nothing heavy may be loaded: what calls it shows its lines itself.
    "streams.py": {"click.echo"},
    "output.py": {"click.echo", "sys.stdout.write", "Text"},
}


def test_commands_print_through_the_terminal_module() -> None:
    raw = {"print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write", "Text"}
    for path in sorted(CLI.rglob("*.py")):
        calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        called = {ast.unparse(node.func) for node in calls}
        assert called & raw <= PRINTED_ELSEWHERE.get(path.name, set()), path


def test_one_of_a_thing_is_not_counted_as_several(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put({"role": "user", "content": "hello"})
    memory.flush(all=True)
    assert "1 session, 1 message, 1 flush event, 0 facts" in command(database_url, "status").out
    assert "1 message in 1 session, 1 flush event, 0 facts" in command(database_url, "verify").out
    assert (quantity(1_000, "batch", "batches"), quantity(1, "batch", "batches")) == (
        "1,000 batches",
        "1 batch",
    )
