"""An application of two users, in the shape of those that fork: it uses its memories first, and forks then.

The tests of ``test_forking`` run it under multiprocessing, gunicorn and Celery.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from itertools import cycle, islice
from typing import Any
from urllib.parse import parse_qs

from celery import Celery

from strandline import Facts, Memory
from strandline.adapters.llamaindex import StrandlineMemory

USERS = ("annabel", "bertrand")


class Application:
    """Memories, facts and an adapter's memories of both users; made and used where the process begins."""

    def __init__(self) -> None:
        self.memories = {user: Memory.from_defaults(f"chat-of-{user}", user_id=user) for user in USERS}
        self.facts = {user: Facts.for_owner(user_id=user) for user in USERS}
        self.adapted = {
            user: StrandlineMemory.from_defaults(f"notes-of-{user}", user_id=user) for user in USERS
        }
        for user in USERS:
            self.memories[user].put({"role": "user", "content": f"said by {user}", "id": f"first-of-{user}"})
            self.facts[user].add(f"known of {user}")
            self.adapted[user].session_memory.put(
                {"role": "user", "content": f"noted by {user}", "id": f"note-of-{user}"}
            )
            self.foreign(user, 6)

    def foreign(self, user: str, reads: int) -> int:
        """How many of so many reads for ``user`` gave something that is not this user's own."""
        ways = (self._said, self._known, self._noted)
        return sum(not _is_of(user, read(user)) for read in islice(cycle(ways), reads))

    def put(self, user: str, text: str) -> int:
        return self.memories[user].put({"role": "user", "content": f"{text} by {user}", "id": text})

    def _said(self, user: str) -> Iterable[Any]:
        return [message.content for message in self.memories[user].get().messages]

    def _known(self, user: str) -> Iterable[Any]:
        return [fact.text for fact in self.facts[user].list()]

    def _noted(self, user: str) -> Iterable[Any]:
        return [message.content for message in self.adapted[user].get()]


class ReadingParent:
    """A thread of the parent that reads for both users for as long as the process lives."""

    def __init__(self, application: Application) -> None:
        self.foreign = 0
        self.reads = 0
        self._application = application
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for user in cycle(USERS):
            self.foreign += self._application.foreign(user, 3)
            self.reads += 3


def web_application() -> Any:
    """A WSGI application: ``/USER?reads=N`` answers how many were foreign, ``/USER?put=TEXT`` puts."""
    application = Application()
    parent, pid = ReadingParent(application), os.getpid()

    def answer(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        user, asked = environ["PATH_INFO"].strip("/"), parse_qs(environ["QUERY_STRING"])
        assert os.getpid() != pid, "it is to be served by children"
        if "put" in asked:
            body = str(application.put(user, asked["put"][0]))
        else:
            body = str(application.foreign(user, int(asked["reads"][0])))
        # The parent's count as it was when this process was forked.
        start_response("200 OK", [("Content-Type", "text/plain"), ("X-Parent", str(parent.foreign))])
        return [body.encode()]

    return answer


def celery_application() -> Any:
    """A Celery application with the same two as tasks."""
    url = os.environ["APPLICATION_BROKER"]
    celery = Celery("application", broker=url, backend=url)
    celery.conf.update(worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)
    application, pid = Application(), os.getpid()

    def foreign(user: str, reads: int) -> int:
        assert os.getpid() != pid, "it is to be run by children"
        return application.foreign(user, reads)

    def put(user: str, text: str) -> None:
        application.put(user, text)

    celery.task(foreign, name="foreign")
    celery.task(put, name="put")
    return celery


def _is_of(user: str, texts: Iterable[Any]) -> bool:
    found = [str(text) for text in texts]
    others = [other for other in USERS if other != user]
    return bool(found) and all(user in text and not any(one in text for one in others) for text in found)
