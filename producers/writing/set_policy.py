"""Changes a session's policy; the change is recorded, and applies from the next put and flush on."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, fields, replace

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.flush.flush import Flushed, flush_over_mark
from strandline.producers.sessions import check_owner, unknown_pipelines
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConflictError, NotFoundError, StrandlineError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.sessions import FindOwner, SessionPolicy, SetPolicy, SetPolicyRow
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.policy import Policy, PolicyChange, changed_policy, stored_policy

logger = logging.getLogger("strandline.producers")

# Each attempt that loses found that another change was committed in the meantime.
MAX_ATTEMPTS = 10

# A session keeps its tokenizer and its shared scope for good.
_CHANGEABLE = [one.name for one in fields(Policy) if one.name not in ("tokenizer", "shared_scope")]


@dataclass(frozen=True, slots=True)
class PolicySet:
    """The policy of a session after a change, and the flush, if its window was above the new mark."""

    policy: Policy
    flushed: Flushed | None = None


def set_policy(
    identity: SessionIdentity, change: PolicyChange, act: Act, *, in_callers_transaction: bool
) -> Operation[PolicySet]:
    """Change the values that are given; a change that changes nothing is not recorded.

    A flush that fails does not fail the change, which is committed by then: the sweep flushes.  In the
    caller's transaction a failed flush does fail the change, since Postgres has ended that transaction.

    Raises:
        NotFoundError: the session has no messages yet.
        OwnerError: the session belongs to another owner.
        ConfigurationError: the resulting limits cannot be used.
        UnknownPipelineError: no worker has registered a pipeline that is added.
        ConflictError: other callers kept changing the policy.
    """
    for _attempt in range(MAX_ATTEMPTS):
        present = yield from _present(identity)
        policy = changed_policy(present, change)
        if policy == present:
            return PolicySet(present)
        changed = [name for name in _CHANGEABLE if getattr(present, name) != getattr(policy, name)]
        rows = yield from fetch(
            SetPolicy(
                **identity.keys,
                before=_json(present),
                after=_json(policy),
                actor=act.named_actor,
                act=replace(act, detail={"changed": changed}).as_json(),
            )
        )
        answer = rows[0] if rows else SetPolicyRow("changed", None, False)
        if answer.detail is not None:
            raise (yield from unknown_pipelines(answer.detail, "Nothing was changed."))
        if answer.status == "ok":
            flushed = None
            if answer.over:
                flushed = yield from _flush(identity, in_callers_transaction=in_callers_transaction)
            return PolicySet(policy, flushed)
    raise ConflictError(
        f"The policy of session {quote(identity.session_id)} was changed {MAX_ATTEMPTS} times by other"
        " callers"
        " in the meantime; nothing was changed. Try again.",
        for_clients="Other requests changed this policy in the meantime; nothing was changed. Try again.",
    )


def _flush(identity: SessionIdentity, *, in_callers_transaction: bool) -> Operation[Flushed | None]:
    try:
        return (yield from flush_over_mark(identity.keys))
    except StrandlineError as error:
        if in_callers_transaction:
            raise
        logger.warning(
            "flush after a change of policy failed", extra={"action": "flush_failed", "reason": str(error)}
        )
        return None


def _present(identity: SessionIdentity) -> Operation[Policy]:
    rows = yield from fetch(SessionPolicy(**identity.keys))
    if not rows:
        owners = yield from fetch(FindOwner(directory_key=identity.directory_key))
        if owners:
            check_owner(identity, owners[0].owner_key)
        raise NotFoundError(
            f"Nothing has been put yet to session {quote(identity.session_id)} in namespace"
            f" {quote(identity.namespace)}: its policy is that of the Memory that puts first."
        )
    (stored,) = rows
    return stored_policy(stored)


def _json(policy: Policy) -> str:
    return json.dumps({name: getattr(policy, name) for name in _CHANGEABLE})
