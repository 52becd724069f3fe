"""Retention's steps on the real database: what leaves, what stays, and what an archive that fails keeps."""

from __future__ import annotations

from pathlib import Path

from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.upkeep.passes import Which, run_once
from strandline.pipelines.upkeep.removal import Remover
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.retention import Retention
from strandline.wiring.archives import open_archive
from tests.conftest import MakeMemory, rows_of
from tests.support.workers.draining import drain_everything


def test_try(
    make_memory: MakeMemory, database: Database, database_url: str, settings: Settings, tmp_path: Path
) -> None:
    memory = make_memory(
        "s", user_id="ana", token_limit=2000, token_flush_size=20, chat_history_token_ratio=0.05
    )
    memory.put({"role": "system", "content": "Be kind."})
    for n in range(30):
        memory.put(
            {
                "role": "user",
                "content": f"My boat number {n} is called Aurora {n}.",
                "metadata": {"important": n == 3},
            }
        )
        memory.put({"role": "assistant", "content": f"Noted {n}."})
    drain_everything(database, database_url, settings)
    rows_of_ = rows_of(
        database_url,
        "UPDATE strandline.message SET created_at = created_at - interval '40 days' WHERE seq <= 30 RETURNING 1",
    )
    assert len(rows_of_) == 30
    before = memory.get_all()
    assert len(before) == 61
    memory.set_retention(Retention(max_age_seconds=86400 * 30, archive=f"file://{tmp_path}/archive"))
    shown = [m.text for m in memory.get_all()]
    print(len(shown), shown[:4])
    done = run_once(
        database, Remover(database, open_archive, busy_seconds=0), Which(namespace=None, session_key=None)
    )
    print(done)
    print([m.text for m in memory.get_all()][:4], len(memory.get_all()))
    print(sorted(p.name for p in tmp_path.rglob("*") if p.is_file()))
    report = verify(database, deep=True)
    print([v.sentence for v in report.violations])
    print(
        rows_of(
            database_url,
            "SELECT from_seq, through_seq, state, removed, kept_seqs FROM strandline.retention_step",
        )
    )
    assert 0
