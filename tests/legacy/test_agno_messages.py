"""Messages of Agno 1 come back as its own storage would give them, and keep their runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from agno.media import Image
from agno.models.message import Message
from hypothesis import given
from hypothesis import strategies as st

from strandline import InvalidMessageError
from strandline import Message as StoredMessage
from strandline.adapters.legacy.agno_v1.messages import RunNote, agno_message_of, message_of, note_of
from tests.support.stored_form import JSON_VALUES, NAMES, TEXTS, stored_form

# When tests/support/stored_form.py stores.
STORED_AT = int(datetime(2026, 1, 31, tzinfo=UTC).timestamp())
CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.none() | TEXTS,
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": TEXTS, "arguments": TEXTS}),
        }
    ),
    max_size=2,
)
PARTS = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS})
    | st.fixed_dictionaries({"type": st.just("image_url"), "image_url": TEXTS})
    | st.dictionaries(NAMES, JSON_VALUES, max_size=2)
    | TEXTS,
    max_size=3,
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "model", "CHATBOT"])},
    optional={
        "content": TEXTS | PARTS,
        "name": TEXTS,
        "tool_calls": CALLS,
        "tool_call_id": TEXTS,
        "tool_name": TEXTS,
        "tool_args": st.dictionaries(NAMES, JSON_VALUES, max_size=2),
        "tool_call_error": st.booleans(),
        "stop_after_tool_call": st.booleans(),
        "reasoning_content": TEXTS,
        "thinking": TEXTS,
        "provider_data": st.dictionaries(NAMES, JSON_VALUES, max_size=2),
    },
)
NOTES = st.builds(
    RunNote,
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.none() | st.sampled_from(["PAUSED", "ERROR"]),
)


def shown(message: Message) -> dict[str, Any]:
    """The message as Agno stores it, without what is false or empty."""
    fields = message.to_dict()
    return {key: value for key, value in fields.items() if value not in (None, False, [], {}, "")}


@given(MESSAGES, NOTES)
def test_every_message_comes_back_as_it_was(fields: dict[str, Any], note: RunNote) -> None:
    original = Message(**fields, created_at=STORED_AT)
    stored = stored_form(message_of(original, note))
    assert shown(agno_message_of(stored)) == shown(original)
    assert (note_of(stored) or RunNote()) == note


def test_images_go_with_their_message() -> None:
    original = Message(role="user", content="What is it?", images=[Image(url="http://127.0.0.1/a.png")])
    restored = agno_message_of(stored_form(message_of(original)))
    assert restored.images is not None
    assert restored.images[0].url == "http://127.0.0.1/a.png"


def test_a_system_prompt_is_not_stored() -> None:
    with pytest.raises(InvalidMessageError, match="each run has its own"):
        message_of(Message(role="system", content="Be short."))


@pytest.mark.parametrize(
    "kept",
    [
        {"fields": {"role": "system"}},
        {"fields": {"content": "Other."}},
        {"run": 1},
        {"run": {"run_id": 1}},
        "?",
    ],
)
def test_what_is_kept_beside_a_message_cannot_change_who_says_what(kept: Any) -> None:
    forged = StoredMessage("user", "Hello.", metadata={"agno_1": kept})
    restored = agno_message_of(forged)
    assert (restored.role, restored.content) == ("user", "Hello.")
    assert note_of(forged) is None
