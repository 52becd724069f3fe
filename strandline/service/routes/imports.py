"""Importing messages and facts from elsewhere, in bulk."""

from __future__ import annotations

from uuid import UUID, uuid5

from strandline.producers.execution import on_database
from strandline.producers.facts.edit_operations import Wording
from strandline.producers.facts.importing import FactsImported, ImportedFact
from strandline.producers.owner_facts import OwnerFacts
from strandline.producers.writing.bulk_import import Imported
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.wire import acts
from strandline.schemas.wire.operations import (
    ImportedFactIn,
    ImportFactsIn,
    ImportFactsOut,
    ImportIn,
    ImportOut,
)
from strandline.service.answering import Routes
from strandline.service.gate.problems import invalid
from strandline.service.params import UserId
from strandline.service.records import SessionRecords
from strandline.service.route import Call

routes = Routes("imports")

_FACTS = UUID("3b0d6a4e-6f2c-5c8e-8f6e-0f0f5a5b7c21")


@routes.answer(acts.IMPORT_MESSAGES, "write", "others")
async def import_messages(call: Call, identity: SessionIdentity, body: ImportIn) -> ImportOut:
    """Take messages over that were said elsewhere, and flush what does not fit the window.

    Live work goes before theirs.  Repeating it adds nothing, so each message needs an id of its own.
    """
    for index, message in enumerate(body.messages):
        if message.id is None:
            raise invalid(f"/body/messages/{index}/id", "It is missing: imported messages need ids.")
    messages = [message.openai_form() for message in body.messages]

    def import_all(database: Database) -> Imported:
        memory = SessionRecords(on_database(call.service.resources, database)).begin(identity)
        return memory.import_messages(messages)

    done = await call.block(import_all)
    events = 0 if done.flushed is None else len(done.flushed.event_ids)
    return ImportOut(added=done.added, known=done.known, events=events)


@routes.answer(acts.IMPORT_FACTS, "facts", "others")
async def import_facts(call: Call, user: UserId, body: ImportFactsIn) -> ImportFactsOut:
    """Import facts of another system, each once; a fact that was changed or deleted since stays so."""
    owner = call.caller.owner(user)
    actor = call.caller.actor
    facts = [_fact(user, fact, actor) for fact in body.facts]

    def import_all(database: Database) -> FactsImported:
        return OwnerFacts(on_database(call.service.resources, database), owner).import_facts(facts)

    done = await call.block(import_all)
    return ImportFactsOut(added=done.added, known=done.known)


def _fact(user: str, fact: ImportedFactIn, actor: str) -> ImportedFact:
    wording = Wording.check(
        fact.text,
        topics=fact.topics or None,
        about_date=None,
        input=fact.input,
        agent_id=fact.agent_id,
        team_id=fact.team_id,
    )
    return ImportedFact(
        id=uuid5(_FACTS, f"{len(user)}:{user}:{fact.id}"),
        wording=wording,
        actor=actor,
        created_at=fact.created_at,
        updated_at=fact.updated_at,
        feedback=fact.feedback,
    )
