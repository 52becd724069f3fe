"""The facts of an owner: the operations on them, sync and async."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.execution import OperationRunner, Resources, async_method, sync_method
from strandline.producers.facts.importing import FactsImported, ImportedFact
from strandline.producers.operations import capturing, fact_sources, facts
from strandline.producers.operations.facts import FactOwner
from strandline.schemas.values.identity import Owner


class CaptureFace:
    """The capture of facts: a face of an owner, or of a namespace."""

    _runner: OperationRunner
    _subject: capturing.Capturing

    get_capture = sync_method(capturing.get_capture)
    aget_capture = async_method(capturing.get_capture)
    set_capture = sync_method(capturing.set_capture)
    aset_capture = async_method(capturing.set_capture)
    capture_acts = sync_method(capturing.capture_acts)
    acapture_acts = async_method(capturing.capture_acts)


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

    get = sync_method(facts.get)
    aget = async_method(facts.get)
    list = sync_method(facts.list)
    alist = async_method(facts.list)
    search = sync_method(facts.search)
    asearch = async_method(facts.search)
    add = sync_method(facts.add)
    aadd = async_method(facts.add)
    replace = sync_method(facts.replace)
    areplace = async_method(facts.replace)
    delete = sync_method(facts.delete)
    adelete = async_method(facts.delete)
    settle = sync_method(facts.settle)
    asettle = async_method(facts.settle)
    clear = sync_method(facts.clear)
    aclear = async_method(facts.clear)
    feedback = sync_method(facts.feedback)
    afeedback = async_method(facts.feedback)
    choose = sync_method(facts.choose)
    achoose = async_method(facts.choose)
    topics = sync_method(facts.topics)
    atopics = async_method(facts.topics)
    figures = sync_method(facts.figures)
    afigures = async_method(facts.figures)
    optimize = sync_method(facts.optimize)
    aoptimize = async_method(facts.optimize)
    apply_optimization = sync_method(facts.apply_optimization)
    aapply_optimization = async_method(facts.apply_optimization)
    create_from = sync_method(fact_sources.create_from)
    acreate_from = async_method(fact_sources.create_from)
    instruct = sync_method(fact_sources.instruct)
    ainstruct = async_method(fact_sources.instruct)
    forget_source = sync_method(fact_sources.forget_source)
    aforget_source = async_method(fact_sources.forget_source)

    def import_facts(self, facts: Sequence[ImportedFact]) -> FactsImported:
        """Add up to 200 facts of another system, each once: later changes and deletions stay.

        They are people's facts, and have the times that they had there.
        """
        return self._runner.run(self._subject.edits.import_facts(facts))
