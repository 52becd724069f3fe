"""Memory blocks as declarations: what they accept and refuse, and how they shorten themselves."""

from __future__ import annotations

import pickle
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import (
    FactExtractionMemoryBlock,
    Memory,
    StaticMemoryBlock,
    SummaryMemoryBlock,
    VectorMemoryBlock,
)
from strandline.producers.blocks.base import BaseMemoryBlock, InsertMethod, Material, Rendered
from strandline.producers.blocks.resolve import declare_blocks, default_blocks, pipelines_of
from strandline.producers.search.hits import Hit
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import load_settings
from strandline.schemas.values.lanes import STAGES
from strandline.schemas.values.message import Message
from tests.conftest import Rig, nothing_due
from tests.support.sample_blocks import MentionCounter
from tests.support.workers.draining import drain_everything

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


# One list of block objects, made once and given to every session of a process, as applications do.
BLOCKS = (
    StaticMemoryBlock(name="rules", static_content="Answer in one sentence."),
    FactExtractionMemoryBlock(),
    SummaryMemoryBlock(),
    VectorMemoryBlock(similarity_top_k=20),
    MentionCounter(),
)
SAID = {
    ("one", "ana"): "I live in Bergen with my sister Lena, and Logan knows it.",
    ("two", "bo"): "I live in Husum with my brother Lars.",
    ("three", None): "I live in Oslo with my cat Kiki, says Logan.",
}
MENTIONS = {"one": 1, "two": 0, "three": 1}


def test_blocks_carry_nothing_from_one_session_to_another(rig: Rig) -> None:
    settings = load_settings(
        database_url=rig.url,
        text_backend="local",
        embedding_backend="local",
        blocks="tests.support.sample_blocks:MentionCounter",
    )
    stages = (*STAGES, "mentions")
    drain_everything(rig.database, rig.url, settings, stages)  # registers the custom block

    def memory_of(session_id: str, user_id: str | None) -> Memory:
        return rig.memory(session_id, user_id=user_id, memory_blocks=BLOCKS)

    for (session_id, user_id), text in SAID.items():
        memory = memory_of(session_id, user_id)
        # Answered, so that no read shows it as the question of an open turn.
        memory.put_messages(
            [{"role": "user", "content": text}, {"role": "assistant", "content": "All right."}]
        )
        memory.flush(all=True)
    drain_everything(rig.database, rig.url, settings, stages)
    assert nothing_due(rig.url)
    everything = {word for text in SAID.values() for word in text.replace(",", "").split() if word.istitle()}
    for (session_id, user_id), text in SAID.items():
        shown = str(memory_of(session_id, user_id).get("Where do I live, and with whom?")[0])
        assert "<fact>" in shown and "<summary>" in shown and "<message role='user'>" in shown
        own = {word for word in everything if word in text} | {"Logan"}
        assert [word for word in everything - own if word in shown] == []
        assert f"Logan was mentioned {MENTIONS[session_id]} times." in shown
    # Memory of a user goes along to the user's next session; memory of a session does not.
    shown = str(memory_of("next", "ana").get("Where do I live?")[0])
    assert "Bergen" in shown and "<summary>" not in shown and "Husum" not in shown
    stranger = str(memory_of("new", "cleo").get("Where do I live?"))
    assert [word for word in everything - {"Logan"} if word in stranger] == []
