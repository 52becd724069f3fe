"""Servers as operators have them, between and behind others: put, derive, read, restart."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from strandline.cli.doctor.servers import check_broker
from strandline.cli.servers.targets import Servers
from strandline.schemas.postgres.migrate import migrate
from tests.chaos.servers import RedisServer
from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.environments.test_sentinel import free_port
from tests.support.servers.certificates import make_certificate
from tests.support.servers.databases import server_address

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
# Debian's has TLS.
REDIS = shutil.which("redis-server")
DEBIANS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
GERMAN = "de_DE.UTF-8"

_HAPROXY = """\
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen postgres
    bind 127.0.0.1:{postgres}
    server postgres {postgres_behind}
listen broker
    bind 127.0.0.1:{broker}
    server broker {broker_behind}
"""


def converse(rig: Rig, url: str, broker_url: str, *restarts: Any) -> None:
    """Put, derive by hints alone, and read; then the same after a restart of the worker and of servers."""
    here = {"STRANDLINE_DATABASE_URL": url, "STRANDLINE_BROKER_URL": broker_url}
    for round_, restart in enumerate((lambda: None, *restarts), start=1):
        restart()
        worker = rig.start_worker("--no-sweep", **here)
        wait_until(lambda: "is ready" in "".join(worker.output), timeout=60, what="the worker")  # noqa: B023
        memory = rig.memory(f"s{round_}", user_id="ana", database_url=url, broker_url=broker_url)
        memory.put({"role": "user", "content": f"My sister Nora has {round_} boats in Lisbon."})
        memory.flush(all=True)
        wait_until(lambda: nothing_due(rig.url), timeout=30, what="the work")
        assert any(f"{round_} boats" in fact.text for fact in memory.facts.list())
        assert worker.stop() == 0
        assert "away" not in "".join(worker.output)


@contextmanager
def haproxy(folder: Path, config: str) -> Iterator[None]:
    file = folder / "haproxy.cfg"
    file.write_text(config)
    with (folder / "haproxy.log").open("ab") as log:
        process = subprocess.Popen([str(HAPROXY), "-db", "-f", str(file)], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.skipif(HAPROXY is None, reason="HAProxy is not installed (Debian's package is haproxy)")
def test_haproxy_before_postgres_and_the_broker(rig: Rig, tmp_path: Path) -> None:
    parts, broker = urlsplit(rig.url), urlsplit(rig.broker_url)
    host, port = server_address(rig.url)
    ports = {"postgres": free_port(), "broker": free_port()}
    config = _HAPROXY.format(
        **ports,
        postgres_behind=f"unix@{host}/.s.PGSQL.{port}" if host.startswith("/") else f"{host}:{port}",
        broker_behind=f"{broker.hostname}:{broker.port}",
    )
    url = f"postgresql://postgres@127.0.0.1:{ports['postgres']}{parts.path}"
    userinfo = broker.netloc.rpartition("@")[0]
    broker_url = urlunsplit(broker._replace(netloc=f"{userinfo}@127.0.0.1:{ports['broker']}"))
    with haproxy(tmp_path, config):
        converse(rig, url, broker_url)
    with haproxy(tmp_path, config):
        converse(rig, url, broker_url)


@pytest.mark.skipif(
    REDIS is None, reason="Redis with TLS is not installed (Debian's package is redis-server)"
)
def test_a_redis_with_tls(rig: Rig, tmp_path: Path) -> None:
    make_certificate(tmp_path, "localhost")
    port = free_port()
    tls = {"port": port, "cert-file": tmp_path / "memory.pem", "key-file": tmp_path / "memory.key"}
    settings = "".join(f"tls-{name} {value}\n" for name, value in tls.items()) + "tls-auth-clients no\n"
    server = RedisServer(tmp_path, settings, Path(str(REDIS)))
    server.start()

    def restart() -> None:
        server.kill()
        server.start()

    try:
        password = urlsplit(server.url).password
        url = f"rediss://:{password}@localhost:{port}/0"
        verified = f"{url}?ssl_cert_reqs=required&ssl_ca_certs={tmp_path / 'memory.pem'}"
        found = [check_broker(Servers("", each, "configured", "configured")) for each in (url, verified)]
        assert [report.result for report in found] == ["warning", "ok"]
        unknown = check_broker(Servers("", f"{url}?ssl_cert_reqs=required", "configured", "configured"))
        assert (unknown.result, "certificate" in unknown.found) == ("problem", True)
        converse(rig, rig.url, verified, restart)
    finally:
        server.stop()


@pytest.fixture
def german() -> Iterator[str]:
    """Debian's Postgres, which speaks German and takes two connections of an ordinary role."""
    locales = subprocess.run(["/usr/bin/locale", "-a"], capture_output=True, text=True, check=False).stdout
    if not DEBIANS or "de_DE.utf8" not in locales:
        pytest.skip("needs Debian's postgresql, and the locale de_DE.UTF-8")
    # Not among the test's files: their folders are closed to another account.
    programs, port = DEBIANS[-1].parent, free_port()
    data = Path(mkdtemp(prefix="strandline-german-", dir="/tmp"))
    account: Any = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    if account:
        shutil.chown(data, **account)
    options = f"-p {port} -k '' -c listen_addresses=127.0.0.1 -c fsync=off"
    log = f"--log={data}/server.log"

    def run(*command: str) -> None:
        done = subprocess.run(command, cwd=data, capture_output=True, text=True, check=False, **account)
        assert done.returncode == 0, done.stderr

    locale = ("--encoding=UTF8", "--locale=C.UTF-8", f"--lc-messages={GERMAN}")
    run(f"{programs}/initdb", "-D", f"{data}/pg", "-U", "postgres", "--auth=trust", "--no-sync", *locale)
    run(f"{programs}/pg_ctl", "-D", f"{data}/pg", log, "-w", "-o", options, "start")
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"
    finally:
        run(f"{programs}/pg_ctl", "-D", f"{data}/pg", "-m", "fast", "stop")
        shutil.rmtree(data)


def test_a_german_postgres_that_is_full_is_waited_for(rig: Rig, german: str) -> None:
    with psycopg.connect(german, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone():
            pytest.skip("needs pgvector for Debian's Postgres")
        migrate(german, "strandline")
        for statement in (
            "CREATE ROLE app LOGIN CONNECTION LIMIT 1",
            "GRANT USAGE ON SCHEMA strandline TO app",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA strandline TO app",
            "GRANT USAGE ON ALL SEQUENCES IN SCHEMA strandline TO app",
        ):
            connection.execute(statement)
        url = german.replace("postgres@", "app@")
        holder = psycopg.connect(url)
        with pytest.raises(psycopg.OperationalError, match="zu viele Verbindungen"):
            psycopg.connect(url)
        said = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'"
        assert rows_of(german, said) == [(1,)]
        memory = rig.memory("s", user_id="ana", memory_blocks=[], database_url=url)
        put: list[int] = []
        putting = threading.Thread(
            target=lambda: put.append(memory.put({"role": "user", "content": "hello"}))
        )
        putting.start()
        try:
            log = Path(connection.execute("SHOW data_directory").fetchall()[0][0]).parent / "server.log"
            wait_until(lambda: log.read_text().count("zu viele") > 2, timeout=20, what="it to be refused")
            assert put == []
        finally:
            holder.close()
            putting.join()
        assert put == [1]
        memory.close()
