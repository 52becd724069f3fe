"""What continuous integration runs: it skips no server that it could have installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
INSTALLING = (
    'for server in rabbitmq-server pgbouncer nginx haproxy; do touch "$STRANDLINE_CI_SBIN/$server"; done;'
    ' touch "$STRANDLINE_CI_BIN/chromium"'
)


def run_ci(place: Path, *, user: str, apt: str) -> tuple[int, list[str]]:
    """Run ``.ci/run`` as ``user`` with this ``apt-get``; its exit code, and what it had make do."""
    commands = place / "bin"
    commands.mkdir()
    made = place / "made"
    scripts = {"apt-get": apt, "id": f"echo {user}", "make": f'echo "$@" >> {made}'}
    for name, code in scripts.items():
        file = commands / name
        file.write_text(f"#!/bin/sh\n{code}\n")
        file.chmod(0o755)
    path = f"{commands}:{os.environ['PATH']}"
    done = subprocess.run(
        [str(ROOT / ".ci/run")],
        env=os.environ | {"PATH": path, "STRANDLINE_CI_SBIN": str(place), "STRANDLINE_CI_BIN": str(place)},
        capture_output=True,
        timeout=100,
        check=False,
    )
    return done.returncode, made.read_text().splitlines() if made.exists() else []


def test_servers_that_cannot_be_installed_fail_the_run(tmp_path: Path) -> None:
    assert run_ci(tmp_path, user="0", apt="exit 100") == (1, [])


def test_servers_that_an_installation_did_not_bring_fail_the_run(tmp_path: Path) -> None:
    assert run_ci(tmp_path, user="0", apt="exit 0") == (1, [])


@pytest.mark.parametrize(("user", "apt"), [("0", INSTALLING), ("1000", "exit 100")])
def test_both_environments_and_then_a_short_soak_are_run(tmp_path: Path, user: str, apt: str) -> None:
    code, made = run_ci(tmp_path, user=user, apt=apt)
    assert (code, made) == (0, ["test", "test-legacy", "soak ARGS=--short"])
    assert not (tmp_path / "policy-rc.d").exists()
