"""A user's life after an erasure, in an encrypted namespace, as processes see it that knew the one before."""

from __future__ import annotations

import sys
from base64 import b64encode

import pytest

from strandline import Memory
from strandline.pipelines.sealing.enabling import enable
from strandline.schemas.errors import SealedContentError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import load_settings
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.processes.forking import run

KEYS = f"first {b64encode(b'1' * 32).decode()}"
NUMBERS = "SELECT k.number FROM strandline.data_key k JOIN strandline.erasure_fence f USING (shard_key)"
PUTTING = """
import sys
from strandline import Memory
memory = Memory.from_defaults(sys.argv[2], user_id="eve", database_url=sys.argv[1])
memory.put({"role": "user", "content": sys.argv[3]})
print(*(message.text for message in memory.history()), sep="|")
"""


@pytest.fixture(autouse=True)
def _encrypted(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)
    settings = load_settings()
    content = sealed_content(settings)
    database = Database.connect(ConnectionOptions.from_settings(database_url, settings), content)
    assert enable(database, content, "default", "first", "clear")
    database.close()


def elsewhere(*arguments: str) -> str:
    """A Python program in a process of its own; what it prints."""
    ended = run([sys.executable, *arguments], capture_output=True)
    assert ended.returncode == 0, ended.stderr
    return str(ended.stdout).strip()


def begin_again(url: str) -> None:
    """Erase and readmit eve, in processes that this one hears nothing of."""
    for command in (("erase", "--user", "eve", "--yes"), ("readmit", "--user", "eve")):
        elsewhere("-m", "strandline", "erasures", *command, "--database-url", url)


def texts(memory: Memory) -> list[str]:
    return [message.text for message in memory.history()]


def test_a_process_with_the_keys_from_before_seals_with_those_of_the_new_life(rig: Rig) -> None:
    rig.memory("old", user_id="eve").put({"role": "user", "content": "before"})
    begin_again(rig.url)
    assert rows_of(rig.url, NUMBERS) == []
    known = rig.memory("new", user_id="eve")
    known.put({"role": "user", "content": "said to one"})
    assert rows_of(rig.url, NUMBERS) == [(2,)]
    assert texts(known) == ["said to one"]
    assert elsewhere("-c", PUTTING, rig.url, "new", "said to another") == "said to one|said to another"
    assert texts(known) == ["said to one", "said to another"]


def test_it_does_so_in_a_session_that_another_process_began(rig: Rig) -> None:
    memory = rig.memory("same", user_id="eve")
    memory.put({"role": "user", "content": "before"})
    begin_again(rig.url)
    assert elsewhere("-c", PUTTING, rig.url, "same", "theirs") == "theirs"
    memory.put({"role": "user", "content": "ours"})
    memory.put_messages([{"role": "user", "content": "more"}, {"role": "user", "content": "and more"}])
    said = "theirs|ours|more|and more"
    assert "|".join(texts(memory)) == said
    assert elsewhere("-c", PUTTING, rig.url, "same", "last") == f"{said}|last"


def test_it_does_so_with_facts(make_memory: MakeMemory, database_url: str) -> None:
    facts = make_memory("old", user_id="eve").facts
    facts.add("Eve likes tea.", topics=["drinks"])
    begin_again(database_url)
    added = facts.add("Eve likes coffee.", topics=["drinks"])
    facts.replace(added.fact_id, "Eve likes cocoa.")
    reading = (
        "import sys\nfrom strandline import Memory\nmemory = Memory.from_defaults('x', user_id='eve',"
        " database_url=sys.argv[1])\nprint(*(f'{f.text} {f.topics[0]}' for f in memory.facts.list()))"
    )
    assert elsewhere("-c", reading, database_url) == "Eve likes cocoa. drinks"
    assert [fact.topics for fact in facts.list()] == [("drinks",)]


def test_what_it_knew_of_topics_does_not_keep_it_from_reading_those_of_the_new_life(rig: Rig) -> None:
    """The token of a topic names no key, so another one shows only in that it does not open."""
    facts = rig.memory("old", user_id="eve").facts
    facts.add("Eve likes tea.", topics=["drinks"])
    begin_again(rig.url)
    adding = (
        "import sys\nfrom strandline import Memory\nmemory = Memory.from_defaults('x', user_id='eve',"
        " database_url=sys.argv[1])\nmemory.facts.add('Eve has a boat.', topics=['boats'])"
    )
    elsewhere("-c", adding, rig.url)
    assert [(fact.text, fact.topics) for fact in facts.list()] == [("Eve has a boat.", ("boats",))]


def test_what_was_sealed_before_does_not_open_after(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("same", user_id="eve")
    memory.put({"role": "user", "content": "before", "id": "m1"})
    ((envelope,),) = rows_of(database_url, "SELECT envelope::text FROM strandline.message WHERE id = 'm1'")
    begin_again(database_url)
    memory.put({"role": "user", "content": "after", "id": "m1"})
    kept = f"UPDATE strandline.message SET envelope = '{envelope}'::json WHERE id = 'm1' RETURNING 1"
    rows_of(database_url, kept)
    with pytest.raises(SealedContentError):
        memory.history()
