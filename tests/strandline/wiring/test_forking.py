"""A process forks after it has used its memories: its children read and write on separate connections.

On real forks, as applications have them: multiprocessing, gunicorn with ``--preload``, Celery's prefork.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from strandline import Memory
from strandline.deploy.embedded.processes import wait_gone
from strandline.deploy.embedded.stack import STATE_FILE
from tests.conftest import wait_until
from tests.support.processes import forking
from tests.support.workers.forking_application import USERS
from tests.support.workers.script_process import ROOT, run_script

# Of each user: a connection that two processes had in common would give one the answers of the other, or
# break, within the first few.
READS = 480

PROCESSES = """
    import json, multiprocessing
    from tests.support.workers.forking_application import Application, ReadingParent, USERS

    application = Application()
    parent = ReadingParent(application)
    context = multiprocessing.get_context("fork")

    def serve(user, number, found):
        found.put(application.foreign(user, {each}))
        application.put(user, f"child-{{number}}")

    found = context.Queue()
    children = [
        context.Process(target=serve, args=(user, number, found)) for number in range(2) for user in USERS
    ]
    for child in children:
        child.start()
    foreign = sum(found.get() for child in children)
    for child in children:
        child.join()
    after = {{user: application.foreign(user, 30) for user in USERS}}
    for user in USERS:
        application.put(user, "parent")
    print(json.dumps([foreign, parent.foreign, parent.reads > 0, after, [c.exitcode for c in children]]))
"""

POOL = """
    import json, multiprocessing
    from tests.support.workers.forking_application import Application, USERS

    application = Application()

    def serve(number):
        user = USERS[number % 2]
        application.put(user, f"task-{{number}}")
        return application.foreign(user, {each})

    with multiprocessing.get_context("fork").Pool(3) as pool:
        foreign = sum(pool.map(serve, range(40), chunksize=1))
    print(json.dumps([foreign, {{user: application.foreign(user, 30) for user in USERS}}]))
"""


@pytest.fixture
def embedded_home(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a script finds, or starts, an embedded Postgres."""
    monkeypatch.setenv("STRANDLINE_EMBEDDED", "auto")
    return Path(os.environ["STRANDLINE_HOME"])


def run(script: str, **environment: str) -> Any:
    """The last line that a script prints in a separate process, as JSON."""
    return json.loads(run_script(script, **environment).splitlines()[-1])


@contextmanager
def running(*command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a separate session, ended with its children in the end."""
    process: subprocess.Popen[bytes] = forking.Popen(
        [sys.executable, "-m", *command], cwd=ROOT, env={**os.environ, **environment}, start_new_session=True
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def texts_of(database_url: str, user: str) -> set[str]:
    """The stored texts of a user's chat, as a process that has never forked sees them."""
    memory = Memory.from_defaults(f"chat-of-{user}", user_id=user, database_url=database_url)
    try:
        return {str(message.content) for message in memory.get_all()}
    finally:
        memory.close()


def stored(user: str, *texts: str) -> set[str]:
    return {f"said by {user}", *(f"{text} by {user}" for text in texts)}


def test_forked_processes_read_and_write_what_is_their_users_own(database_url: str) -> None:
    """The parent reads meanwhile, in a thread, and goes on when its children have ended."""
    script = PROCESSES.format(each=READS // 2)
    foreign, parents, parent_read, after, codes = run(script, STRANDLINE_DATABASE_URL=database_url)
    assert (foreign, parents, parent_read) == (0, 0, True)
    assert after == dict.fromkeys(USERS, 0)
    assert codes == [0, 0, 0, 0]
    for user in USERS:
        assert texts_of(database_url, user) == stored(user, "child-0", "child-1", "parent")


def test_a_pool_of_forked_processes_ends_and_mixes_no_users(database_url: str) -> None:
    foreign, after = run(POOL.format(each=READS // 20), STRANDLINE_DATABASE_URL=database_url)
    assert foreign == 0
    assert after == dict.fromkeys(USERS, 0)
    for number, user in enumerate(USERS):
        tasks = [f"task-{task}" for task in range(number, 40, 2)]
        assert texts_of(database_url, user) == stored(user, *tasks)


def test_workers_of_a_preloaded_web_server_mix_no_users(database_url: str) -> None:
    """gunicorn loads the application in its master, where a thread reads, and forks then."""
    port = _free_port()
    server = ["gunicorn", "--preload", "--workers=2", "--worker-class=gthread", "--threads=2"]
    server += [f"--bind=127.0.0.1:{port}", "--no-control-socket", "--log-level=warning"]
    with (
        running(
            *server,
            "tests.support.workers.forking_application:web_application()",
            STRANDLINE_DATABASE_URL=database_url,
        ),
        ThreadPoolExecutor(4) as clients,
    ):
        wait_until(lambda: _listens(port), timeout=60, what="gunicorn to listen")

        def ask(number: int) -> tuple[str, str]:
            with urlopen(f"http://127.0.0.1:{port}/{USERS[number % 2]}?reads=30", timeout=60) as answer:
                return answer.read().decode(), answer.headers["X-Parent"]

        assert set(clients.map(ask, range(2 * READS // 30))) == {("0", "0")}
        for user in USERS:
            with urlopen(f"http://127.0.0.1:{port}/{user}?put=posted", timeout=60) as answer:
                assert answer.status == 200
    for user in USERS:
        assert texts_of(database_url, user) == stored(user, "posted")


def test_processes_of_an_applications_own_celery_mix_no_users(database_url: str, broker_url: str) -> None:
    environment = {"STRANDLINE_DATABASE_URL": database_url, "APPLICATION_BROKER": broker_url}
    worker = [
        "celery",
        "--app=tests.support.workers.forking_celery:celery",
        "worker",
        "--pool=prefork",
        "--concurrency=2",
    ]
    with running(*worker, "--loglevel=warning", "--without-mingle", "--without-gossip", **environment):
        foreign, kept = run(CELERY_CLIENT.format(each=READS // 20), **environment)
    assert (foreign, kept) == (0, len(USERS))
    for user in USERS:
        assert texts_of(database_url, user) == stored(user, "task")


CELERY_CLIENT = """
    import json, os
    from celery import Celery
    from tests.support.workers.forking_application import USERS

    url = os.environ["APPLICATION_BROKER"]
    celery = Celery("client", broker=url, backend=url)
    asked = [celery.send_task("foreign", (USERS[number % 2], {each})) for number in range(40)]
    foreign = sum(task.get(timeout=180) for task in asked)
    puts = [celery.send_task("put", (user, "task")) for user in USERS]
    print(json.dumps([foreign, sum(put.get(timeout=300) is None for put in puts)]))
"""


GIVEN_POOLS = """
    import json, os, sys
    from psycopg_pool import ConnectionPool
    from sqlalchemy import create_engine
    from strandline import ConfigurationError, Memory

    url = os.environ["URL"]
    engine_url = url.replace("postgresql:", "postgresql+psycopg:")

    def child_reads(memory, prepare=lambda: None):
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                prepare()
                said = [message.content for message in memory().get()][-1]
            except ConfigurationError as error:
                said = str(error)
            os.write(tell, said.encode())
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        return os.read(told, 9_999).decode()

    def used(pool):
        memory = Memory.from_defaults("chat", user_id="annabel", memory_blocks=[], pool=pool)
        memory.put({"role": "user", "content": "hello", "id": "one"})
        return memory

    opened, engine = ConnectionPool(url, open=True), create_engine(engine_url)
    of_pool, of_engine = used(opened), used(engine)
    unopened, unused = ConnectionPool(url, open=False), create_engine(engine_url)
    print(json.dumps({
        "opened": child_reads(lambda: of_pool),
        "opened, in a new memory": child_reads(lambda: Memory.from_defaults("chat", pool=opened)),
        "unopened": child_reads(
            lambda: Memory.from_defaults("chat", user_id="annabel", pool=unopened), unopened.open
        ),
        "engine": child_reads(lambda: of_engine),
        "engine, disposed of": child_reads(lambda: of_engine, lambda: engine.dispose(close=False)),
        "engine, never used": child_reads(
            lambda: Memory.from_defaults("chat", user_id="annabel", pool=unused)
        ),
        "in the parent": [memory.get()[-1].content for memory in (of_pool, of_engine)],
    }))
    opened.close()
"""


def test_a_pool_of_the_callers_that_was_in_use_before_the_fork_is_refused_in_the_child(
    database_url: str,
) -> None:
    """The sentence says what to do; a pool that held nothing yet is used."""
    found = run(GIVEN_POOLS, URL=database_url)
    assert "Make the pool, and the Memory that takes it, in each child" in found.pop("opened")
    assert "belong to the parent process" in found.pop("opened, in a new memory")
    assert "Call engine.dispose(close=False) in each child" in found.pop("engine")
    assert found.pop("in the parent") == ["hello", "hello"]
    assert found == dict.fromkeys(("unopened", "engine, disposed of", "engine, never used"), "hello")


LOCKED_POOL = """
    import json, os, select, signal
    from sqlalchemy import create_engine
    from strandline import ConfigurationError, Memory
    import threading

    engine = create_engine(os.environ["URL"].replace("postgresql:", "postgresql+psycopg:"))
    memory = Memory.from_defaults("chat", user_id="annabel", memory_blocks=[], pool=engine)
    memory.put({"role": "user", "content": "hello", "id": "one"})
    held, forked = threading.Event(), threading.Event()

    def hold():
        with engine.pool._pool.mutex:
            held.set()
            forked.wait()

    threading.Thread(target=hold).start()
    held.wait()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            memory.get()
        except ConfigurationError as error:
            os.write(tell, str(error).encode())
        os._exit(0)
    forked.set()
    answered = bool(select.select([told], [], [], 30)[0])
    if not answered:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(json.dumps(os.read(told, 9_999).decode() if answered else "the child never came back"))
"""


def test_a_fork_while_another_thread_holds_the_pools_lock_leaves_no_child_waiting(database_url: str) -> None:
    assert "Call engine.dispose(close=False) in each child" in run(LOCKED_POOL, URL=database_url)


CHILDREN_THAT_END = """
    import json, os, sys
    from pathlib import Path
    from strandline import Memory

    memory = Memory.from_defaults("chat", user_id="annabel")

    def put(text):
        memory.put({"role": "user", "content": text, "id": text})

    put("before")
    server = json.loads(Path(os.environ["STRANDLINE_HOME"], "embedded.json").read_text())["database_pid"]
    for uses in (True, False):
        child = os.fork()
        if child == 0:
            if uses:
                put("child")
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    put("after")
    memory.flush()
    caught_up = memory.get(wait_for=1, timeout=300).caught_up
    print(json.dumps([server, [message.content for message in memory.get_all()], caught_up]))
"""


def test_a_child_that_ends_ends_nothing_of_its_parents(embedded_home: Path) -> None:
    """It ends as programs do: what was to be done at the parent's exit is not done at the child's."""
    server, texts, caught_up = run(CHILDREN_THAT_END)
    assert texts == ["before", "child", "after"]
    assert caught_up
    assert wait_gone(server, timeout_seconds=300)  # with its last user
    assert not (embedded_home / STATE_FILE).exists()


A_CHILD_THAT_STAYS = """
    import json, os, sys, time
    from pathlib import Path
    from strandline import Memory

    memory = Memory.from_defaults("chat", user_id="annabel")
    memory.put({"role": "user", "content": "parent", "id": "parent"})
    server = json.loads(Path(os.environ["STRANDLINE_HOME"], "embedded.json").read_text())["database_pid"]
    told, tell = os.pipe()
    parent = os.getpid()
    if os.fork():
        os.read(told, 1)
        sys.exit(0)
    memory.put({"role": "user", "content": "child", "id": "child"})
    os.write(tell, b".")
    while os.getppid() == parent:
        time.sleep(0.02)
    memory.put({"role": "user", "content": "alone", "id": "alone"})
    print(json.dumps([server, [message.content for message in memory.get_all()]]))
"""


def test_a_child_that_stays_keeps_the_embedded_server_and_ends_it_as_its_last_user(
    embedded_home: Path,
) -> None:
    server, texts = run(A_CHILD_THAT_STAYS)
    assert texts == ["parent", "child", "alone"]
    assert wait_gone(server, timeout_seconds=300)
    assert not (embedded_home / STATE_FILE).exists()


HELD_MUTEX = """
    import json, os, sys
    from pathlib import Path
    from strandline.deploy.embedded.shared_use import SharedUse

    use = SharedUse(Path(os.environ["STRANDLINE_HOME"]))
    use.join()
    asked, ask = os.pipe()
    with use.exclusive():
        child = os.fork()
        if child == 0:
            os.close(ask)
            os.read(asked, 1)  # until the parent ends
            os._exit(0)
    with use.exclusive():
        shared = use.current_holding()
        use.leave()
        print(json.dumps([shared, use.current_holding()]))
"""


def test_a_child_holds_neither_the_mutex_nor_the_use_of_the_parent_that_had_them_when_it_forked() -> None:
    assert run(HELD_MUTEX) == ["shared", "free"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
