"""What the table of promises names of this folder is collected by ``make test-legacy``."""

from __future__ import annotations

import pytest

from tests.documents.promises import uncollected


def test_every_proof_of_this_environment_is_collected(request: pytest.FixtureRequest) -> None:
    assert uncollected(request.session, "tests/legacy") == []
