"""The error tree: each exception stands for a decision, and its sentence tells the event and the remedy.

``StrandlineError`` is the root.  The first half holds the errors of ``Memory``'s callers; the second, those
of the engine alone, which decide between retry, split and dead letter. ``schemas.postgres.translation``
(``translate_errors``) turns driver errors into these.

Errors of a common kind are built-in errors as well: an unusable value is a ``ValueError``, a missing thing a
``LookupError``, a time limit a ``TimeoutError``.

A message may quote users' text: it is one line without control characters.
"""

from __future__ import annotations

from typing import Any

from strandline.schemas.display.field_paths import Step, steps_of
from strandline.schemas.display.shown_text import MAX_QUOTED_CHARACTERS, quote, shown

MAX_SENTENCE_CHARACTERS = 8_000


class StrandlineError(Exception):
    """Root of everything that Strandline raises on purpose.

    Attributes:
        for_clients: the sentence as the HTTP service tells it, which quotes nothing; None: it tells that
            of the error's kind.
    """

    for_clients: str | None = None

    def __init__(self, *sentence: object, for_clients: str | None = None) -> None:
        if for_clients is not None:
            self.for_clients = for_clients
        super().__init__(
            *(
                shown(part, most=MAX_SENTENCE_CHARACTERS) if isinstance(part, str) else part
                for part in sentence
            )
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is, not made again from its sentence: an error that cannot be unpickled breaks a whole pool of
        # processes.
        return _remade, (type(self), self.args), self.__dict__


class ConfigurationError(StrandlineError, ValueError):
    """A setting is missing, malformed or contradicts another; raised before any work is done."""


class NotFoundError(ConfigurationError, LookupError):
    """The named namespace, user, session, message or fact is not in this database."""


class InvalidMessageError(StrandlineError, ValueError):
    """A message or another argument cannot be stored as given; nothing was stored.

    Attributes:
        field: the offending field in dotted form, such as ``messages[2].content``.
        path: the same as the field that a path begins at, and its steps below: keys, and places in lists.
        problem: the rest of the sentence after the field's name.
        for_clients: by default the problem as a sentence; a problem that quotes a value, or advises people at
            a terminal, has another one for clients, such as ``UNTOLD``.
    """

    UNTOLD = "It cannot be stored as given."
    problem: str = ""
    path: tuple[str, tuple[Step, ...]] = ("", ())

    def __init__(self, field: str, problem: str, *, for_clients: str | None = None) -> None:
        self.field = shown(field, most=MAX_QUOTED_CHARACTERS)
        self.path = steps_of(field)
        self.problem = problem
        super().__init__(f"{self.field}: {problem}", for_clients=for_clients or f"It {problem}.")


class ConflictError(StrandlineError):
    """A message id was used again in its session with other content; nothing was stored.

    Attributes:
        message_id: the id, where it is a put's; else None.
    """

    def __init__(
        self, *sentence: object, for_clients: str | None = None, message_id: str | None = None
    ) -> None:
        self.message_id = message_id
        super().__init__(*sentence, for_clients=for_clients)


class NamespaceFullError(StrandlineError):
    """A namespace has reached its bound of stored bytes or of sessions; nothing was stored.

    Attributes:
        bound: ``bytes`` or ``sessions``; None: a service refused, which does not say which.
    """

    for_clients = (
        "This namespace has as many bytes or sessions as it may; nothing was stored. Delete sessions, keep"
        " messages for less time, or ask an operator for a higher bound; it is counted again in some seconds."
    )

    def __init__(self, sentence: str, bound: str | None = None) -> None:
        self.bound = bound
        super().__init__(sentence)

    @classmethod
    def of_bound(cls, namespace: str, bound: str) -> NamespaceFullError:
        """The error where the database refuses."""
        return cls(
            f"Namespace {quote(namespace)} has reached its bound of {bound}; nothing was stored. Erase or"
            " reset sessions, keep messages for less time (strandline retention), or raise the bound with"
            f" `strandline limits set --{bound}`; the namespace is counted again within some seconds.",
            bound,
        )


class VersionError(ConflictError):
    """A fact has changed since the caller saw it; nothing was changed."""


class RedactionError(StrandlineError):
    """A redaction hook failed, took too long, or returned no text: nothing was stored, or sent to a model."""


class RefusalError(StrandlineError):
    """A redaction hook or an overflow handler of the application refuses its input.

    The sentence is shown to the caller of the put, or kept with the dead letter: it quotes no text.
    """


class DeliveredError(StrandlineError):
    """Messages already delivered to the pipelines rule out a correction; nothing was changed."""


class ActRefusedError(StrandlineError):
    """The application's compliance hook refuses the act; nothing was stored or changed.

    A hook raises it itself, with the reason, to refuse an act.
    """


class OwnerError(StrandlineError):
    """The session belongs to another owner: its owner is fixed at the first put."""


class ErasedError(StrandlineError):
    """The user, or the session, was erased: nothing is written for it until it is readmitted.

    Attributes:
        erasure: the number of the erasure; None if it is not known, as behind the HTTP service.
    """

    def __init__(self, erasure: int | None) -> None:
        self.erasure = erasure
        which = "" if erasure is None else f" (erasure {erasure})"
        super().__init__(
            f"This user or session was erased{which}, so nothing was written."
            " `strandline erasures readmit` lets it begin again, with nothing."
        )


class UnknownPipelineError(StrandlineError, LookupError):
    """A memory block names a pipeline that no worker has registered in this database."""


class DatabaseError(StrandlineError):
    """Postgres refused a statement, and a retry does not help, unless a subclass says otherwise."""


class DatabaseRightsError(DatabaseError):
    """Postgres denies this user a right; nothing was done, and `strandline doctor` names the GRANT."""


class DatabaseUnavailableError(DatabaseError):
    """Postgres cannot be reached, or ended the connection; the call may be repeated."""


class DatabaseTimeoutError(DatabaseUnavailableError, TimeoutError):
    """No connection became free, or a statement ran over its time limit; the call may be repeated."""


class ServerLimitError(DatabaseTimeoutError):
    """Postgres is up, but ended an operation that took longer than its limit; nothing was half-done."""


class DatabaseBusyError(DatabaseUnavailableError):
    """Postgres is up, but cannot do it now; nothing was done, and the sentence says why."""


class OutcomeUnknownError(DatabaseUnavailableError):
    """The connection ended, or was given up, before the answer came: the statement may have taken effect.

    A read, and a put with the same message id, may simply be repeated; before repeating another change,
    check whether it took effect.
    """


class ServiceError(StrandlineError):
    """The HTTP service has a defect, or something between answered in its place; the sentence says which."""


class ServiceKeyError(ServiceError, ConfigurationError):
    """The HTTP service knows no such key, or the key may not do this."""


class ServiceUnavailableError(ServiceError, DatabaseUnavailableError):
    """The HTTP service cannot be reached, or is too busy; nothing was done, and the call may be repeated."""


class ServiceTimeoutError(ServiceUnavailableError, DatabaseTimeoutError):
    """The HTTP service did not answer a read in time; the call may be repeated."""


class SealedContentError(StrandlineError):
    """Sealed content cannot be read: its key is missing or wrong, or it was changed; none of it is shown."""


class KeyUnavailableError(SealedContentError):
    """A keyring lacks the key, does not answer, or holds a key that did not wrap the owner's keys."""


class BrokerUnavailableError(StrandlineError):
    """The broker does not answer a starting worker; puts and reads work without the broker."""


class SchemaError(DatabaseError):
    """The tables are missing or of another version; the sentence names ``strandline migrate``."""


class EmbeddedUnavailableError(ConfigurationError):
    """The embedded servers are needed, but are forbidden or not installed, or do not start or run here."""


class UndecodableEventError(StrandlineError):
    """A stored event has a version or form that this release cannot read."""


class ArchiveError(StrandlineError):
    """An archive cannot be used now, or lacks its expected content; nothing was removed from a log."""


class ReplayError(StrandlineError):
    """A replay cannot begin, continue, or take effect now; the message says why.

    It names replays, generations and pipelines, which are the installation's, and is told to clients as it
    is; where one names more, it has a sentence of its own for them.
    """

    def __init__(self, *sentence: object, for_clients: str | None = None) -> None:
        if for_clients is None and sentence and isinstance(sentence[0], str):
            for_clients = sentence[0]
        super().__init__(*sentence, for_clients=for_clients)


class UnknownReplayError(ReplayError):
    """A replay, or a generation, of this number does not exist."""


class ModelError(StrandlineError):
    """A model call failed; the subclass says whether trying again can help."""


class TransientModelError(ModelError):
    """Time-out, rate limit, connection failure or 5xx: the same call may succeed later.

    Attributes:
        retry_after_seconds: the wait that the provider asked for (``Retry-After``), or None.
        counts: True if the provider answers other calls, so that this input is at fault; the
            failure then counts towards a limit.
        is_unpaid: True if no call was made, or every call was refused unread, which costs nothing.
        is_slow: True if the provider did not answer in time, which a slow one may do for long calls.
    """

    counts = False
    is_unpaid = False
    is_slow = False

    def __init__(self, problem: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after_seconds = retry_after_seconds


class RateLimitError(TransientModelError):
    """429: the provider is up, and wants fewer calls."""

    is_unpaid = True


class ProviderSetupError(TransientModelError):
    """The provider refuses every call alike: because of the key, the model, the address or the quota.

    The work waits, however long, and resumes by itself once the setup is corrected.
    """


class ProviderDownError(TransientModelError):
    """The provider is known to be down, or asked for a pause: no call was made; the sentence says why."""

    is_unpaid = True


class ReplayBudgetError(TransientModelError):
    """Replays have used up their model calls for now; no call was made."""

    def __init__(self, wait_seconds: float) -> None:
        super().__init__("Replays have used up their model calls for now.", retry_after_seconds=wait_seconds)


class BudgetError(TransientModelError):
    """A namespace has used up its model budget, or other workers hold the rest; no call was made."""

    def __init__(self, waits_for: str, wait_seconds: float) -> None:
        super().__init__(
            f"The namespace has used up its budget of {waits_for}, or other workers hold the rest for now.",
            retry_after_seconds=wait_seconds,
        )


class BlockWaitsError(TransientModelError):
    """No thread is free for code of custom blocks: the block was not called, and the work waits."""


class UnredactedError(TransientModelError):
    """A redaction hook failed, so nothing was sent to the model; repeated failures end in a dead letter."""

    counts = True
    is_unpaid = True


class HandlerError(TransientModelError):
    """An overflow handler failed: it gets the event again; repeated failures end in a dead letter."""

    counts = True
    is_unpaid = True


class PermanentModelError(ModelError):
    """The provider refused this input, or its output stayed unusable after one repair."""


class UnusableAnswerError(PermanentModelError):
    """The output cannot be used; another time it may be, so its dead letter is retried by itself."""


class BlockCodeError(StrandlineError):
    """A custom block's code raised, or made a state that cannot be stored: a retry would not help."""


class LeaseLostError(StrandlineError):
    """Another worker took the lane, or a reset voided the work: the prepared results are dropped."""


def _remade(kind: type[StrandlineError], sentence: tuple[object, ...]) -> StrandlineError:
    error = kind.__new__(kind, *sentence)
    error.args = sentence  # which kinds of OSError, as TimeoutError is, take from __init__ alone
    return error
