"""The embedded Postgres is reached whatever libpq's variables say, and is the one that was started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import pq

from strandline.deploy.embedded.postgres import EmbeddedPostgres, undisturbed_options
from strandline.schemas.errors import DatabaseUnavailableError
from tests.support.processes import forking

# What libpq reads from the environment for each connection, whatever its URL says.
BEYOND_URLS = ("PGSERVICE", "PGDATESTYLE", "PGGEQO", "PGTZ")
# Each would end a connection to the embedded server, or lead it elsewhere; others get a word without meaning.
TELLING = {
    "PGCHANNELBINDING": "require",
    "PGGSSENCMODE": "require",
    "PGHOST": "192.0.2.1",
    "PGHOSTADDR": "192.0.2.1",
    "PGOPTIONS": "-c nonsense=1",
    "PGPASSFILE": "/nowhere",
    "PGPORT": "1",
    "PGREQUIREAUTH": "scram-sha-256",
    "PGSSLCERTMODE": "require",
    "PGSSLMODE": "verify-full",
    "PGSSLNEGOTIATION": "direct",
    "PGSSLROOTCERT": "system",
    "PGTARGETSESSIONATTRS": "standby",
}
OF_OPTIONS = {(option.envvar or b"").decode() for option in pq.Conninfo.get_defaults()} - {""}
OF_FILES = {"PGSERVICEFILE", "PGSYSCONFDIR", "PGLOCALEDIR"}
EVERY = sorted(OF_OPTIONS | {*BEYOND_URLS} | OF_FILES)
HOSTILE = {name: TELLING.get(name, "nonsense") for name in EVERY}

SCENARIO = """
import json
from strandline import Memory
memory = Memory.from_defaults("s", user_id="ana")
memory.put({"role": "user", "content": "My sister Nora lives in Lisbon."})
memory.flush(all=True)
print(json.dumps([message.content for message in memory.get("Nora")]))
memory.close()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path_factory.mktemp("embedded") / "pg")
    server.start()
    yield server
    server.stop()


def test_no_variable_of_libpq_decides_how_it_is_reached(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = server.url
    with psycopg.connect(plain) as connection:
        here = connection.execute("SELECT current_user, pg_postmaster_start_time()").fetchone()
    service = tmp_path / "service.conf"
    service.write_text("[other]\nhostaddr=192.0.2.1\nsslmode=verify-full\nrequirepeer=nobody\n")
    of_service = {"PGSERVICE": "other", "PGSERVICEFILE": str(service)}
    cases = [*({name: value} for name, value in HOSTILE.items()), of_service, HOSTILE]
    assert TELLING.keys() <= OF_OPTIONS
    for variables in cases:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            server.attach()
            unset = {*BEYOND_URLS} & variables.keys() if variables is not of_service else set()
            assert variables.keys() - os.environ.keys() == unset
            with psycopg.connect(server.url, connect_timeout=5) as connection:
                row = connection.execute("SELECT current_user, pg_postmaster_start_time()").fetchone()
            assert row == here, variables
    assert server.url == plain


def test_every_variable_of_libpq_is_known() -> None:
    """An option that a later libpq adds gets its own default as well."""
    variables = {(option.envvar or b"").decode() for option in pq.Conninfo.get_defaults()} - {""}
    url = undisturbed_options(dict.fromkeys(variables, "x"))
    named = {part.partition("=")[0] for part in url.split("&")[1:]}
    options = {option.keyword.decode() for option in pq.Conninfo.get_defaults() if option.envvar}
    assert options - named == {"service", "host", "port", "user", "dbname", "connect_timeout"}
    assert undisturbed_options({"PATH": "/bin"}) == ""


def test_a_first_use_is_not_disturbed(tmp_path: Path) -> None:
    """Tables are made, messages put and read."""
    home = {"STRANDLINE_HOME": str(tmp_path / "home"), "STRANDLINE_EMBEDDED": "auto"}
    done = forking.run(
        [sys.executable, "-c", SCENARIO],
        env={**os.environ, **home, **HOSTILE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Lisbon" in str(json.loads(done.stdout))


def test_another_server_in_its_place_is_refused(server: EmbeddedPostgres, tmp_path: Path) -> None:
    own = EmbeddedPostgres(tmp_path / "pg")
    own.start()
    own.stop()
    (tmp_path / "pg" / ".s.PGSQL.5432").symlink_to(server.data_dir / ".s.PGSQL.5432")
    for call in (own.start, own.attach):
        with pytest.raises(DatabaseUnavailableError, match=r"Another server \(process \d+\) listens on"):
            call()
    assert server.is_alive()


# As root in a container with Docker's capabilities: where another account's process works is unknown.
WITHOUT_PTRACE = ("setpriv", "--bounding-set=-sys_ptrace")
STARTED = """
import sys
from pathlib import Path
from strandline.deploy.embedded.postgres import EmbeddedPostgres
from strandline.schemas.errors import DatabaseUnavailableError
server = EmbeddedPostgres(Path(sys.argv[1]))
try:
    server.start()
    assert server.pid() is not None
    again = EmbeddedPostgres(Path(sys.argv[1]))
    assert again.attach() and again.start() and again.stop() is False
except DatabaseUnavailableError as error:
    print(error)
print(server.stop())
"""


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("setpriv") is None, reason="only root has capabilities to drop"
)
def test_a_process_that_may_not_trace_others_knows_its_own_server(
    server: EmbeddedPostgres, tmp_path: Path
) -> None:
    def run(data_dir: Path) -> str:
        command = [*WITHOUT_PTRACE, sys.executable, "-c", STARTED, str(data_dir)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert run(tmp_path / "pg") == "True\n"
    (tmp_path / "pg" / ".s.PGSQL.5432").symlink_to(server.data_dir / ".s.PGSQL.5432")
    assert "Another server (process" in run(tmp_path / "pg")
    assert server.is_alive()
