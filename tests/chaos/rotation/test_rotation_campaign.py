"""A short one: ``python -m tests.chaos.rotation.rotation_campaign`` rotates the keys of 100,000 messages."""

from __future__ import annotations

import pytest

from tests.chaos.rotation.rotation_campaign import ENVIRONMENT, Size, run
from tests.support.opened_rows import clear_only

pytestmark = clear_only("encrypts by itself, with a keyring of its own")


def test_no_read_fails_while_keys_are_rotated_and_the_rotation_is_killed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert run(database_url, Size(owners=4, messages=800, kills=1)) >= 800
