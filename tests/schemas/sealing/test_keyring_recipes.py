"""The keyrings of docs/recipes.md against loopback services that speak as Vault and a cloud do."""

from __future__ import annotations

import json
import os
import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from strandline.schemas.errors import KeyUnavailableError
from strandline.schemas.sealed.content import unwrap_secret, wrap_secret
from strandline.schemas.sealing.keyrings import Keyring
from strandline.schemas.sealing.owner_keys import make_secret

RECIPES = Path(__file__).parent.parent.parent.parent / "docs" / "recipes.md"
CLOUD_KEY = "projects/p/locations/l/keyRings/r/cryptoKeys/k"


class KeyService(ThreadingHTTPServer):
    """Wraps and unwraps with a key that stays here; knows Transit's paths and those of a cloud's service."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cipher = AESGCM(os.urandom(32))
        self.seen: list[tuple[str, dict[str, Any]]] = []


class _Handler(BaseHTTPRequestHandler):
    server: KeyService

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, body))
        is_vault = self.path.startswith("/v1/transit/")
        allowed = self.headers["X-Vault-Token"] if is_vault else self.headers["Authorization"]
        try:
            answer = self._carry_out(body, is_vault=is_vault) if allowed in ("root", "Bearer root") else None
        except InvalidTag:
            answer = None
        payload = json.dumps(answer or {"errors": ["refused"]}).encode()
        self.send_response(403 if answer is None else 200)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _carry_out(self, body: dict[str, str], *, is_vault: bool) -> dict[str, Any]:
        context = b64decode(body["associated_data" if is_vault else "additionalAuthenticatedData"])
        if "encrypt" in self.path:
            nonce = os.urandom(12)
            sealed = nonce + self.server.cipher.encrypt(nonce, b64decode(body["plaintext"]), context)
            text = b64encode(sealed).decode()
            return {"data": {"ciphertext": f"vault:v1:{text}"}} if is_vault else {"ciphertext": text}
        sealed = b64decode(body["ciphertext"].removeprefix("vault:v1:"))
        plain = b64encode(self.server.cipher.decrypt(sealed[:12], sealed[12:], context)).decode()
        return {"data": {"plaintext": plain}} if is_vault else {"plaintext": plain}

    def log_message(self, *_: object) -> None:
        """Nothing: the tests look at ``seen``."""


@pytest.fixture
def service() -> Iterator[KeyService]:
    with KeyService() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(params=["vault", "a cloud"])
def keyring(request: pytest.FixtureRequest, service: KeyService, monkeypatch: pytest.MonkeyPatch) -> Keyring:
    url = f"http://127.0.0.1:{service.server_port}"
    for name, value in {
        "VAULT_ADDR": url,
        "VAULT_TOKEN": "root",
        "VAULT_KEYS": "chats,other",
        "KMS_URL": url,
        "KMS_TOKEN": "root",
        "KMS_KEY": CLOUD_KEY,
    }.items():
        monkeypatch.setenv(name, value)
    text = RECIPES.read_text(encoding="utf-8")
    (code,) = re.findall(
        rf"<!-- example: keyring of {request.param} -->\n```python\n(.*?)```", text, re.DOTALL
    )
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(code, "recipe", "exec"), names)  # noqa: S102  # the document's own code
    made: Keyring = names["VaultKeyring" if request.param == "vault" else "CloudKeyring"]()
    return made


def test_a_service_wraps_and_unwraps_an_owners_keys(keyring: Keyring, service: KeyService) -> None:
    owner, secret, key_id = uuid4(), make_secret(), keyring.key_ids()[0]
    wrapped = wrap_secret(keyring, "chats", owner, key_id, secret)
    assert unwrap_secret(keyring, "chats", owner, key_id, wrapped) == secret
    assert secret not in wrapped
    assert all(key_id in path for path, _body in service.seen)


@pytest.mark.parametrize(("namespace", "other"), [("elsewhere", False), ("chats", True)])
def test_what_belongs_to_another_owner_does_not_unwrap(keyring: Keyring, namespace: str, other: bool) -> None:
    owner, key_id = uuid4(), keyring.key_ids()[0]
    wrapped = wrap_secret(keyring, "chats", owner, key_id, make_secret())
    with pytest.raises(KeyUnavailableError, match="is encrypted"):
        unwrap_secret(keyring, namespace, UUID(int=1) if other else owner, key_id, wrapped)


def test_a_service_that_is_away_is_an_error_that_names_the_namespace(
    keyring: Keyring, service: KeyService
) -> None:
    service.shutdown()
    service.server_close()
    with pytest.raises(KeyUnavailableError, match=r"'chats' is encrypted.*did not answer"):
        wrap_secret(keyring, "chats", uuid4(), keyring.key_ids()[0], make_secret())
