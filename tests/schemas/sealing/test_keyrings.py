"""Keyrings: what they take from settings, and say where a key is missing; how long keys are kept."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from uuid import uuid4

import pytest

from strandline.erasure import signer_of
from strandline.pipelines.audit.keys import keys_of, one_key
from strandline.schemas.errors import ConfigurationError, KeyUnavailableError
from strandline.schemas.sealed.content import UNSEALED_SECONDS, KeyCache
from strandline.schemas.sealed.opening import open_keyring, sealed_content
from strandline.schemas.sealing.keyrings import REREAD_SECONDS, FileKeyring
from strandline.schemas.sealing.owner_keys import make_owner_keys, make_secret
from strandline.schemas.settings import load_settings
from tests.support.opened_rows import clear_only

pytestmark = clear_only("names keyrings itself")

KEY = b64encode(b"k" * 32).decode()


def test_a_file_holds_a_key_a_line(tmp_path: Path) -> None:
    file = tmp_path / "keyring"
    file.write_text(f"# keys of 2026\nfirst {KEY}\n\nsecond {KEY}\n", encoding="utf-8")
    keyring = open_keyring(load_settings(keyring_file=file))
    assert list(keyring.key_ids()) == ["first", "second"]
    wrapped = keyring.wrap("first", b"secret", b"whose")
    assert keyring.unwrap("first", wrapped, b"whose") == b"secret"
    with pytest.raises(KeyUnavailableError, match="not the one that wrapped"):
        keyring.unwrap("first", wrapped, b"another's")
    with pytest.raises(KeyUnavailableError, match=r"'third' is not in .*'first', 'second'"):
        keyring.unwrap("third", wrapped, b"whose")
    file.write_text("# none yet\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"^The keyring .* has no key"):
        open_keyring(load_settings(keyring_file=file))


def test_a_file_is_read_again_where_it_lacks_a_key(tmp_path: Path) -> None:
    file = tmp_path / "keyring"
    file.write_text(f"first {KEY}\n", encoding="utf-8")
    now = [0.0]
    running = FileKeyring(file, clock=lambda: now[0])
    added = f"first {KEY}\nsecond {KEY}\n"
    file.write_text(added, encoding="utf-8")
    another = FileKeyring(file)
    wrapped = another.wrap("second", b"secret", b"whose")
    with pytest.raises(KeyUnavailableError, match=r"'second' is not in"):
        running.unwrap("second", wrapped, b"whose")  # the file was read a moment ago
    now[0] += REREAD_SECONDS
    assert running.unwrap("second", wrapped, b"whose") == b"secret"
    assert list(running.key_ids()) == ["first", "second"]

    # A file in the middle of a change keeps the keys from before; another key of the same id is taken up.
    file.write_text("first\n", encoding="utf-8")
    now[0] += REREAD_SECONDS
    with pytest.raises(KeyUnavailableError, match="'third' is not in"):
        running.wrap("third", b"secret", b"whose")
    assert running.unwrap("second", wrapped, b"whose") == b"secret"
    file.write_text(f"second {b64encode(b'n' * 32).decode()}\n", encoding="utf-8")
    replaced = FileKeyring(file).wrap("second", b"secret", b"whose")
    now[0] += REREAD_SECONDS
    assert running.unwrap("second", replaced, b"whose") == b"secret"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("", None),
        ("first", "Line 1 .* does not hold 32 bytes"),
        (f"first {KEY};first {KEY}", "Line 2 .* a second time"),
        (f"first {KEY};second c2hvcnQ=", "Line 2 .* does not hold 32 bytes"),
        (f"fi?rst {KEY}", "Line 1 .* does not begin with the id"),
        ("# only a comment", "has no key"),
    ],
)
def test_what_is_no_keyring_is_refused_without_showing_it(keys: str, problem: str | None) -> None:
    settings = load_settings(keyring_keys=keys or None)
    if problem is None:
        with pytest.raises(KeyUnavailableError, match="no keyring"):
            open_keyring(settings).wrap("first", b"secret", b"")
        return
    with pytest.raises(ConfigurationError, match=problem) as raised:
        open_keyring(settings)
    assert KEY not in str(raised.value) and KEY not in repr(settings)


def test_one_place_names_the_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="More than one of"):
        open_keyring(load_settings(keyring_file=tmp_path / "keyring", keyring_keys=f"first {KEY}"))
    with pytest.raises(ConfigurationError, match="cannot be read: FileNotFoundError"):
        open_keyring(load_settings(keyring_file=tmp_path / "keyring"))
    with pytest.raises(ConfigurationError, match="the keyring 'vault' is not installed"):
        open_keyring(load_settings(keyring="vault"))
    sealed_content(load_settings(keyring="vault"))  # nothing is looked for before it is needed


def test_keys_are_kept_for_a_time_and_of_so_many_owners() -> None:
    now = [0.0]
    cache = KeyCache(60.0, max_owners=2, clock=lambda: now[0])
    owners = [uuid4() for _ in range(3)]
    keys = [make_owner_keys(owner, {1: make_secret()}, is_settled=True) for owner in owners]
    for owner, of_owner in zip(owners[:2], keys, strict=False):
        cache.keep(owner, of_owner)
    assert cache.keys_of(owners[0]) is keys[0]
    cache.keep(owners[2], keys[2])
    assert cache.keys_of(owners[1]) is None, "the one that was not used for the longest time"
    now[0] = 60.0
    assert cache.keys_of(owners[0]) is None and not cache.is_known(owners[0])
    cache.keep(owners[1], None)
    assert cache.is_known(owners[1])
    now[0] += UNSEALED_SECONDS
    assert not cache.is_known(owners[1]), "that there are none is believed for a short time"
    cache.note_unused()
    assert cache.is_known(uuid4())
    cache.forget()
    assert not cache.is_known(uuid4())
    cache.note_clear("in-clear")
    assert cache.is_clear("in-clear") and not cache.is_clear("another")
    now[0] += 60.0
    assert not cache.is_clear("in-clear")


MISPLACED = b64encode(b"0" * 32).decode()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("keyring_file", f"main {MISPLACED}"),
        ("keyring_file", MISPLACED),
        ("keyring", f"main {MISPLACED}"),
        ("keyring", MISPLACED.rstrip("=")),
    ],
)
def test_a_key_in_the_wrong_variable_is_not_quoted(variable: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_keyring(load_settings(**{variable: value}))
    assert MISPLACED[:20] not in str(raised.value) and "STRANDLINE_KEYRING" in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("value", [f"main {MISPLACED}", MISPLACED])
def test_nor_is_one_of_the_trail_or_of_receipts(value: str) -> None:
    for read in (
        lambda: keys_of(load_settings(audit_key_file=Path(value))),
        lambda: signer_of(load_settings(receipt_key_file=Path(value))),
    ):
        with pytest.raises(ConfigurationError) as raised:
            read()
        assert MISPLACED[:20] not in str(raised.value)
    assert MISPLACED not in repr(one_key(MISPLACED))
