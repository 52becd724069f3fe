"""Strandline: an event-driven memory pipeline for chat, on Postgres.

The public face.  ``import strandline`` loads no queue, no model client and no server.
"""

from strandline.memory import Memory
from strandline.pipelines.blocks import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    InsertMethod,
    StaticMemoryBlock,
    SummaryMemoryBlock,
    VectorMemoryBlock,
)
from strandline.producers.context import MemoryContext
from strandline.schemas.errors import (
    ConfigurationError,
    ConflictError,
    DatabaseTimeoutError,
    DatabaseUnavailableError,
    EmbeddedUnavailableError,
    InvalidMessageError,
    OwnerError,
    SchemaError,
    StrandlineError,
    UnknownPipelineError,
)
from strandline.schemas.messages import Message

__all__ = [
    "BaseMemoryBlock",
    "ConfigurationError",
    "ConflictError",
    "DatabaseTimeoutError",
    "DatabaseUnavailableError",
    "EmbeddedUnavailableError",
    "FactExtractionMemoryBlock",
    "InsertMethod",
    "InvalidMessageError",
    "Memory",
    "MemoryContext",
    "Message",
    "OwnerError",
    "SchemaError",
    "StaticMemoryBlock",
    "StrandlineError",
    "SummaryMemoryBlock",
    "UnknownPipelineError",
    "VectorMemoryBlock",
]
