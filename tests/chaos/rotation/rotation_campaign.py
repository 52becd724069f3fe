"""``python -m tests.chaos.rotation.rotation_campaign``: both keys of a namespace rotate while it is used.

Owners with many messages are read and put to by processes that check each word of what they get.  Meanwhile
another process wraps the data keys with another key, gives each owner a new one, and seals everything again;
it is killed again and again, wherever it stands, and started anew.  In the end nothing is sealed with a
former key, every message says what was put, and ``verify`` finds nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

import psycopg

from strandline import Memory
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.sealing.enabling import change_key, enable
from strandline.pipelines.sealing.resealing import Pace, reseal_namespace
from strandline.pipelines.sealing.rotating import renew_data_keys, rewrap_keys
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.content import SealedContent
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import load_settings
from strandline.schemas.values.policy import MAX_INTEGER
from tests.chaos.command import servers

NAMESPACE = "rotated"
KEYS = ";".join(f"{name} {b64encode(name.encode() * 8).decode()}" for name in ("from", "into"))
ENVIRONMENT = {
    "STRANDLINE_KEYRING_KEYS": KEYS,
    "STRANDLINE_KEY_CACHE_SECONDS": "1",
    "STRANDLINE_STATEMENT_TIMEOUT_SECONDS": "120",
}
PUT_AT_ONCE = 500
USERS = 2
OLD = """
SELECT count(*) FROM strandline.message m
JOIN (SELECT shard_key, max(number) AS number FROM strandline.data_key GROUP BY shard_key) AS k
    ON k.shard_key = m.shard_key
WHERE m.envelope::text NOT LIKE format('"sealed:1:%s:%%', k.number)
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is, and how often the rotation is killed."""

    owners: int
    messages: int
    kills: int


def words(owner: int, number: int) -> str:
    """What the message of a number says, which everybody can check."""
    return f"owner {owner} says {number}: {_noise(owner, number)}"


def _noise(owner: int, number: int) -> str:
    return blake2b(f"{owner}/{number}".encode(), digest_size=32).hexdigest()


def open_memory(url: str, owner: int) -> Memory:
    return Memory.from_defaults(
        f"s{owner}",
        user_id=f"u{owner}",
        namespace=NAMESPACE,
        database_url=url,
        memory_blocks=[],
        token_limit=MAX_INTEGER // 2,
        max_window_messages=MAX_INTEGER // 2,
    )


@contextmanager
def opened(url: str) -> Iterator[tuple[Database, SealedContent]]:
    settings = load_settings()
    content = sealed_content(settings)
    database = Database.connect(ConnectionOptions.from_settings(url, settings), content)
    try:
        yield database, content
    finally:
        database.close()


def fill(url: str, size: Size) -> None:
    """Put all messages, encrypted from the first on."""
    with opened(url) as (database, content):
        enable(database, content, NAMESPACE, "from", "clear")
    each = size.messages // size.owners
    for owner in range(size.owners):
        memory = open_memory(url, owner)
        for first in range(1, each + 1, PUT_AT_ONCE):
            numbers = range(first, min(first + PUT_AT_ONCE, each + 1))
            memory.put_messages([{"role": "user", "content": words(owner, number)} for number in numbers])
    memory.close()


def use(url: str, owners: int, seed: int) -> None:
    """Read and put until a signal comes; ends at the first word that is not as it was put."""
    chosen = random.Random(seed)  # noqa: S311
    going = [True]
    signal.signal(signal.SIGTERM, lambda *_: going.clear())
    while going:
        # Those of one process alone, so that it knows what comes next.
        owner = chosen.randrange(owners) // USERS * USERS + seed % USERS
        if owner >= owners:
            continue
        memory = open_memory(url, owner)
        newest = memory.history(20)
        check(owner, newest)
        memory.put({"role": "user", "content": words(owner, (newest[-1].seq or 0) + 1)})
        check(owner, memory.history(5, offset=chosen.randrange(newest[-1].seq or 1)))
    memory.close()
    print("used", flush=True)


def check(owner: int, messages: Sequence[object]) -> None:
    for message in messages:
        expected = words(owner, message.seq)  # type: ignore[attr-defined]
        if message.text != expected:  # type: ignore[attr-defined]
            raise AssertionError(f"{message} of {owner} is not {expected!r}")


def rotate(url: str) -> None:
    """Rotate both keys, from wherever it stopped; ends when a pass finds nothing."""
    with opened(url) as (database, content):
        change_key(database, content, NAMESPACE, "into")
        for _keys in rewrap_keys(database, content, NAMESPACE):
            pass
        for _keys in renew_data_keys(database, content, NAMESPACE):
            pass
        while True:
            passes = list(reseal_namespace(database, content, NAMESPACE, cache_seconds=1, pace=Pace()))
            if not passes or passes[-1].rows == 0:
                return


def settle_first_keys(url: str) -> None:
    """The first keys count as settled: nothing was ever in clear."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE strandline.data_key SET settled_at = clock_timestamp()")


def run(url: str, size: Size, *, seed: int = 1) -> int:
    """Fill, rotate under load with kills, and check everything; returns how many messages there are.

    Raises:
        AssertionError: a read failed or was wrong, or something is left of the former keys.
    """
    fill(url, size)
    settle_first_keys(url)
    users = [_role(url, "use", str(size.owners), str(seed * USERS + n)) for n in range(USERS)]
    try:
        _rotate_with_kills(url, size.kills, random.Random(seed))  # noqa: S311
    finally:
        for user in users:
            user.send_signal(signal.SIGTERM)
        said = [user.communicate(timeout=120) for user in users]
    for user, (out, err) in zip(users, said, strict=True):
        assert user.returncode == 0 and "used" in out, err[-3000:]
    again = _role(url, "rotate")
    again.communicate(timeout=600)
    assert again.returncode == 0
    return _check_all(url, size)


def _rotate_with_kills(url: str, kills: int, chosen: random.Random) -> None:
    for _kill in range(kills):
        rotating = _role(url, "rotate")
        try:
            rotating.wait(chosen.uniform(0.8, 4))
        except subprocess.TimeoutExpired:
            rotating.kill()
        rotating.communicate()
    last = _role(url, "rotate")
    _out, err = last.communicate(timeout=3600)
    assert last.returncode == 0, err[-3000:]


def _role(url: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.chaos.rotation.rotation_campaign", "--role", url, *arguments]
    environment = os.environ | ENVIRONMENT
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _check_all(url: str, size: Size) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        (old,) = connection.execute(OLD).fetchone() or (None,)
        keks = connection.execute("SELECT DISTINCT kek_id FROM strandline.data_key").fetchall()
    assert old == 0, f"{old} messages are sealed with a former key"
    assert keks == [("into",)], keks
    count = 0
    for owner in range(size.owners):
        memory = open_memory(url, owner)
        messages = memory.history()
        assert [message.seq for message in messages] == list(range(1, len(messages) + 1))
        check(owner, messages)
        count += len(messages)
    memory.close()
    with opened(url) as (database, _content):
        assert verify(database, deep=True).violations == ()
    return count


def main() -> int:
    if sys.argv[1:2] == ["--role"]:
        url, role, *rest = sys.argv[2:]
        if role == "use":
            use(url, int(rest[0]), int(rest[1]))
        else:
            rotate(url)
        return 0
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.rotation.rotation_campaign", description=__doc__
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--owners", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    began = time.monotonic()
    with servers() as (url, _broker_url, _folder):
        count = run(url, Size(given.owners, given.messages, given.kills), seed=given.seed)
    seconds = time.monotonic() - began
    print(f"{count:,} messages, {given.kills} kills, {seconds:.0f} s: no read failed, none was wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
