"""The facts of an owner: the operations on them, sync and async."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.execution import OperationRunner, Resources, methods
from strandline.producers.facts.importing import FactsImported, ImportedFact
from strandline.producers.operations import capturing, fact_sources, facts
from strandline.producers.operations.facts import FactOwner
from strandline.schemas.values.identity import Owner


class CaptureFace:
    """The capture of facts: a face of an owner, or of a namespace."""

    _runner: OperationRunner
    _subject: capturing.Capturing

    get_capture, aget_capture = methods(capturing.get_capture)
    set_capture, aset_capture = methods(capturing.set_capture)
    capture_acts, acapture_acts = methods(capturing.capture_acts)


class OwnerFacts(CaptureFace):
    """The facts of one owner, over all sessions; get it from ``memory.facts``, or make a ``Facts``.

    Edits are recorded as events of the owner, and are seen by the next read.  They outlive every derivation:
    a deleted fact does not come back from earlier messages, and a corrected one stays corrected; a fact that
    a user states again later is new. An edit waits for a worker that is writing facts of this owner.
    ``actor`` names the person, and is stored with the event.  A redaction hook of the settings is applied to
    the texts of an edit.

    All methods raise InvalidMessageError for an argument that cannot be used, or that a redaction hook
    refuses, and DatabaseUnavailableError when Postgres cannot be reached; edits raise RedactionError if a
    hook fails, and UnknownPipelineError before any worker has ever run.
    """

    _subject: FactOwner

    def __init__(self, resources: Resources, owner: Owner, redaction: Redaction | None = None) -> None:
        self._resources = resources
        self._runner = OperationRunner(resources)
        self._subject = FactOwner(resources, owner, resources.redaction if redaction is None else redaction)

    @property
    def namespace(self) -> str:
        return self._subject.owner.namespace

    @property
    def user_id(self) -> str | None:
        """The owner, or None if a session owns its facts itself."""
        return self._subject.owner.user_id

    get, aget = methods(facts.get)
    list, alist = methods(facts.list)
    search, asearch = methods(facts.search)
    add, aadd = methods(facts.add)
    replace, areplace = methods(facts.replace)
    delete, adelete = methods(facts.delete)
    settle, asettle = methods(facts.settle)
    clear, aclear = methods(facts.clear)
    feedback, afeedback = methods(facts.feedback)
    choose, achoose = methods(facts.choose)
    topics, atopics = methods(facts.topics)
    figures, afigures = methods(facts.figures)
    optimize, aoptimize = methods(facts.optimize)
    apply_optimization, aapply_optimization = methods(facts.apply_optimization)
    create_from, acreate_from = methods(fact_sources.create_from)
    instruct, ainstruct = methods(fact_sources.instruct)
    forget_source, aforget_source = methods(fact_sources.forget_source)

    def import_facts(self, facts: Sequence[ImportedFact]) -> FactsImported:
        """Add up to 200 facts of another system, each once: later changes and deletions stay.

        They are people's facts, and have the times that they had there.
        """
        return self._runner.run(self._subject.edits().import_facts(facts))
