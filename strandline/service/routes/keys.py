"""Keys: the caller of a request, and the keys of a namespace."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from strandline.administration.keys import KeyMaker, KeySpec, create_key, list_keys, revoke_key, rotate_key
from strandline.schemas.values.identity import kept_request_key
from strandline.schemas.values.same_named import make_from
from strandline.schemas.wire import acts
from strandline.schemas.wire.base import Page
from strandline.schemas.wire.keys import (
    SCOPES,
    Identity,
    KeyInfo,
    KeyRequest,
    KeyRotation,
    NewKey,
    RevokedKey,
)
from strandline.service.answering import Routes
from strandline.service.forms import page_within
from strandline.service.gate.problems import FORBIDDEN, ProblemError
from strandline.service.params import Cursor, KeyId, PageSize, read_text_cursor
from strandline.service.route import Call

routes = Routes("keys")

_LIST = "keys"
_USUAL_OVERLAP = KeyRotation()
WithMade = Annotated[
    bool,
    Field(
        description="Also end the keys that it was rotated from, and all keys that any of them made or was"
        " rotated to."
    ),
]


@routes.answer(acts.WHOAMI, None, "reads", ("names", "operators"))
async def whoami(call: Call) -> Identity:
    """Whose the key is, and its rights."""
    caller = call.caller
    return Identity.of(
        caller,
        scopes=[scope for scope in SCOPES if scope in caller.scopes],
        shared_scopes=call.row.shared_scopes,
        label=call.row.label,
        expires_at=call.row.expires_at,
    )


@routes.answer(acts.POST_KEY, "operate", "keys", ("names", "operators"), status=201, holder="namespace")
async def post_key(call: Call, body: KeyRequest) -> NewKey:
    """Make a key of this namespace; its text is shown this once.

    The key of an operator of the whole installation names the namespace, or makes another such key.
    Repeated with its `Idempotency-Key` it is a conflict, which names the key that was made.
    """
    namespace = call.caller.managed_namespace
    if namespace is not None and body.namespace not in (None, namespace):
        raise ProblemError(
            FORBIDDEN, detail="A key of this namespace makes keys for it alone; leave `namespace` out."
        )
    spec = make_from(KeySpec, body, namespace=body.namespace if namespace is None else namespace)
    return await call.run(create_key(spec, _maker(call)))


@routes.answer(acts.GET_KEYS, "operate", "keys", ("names", "operators"), holder="namespace")
async def get_keys(call: Call, limit: PageSize = 100, cursor: Cursor = None) -> Page[KeyInfo]:
    """The keys of this namespace, ended ones too; an operator of the installation sees those of all."""
    after = read_text_cursor(_LIST, cursor)
    keys = await call.run(list_keys(call.caller.managed_namespace, after=after, limit=limit + 1))
    await call.reveal((one.namespace for one in keys[:limit]), _LIST)
    return page_within(KeyInfo, keys, limit, _LIST, lambda one: one.key_id)


@routes.answer(acts.POST_ROTATION, "operate", "keys", ("names", "operators"), status=201, holder="namespace")
async def post_rotation(call: Call, key_id: KeyId, body: KeyRotation = _USUAL_OVERLAP) -> NewKey:
    """Make a key that opens the same, and lives as long; the old one stays valid for a while.

    Repeated with its `Idempotency-Key` it is a conflict, which names the key that was made.
    """
    return await call.run(
        rotate_key(
            key_id,
            namespace=call.caller.managed_namespace,
            overlap_seconds=body.overlap_seconds,
            expires_in_seconds=body.expires_in_seconds,
            maker=_maker(call),
        )
    )


@routes.answer(acts.DELETE_KEY, "operate", "keys", ("names", "operators"), holder="namespace")
async def delete_key(call: Call, key_id: KeyId, with_made: WithMade = False) -> RevokedKey:
    """End a key now; every process refuses it within five seconds."""
    revoking = revoke_key(key_id, namespace=call.caller.managed_namespace, with_made=with_made)
    return await call.run(revoking)


def _maker(call: Call) -> KeyMaker:
    """The request, named among those of the same key, for a key belongs to whoever made it."""
    key_id, name = call.caller.key_id, call.idempotency_key
    return KeyMaker(key_id, None if name is None else kept_request_key(key_id, call.route, name))
