"""Strandline: an event-driven memory pipeline for chat, on Postgres.

The public names.  ``import strandline`` loads no queue, no model client and no server.
"""

# First, since the others take long.
from strandline.schemas import process_1 as _process_1  # noqa: F401

# isort: split
from strandline.audit import Audit
from strandline.facts import Facts
from strandline.memory import Memory
from strandline.pipelines.audit.anchors import Anchor
from strandline.pipelines.audit.listing import ActPage, AuditedAct
from strandline.pipelines.audit.verifying import TrailVerification
from strandline.pipelines.custom.contract import CustomBlock
from strandline.pipelines.overflow.contract import OverflowEvent
from strandline.pipelines.redaction.hook import Redactor
from strandline.pipelines.upkeep.policies import RetentionAct
from strandline.producers.audit.compliance import AttemptedAct
from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    InsertMethod,
    StaticMemoryBlock,
    SummaryMemoryBlock,
)
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.facts.capturing import CaptureAct
from strandline.producers.facts.figures import OwnerFigures, TopicCount
from strandline.producers.facts.listing import Fact
from strandline.producers.facts.optimizing import Optimization
from strandline.producers.reading.context import (
    Citation,
    GivenFact,
    GivenMessage,
    GivenSummary,
    MemoryContext,
)
from strandline.producers.reading.summary import Summary
from strandline.producers.runs.latest_summary import LatestSummary
from strandline.producers.runs.run import SessionRun
from strandline.producers.search.choice import ChosenFacts
from strandline.producers.search.facts import FoundFact
from strandline.producers.search.hits import Hit
from strandline.producers.search.search import FoundMessage
from strandline.producers.writing.correcting.correct import Correction
from strandline.producers.writing.correcting.fork import Fork
from strandline.producers.writing.sources import FactChanges
from strandline.schemas.errors import (
    ActRefusedError,
    ArchiveError,
    ConfigurationError,
    ConflictError,
    DatabaseBusyError,
    DatabaseError,
    DatabaseRightsError,
    DatabaseTimeoutError,
    DatabaseUnavailableError,
    DeliveredError,
    EmbeddedUnavailableError,
    ErasedError,
    InvalidMessageError,
    ModelError,
    NamespaceFullError,
    NotFoundError,
    OutcomeUnknownError,
    OwnerError,
    RedactionError,
    RefusalError,
    ReplayError,
    SchemaError,
    ServerLimitError,
    StrandlineError,
    UnknownPipelineError,
    VersionError,
)
from strandline.schemas.values.acts.acting import Acting, acting, current_acting
from strandline.schemas.values.acts.capture import Capture
from strandline.schemas.values.acts.retention import Retention
from strandline.schemas.values.content_parts import AudioPart, DocumentPart, ImagePart, TextPart, VideoPart
from strandline.schemas.values.message import Message
from strandline.schemas.values.policy import overflow_window, sliding_window, summary_window
from strandline.wiring.runtime import aclose, close

__all__ = [
    "ActPage",
    "ActRefusedError",
    "Acting",
    "Anchor",
    "ArchiveError",
    "AttemptedAct",
    "AudioPart",
    "Audit",
    "AuditedAct",
    "BaseMemoryBlock",
    "Capture",
    "CaptureAct",
    "ChosenFacts",
    "Citation",
    "ConfigurationError",
    "ConflictError",
    "Correction",
    "CustomBlock",
    "DatabaseBusyError",
    "DatabaseError",
    "DatabaseRightsError",
    "DatabaseTimeoutError",
    "DatabaseUnavailableError",
    "DeliveredError",
    "DocumentPart",
    "EmbeddedUnavailableError",
    "ErasedError",
    "Fact",
    "FactChanges",
    "FactExtractionMemoryBlock",
    "Facts",
    "Fork",
    "FoundFact",
    "FoundMessage",
    "GivenFact",
    "GivenMessage",
    "GivenSummary",
    "Hit",
    "ImagePart",
    "InsertMethod",
    "InvalidMessageError",
    "LatestSummary",
    "Memory",
    "MemoryContext",
    "Message",
    "ModelError",
    "NamespaceFullError",
    "NotFoundError",
    "Optimization",
    "OutcomeUnknownError",
    "OverflowEvent",
    "OwnerError",
    "OwnerFigures",
    "RedactionError",
    "Redactor",
    "RefusalError",
    "ReplayError",
    "Retention",
    "RetentionAct",
    "SchemaError",
    "ServerLimitError",
    "SessionRun",
    "StaticMemoryBlock",
    "StrandlineError",
    "Summary",
    "SummaryMemoryBlock",
    "TextPart",
    "TopicCount",
    "TrailVerification",
    "UnknownPipelineError",
    "VectorMemoryBlock",
    "VersionError",
    "VideoPart",
    "aclose",
    "acting",
    "close",
    "current_acting",
    "overflow_window",
    "sliding_window",
    "summary_window",
]
