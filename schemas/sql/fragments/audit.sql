-- Text that statements of the audit trail share.

-- fragment: session_pseudonym(salt, session_key)
-- A session's pseudonym: it follows from the key by a secret of the owner's, which erasure destroys.
encode(substr(sha256({salt} || uuid_send({session_key})), 1, 16), 'hex')::uuid

-- fragment: is_recorded(namespace, level)
-- Whether a namespace's trail records acts of a level.
(coalesce((SELECT recording.level FROM strandline.audit_level recording WHERE recording.namespace = {namespace}),
    'changes') IN ('all', {level}))

-- fragment: is_reserved_actor(name)
-- Whether a name is that of a key, a command, a person of the operator's, a worker or a model: no user is meant by it, even
-- if a user is called so.
({name} ~ '^(key|cli|ops|support|service|user):' OR {name} IN ('agent', 'worker'))

-- fragment: named_actor(actor, user_id, subject)
-- An actor who is the very user concerned is recorded by the pseudonym.
CASE WHEN {actor} = {user_id} AND NOT @is_reserved_actor({actor}) THEN 'user:' || {subject}::text ELSE {actor} END

-- fragment: passes(entry)
-- Whether an act passes the filters of a list.
{entry}.created_at BETWEEN coalesce(%(since)s::timestamptz, '-infinity') AND coalesce(%(until)s::timestamptz, 'infinity')
    AND (%(act)s::text IS NULL OR {entry}.act = %(act)s::text OR starts_with({entry}.act, %(act)s::text || '.'))
    AND (%(actor)s::text IS NULL OR {entry}.actor = %(actor)s::text)
    AND (%(subject)s::uuid IS NULL OR {entry}.subject = %(subject)s::uuid)
    AND (%(entry_id)s::uuid IS NULL OR {entry}.entry_id = %(entry_id)s::uuid)
    AND (%(before_at)s::timestamptz IS NULL
        OR ({entry}.created_at, {entry}.entry_id) < (%(before_at)s::timestamptz, %(before_id)s::uuid))
