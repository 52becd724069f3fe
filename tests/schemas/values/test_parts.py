"""Content parts: typed values and OpenAI's dicts mean the same, and count by estimates that can be set."""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from strandline import (
    AudioPart,
    ConfigurationError,
    DocumentPart,
    ImagePart,
    InvalidMessageError,
    Memory,
    Message,
    StaticMemoryBlock,
    TextPart,
    VideoPart,
)
from strandline.producers.tokens import count_default
from tests.conftest import MakeMemory

DATA = b"\x89PNG"
ENCODED = b64encode(DATA).decode()

FORMS: list[tuple[Any, dict[str, Any]]] = [
    (TextPart("Hello"), {"type": "text", "text": "Hello"}),
    (ImagePart("https://a/b.png"), {"type": "image_url", "image_url": {"url": "https://a/b.png"}}),
    (
        ImagePart.from_bytes(DATA, "image/png", detail="low"),
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED}", "detail": "low"}},
    ),
    (AudioPart(DATA, "wav"), {"type": "input_audio", "input_audio": {"data": ENCODED, "format": "wav"}}),
    (VideoPart("https://a/b.mp4"), {"type": "video_url", "video_url": {"url": "https://a/b.mp4"}}),
    (
        VideoPart.from_bytes(DATA, "video/mp4"),
        {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{ENCODED}"}},
    ),
    (
        DocumentPart(DATA, filename="chart.pdf"),
        {
            "type": "file",
            "file": {"filename": "chart.pdf", "file_data": f"data:application/pdf;base64,{ENCODED}"},
        },
    ),
    (DocumentPart(file_id="file-1"), {"type": "file", "file": {"file_id": "file-1"}}),
]
PARTS = [part for part, _form in FORMS]


@pytest.mark.parametrize(("part", "form"), FORMS, ids=lambda value: type(value).__name__)
def test_a_part_is_the_mapping_that_it_stands_for(part: Any, form: dict[str, Any]) -> None:
    assert part == form and dict(part) == form and part.to_openai() == form
    assert len(part) == len(form) and part["type"] == form["type"]
    assert pickle.loads(pickle.dumps(part)) == form  # noqa: S301
    assert ENCODED not in repr(part) and "PNG" not in repr(part), "a picture is no matter for a log"


def test_typed_parts_are_stored_and_sent_as_openai_spells_them(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put(Message("user", PARTS, id="a"))
    memory.put({"id": "a", "role": "user", "content": [form for _part, form in FORMS]})
    (stored,) = memory.get_all()
    assert stored.content == PARTS
    assert all(type(part) is dict for part in stored.content or ())
    sent = memory.get().to_openai(also=["video_url"])
    assert sent == [{"role": "user", "content": [form for _part, form in FORMS]}]
    assert str(stored) == "user: Hello"
    assert stored.shown_text.startswith("Hello\n[picture] b.png\n[picture]\n[sound]\n")


@pytest.mark.parametrize(
    ("given", "image", "document"), [(None, 256, 2048), ({"image": 800, "document": 0}, 800, 0)]
)
def test_parts_count_by_their_estimates(
    make_memory: MakeMemory, given: dict[str, int] | None, image: int, document: int
) -> None:
    memory = make_memory("s", memory_blocks=[], part_tokens=given)
    memory.put({"role": "user", "content": PARTS})
    assert memory.get().tokens == count_default("Hello") + 2 * image + 3 * 256 + 2 * document


def test_the_estimates_hold_for_blocks_as_well(make_memory: MakeMemory) -> None:
    block = StaticMemoryBlock(
        name="chart", static_content=[TextPart("Our <chart>:"), ImagePart("https://a/b.png")]
    )
    contexts = [
        make_memory("s", memory_blocks=[block], part_tokens={"image": tokens}).get() for tokens in (0, 900)
    ]
    assert contexts[1].tokens - contexts[0].tokens == 900
    text, image = contexts[0][0].to_openai(also=["image_url"])["content"]
    assert "<chart>\nOur &lt;chart&gt;:\n</chart>" in text["text"]
    assert image == ImagePart("https://a/b.png")


@pytest.mark.parametrize("given", [{"picture": 3}, {"image": -1}, {"image": 1.5}, {"image": True}])
def test_estimates_that_make_no_sense_are_refused(make_memory: MakeMemory, given: Any) -> None:
    with pytest.raises(ConfigurationError, match="part_tokens"):
        make_memory("s", part_tokens=given)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ImagePart(b"bytes"),  # type: ignore[arg-type]
        lambda: ImagePart(""),
        lambda: ImagePart.from_bytes("text", "image/png"),  # type: ignore[arg-type]
        lambda: AudioPart("text", "wav"),  # type: ignore[arg-type]
        lambda: AudioPart(DATA, ""),
        DocumentPart,
        lambda: DocumentPart(DATA, file_id="file-1"),
    ],
)
def test_parts_that_cannot_be_sent_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidMessageError):
        make()


def test_reasoning_and_refusals_count_since_they_are_sent_back(make_memory: MakeMemory) -> None:
    memory: Memory = make_memory("s", memory_blocks=[])
    thinking = {"type": "thinking", "thinking": "Nine times nine is eighty-one.", "signature": "x" * 99}
    memory.put({"role": "assistant", "content": [thinking, {"type": "text", "text": "81"}]})
    memory.put({"role": "assistant", "content": "81", "reasoning_content": "Nine times nine is eighty-one."})
    expected = count_default("81") + count_default("Nine times nine is eighty-one.")
    assert [message.tokens for message in memory.get()] == [expected, expected]
