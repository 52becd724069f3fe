"""All that the description allows, asked of the real service: no defect, no status that it does not name.

`python -m tests.soak --only service` asks ten thousand times, operators' routes among them.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from strandline.schemas.wire.keys import SCOPES
from tests.support.servers.schema_fuzzing import fuzz
from tests.support.servers.service_server import RunningService


def test_what_the_description_allows(
    running: RunningService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = running.make_key("fuzzed", scopes=SCOPES)
    with caplog.at_level(logging.ERROR):
        fuzzing = fuzz(
            running, key.key, tmp_path, examples=2, seed=1, phases="fuzzing", only="^/v1/(sessions|users)"
        )
    assert fuzzing.failures == 0, fuzzing.output[-6_000:]
    assert fuzzing.cases >= 60
    assert [record for record in caplog.records if record.name.startswith("strandline.service")] == []
