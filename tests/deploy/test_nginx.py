"""The proxy's file as it stands, in a real nginx before two processes of the service."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.wire.keys import SCOPES, NewKey
from tests.conftest import wait_until
from tests.strandline.service.write_snapshot import SNAPSHOT
from tests.support.servers.certificates import make_certificate
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import RunningService

FILE = Path(__file__).parents[2] / "deploy/nginx/strandline.conf"
NAME = "memory.example.com"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="needs nginx")

_MAIN = """\
daemon off;
master_process off;
error_log {folder}/error.log warn;
pid {folder}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/strandline.conf;
}}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def service(stack: EmbeddedStack) -> Iterator[RunningService]:
    with (
        temporary_database(stack.database_url) as url,
        RunningService(url, service_trusted_proxies="127.0.0.1", service_mcp_hosts=NAME) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def proxy(service: RunningService) -> Iterator[int]:
    """The port of nginx before the service, and before another process that is not there."""
    with nginx_before(service.port, free_port()) as port:
        yield port


@contextmanager
def nginx_before(first: int, second: int) -> Iterator[int]:
    """The port of nginx before two others; no body may have been written to a file in the end."""
    text = FILE.read_text()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="strandline-nginx-", dir="/tmp") as name:
        folder = Path(name)
        make_certificate(folder, NAME)
        for old, new in {
            "127.0.0.1:8420": f"127.0.0.1:{first}",
            "127.0.0.1:8421": f"127.0.0.1:{second}",
            "listen 443": f"listen 127.0.0.1:{port}",
            f"/etc/ssl/{NAME}.pem": str(folder / "memory.pem"),
            f"/etc/ssl/{NAME}.key": str(folder / "memory.key"),
        }.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        (folder / "strandline.conf").write_text(text)
        (folder / "nginx.conf").write_text(_MAIN.format(folder=folder))
        command = [str(NGINX), "-p", name, "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
        tested = subprocess.run([*command, "-t"], capture_output=True, text=True, timeout=60, check=False)
        assert tested.returncode == 0, tested.stderr
        running = subprocess.Popen(command)
        try:
            wait_until(lambda: answers(port), timeout=10, what="nginx")
            yield port
        finally:
            running.terminate()
            running.wait(30)
        assert "temporary file" not in (folder / "error.log").read_text()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def key(service: RunningService) -> NewKey:
    return service.make_key("acme", scopes=SCOPES)


@pytest.fixture
def client(proxy: int, key: NewKey) -> Iterator[httpx2.Client]:
    with client_of(proxy, key.key) as client:
        yield client


def client_of(port: int, key: str) -> httpx2.Client:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {key}", "Strandline-User": "ana", "Host": NAME}
    return httpx2.Client(base_url=f"https://127.0.0.1:{port}", headers=headers, verify=trusting, timeout=60)


def said(content: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


def test_requests_arrive_as_they_were_sent_although_one_process_is_away(client: httpx2.Client) -> None:
    for number in range(6):
        assert client.post("/v1/sessions/a%2Fb%20c/messages", json=said(f"{number}")).status_code == 201
    (session,) = client.get("/v1/sessions").json()["items"]
    assert session["session_id"] == "a/b c"
    assert len(client.get("/v1/sessions/a%2Fb%20c/messages").json()["items"]) == 6


def test_a_body_is_bounded_and_health_is_not_for_all(client: httpx2.Client) -> None:
    assert client.post("/v1/sessions/s/messages", content=b"x" * 2**21).status_code == 413
    for path in ("/healthz", "/healthz/ready", "/healthz/live", "/%68ealthz", "//healthz"):
        assert client.get(path).status_code == 404, path


def test_long_bodies_pass_both_ways_and_no_file(client: httpx2.Client) -> None:
    """They are clear text, which a disk would keep."""
    for _ in range(3):
        put = client.post("/v1/sessions/long/messages", json=said("sand and " * 50_000))
        assert put.status_code == 201
    assert len(client.get("/v1/sessions/long/messages").content) > 1_000_000


def test_events_come_while_they_happen(client: httpx2.Client) -> None:
    with client.stream("GET", "/v1/events") as stream:
        lines = stream.iter_lines()
        assert next(lines)  # the stream is open
        client.post("/v1/sessions/events/messages", json=said("I live in Lisbon."))
        client.post("/v1/sessions/events/flush", json={"all": True})
        assert next(line for line in lines if '"flushed"' in line and '"events"' in line)


def test_the_trail_has_the_clients_address_and_not_what_it_claims(client: httpx2.Client) -> None:
    made = client.post(
        "/v1/admin/keys", json={"scopes": ["read"]}, headers={"X-Forwarded-For": "203.0.113.9"}
    )
    assert made.status_code == 201
    (act,) = client.get("/v1/admin/audit", params={"kind": "key.create", "limit": 1}).json()["items"]
    assert act["origin"] == "127.0.0.1"


def test_tools_are_asked_by_the_proxys_name(client: httpx2.Client) -> None:
    asked = client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert asked.status_code != 403
    other = client.post("/mcp", json={}, headers={"Host": "evil.example.com"})
    assert re.search("refused", other.text)


class Relay(BaseHTTPRequestHandler):
    """Counts a request as carried out; then it answers, or ends the connection if it is told to ``drop``."""

    def carry_out(self) -> None:
        server: Any = self.server
        server.done.append((self.command, self.path))
        if server.drop:
            self.close_connection = True
            return
        self.send_response(204)
        self.end_headers()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = carry_out

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def relays() -> Iterator[tuple[Any, Any]]:
    made: list[Any] = [ThreadingHTTPServer(("127.0.0.1", 0), Relay) for _ in range(2)]
    for server in made:
        server.done, server.drop = [], server is made[0]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield made[0], made[1]
    for server in made:
        server.shutdown()
        server.server_close()


def methods() -> dict[str, set[str]]:
    """The methods of the service's routes, with what a request does that comes again."""
    by_method: dict[str, set[str]] = {}
    for operations in json.loads(SNAPSHOT.read_text(encoding="utf-8"))["paths"].values():
        for method, operation in operations.items():
            if "x-strandline-repeating" in operation:
                by_method.setdefault(method.upper(), set()).add(operation["x-strandline-repeating"])
    return by_method


def test_what_was_sent_is_carried_out_once_although_its_connection_ends(relays: tuple[Any, Any]) -> None:
    """Only what reads is asked of the other process then."""
    dropping, answering = relays
    changing = [method for method, kinds in methods().items() if kinds - {"reads"}]
    assert {"POST", "PUT", "DELETE"} <= set(changing)
    with nginx_before(*(relay.server_address[1] for relay in relays)) as port, client_of(port, "k") as client:
        for method in [*changing, "GET"]:
            path = f"/v1/{method}%2Flast"

            def dropped(method: str = method, path: str = path) -> int:
                dropping.done.clear()
                answering.done.clear()
                status = client.request(method, path).status_code
                assert status == (204 if method == "GET" or not dropping.done else 502)
                return len(dropping.done)

            wait_until(lambda: dropped() == 1, timeout=60, what="nginx to choose the first")
            assert dropping.done == [(method, path)]
            assert answering.done == ([(method, path)] if method == "GET" else [])
