"""A stand-in for S3 and Google Cloud Storage on loopback: PUT that only creates, GET, HEAD, DELETE.

Only what an archive uses, in memory; it can refuse or break.  `moto` was used by hand to see that obstore
speaks with it in the same way as S3.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

BUCKET = "bucket"


class ObjectServer:
    """Runs in threads of this process; ``objects`` are what it holds, by the path in the bucket."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.signed: list[bool] = []
        # Methods that are answered with an error, as a store does that is full or away.
        self.refused: set[str] = set()
        # What a GET of an object returns instead.
        self.corrupted: bytes | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """What obstore takes from the environment to find it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "eu-central-1",
            "AWS_ALLOW_HTTP": "true",
            "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(self._google_key),
            "GOOGLE_ALLOW_HTTP": "true",
        }

    @property
    def _google_key(self) -> dict[str, object]:
        url = f"http://127.0.0.1:{self._server.server_port}"
        unused = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        return {"gcs_base_url": url, "disable_oauth": True, **unused}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Nothing is written to the standard error."""

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self._is_refused():
                    return
                only_new = self.headers.get("If-None-Match") == "*"
                only_new |= self.headers.get("x-goog-if-generation-match") == "0"
                if only_new and self._key in store.objects:
                    self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                    return
                store.objects[self._key] = body
                self._answer(200)

            def do_GET(self) -> None:
                if self._is_refused():
                    return
                if self._key not in store.objects:
                    self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
                    return
                content = store.objects[self._key]
                self._answer(200, content if store.corrupted is None else store.corrupted)

            def do_DELETE(self) -> None:
                if self._is_refused():
                    return
                store.objects.pop(self._key, None)
                self._answer(204)

            @property
            def _key(self) -> str:
                return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}/")

            def _is_refused(self) -> bool:
                store.requests.append((self.command, self._key))
                store.signed.append("Credential=key/" in self.headers.get("Authorization", ""))
                if self.command in store.refused:
                    self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
                    return True
                return False

            def _answer(self, status: int, body: bytes = b"") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("ETag", '"0"')
                self.send_header("Last-Modified", "Wed, 25 Nov 2026 08:00:00 GMT")
                self.end_headers()
                self.wfile.write(body)

        return Handler
