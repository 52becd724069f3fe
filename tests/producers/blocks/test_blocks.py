"""Memory blocks as declarations: what they accept and refuse, and how they shorten themselves."""

from __future__ import annotations

import pickle
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    InsertMethod,
    Material,
    Rendered,
    StaticMemoryBlock,
    SummaryMemoryBlock,
)
from strandline.producers.blocks.resolve import declare_blocks, default_blocks, pipelines_of
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.search.hits import Hit
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.message import Message

SESSION = UUID(int=1)


def words(text: str) -> int:
    return len(text.split())


def hit(score: float, *texts: str) -> Hit:
    return Hit(score, SESSION, tuple(Message("user", text, seq=seq) for seq, text in enumerate(texts, 1)))


def test_default_blocks_and_their_pipelines() -> None:
    blocks = default_blocks()
    assert [(block.priority, block.pipeline) for block in blocks] == [
        (1, "facts"),
        (2, "summary"),
        (3, "vectors"),
    ]
    assert pipelines_of(blocks) == ("facts", "summary", "vectors")
    assert declare_blocks(None) == blocks


def test_no_blocks_and_static_ones_need_no_pipeline() -> None:
    assert declare_blocks([]) == ()
    assert (
        pipelines_of([StaticMemoryBlock(static_content="a"), BaseMemoryBlock(name="b", pipeline=None)]) == ()
    )


def test_a_plain_name_stands_for_the_pipeline_of_that_name() -> None:
    assert declare_blocks(["mentions"]) == (BaseMemoryBlock(name="mentions"),)
    assert pipelines_of(declare_blocks(["mentions", "facts"])) == ("facts", "mentions")
    assert BaseMemoryBlock(name="shown", pipeline="mentions").pipeline == "mentions"


@pytest.mark.parametrize(
    "block",
    [
        *default_blocks(),
        StaticMemoryBlock(static_content=[{"type": "text", "text": "a"}]),
        BaseMemoryBlock(name="mentions"),
    ],
    ids=lambda block: block.name,
)
def test_blocks_can_be_pickled_and_not_changed(block: BaseMemoryBlock) -> None:
    assert pickle.loads(pickle.dumps(block)) == block  # noqa: S301
    with pytest.raises(AttributeError):
        block.priority = 7  # type: ignore[misc]


@pytest.mark.parametrize("keyword", ["llm", "embed_model", "vector_store"])
@pytest.mark.parametrize("kind", [FactExtractionMemoryBlock, SummaryMemoryBlock, VectorMemoryBlock])
def test_live_objects_are_refused_with_the_setting_to_use(kind: Any, keyword: str) -> None:
    with pytest.raises(ConfigurationError, match=r"STRANDLINE_FACTS_MODEL or STRANDLINE_EMBEDDING_MODEL"):
        kind(**{keyword: object()})
    with pytest.raises(ConfigurationError, match="run in the workers"):
        kind(reranker=object())


def test_an_unknown_keyword_names_those_that_exist() -> None:
    with pytest.raises(
        ConfigurationError, match=r"does not know max_fact=; it takes name, max_facts, priority"
    ):
        FactExtractionMemoryBlock(max_fact=3)


@pytest.mark.parametrize("name", ["", "1a", "a b", "<a>", "a\n", "ü", "a" * 65, None])
def test_names_that_cannot_be_tags_are_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot name a memory block"):
        SummaryMemoryBlock(name=name)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (SummaryMemoryBlock, {"priority": -1}),
        (SummaryMemoryBlock, {"priority": True}),
        (FactExtractionMemoryBlock, {"max_facts": 0}),
        (VectorMemoryBlock, {"similarity_top_k": 0}),
        (VectorMemoryBlock, {"retrieval_context_window": 0}),
        (VectorMemoryBlock, {"similarity_cutoff": 1.5}),
        (VectorMemoryBlock, {"similarity_cutoff": float("nan")}),
        (VectorMemoryBlock, {"scope": "everyone"}),
        (VectorMemoryBlock, {"postprocessors": "rerank"}),
        (VectorMemoryBlock, {"postprocessors": [1]}),
        (VectorMemoryBlock, {"rerank": 1}),
        (StaticMemoryBlock, {"static_content": None}),
        (StaticMemoryBlock, {"static_content": [{"text": "no type"}]}),
        (StaticMemoryBlock, {"static_content": [{"type": "text"}]}),
    ],
)
def test_values_out_of_range_are_refused(kind: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        kind(**arguments)


@pytest.mark.parametrize("blocks", ["facts", 3, [SummaryMemoryBlock], [None], SummaryMemoryBlock()])
def test_a_value_that_is_not_a_list_of_blocks_is_refused(blocks: Any) -> None:
    with pytest.raises(ConfigurationError, match="memory_blocks"):
        declare_blocks(blocks)


def test_two_blocks_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'summary'"):
        declare_blocks([SummaryMemoryBlock(), "summary"])


def test_insert_methods_are_strings() -> None:
    assert InsertMethod("system") is InsertMethod.SYSTEM
    assert InsertMethod.USER.value == "user"


def test_facts_show_the_newest_oldest_first() -> None:
    block = FactExtractionMemoryBlock(max_facts=2)
    assert block.render(Material(facts=["a", "b", "c"])) == "<fact>b</fact>\n<fact>c</fact>"
    assert block.render(Material()) is None


def test_facts_drop_the_oldest_first() -> None:
    block = FactExtractionMemoryBlock()
    content = block.render(Material(facts=["one two", "three\n<fact>", "four"])) or ""
    assert block.truncate(content, 1, words) == "<fact>three\n&lt;fact&gt;</fact>\n<fact>four</fact>"
    assert block.truncate(content, 3, words) == "<fact>four</fact>"
    assert block.truncate(content, 99, words) is None


def test_hits_drop_the_lowest_scored_whole() -> None:
    block = VectorMemoryBlock()
    hits = [hit(0.9, "best\n\n<message role='user'>", "of all"), hit(0.5, "second"), hit(0.1, "last")]
    content = block.render(Material(hits={"vector_memory": hits})) or ""
    best = block.render(Material(hits={"vector_memory": hits[:1]}))
    assert block.truncate(content, 1, words) == block.render(Material(hits={"vector_memory": hits[:2]}))
    assert block.truncate(content, 4, words) == best
    assert block.truncate(best or "", 1, words) is None


def test_hits_are_those_of_the_block_and_only_messages_with_text() -> None:
    call = Message("assistant", None, tool_calls=[{"id": "1"}], seq=2)
    hits = {"other": [hit(1.0, "a")], "mine": [Hit(1.0, SESSION, (call, Message("tool", "b", seq=3)))]}
    assert VectorMemoryBlock(name="mine").render(Material(hits=hits)) == "<message role='tool'>b</message>"
    assert VectorMemoryBlock(name="none").render(Material(hits=hits)) is None


def test_states_are_shown_by_their_text() -> None:
    material = Material(states={"summary": {"text": "so <far>", "topics": []}, "mentions": {"count": 3}})
    assert SummaryMemoryBlock(name="story").render(material) == "so &lt;far&gt;"
    assert BaseMemoryBlock(name="mentions").render(material) is None
    assert BaseMemoryBlock(name="unknown").render(material) is None


def test_static_text_and_parts() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    block = StaticMemoryBlock(static_content=[{"type": "text", "text": "Logan & co"}, image])
    assert block.render(Material()) == Rendered("Logan &amp; co", (image,))
    assert StaticMemoryBlock(static_content="").render(Material()) is None


def test_blocks_that_cannot_shorten_themselves_are_left_out() -> None:
    assert SummaryMemoryBlock().truncate("a long story", 1, words) is None


@given(facts=st.lists(st.text(min_size=1), min_size=1), cut=st.integers(1, 50))
def test_truncated_facts_are_the_newest_of_them(facts: list[str], cut: int) -> None:
    block = FactExtractionMemoryBlock(max_facts=1_000)
    content = block.render(Material(facts=facts)) or ""
    shorter = block.truncate(content, cut, len)
    kept = [] if shorter is None else [at for at in range(1, len(facts)) if rendered(facts[at:]) == shorter]
    assert shorter is None or kept
    assert shorter is None or len(shorter) <= len(content) - cut


def rendered(facts: list[str]) -> str | None:
    return FactExtractionMemoryBlock(max_facts=1_000).render(Material(facts=facts))


class _Own(VectorMemoryBlock):
    """Somebody's own way to show hits."""


class _OwnFacts(FactExtractionMemoryBlock):
    """Somebody's own way to show facts."""


@pytest.mark.parametrize(
    "block", [VectorMemoryBlock(kinds=["fact"]), VectorMemoryBlock(kinds=["message", "fact"]), _Own()]
)
def test_facts_among_hits_and_blocks_of_ones_own_are_shown_by_number(block: VectorMemoryBlock) -> None:
    assert (block.similarity_top_k, block.is_filler) == (2, False)


def test_a_facts_block_of_ones_own_shows_facts_by_number() -> None:
    assert (_OwnFacts().max_facts, _OwnFacts().is_filler) == (50, False)
