"""A short campaign of deleted facts; ``python -m tests.chaos.deleted.deleted_facts`` runs a long one."""

from __future__ import annotations

import pytest

from strandline.schemas.postgres.migrate import migrate
from tests.chaos.deleted.deleted_facts import ENVIRONMENT, DeletedCampaign, Options, shorten_waits
from tests.support.opened_rows import clear_only

pytestmark = clear_only("encrypts by itself, with a keyring of its own")


@pytest.mark.timeout(1_800)
def test_no_read_has_a_fact_that_was_deleted_before_it_began(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside enabling, sealing and rotating, and generations that come and go."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    shorten_waits(monkeypatch.setattr)
    migrate(empty_database_url, "strandline")
    options = Options(seed=1, reads=300, actors=2, seconds=4)
    found = DeletedCampaign(options, empty_database_url).run()
    assert found.wrong == []
    assert found.operations >= options.reads
