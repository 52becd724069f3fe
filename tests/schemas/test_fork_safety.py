"""A process forks while its other threads are at work: no child waits for a thread that it does not have."""

from __future__ import annotations

import pytest

from tests.support.workers.script_process import run_fresh_script, run_script

FORKS = 40

FORKING = """
    import os, sys, threading
    from random import Random
    {imports}

    class Work(threading.Thread):
        def run(self):
            random = Random(self.name)
            while True:
                words = " ".join("word%dings" % random.randrange(10**9) for _ in range(30))
                work(words)

    {work}
    {before}
    for number in range({threads}):
        Work(name=str(number), daemon=True).start()
    children = []
    for number in range({forks}):
        child = os.fork()
        if child == 0:
            work("running dogs were walking number %d of them" % number)
            os._exit(0)
        children.append(child)
    print([os.waitpid(child, 0)[1] for child in children] == [0] * {forks})
"""

WORKS = {
    "stem": ("from strandline.pipelines.text.lexemes import lexemes", "work = lexemes"),
    "tokenize": ("from strandline.producers.tokens import count_default", "work = count_default"),
    "count what was counted lately": (
        "from strandline.producers.reading.contributions import recent_counts",
        "work = lambda text: recent_counts.count(len, text)",
    ),
}

# Modules that Python and tiktoken import only when a vocabulary is loaded.
LOADED_WITH_A_VOCABULARY = ("tiktoken.load", "tiktoken_ext.openai_public")

# The import of the module lasts until the fork is over, or two seconds where the fork waits for it.
FORKING_DURING_AN_IMPORT = """
    import os, sys, threading
    from strandline.producers.tokens import count_default

    importing, forked = threading.Event(), threading.Event()
    worker = threading.Thread(target=count_default, args=("by the thread",))

    class SlowImport:
        def find_spec(self, name, path=None, target=None):
            if name == "{module}" and threading.current_thread() is worker:
                importing.set()
                forked.wait(2)

    assert "{module}" not in sys.modules
    sys.meta_path.insert(0, SlowImport())
    worker.start()
    importing.wait()
    child = os.fork()
    if child == 0:
        count_default("by the child")
        os._exit(0)
    forked.set()
    print(os.waitpid(child, 0)[1] == 0)
"""

HANGING_CALLS = """
    import os, threading
    from strandline.pipelines.own_code.bounded_calls import NoPlaceError
    from strandline.producers.reading.contributions import call_within

    def hang():
        call_within(600, threading.Event().wait)

    def has_place():
        try:
            return call_within(60, lambda: True)
        except NoPlaceError:
            return False

    while has_place():
        threading.Thread(target=hang, daemon=True).start()
    child = os.fork()
    if child == 0:
        os._exit(0 if has_place() else 1)
    print(os.waitpid(child, 0)[1] == 0)
"""


def fork_under(work: str, *, before: str = "work('warm')", threads: int = 4, forks: int = FORKS) -> None:
    """Have children, forked while threads work, each do once what the threads do."""
    imports, defined = WORKS[work]
    script = FORKING.format(imports=imports, work=defined, before=before, threads=threads, forks=forks)
    # What commands are forked from has loaded the vocabulary.
    run = run_script if before else run_fresh_script
    assert run(script) == "True\n"


@pytest.mark.parametrize("work", WORKS)
def test_children_forked_while_threads_work_do_the_same_and_end(work: str) -> None:
    fork_under(work)


def test_children_forked_while_a_thread_loads_the_vocabulary_count_tokens() -> None:
    """A fork waits for the half second that loading takes, once per process."""
    fork_under("tokenize", before="", threads=2, forks=10)


@pytest.mark.parametrize("module", LOADED_WITH_A_VOCABULARY)
def test_no_child_is_forked_while_a_vocabulary_imports_what_it_needs(module: str) -> None:
    assert run_fresh_script(FORKING_DURING_AN_IMPORT.format(module=module)) == "True\n"


FORKING_DURING_A_LOOKUP = """
    import os, signal, sys, threading
    from strandline.producers.doorbell.doorbell import Doorbell

    looked_up, forked = threading.Event(), threading.Event()

    class SlowImport:
        def find_spec(self, name, path=None, target=None):
            if name == "encodings.idna":
                looked_up.set()
                forked.wait(60)

    def look_up():
        "localhost".encode("idna")
        looked_up.set()

    sys.meta_path.insert(0, SlowImport())
    thread = threading.Thread(target=look_up)
    thread.start()
    looked_up.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        "localhost".encode("idna")
        os._exit(0)
    forked.set()
    thread.join()
    print(os.waitpid(child, 0)[1] == 0)
"""


def test_a_child_forked_while_a_thread_looks_up_a_host_can_look_up_one() -> None:
    """With its first connection, Python loads the encoding of names of hosts."""
    assert run_fresh_script(FORKING_DURING_A_LOOKUP) == "True\n"


def test_calls_that_hang_in_the_parent_take_no_place_in_a_child() -> None:
    assert run_script(HANGING_CALLS) == "True\n"
