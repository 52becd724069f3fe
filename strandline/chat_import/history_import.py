"""Importing another system's chats and facts: each is put, or reported if it cannot be taken.

The ids of messages and facts follow from their places in the other system, so an interrupted import is simply
run again: it adds the missing ones only.  Places of two databases may be the same; known ones with other
content are reported, and a name tells the databases apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from strandline.chat_import.records import (
    HistorySource,
    Omission,
    Place,
    Portion,
    Record,
    SourceFact,
    SourceMessage,
)
from strandline.facts import Facts
from strandline.memory import Memory
from strandline.pipelines.models.answers import MAX_TOPIC_CHARACTERS, MAX_TOPICS
from strandline.producers.blocks.resolve import default_blocks
from strandline.producers.facts.edit_operations import MAX_INPUT_CHARACTERS, Wording, checked_feedback
from strandline.producers.facts.importing import MAX_FACTS_PER_IMPORT, ImportedFact
from strandline.producers.writing.validate import PutLimits, prepare
from strandline.schemas.errors import (
    ConflictError,
    InvalidMessageError,
    NotFoundError,
    OwnerError,
    StrandlineError,
)
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, MAX_NAME_BYTES, check_name
from strandline.schemas.values.lanes import FACTS
from strandline.schemas.values.message import Message

# Most messages in one transaction.
MAX_MESSAGES_PER_CHUNK = 2_000
MAX_BYTES_PER_CHUNK = 16_000_000
# The reasons counted apart; a longer list helps no reader.
MAX_REASONS = 200

OTHER_REASONS = "other reasons"

_NO_USER = "names no user; say whose it is with --user"
_DIFFERS = (
    "is here with other content, which stays: it was changed since it was imported, or is of another"
    " database; --source-name tells two apart"
)


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of an import.

    Attributes:
        namespace: of all sessions and facts.
        user: of sessions without a user; None leaves such sessions without one.
        users: leads from the other system's users to those here; other names stay.
        limits: bounds on a message, as a put has them.
        options: arguments of ``Memory.from_defaults``: limits, URLs.
        source_name: of the database that is read, if another one was imported.
    """

    limits: PutLimits
    namespace: str = DEFAULT_NAMESPACE
    user: str | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    source_name: str = ""

    def user_of(self, user: str | None) -> str | None:
        """The user here for one of the other system."""
        return self.user if user is None else self.users.get(user, user)


@dataclass(frozen=True, slots=True)
class HistoryProgress:
    """How far an import is; ``left_out`` counts what could not be taken, or only in part."""

    portion: Portion
    sessions: int = 0
    added: int = 0
    known: int = 0
    events: int = 0
    facts_added: int = 0
    facts_known: int = 0
    left_out: int = 0


@dataclass(slots=True)
class _Chunk:
    session: str
    user: str | None
    has_facts: bool = False
    messages: list[Message] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    size: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.messages) >= MAX_MESSAGES_PER_CHUNK or self.size >= MAX_BYTES_PER_CHUNK


class HistoryImport:
    """One import; ``run`` can be interrupted, and done again by another process.

    Args:
        source: the system to read.
        target: the place to put it.
        is_dry: puts nothing; everything is read and checked, and counts as added.
        report: called with the progress after each transaction.
        omit: called with each omission.
        check: called at each record; raises if the import is to end.
    """

    def __init__(
        self,
        source: HistorySource,
        target: Target,
        *,
        is_dry: bool = False,
        report: Callable[[HistoryProgress], None] = lambda _progress: None,
        omit: Callable[[Omission], None] = lambda _omission: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._source = source
        self._target = target
        self._is_dry = is_dry
        self._report = report
        self._omit = omit
        self._check = check
        self._progress = HistoryProgress(source.portion)
        self._chunk: _Chunk | None = None
        self._session: tuple[str, str | None] | None = None
        self._facts: list[ImportedFact] = []
        self._facts_user: str | None = None
        self._without_facts = WithoutFacts()
        self._last: Memory | Facts | None = None
        self.reasons: Counter[str] = Counter()

    @property
    def progress(self) -> HistoryProgress:
        return self._progress

    def run(self) -> HistoryProgress:
        """Import everything.

        Raises:
            ConfigurationError: the source cannot be read.
            UnknownPipelineError: no worker has registered facts in this database, and there are some.
            DatabaseUnavailableError: Postgres cannot be reached; run the import again.
        """
        try:
            for record in self._source.records():
                self._check()
                self._take(record)
            self._put_chunk()
            self._put_facts()
        except StrandlineError as error:
            if isinstance(error, InvalidMessageError):
                raise
            raise type(error)(f"{str(error).rstrip('.')}. {self.describe_stored()}") from error
        finally:
            self._source.close()
            if self._last is not None:
                self._last.close()
        return self._progress

    def describe_stored(self) -> str:
        """How much is stored after an import that ended early, and how to resume."""
        done = self._progress.added + self._progress.known
        facts = self._progress.facts_added + self._progress.facts_known
        if self._is_dry:
            return "Nothing was to be stored."
        return (
            f"{done:,} messages and {facts:,} facts are stored, and perhaps some more;"
            " run the same import again: it adds the missing ones, and nothing twice."
        )

    def _take(self, record: Record) -> None:
        if self._target.source_name:
            record = replace(record, place=replace(record.place, name=self._target.source_name))
        if isinstance(record, Omission):
            self._leave_out(record.place, record.reason)
        elif isinstance(record, SourceFact):
            self._take_fact(record)
        else:
            self._take_message(record)

    def _leave_out(self, place: Place, reason: str) -> None:
        known = reason in self.reasons or len(self.reasons) < MAX_REASONS
        self.reasons[reason if known else OTHER_REASONS] += 1
        self._progress = replace(self._progress, left_out=self._progress.left_out + 1)
        self._omit(Omission(place, reason))

    def _take_message(self, record: SourceMessage) -> None:
        user = self._target.user_of(record.user)
        origin = {"id": record.place.message_id, "metadata": record.place.metadata}
        fields = {**record.message, **({} if record.is_own else origin)}
        try:
            check_name("session", record.session)
            if user is not None:
                check_name("user", user)
            message = Message.from_openai(fields)
            size = prepare(message, "message", self._target.limits).size
        except InvalidMessageError as error:
            self._leave_out(record.place, str(error))
            return
        chunk = self._chunk
        same = record.session, user, record.has_facts
        if chunk is None or chunk.is_full or (chunk.session, chunk.user, chunk.has_facts) != same:
            self._put_chunk()
            chunk = self._chunk = _Chunk(*same)
        chunk.messages.append(message)
        chunk.places.append(record.place)
        chunk.size += size

    def _put_chunk(self) -> None:
        chunk, self._chunk = self._chunk, None
        if chunk is None:
            return
        if (chunk.session, chunk.user) != self._session:
            self._session = chunk.session, chunk.user
            self._progress = replace(self._progress, sessions=self._progress.sessions + 1)
        if self._is_dry:
            self._count(added=len(chunk.messages))
            return
        options = dict(self._target.options) | ({"memory_blocks": WITHOUT_FACTS} if chunk.has_facts else {})
        memory = Memory.from_defaults(
            chunk.session, user_id=chunk.user, namespace=self._target.namespace, **options
        )
        self._last = memory
        places = {
            message.id or "": place for message, place in zip(chunk.messages, chunk.places, strict=True)
        }
        put = partial(self._put, memory, chunk.messages, places)
        try:
            if chunk.has_facts:
                self._without_facts.put(memory, places, put)
            else:
                put()
        except OwnerError:
            for place in chunk.places:
                self._leave_out(place, "belongs to a session that another user has here")

    def _put(self, memory: Memory, messages: Sequence[Message], places: Mapping[str, Place]) -> None:
        try:
            imported = memory.import_messages(messages)
        except ConflictError:
            if len(messages) == 1:
                raise
            # If all messages are known, name the differing ones.
            middle = len(messages) // 2
            self._put(memory, messages[:middle], places)
            self._put(memory, messages[middle:], places)
            return
        for message_id in imported.differing:
            self._leave_out(places[message_id], _DIFFERS)
        flushed = imported.flushed
        self._count(
            added=imported.added,
            known=imported.known - len(imported.differing),
            events=len(flushed.event_ids) if flushed is not None else 0,
        )

    def _take_fact(self, fact: SourceFact) -> None:
        user = self._target.user_of(fact.user)
        if user is None:
            self._leave_out(fact.place, _NO_USER)
            return
        try:
            check_name("user", user)
            imported = self._imported_fact(fact)
        except InvalidMessageError as error:
            self._leave_out(fact.place, str(error))
            return
        if user != self._facts_user or len(self._facts) >= MAX_FACTS_PER_IMPORT:
            self._put_facts()
        self._facts_user = user
        self._facts.append(imported)

    def _imported_fact(self, fact: SourceFact) -> ImportedFact:
        topics = [topic for topic in fact.topics if len(topic) <= MAX_TOPIC_CHARACTERS and topic.strip()]
        if len(topics[:MAX_TOPICS]) < len(fact.topics):
            self._leave_out(
                fact.place.at("topics"),
                f"are cut to {MAX_TOPICS} topics of at most {MAX_TOPIC_CHARACTERS} characters",
            )
        if fact.input is not None and len(fact.input) > MAX_INPUT_CHARACTERS:
            self._leave_out(fact.place.at("input"), f"is cut to {MAX_INPUT_CHARACTERS:,} characters")
        wording = Wording.check(
            fact.text,
            topics=topics[:MAX_TOPICS],
            input=None if fact.input is None else fact.input[:MAX_INPUT_CHARACTERS].strip() or None,
            agent_id=fact.agent_id,
            team_id=fact.team_id,
            about_date=fact.about_date,
        )
        actor = f"import {fact.place.source} {fact.place.table} {fact.place.row}"
        return ImportedFact(
            fact.place.fact_id,
            wording,
            check_name("actor", actor.encode()[:MAX_NAME_BYTES].decode(errors="ignore")),
            fact.created_at,
            fact.updated_at,
            checked_feedback(fact.feedback),
        )

    def _put_facts(self) -> None:
        facts, self._facts = self._facts, []
        if not facts:
            return
        if self._is_dry:
            self._count(facts_added=len(facts))
            return
        names = {
            name: self._target.options[name]
            for name in ("database_url", "schema")
            if name in self._target.options
        }
        owner = Facts.for_owner(user_id=self._facts_user, namespace=self._target.namespace, **names)
        self._last = owner
        imported = owner.import_facts(facts)
        self._count(facts_added=imported.added, facts_known=imported.known)

    def _count(self, **counts: int) -> None:
        sums = {name: getattr(self._progress, name) + number for name, number in counts.items()}
        self._progress = replace(self._progress, portion=self._source.portion, **sums)
        self._report(self._progress)


ALL_BLOCKS = default_blocks()
WITHOUT_FACTS = [block for block in ALL_BLOCKS if block.pipeline != FACTS]


class WithoutFacts:
    """Puts into one session after another, each of which feeds no facts until the messages are delivered.

    An interrupted import finds the session so, and resumes.
    """

    def __init__(self) -> None:
        self._session: str | None = None
        self._known: set[str | None] = set()

    def put(self, memory: Memory, ids: Iterable[str | None], put: Callable[[], None]) -> None:
        """Put and deliver; messages that are all known in a session with facts change nothing.

        ``memory`` has the blocks ``WITHOUT_FACTS``, with which it begins its session.
        """
        if memory.session_id != self._session:
            self._session, self._known = memory.session_id, {one.id for one in memory.iterate()}
        try:
            feeds_facts = FACTS in memory.set_policy().pipelines
        except NotFoundError:
            feeds_facts = False
        if feeds_facts and self._known.issuperset(ids):
            put()
            return
        if feeds_facts:
            memory.set_policy(memory_blocks=WITHOUT_FACTS)
        put()
        memory.deliver()
        memory.set_policy(memory_blocks=ALL_BLOCKS)
