"""Sealing a put: the content of its messages becomes ciphertext, and what SQL compares becomes keyed."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

from strandline.producers.writing.validate import PreparedMessage
from strandline.schemas.sealed.values import keyed_label
from strandline.schemas.sealing.owner_keys import OwnerKeys
from strandline.schemas.values.labels import labels_of

ENVELOPE, METADATA = "message", "metadata"


def seal_message(message: PreparedMessage, session_key: UUID, keys: OwnerKeys) -> PreparedMessage:
    """A message as it is stored where content is sealed; each token belongs to the message's id."""
    labels = labels_of(session_key, message.metadata)
    return replace(
        message,
        digest=keys.digest(message.digest),
        envelope=keys.seal_json(message.envelope, ENVELOPE, message.id),
        metadata=None if message.metadata is None else keys.seal_json(message.metadata, METADATA, message.id),
        calls=None
        if message.calls is None
        else json.dumps([keys.reference(call) for call in json.loads(message.calls)]),
        answers=None if message.answers is None else keys.reference(message.answers),
        is_sealed=True,
        labels=None if labels is None else [keyed_label(keys, session_key, label) for label in labels],
    )


def seal_envelope(message: PreparedMessage, keys: OwnerKeys | None) -> str:
    """Its envelope as it is stored under the owner's keys; in clear if there are none."""
    return message.envelope if keys is None else keys.seal_json(message.envelope, ENVELOPE, message.id)
