"""A user with memory of every kind beside another one, in a database of which each test gets a copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from strandline import Capture, Memory
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.erasure import Erasures, make_receipt_key
from strandline.pipelines.replay.in_place import begin_in_place
from strandline.pipelines.replay.records import Selection
from strandline.retention import adopt
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS
from tests.support.servers.databases import temporary_database
from tests.support.workers.draining import drain_everything

LIMITS: dict[str, Any] = {
    "token_limit": 400,
    "token_flush_size": 40,
    "memory_blocks": [FACTS, SUMMARY, VECTORS],
    "shared_scope": "harbour",
}


def fill(url: str, user: str, word: str) -> None:
    """Sessions, facts, corrections, runs, acts and copies of one user, each with the word."""
    for session in ("one", "two"):
        memory = Memory.from_defaults(f"{word}-{session}", user_id=user, database_url=url, **LIMITS)
        for number in range(3):
            said = f"my boat {word}{session}{number} is blue"
            memory.put({"role": "user", "content": said, "name": word, "metadata": {"mark": word}})
            memory.put({"role": "assistant", "content": f"noted {word}{number}"})
        memory.flush(all=True)
    memory.facts.add(f"likes {word} tea", actor=user, input=f"{word} said so")
    memory.facts.set_capture(Capture(instructions=f"keep {word}"), actor=user)


def derive(url: str) -> None:
    settings = load_settings(database_url=url, text_backend="local", embedding_backend="local")
    database = Database.connect(ConnectionOptions.from_settings(url, settings))
    drain_everything(database, url, settings)
    begin_in_place(database, "summary", Selection("default", user_id="ann"))
    database.close()


def change(url: str, user: str, word: str) -> None:
    """What comes after something was derived."""
    memory = Memory.from_defaults(f"{word}-one", user_id=user, database_url=url, **LIMITS)
    memory.rewind(6, actor=user)
    memory.replace(1, f"my boat {word} is red", actor=user)
    memory.add_run(f"{word}-run", [{"role": "user", "content": f"run {word}"}], agent_id=word)
    memory.set_policy(token_limit=500, actor=user)
    memory.fork(f"{word}-fork")


RETAINED = """
INSERT INTO strandline.session_retention_act (shard_key, session_key, number, max_messages, actor)
    VALUES (%(owner)s, %(session)s, 1, 10, 'ann');
INSERT INTO strandline.expired_life
        (shard_key, session_key, incarnation, from_seq, through_seq, pinned_through, flushed_through,
        removed_at)
    VALUES (%(owner)s, %(session)s, gen_random_uuid(), 1, 1, 0, 1, now());
INSERT INTO strandline.retention_step
        (shard_key, session_key, from_seq, through_seq, step_id, incarnation, cause, archive, object_name,
        state, removed_at)
    SELECT %(owner)s, %(session)s, n, n, gen_random_uuid(), gen_random_uuid(), 'age', archive, name,
        'removed', now()
    FROM (VALUES (1, %(archive)s, 'object'), (2, 'handler:at.sea:keep', NULL)) s (n, archive, name);
INSERT INTO strandline.given_up_step
        (shard_key, session_key, step_id, from_seq, through_seq, cause, state, archive, object_name, reason)
    VALUES (%(owner)s, %(session)s, gen_random_uuid(), 3, 3, 'age', 'archived', %(archive)s, 'left', 'x');
INSERT INTO strandline.archived_input
        (shard_key, session_key, seq, generation_id, id, role, tokens, envelope, created_at)
    VALUES (%(owner)s, %(session)s, 1, 1, 'zanzibarq', 'user', 1, '{"content": "zanzibarq"}', now());
INSERT INTO strandline.kept_response (shard_key, request_key, request_digest, status, body)
    VALUES (%(owner)s, gen_random_uuid(), sha256('zanzibarq'), 200, '{"content": "zanzibarq"}');
INSERT INTO strandline.service_key (key_id, secret_digest, namespace, user_id, scopes)
    VALUES ('k1', sha256('k1'), 'default', 'ann', '{read}');
INSERT INTO strandline.data_key (shard_key, number, namespace, kek_id, wrapped)
    VALUES (%(owner)s, 1, 'default', 'k', 'wrapped');
"""


def retain(url: str, archive: Path) -> None:
    """What retention and encryption keep of ann, written by hand; an object of hers lies in a folder."""
    keys = identify_session("default", "zanzibarq-one", "ann")
    (archive / "object").write_text("zanzibarq")
    values = {"owner": keys.shard_key, "session": keys.session_key, "archive": f"file://{archive}"}
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(RETAINED, values)
    with closing(Database.connect(ConnectionOptions.from_settings(url, load_settings()))) as database:
        adopt(database)


@pytest.fixture(scope="module")
def filled(stack: EmbeddedStack) -> Iterator[str]:
    """The name of a database with two users, ``ann`` and ``bob``; ann has edited something of bob's too."""
    with temporary_database(stack.database_url) as url, pytest.MonkeyPatch.context() as environment:
        environment.setenv("STRANDLINE_EMBEDDED", "never")
        fill(url, "ann", "zanzibarq")
        fill(url, "bob", "bobsword")
        derive(url)
        change(url, "ann", "zanzibarq")
        change(url, "bob", "bobsword")
        bob = Memory.from_defaults("bobsword-two", user_id="bob", database_url=url, **LIMITS)
        bob.facts.add("has a bobsword boat", actor="ann")
        bob.rewind(6, actor="ann")
        bob.close()
        yield urlsplit(url).path[1:]


@pytest.fixture
def database_url(stack: EmbeddedStack, filled: str) -> Iterator[str]:
    """A copy of it."""
    with temporary_database(stack.database_url, filled) as url:
        yield url


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A key that signs receipts."""
    make_receipt_key(tmp_path / "key.pem")
    return tmp_path / "key.pem"


@pytest.fixture
def erasures(database_url: str, key: Path) -> Iterator[Erasures]:
    opened = Erasures.of_namespace(database_url=database_url, key_file=key)
    yield opened
    opened.close()
