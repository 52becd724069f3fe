"""One list of block objects, made once and given to every session of a process, as applications do."""

from __future__ import annotations

from strandline import (
    FactExtractionMemoryBlock,
    Memory,
    StaticMemoryBlock,
    SummaryMemoryBlock,
    VectorMemoryBlock,
)
from strandline.schemas.settings import load_settings
from strandline.schemas.values.lanes import STAGES
from tests.conftest import Rig, nothing_due
from tests.support.sample_blocks import MentionCounter
from tests.support.workers.draining import drain_everything

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
