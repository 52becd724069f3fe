"""Facts added by hand or by agents: what says the same is one fact, what may contradict is doubtful."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline import Facts, Memory
from strandline.pipelines.facts.edits import apply_fact_events
from strandline.pipelines.facts.recording import may_contradict, say_the_same
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import identify_user
from tests.conftest import Rig
from tests.pipelines.facts.test_facts_merge import FACTS_STAGES
from tests.pipelines.facts.test_facts_tombstones import derive_again, switch_to
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

MAREN = identify_user("default", "maren").shard_key
PORTO, LISBON = "User lives in Porto.", "User lives in Lisbon."

CONTRADICTIONS = [
    (PORTO, LISBON),
    ("The user lives in Porto.", "User moved to Lisbon."),
    ("Lives in Porto.", "The user lives in Lisbon now."),
    ("Ana lives in Porto.", "Ana moved to Lisbon."),
    ("User's sister lives in Porto.", "User's sister lives in Lisbon."),
    ("User works at Google.", "User works for Meta."),
    ("User is 34 years old.", "User is 35 years old."),
    ("User's name is Ana.", "User is called Maria."),
    ("User likes coffee.", "User does not like coffee."),
    ("User eats meat and fish.", "User does not eat meat."),
    ("User wohnt in Berlin.", "User wohnt in Hamburg."),
    ("L'utilisateur habite à Paris.", "L'utilisateur habite à Lyon."),
    ("El usuario vive en Madrid.", "El usuario vive en Sevilla."),
    ("用户住在北京。", "用户住在上海。"),
    ("用户住在北京。", "User lives in Shanghai now."),
    ("ユーザーは東京に住んでいる。", "ユーザーは大阪に住んでいる。"),
]
NO_CONTRADICTIONS = [
    (PORTO, "User lives in Porto with his sister."),
    (PORTO, "User lives alone."),
    (PORTO, "Keeps bees in Lisbon."),
    ("Tom lives in Porto.", LISBON),
    ("Tom lives in Porto.", "Ana lives in Lisbon."),
    ("User's sister lives in Porto.", LISBON),
    ("User works at Google.", "User works at Google as an engineer."),
    ("User moved to Lisbon in 2019.", "User moved to Lisbon in May."),
    ("User likes tea.", "User likes coffee."),
    ("User rows on Tuesdays.", "User rows on Fridays."),
    ("User has two cats.", "User has three dogs."),
    ("Fact number 1.", "Fact number 2."),
]


@pytest.mark.parametrize(("one", "other"), CONTRADICTIONS)
def test_a_contradiction_shows_in_the_words(one: str, other: str) -> None:
    assert may_contradict(one, other) and may_contradict(other, one)


@pytest.mark.parametrize(("one", "other"), NO_CONTRADICTIONS)
def test_other_statements_are_not_taken_for_one(one: str, other: str) -> None:
    assert not may_contradict(one, other) and not may_contradict(other, one)


@pytest.mark.parametrize(
    "text", ["The user lives in Porto", "Lives in Porto.", "USER LIVES IN PORTO!", "user lives in  porto"]
)
def test_a_statement_is_the_same_however_it_calls_the_user(text: str, rig: Rig, facts: Facts) -> None:
    assert say_the_same(text, PORTO) and not say_the_same(text, LISBON)
    first = facts.add(PORTO, topics=["home"])
    again = facts.add(text, agent_id="coach")
    assert (again.fact_id, again.text, again.topics, again.agent_id) == (
        first.fact_id,
        PORTO,
        ("home",),
        "coach",
    )
    assert facts.list(limit=0).total == 1
    assert facts.add("The user lives in Porto", as_is=True).fact_id != first.fact_id
    assert verify(rig.database, deep=True).violations == ()


@pytest.fixture
def facts(rig: Rig) -> Facts:
    return Facts.for_owner(user_id="maren", database_url=rig.url)


@pytest.fixture
def memory(rig: Rig) -> Memory:
    return rig.memory("s", user_id="maren", memory_blocks=["facts"])


@pytest.fixture
def derive(rig: Rig, model_settings: Settings) -> Callable[[], None]:
    return lambda: drain_everything(rig.database, rig.url, model_settings, FACTS_STAGES)


def test_an_added_contradiction_is_doubtful_until_it_is_settled(facts: Facts) -> None:
    porto = facts.add(PORTO)
    lisbon = facts.add(LISBON)
    assert lisbon.doubt is not None and lisbon.doubt.fact_id == porto.fact_id
    assert "added by hand" in lisbon.doubt.reason
    assert facts.add("the user lives in LISBON").is_doubtful, "a repeated call settles nothing"
    assert facts.settle(lisbon.fact_id, "both") is not None
    assert not facts.add(LISBON).is_doubtful, "nor does it raise a doubt again"
    assert not facts.add("User lives in Rome.", as_is=True).is_doubtful
    assert not facts.list(doubtful=True) and facts.list(limit=0).total == 3


@pytest.mark.parametrize("words", [LISBON, "User likes tea."])
def test_an_agent_is_told_what_it_may_contradict(words: str, memory: Memory, facts: Facts) -> None:
    porto = facts.add(PORTO)
    answer = memory.call_tool("add_memory", {"text": words})
    if words != LISBON:
        assert answer["may_contradict"] is None
        return
    assert answer["may_contradict"] == {"id": str(porto.fact_id), "text": PORTO}
    assert facts.list(doubtful=True)[0].fact_id.hex == answer["memory"]["id"].replace("-", "")
    memory.call_tool("update_memory", {"id": str(porto.fact_id), "text": LISBON})
    assert [(fact.text, fact.is_doubtful) for fact in facts.list()] == [(LISBON, False)]


def test_the_doubt_of_an_added_fact_is_in_every_derivation(
    rig: Rig, memory: Memory, facts: Facts, derive: Callable[[], None]
) -> None:
    """The known fact is derived there later than the addition is applied."""
    say(memory, PORTO)
    derive()
    (porto,) = facts.list()
    lisbon = facts.add(LISBON)
    assert lisbon.doubt is not None and lisbon.doubt.fact_id == porto.fact_id
    later = derive_again(rig.database, rig.url, MAREN)
    derive()
    for _ in "ab":
        with rig.database.transaction() as tx:
            tx.run(apply_fact_events(MAREN, later))
    switch_to(rig.url, later)
    (again,) = facts.list(doubtful=True)
    (other,) = (fact for fact in facts.list() if fact.text == PORTO)
    assert again.text == LISBON and again.doubt is not None and again.doubt.fact_id == other.fact_id
    assert facts.settle(again.fact_id, "new") is not None
    with rig.database.transaction() as tx:
        tx.run(apply_fact_events(MAREN, later))
    assert [(fact.text, fact.is_doubtful) for fact in facts.list()] == [(LISBON, False)]
    assert verify(rig.database, deep=True).violations == ()
