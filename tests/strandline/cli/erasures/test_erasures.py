"""``strandline erasures`` and ``strandline export``: by hand, killed in the middle, and after a restore."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import jsonschema
import psycopg
import pytest
from pydantic import BaseModel

from strandline import ErasedError
from strandline.cli.erasures.command import (
    EraseReport,
    ErasuresReport,
    ReapplyReport,
    ReceiptKeyReport,
    VerifyReceiptsReport,
)
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.deploy.embedded.wheel_binaries import postgres_programs
from strandline.producers.exports.lines import ExportLine
from strandline.schemas.wire.erasures import ErasureDetailsReport
from tests.conftest import OTHER_SERVER, MakeMemory, rows_of, wait_until
from tests.support.processes.commands import Ended, run_here
from tests.support.processes.forking import Popen
from tests.support.servers.databases import temporary_database

WORD = "zanzibarq"


Command = Callable[..., Ended]


@pytest.fixture
def command(database_url: str) -> Command:
    """``strandline``, run to its end in this process, on the test's database or another one."""

    return partial(run_here, on=database_url)


@pytest.fixture
def talked(make_memory: MakeMemory) -> None:
    """Ann has two sessions, and bob has one."""
    for session, user, word in (("s1", "ann", WORD), ("s2", "ann", WORD), ("s3", "bob", "bobsword")):
        memory = make_memory(session, user_id=user)
        for number in range(3):
            memory.put({"role": "user", "content": f"I like {word} {number}"})


@pytest.fixture
def key(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = command("erasures", "key", str(tmp_path / "key.pem"), on=None)
    assert made.code == 0, made.err
    monkeypatch.setenv("STRANDLINE_RECEIPT_KEY_FILE", str(tmp_path / "key.pem"))
    return tmp_path / "key.pem"


@pytest.mark.usefixtures("talked")
def test_an_erasure_by_hand_from_the_plan_to_the_receipt(
    command: Command, key: Path, tmp_path: Path, database_url: str
) -> None:
    planned = command("erasures", "erase", "--user", "ann")
    assert "would erase" in planned.out and "--yes" in planned.out
    assert rows_of(database_url, "SELECT count(*) FROM strandline.erasure") == [(0,)]
    receipts = tmp_path / "receipts.jsonl"
    erased = command(
        "erasures", "erase", "--user", "ann", "--yes", "--actor", "op", "--receipt", str(receipts), "--vacuum"
    )
    assert erased.code == 0, erased.err
    assert (
        "message: 6" in erased.out and "not covered: Backups" in erased.out and "signed by key" in erased.out
    )
    listed = ErasuresReport.model_validate(command("erasures", "list", "--json").json)
    assert [(one.kind, one.state, one.actor, one.is_signed) for one in listed.erasures] == [
        ("user", "done", "op", True)
    ]
    shown = ErasureDetailsReport.model_validate(command("erasures", "show", "1", "--json").json)
    assert shown.receipt is not None and shown.receipt.counts["message"] == 6
    assert "ann" not in command("erasures", "list").out
    public = f"{key}.pub"
    assert command("erasures", "verify", str(receipts), "--public-key", public).code == 0
    (tmp_path / "changed").write_text(receipts.read_text().replace('"message":6', '"message":5'))
    changed = command(
        "erasures", "verify", str(tmp_path / "changed"), "--public-key", public, "--offline", on=None
    )
    assert (changed.code, "was changed since it was signed" in changed.out) == (1, True)
    assert command("erasures", "list", "--receipts").out == receipts.read_text()


@pytest.mark.usefixtures("talked")
def test_what_other_commands_say_of_who_was_erased(command: Command) -> None:
    command("erasures", "erase", "--user", "ann", "--yes")
    for look in (("facts", "list"), ("explain", "x"), ("sessions", "list")):
        said = command(*look, "--user", "ann")
        assert said.code == 1
        assert "User 'ann' in namespace 'default' was erased on" in said.err
    assert command("erasures", "erase", "--session", "s3", "--yes").code == 0
    assert "was erased on" in command("sessions", "show", "s3", "--user", "bob").err
    assert command("erasures", "readmit", "--user", "ann").code == 0
    assert "nothing to readmit" in command("erasures", "readmit", "--user", "ann").err


@pytest.mark.usefixtures("talked")
def test_an_export_goes_to_a_new_file_or_to_standard_output(command: Command, tmp_path: Path) -> None:
    out = command("export", "--user", "ann").out.splitlines()
    assert [json.loads(out[0])["kind"], json.loads(out[-1])["kind"]] == ["header", "trailer"]
    file = tmp_path / "ann.jsonl"
    assert f"wrote {len(out)} lines" in command("export", "--user", "ann", "--out", str(file)).out
    assert len(file.read_text().splitlines()) == len(out)
    assert "exists already" in command("export", "--user", "ann", "--out", str(file)).err
    schema = command("export", "--json-schema", on=None).json
    assert schema == ExportLine.model_json_schema()
    for line in out:
        jsonschema.validate(json.loads(line), schema)


@pytest.mark.usefixtures("talked")
def test_an_export_that_fails_or_is_interrupted_leaves_nothing(
    command: Command, tmp_path: Path, database_url: str
) -> None:
    file = tmp_path / "ann.jsonl"
    command("export", "--user", "ann", "--out", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    assert "cannot be written" in command("export", "--user", "ann", "--out", str(tmp_path / "x" / "y")).err
    arguments = ["export", "--user", "ann", "--out", str(file), "--database-url", database_url]
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK strandline.capture_act IN ACCESS EXCLUSIVE MODE")
        with Popen(
            [sys.executable, "-m", "strandline", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            parts = ".ann.jsonl.*.part"
            wait_until(lambda: list(tmp_path.glob(parts)), timeout=20, what="the export's first lines")
            (part,) = tmp_path.glob(parts)
            assert (file.exists(), part.stat().st_mode & 0o777) == (False, 0o600)
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=20)[1]
        assert process.returncode == 128 + signal.SIGTERM
        assert "was not written, and nothing is left of it; run it again" in said
        holder.rollback()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("talked")
def test_a_misspelt_name_is_told_before_anything_is_done(command: Command, database_url: str) -> None:
    for arguments in (("--user", "Anne"), ("--user", "anne", "--yes")):
        ended = command("erasures", "erase", *arguments)
        assert ended.code == 1
        assert "Nothing is stored of user" in ended.err and "Did you mean 'ann'?" in ended.err
    elsewhere = command("erasures", "erase", "--user", "ann", "--namespace", "shop", "--yes")
    assert "There is a user of this name in 'default'." in elsewhere.err
    assert rows_of(database_url, "SELECT count(*) FROM strandline.erasure") == [(0,)]
    assert "Namespace 'defaul' is unknown" in command("erasures", "list", "--namespace", "defaul").err
    exported = command("export", "--user", "anne")
    assert (exported.code, exported.out) == (1, "") and "Did you mean 'ann'?" in exported.err
    # To keep away who never wrote is legitimate.
    unknown = ("erasures", "erase", "--user", "nobody", "--even-if-unknown")
    assert "would erase 0 rows, and keep away what comes" in command(*unknown).out
    assert command(*unknown, "--yes").code == 0
    assert rows_of(database_url, "SELECT count(*) FROM strandline.erasure_fence") == [(1,)]
    assert "erased already (erasure 1)" in command("erasures", "erase", "--user", "nobody").out


@pytest.mark.usefixtures("talked", "key")
def test_receipts_of_a_readmission_are_kept_as_well(
    command: Command, tmp_path: Path, database_url: str
) -> None:
    receipts = tmp_path / "receipts.jsonl"
    command("erasures", "erase", "--user", "ann", "--yes", "--receipt", str(receipts))
    readmitted = command("erasures", "readmit", "--user", "ann", "--receipt", str(receipts))
    assert readmitted.code == 0, readmitted.err
    kinds = [json.loads(line)["kind"] for line in receipts.read_text().splitlines()]
    assert kinds == ["user", "readmission"]
    other = tmp_path / "notes"
    other.write_text("not a receipt\n")
    for path, said in (
        (other, "does not end with a receipt"),
        (tmp_path / "x" / "y", "cannot be written to"),
    ):
        refused = command("erasures", "erase", "--user", "bob", "--yes", "--receipt", str(path))
        assert refused.code == 1 and said in refused.err and "Nothing was done" in refused.err
    assert "bobsword" in str(rows_of(database_url, "SELECT t::text FROM strandline.message t"))
    made = tmp_path / "new"
    assert command("erasures", "readmit", "--user", "bob", "--receipt", str(made)).code == 1
    assert not made.exists(), "it got no receipt"


@pytest.mark.usefixtures("talked")
def test_that_a_receipt_will_not_be_signed_is_said_before(command: Command) -> None:
    assert "the receipt will not be signed" in command("erasures", "erase", "--user", "ann").err


@pytest.mark.usefixtures("talked")
def test_a_command_that_is_killed_goes_on_when_it_is_run_again(
    command: Command, database_url: str, make_memory: MakeMemory
) -> None:
    """Killed while it waits for a row, after its fence was set; puts are refused by then."""
    arguments = [
        "-m",
        "strandline",
        "erasures",
        "erase",
        "--user",
        "ann",
        "--yes",
        "--database-url",
        database_url,
    ]
    with psycopg.connect(database_url) as holder:
        holder.execute("SELECT FROM strandline.message FOR UPDATE")
        with Popen(
            [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            fenced = "SELECT FROM strandline.erasure_fence"
            wait_until(lambda: rows_of(database_url, fenced), timeout=20, what="the fence")
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        with pytest.raises(ErasedError):
            make_memory("s1", user_id="ann").put({"role": "user", "content": "back"})
        holder.rollback()
    assert (
        ErasuresReport.model_validate(command("erasures", "list", "--json").json).erasures[0].state
        == "running"
    )
    beside = command("erasures", "erase", "--session", "s1", "--yes")
    assert (beside.code, "its user, whose erasure 1 is not finished" in beside.err) == (1, True)
    verified = command("erasures", "verify")
    assert (verified.code, "erasure 1 is unfinished" in verified.out) == (1, True)
    report = VerifyReceiptsReport.model_validate_json(command("erasures", "verify", "--json").out)
    assert [(one.number, one.finding) for one in report.findings] == [(1, "unfinished")]
    checked = command("verify")
    assert (checked.code, "erasure 1 is unfinished" in checked.out) == (0, True), checked.out
    exported = command("export", "--user", "ann")
    assert (exported.code, exported.out, "Erasure 1 is not finished" in exported.err) == (1, "", True)
    planned = command("erasures", "erase", "--user", "ann")
    assert "is not finished: add --yes to resume it" in planned.out
    erased = EraseReport.model_validate(command("erasures", "erase", "--user", "ann", "--yes", "--json").json)
    assert erased.receipt is not None
    assert (erased.receipt.number, erased.receipt.counts["message"]) == (1, 6)
    assert command("erasures", "verify").code == 0
    assert WORD not in str(rows_of(database_url, "SELECT t::text FROM strandline.message t"))


@pytest.fixture
def restored_url(stack: EmbeddedStack) -> Iterator[str]:
    """An empty database, to restore a dump into."""
    with temporary_database(stack.database_url, "template0") as url:
        yield url


@pytest.mark.skipif(OTHER_SERVER is not None, reason="the programs are of the embedded server's version")
@pytest.mark.usefixtures("talked")
def test_after_a_restore_of_an_older_dump_reapply_cleans_it_before_producers_write(
    command: Command, key: Path, tmp_path: Path, database_url: str, restored_url: str, make_memory: MakeMemory
) -> None:
    """A dump from before two erasures and a readmission; the receipts were kept outside."""
    make_memory("s4", user_id="eve").put({"role": "user", "content": "evesword"})
    programs, dump = postgres_programs(), tmp_path / "old.sql"
    subprocess.run([programs / "pg_dump", "--dbname", database_url, "--file", dump], check=True)
    receipts = tmp_path / "receipts.jsonl"
    for user in ("ann", "eve"):
        command("erasures", "erase", "--user", user, "--yes", "--receipt", str(receipts))
    command("erasures", "readmit", "--user", "eve")
    receipts.write_text(command("erasures", "list", "--receipts").out)
    restore = [str(programs / "psql"), "--quiet", "--dbname", restored_url, "--file", str(dump)]
    subprocess.run(restore, check=True, stdout=subprocess.DEVNULL)
    messages = "SELECT t::text FROM strandline.message t"
    assert WORD in str(rows_of(restored_url, messages))
    reapply = ["erasures", "reapply", "--from", str(receipts), "--public-key", f"{key}.pub"]
    assert "would reapply 3 receipts" in command(*reapply, on=restored_url).out
    assert WORD in str(rows_of(restored_url, messages))
    report = ReapplyReport.model_validate(command(*reapply, "--yes", "--json", on=restored_url).json)
    assert [one.outcome for one in report.receipts] == ["erased", "erased", "readmitted"]
    left = str(rows_of(restored_url, messages))
    assert "bobsword" in left and WORD not in left and "evesword" not in left
    dumped = subprocess.run([programs / "pg_dump", "--dbname", restored_url], check=True, capture_output=True)
    assert WORD.encode() not in dumped.stdout
    with pytest.raises(ErasedError):
        make_memory("s1", user_id="ann", database_url=restored_url).put({"role": "user", "content": "back"})
    make_memory("s4", user_id="eve", database_url=restored_url).put({"role": "user", "content": "hello"})
    again = ReapplyReport.model_validate(command(*reapply, "--yes", "--json", on=restored_url).json)
    assert {one.outcome for one in again.receipts} == {"known"}
    receipts.write_text(receipts.read_text().replace('"message":6', '"message":5'))
    assert "were changed; nothing was done" in command(*reapply, "--yes", on=restored_url).err
    own = command(*reapply[:4], "--yes", on=restored_url)
    assert own.code and "were changed; nothing was done" in own.err, "by the key of the settings"


@pytest.mark.parametrize(
    ("look", "kind"),
    [
        (("erasures", "erase"), EraseReport),
        (("erasures", "list"), ErasuresReport),
        (("erasures", "show", "1"), ErasureDetailsReport),
        (("erasures", "verify"), VerifyReceiptsReport),
        (("erasures", "key", "x"), ReceiptKeyReport),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_each_look_publishes_its_schema(
    look: tuple[str, ...], kind: type[BaseModel], command: Command
) -> None:
    assert command(*look, "--json-schema", on=None).json == kind.model_json_schema()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("erase",), "Name a user (--user ID) or a session"),
        (("erase", "--user", "a", "--session", "b"), "and not both"),
        (("erase", "--session", "s", "--items-below", "x"), "items belong to no session"),
        (("verify", "--offline"), "--offline needs --public-key"),
        (("reapply",), "--from"),
        (("readmit",), "Name a user"),
    ],
)
def test_wrong_usage_says_what_is_missing(wrong: tuple[str, ...], said: str, command: Command) -> None:
    ended = command("erasures", *wrong)
    assert ended.code == 2
    assert said in ended.err


def test_what_does_not_exist_is_told(command: Command, tmp_path: Path) -> None:
    assert "Erasure 7 does not exist" in command("erasures", "show", "7").err
    assert "Session 'typo' does not exist" in command("erasures", "erase", "--session", "typo", "--yes").err
    (tmp_path / "receipts").write_text("hello\n")
    assert "line 1" in command("erasures", "verify", str(tmp_path / "receipts")).err
    (tmp_path / "receipts").write_text("")
    for more in ((), ("--offline", "--public-key", str(tmp_path / "receipts"))):
        empty = command("erasures", "verify", str(tmp_path / "receipts"), *more)
        assert empty.code == 1
    assert "receipts holds no receipt." in command("erasures", "verify", str(tmp_path / "receipts")).err
    assert (
        "holds no public Ed25519 key"
        in command("erasures", "verify", "--public-key", str(tmp_path / "receipts")).err
    )
