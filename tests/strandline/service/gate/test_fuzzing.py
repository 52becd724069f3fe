"""All that the description allows, asked of the real service: no defect, no status that it does not name.

`python -m tests.soak --only service` asks ten thousand times, operators' routes among them.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.support.servers.schema_fuzzing import fuzz, make_fuzzing_key, make_known
from tests.support.servers.service_server import RunningService


def test_what_the_description_allows(
    running: RunningService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = make_fuzzing_key(running)
    known = make_known(running, key)
    with caplog.at_level(logging.ERROR):
        fuzzing = fuzz(
            running,
            key,
            known,
            tmp_path,
            examples=2,
            seed=1,
            phases="fuzzing",
            only="^/v1/(sessions|users|explain|erasures|admin/audit)",
            probability=1.0,
        )
    assert fuzzing.failures == 0, fuzzing.output[-6_000:]
    assert (fuzzing.cases >= 100, fuzzing.done >= 40) == (True, True)
    # What reads something by its id finds it: a status that is not described would be seen.
    reading = {"get_session", "list_messages", "get_retention", "get_fact", "fact_history", "get_erasure"}
    assert reading <= fuzzing.answers.keys() and not reading & set(fuzzing.only_refused)
    assert [record for record in caplog.records if record.name.startswith("strandline.service")] == []
