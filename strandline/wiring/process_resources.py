"""The resources of one process per database: pools, a doorbell, perhaps the embedded stack and a runner.

The composition root of the library side.  Everything is made at first use, and costly modules are imported
then, so that ``import strandline`` and making a ``Memory`` cost next to nothing.  Such an import is
``undivided``: a child that was forked during it would wait forever for it to end.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from strandline.pipelines.models.contract import TextModel
from strandline.pipelines.own_code.places import load_function
from strandline.pipelines.text.lexemes import forget_words
from strandline.producers.audit.carrying_out import KnownLevels
from strandline.producers.audit.compliance import Compliance
from strandline.producers.reading.window_cache import WindowCache
from strandline.producers.search.index.index_cache import IndexCache
from strandline.producers.search.index.scope_index import IndexParts
from strandline.producers.writing.group_commit import GroupCommit
from strandline.producers.writing.put import session_record
from strandline.schemas.errors import ConfigurationError, EmbeddedUnavailableError
from strandline.schemas.extras import install_command
from strandline.schemas.forking import this_process, undivided
from strandline.schemas.postgres.async_database import AsyncDatabase
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import forget_names
from strandline.schemas.values.lanes import Lane
from strandline.wiring.given_pool import GivenPool

if TYPE_CHECKING:
    from strandline.deploy.embedded.stack import EmbeddedStack
    from strandline.pipelines.models.contract import Embedder, ModelAnswer, Task
    from strandline.producers.doorbell.doorbell import Doorbell
    from strandline.workers.in_process import BackgroundRunner

Consume = Literal["background"]
EXIT_SECONDS = 5.0
# That this process asks by itself, each with connections of its own.
MAX_TEXT_MODELS = 8
ENTRY_POINT_GROUP = "strandline.compliance"


@dataclass(frozen=True, slots=True)
class OfLoop:
    """The database and the group commit of one event loop."""

    database: AsyncDatabase
    commit: GroupCommit


class LoopResources:
    """The resources of all event loops of a process; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, OfLoop] = (
            weakref.WeakKeyDictionary()
        )

    def own(self) -> OfLoop | None:
        """The resources of the running loop."""
        return self._of_loops.get(asyncio.get_running_loop())

    def add(self, database: AsyncDatabase) -> OfLoop:
        """Keep a database for the running loop, and drop what ended loops left."""
        self.drop_ended()
        with self._lock:
            own = OfLoop(database, GroupCommit(database))
            return self._of_loops.setdefault(asyncio.get_running_loop(), own)

    def take_out(self) -> OfLoop | None:
        """Takes the resources of the running loop, which has none from now on."""
        with self._lock:
            return self._of_loops.pop(asyncio.get_running_loop(), None)

    def drop_ended(self) -> None:
        """Close the remains of ended loops; an unclosed loop may run again, here or in another thread."""
        with self._lock:
            ended = [loop for loop in self._of_loops if loop.is_closed()]
            left = [(loop, self._of_loops.pop(loop)) for loop in ended]
        for loop, own in left:
            own.database.abandon(loop)


class ProcessResources:
    """The resources of a ``Runtime`` in one process; safe to share between its threads and event loops.

    Args:
        settings: those of the memories that share this.
        pool: the caller's pool, or None for Strandline's own pools.
        consume: whether threads of this process consume events.
        forget: called when this is closed.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        pool: GivenPool | None,
        consume: Consume | None,
        forget: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.content = sealed_content(settings)
        self.windows = WindowCache(settings.window_cache_bytes, self._forget_owners)
        self.indexes = IndexCache(settings.index_cache_bytes, _begin_index)
        self.audit_levels = KnownLevels()
        self._process = this_process()
        self._pool = pool
        self._consume = consume
        self._forget = forget
        self._starting = threading.RLock()
        self._started = False
        self._database: Database | None = None
        self._url: str | None = None
        self._find_url: Callable[[], str] | None = None
        self._loops = LoopResources()
        self._stack: EmbeddedStack | None = None
        self._doorbell: Doorbell | None = None
        self._runner: BackgroundRunner | None = None
        self._embedders: dict[tuple[str, object, str], Embedder | str | None] = {}
        self._text_models: dict[str, TextModel] = {}
        self._facts_models: dict[str, TextModel] = {}

    def _forget_owners(self, owners: Collection[UUID]) -> None:
        self.indexes.forget_owners(owners)
        self.content.cache.forget_owners(owners)
        forget_names()
        session_record.cache_clear()
        forget_words()

    @property
    def compliance(self) -> Compliance | None:
        return compliance_of(self.settings)

    def database(self) -> Database:
        self._ensure_started()
        if self._database is None:
            raise ConfigurationError(
                "pool= is asynchronous, which serves the a… methods only; pass a psycopg_pool.ConnectionPool"
                " or a SQLAlchemy Engine to call the sync ones"
            )
        return self._database

    async def async_database(self) -> AsyncDatabase:
        return (self._loops.own() or await self._make_own()).database

    async def group_commit(self) -> GroupCommit:
        return (self._loops.own() or await self._make_own()).commit

    async def _make_own(self) -> OfLoop:
        await asyncio.to_thread(self._ensure_started)
        return self._loops.own() or self._loops.add(self._make_async())

    def ring(self, lanes: Iterable[Lane]) -> None:
        if self._runner is not None:
            self._runner.ring(lanes)
        elif self._doorbell is not None:
            self._doorbell.ring(lanes)

    @property
    def broker_trouble(self) -> str | None:
        """Why the broker takes no hints; None if it took the last ones, or there is none."""
        return None if self._doorbell is None else self._doorbell.trouble

    def embed_query(self, text: str, config: Mapping[str, Any]) -> str | None:
        embedder = self._query_embedder(config)
        if embedder is None:
            return None
        with undivided:
            from strandline.pipelines.models.embedding_batches import Prefixes
            from strandline.pipelines.models.local.text_model import EMBEDDER
            from strandline.pipelines.text.lexemes import is_mostly_unspaced
            from strandline.pipelines.vectors.stage import vector_text
        if embedder.model == EMBEDDER and is_mostly_unspaced(text):
            return ""  # made for English: of other scripts its vectors find less than words alone
        # Of the stored vectors, whatever this process's own settings say.
        asked = Prefixes.of_config(config).query + text
        answer = embedder.embed([asked], timeout_seconds=self.settings.query_embedding_timeout_seconds)
        return vector_text(answer.vectors[0]) if answer.vectors[0] else ""

    def ask_model(self, task: Task, *, model: str | None = None) -> ModelAnswer:
        return self._text_model(model).answer(task)

    def build_facts_model(self, config: Mapping[str, Any], prompts: Mapping[str, str]) -> TextModel:
        """The text model of a derivation of facts; made once for each recipe."""
        recipe = json.dumps([dict(config), dict(prompts)], sort_keys=True)
        if recipe not in self._facts_models:
            with undivided:
                from strandline.pipelines.generations.definitions import DEFINITIONS
                from strandline.pipelines.models.factory import build_text_model
                from strandline.schemas.values.lanes import FACTS
            settings = DEFINITIONS[FACTS].restore(self.settings, config)
            own: Any = prompts
            self._facts_models[recipe] = build_text_model(settings, purpose="facts", prompts=own)
        return self._facts_models[recipe]

    def close(self) -> None:
        """End runner, doorbell, pool and stack in that order; running work gets five seconds."""
        with self._starting:
            self._forget()
            atexit.unregister(self._close_at_exit)
            self._end()

    def _close_at_exit(self) -> None:
        # A child has what its parent wanted done at its exit; the servers and threads are the parent's.
        if self._process == this_process():
            self.close()

    def _end(self) -> None:
        self._started = False
        if self._runner is not None:
            self._runner.stop(EXIT_SECONDS)
        if self._doorbell is not None:
            self._doorbell.close()
        self._loops.drop_ended()
        if self._database is not None:
            self._database.close()
        if self._stack is not None:
            self._stack.stop()
        self.content.cache.forget()
        self._runner = self._doorbell = self._database = self._stack = self._url = self._find_url = None

    async def aclose(self) -> None:
        own = self._loops.take_out()
        if own is not None:
            await own.database.close()
        await asyncio.to_thread(self.close)

    def _ensure_started(self) -> None:
        # Only a wholly started process is used: another thread must not find tables half-made.
        if self._started:
            return
        with self._starting:
            if self._started:
                return
            try:
                self._start()
            except BaseException:
                self._end()
                raise
            self._started = True
            atexit.register(self._close_at_exit)

    def _start(self) -> None:
        if self._pool is not None:
            self._pool.check()
            self._url = ""
            if (pool := self._pool.for_threads()) is not None:
                self._database = Database(
                    pool, self.settings.database_schema, owns_pool=False, content=self.content
                )
        elif self.settings.database_url is not None:
            self._connect(self.settings.database_url.get_secret_value())
        else:
            self._start_embedded()
            return
        if self._consume == "background":
            self._start_runner(self._database)
        elif self.settings.broker_url is not None:
            self._start_doorbell(self.settings.broker_url.get_secret_value())

    def _connect(self, url: str) -> Database:
        self._url = url
        self._database = Database.connect(self._options(url), self.content)
        return self._database

    def _start_embedded(self) -> None:
        """Start the embedded Postgres, and a runner unless a running ``strandline up`` has a worker."""
        stack = _embedded_stack(self.settings)
        with undivided:
            from strandline.wiring.assembly import ensure_tables
        self._stack = stack
        self._find_url = stack.find_database
        database = self._connect(stack.database_url)
        ensure_tables(stack.database_url, database, self.settings)
        if stack.broker_url is not None and self._consume is None:
            self._start_doorbell(stack.broker_url)
        else:
            self._start_runner(database)

    def _start_runner(self, database: Database | None) -> None:
        if database is None:
            raise ConfigurationError(
                "consume='background' works in threads, which an AsyncConnectionPool does not serve; pass"
                " database_url=, or a psycopg_pool.ConnectionPool as pool="
            )
        with undivided:
            from strandline.wiring.assembly import background_runner
        runner = background_runner(database, self.settings)
        runner.start()
        self._runner = runner

    def _start_doorbell(self, broker_url: str) -> None:
        with undivided:
            from strandline.producers.doorbell.doorbell import Doorbell
        self._doorbell = Doorbell(broker_url, public_apis_only=self.settings.public_apis_only)

    def _make_async(self) -> AsyncDatabase:
        schema = self.settings.database_schema
        if self._pool is not None and (pool := self._pool.for_tasks()) is not None:
            return AsyncDatabase(pool, schema, owns_pool=False, content=self.content)
        if not self._url:
            raise ConfigurationError(
                "pool= is synchronous, which serves the sync methods only; pass a"
                " psycopg_pool.AsyncConnectionPool or a SQLAlchemy AsyncEngine to call the a… ones"
            )
        return AsyncDatabase.connect(self._options(self._url), self.content)

    def _options(self, url: str) -> ConnectionOptions:
        return ConnectionOptions.from_settings(url, self.settings, planned_once=True, find_url=self._find_url)

    def _text_model(self, name: str | None) -> TextModel:
        name = self.settings.facts_model if name is None else name
        with self._starting:
            if name not in self._text_models:
                if len(self._text_models) >= MAX_TEXT_MODELS:
                    raise ConfigurationError(
                        f"model= has named {MAX_TEXT_MODELS} models in this process, and connections"
                        " to each are kept; use one, or STRANDLINE_FACTS_MODEL."
                    )
                self._text_models[name] = _build_text_model(self.settings, name)
            return self._text_models[name]

    def _query_embedder(self, config: Mapping[str, Any]) -> Embedder | None:
        """The embedder of the stored vectors; None if another one is chosen here."""
        name = str(config.get("embedder"))
        # Two derivations may be of one model that gives several vectors of a text.
        made_with = (name, config.get("dimensions"), str(config.get("query_body", config.get("body"))))
        with self._starting:
            if made_with not in self._embedders:
                self._embedders[made_with] = self._build_embedder(name, config)
            embedder = self._embedders[made_with]
        if isinstance(embedder, str):
            raise ConfigurationError(embedder)
        return embedder

    def _build_embedder(self, name: str, config: Mapping[str, Any]) -> Embedder | str | None:
        with undivided:
            from strandline.pipelines.models.factory import build_embedder, with_recorded_embedder
        try:
            embedder = build_embedder(with_recorded_embedder(self.settings, config), "query_embedding")
        except ConfigurationError as error:
            return str(error)
        same = embedder.model == name and embedder.dimensions == config.get("dimensions")
        return embedder if same else None


def _build_text_model(settings: Settings, name: str) -> TextModel:
    with undivided:
        from strandline.pipelines.models.factory import build_text_model
        from strandline.pipelines.models.prompts.render import prompt_texts
    return build_text_model(
        settings.model_copy(update={"facts_model": name}),
        purpose="facts",
        prompts=prompt_texts(settings.prompts_dir),
    )


def _embedded_stack(settings: Settings) -> EmbeddedStack:
    try:
        with undivided:
            from strandline.deploy.embedded.stack import running_stack, start_stack
    except ImportError as error:
        raise EmbeddedUnavailableError(
            "No database is configured, and the embedded one is not installed: set STRANDLINE_DATABASE_URL,"
            f" or run `{install_command('embedded')}`."
        ) from error
    running: EmbeddedStack | None = None
    if settings.embedded != "never":
        running = running_stack(settings.home)
    if running is not None:
        return running
    stack = start_stack(settings.home, with_broker=False, embedded=settings.embedded)
    print(
        f"strandline: no database is configured, using the embedded PostgreSQL in {settings.home}"
        " (STRANDLINE_EMBEDDED=never forbids it)",
        file=sys.stderr,
        flush=True,
    )
    return stack


def _begin_index() -> IndexParts:
    with undivided:
        from strandline.producers.search.index.array_index import ArrayParts
    return ArrayParts()


def compliance_of(settings: Settings) -> Compliance | None:
    """The hook that ``STRANDLINE_COMPLIANCE`` names; None if it names none.

    Raises:
        ConfigurationError: it cannot be imported, or cannot be called.
    """
    if not settings.compliance:
        return None
    hook = load_function(settings.compliance, setting="STRANDLINE_COMPLIANCE", group=ENTRY_POINT_GROUP)
    return Compliance(
        hook, settings.compliance, settings.compliance_timeout_seconds, settings.compliance_failure
    )
