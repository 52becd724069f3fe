-- The audit trail: acts appended, and the level of each namespace.

-- name: append_act
-- Append an act to the trail, in this transaction, if the namespace's level has it recorded (append_act_v1).
-- params: has_owner boolean, session_key uuid?, act jsonb
-- row: is_recorded boolean
SELECT strandline.append_act_v1(%(shard_key)s, %(has_owner)s, %(namespace)s, %(user_id)s, %(session_key)s,
    %(act)s::jsonb, %(lazily)s) AS is_recorded

-- name: put_one_recorded
-- As put_one, with the act in the audit trail if the namespace's level has it recorded. Without a row nothing was
-- done, and put_v1 decides; it also makes the owner's pseudonym.
-- params: tokens integer, bytes integer, envelope json, metadata json?, calls json?, answers json?, created_at
--     timestamptz?, labels bigint[]?, entry_id uuid, origin text?, flags text[]
-- row: seq bigint, is_recorded boolean
-- repeatable
WITH moved AS (
    @move_marks(NOT @is_ruled(t, false)
        AND EXISTS (SELECT FROM strandline.audit_subject w WHERE w.shard_key = %(shard_key)s))
), stored AS (
    @insert_message()
    RETURNING seq
), recorded AS (
    INSERT INTO strandline.audit_entry (
        shard_key, entry_id, namespace, act, actor, origin, subject, session, seq, count, flags, created_at)
    SELECT %(shard_key)s, %(entry_id)s::uuid, n.namespace, 'put', @named_actor(%(actor)s::text, n.user_id, a.subject),
        %(origin)s::text, a.subject, @session_pseudonym(a.salt, %(session_key)s::uuid), n.seq, 1, %(flags)s::text[],
        n.last_put_at
    FROM moved n CROSS JOIN strandline.audit_subject a
    WHERE a.shard_key = %(shard_key)s AND @is_recorded(n.namespace, %(level)s::text)
    RETURNING entry_id
)
SELECT n.seq, EXISTS (SELECT FROM recorded) AS is_recorded FROM stored n

-- name: put_many_recorded
-- As put_many, with the acts in the audit trail; a message without an entry_id is left out where puts are recorded.
-- params: messages json
-- row: session_key text, seq bigint, is_recorded boolean
-- repeatable
WITH held AS (
    SELECT g.*, t.next_seq, t.incarnation, t.namespace, t.user_id, a.subject, a.salt,
        coalesce(l.level, 'changes') IN ('all', g.level) AS is_recorded
    FROM json_to_recordset(%(messages)s::json) AS g (
        shard_key uuid, session_key uuid, id text, role text, tokens integer, bytes integer, digest bytea,
        envelope json, metadata json, created_at timestamptz, calls json, answers json, labels bigint[], data_key integer,
        entry_id uuid, level text, actor text, origin text, flags text[])
    JOIN strandline.session t ON t.shard_key = g.shard_key AND t.session_key = g.session_key
    LEFT JOIN strandline.audit_subject a ON a.shard_key = g.shard_key
    LEFT JOIN strandline.audit_level l ON l.namespace = t.namespace
    WHERE @takes_simply(t, g, false)
        AND CASE WHEN g.entry_id IS NULL THEN l.level IS DISTINCT FROM 'all' ELSE a.subject IS NOT NULL END
    FOR NO KEY UPDATE OF t SKIP LOCKED
), @stored_and_moved(), recorded AS (
    -- At most as many as one group has: to compare all with all takes no time that counts.
    INSERT INTO strandline.audit_entry (
        shard_key, entry_id, namespace, act, actor, origin, subject, session, seq, count, flags, created_at)
    SELECT h.shard_key, h.entry_id, h.namespace, 'put', @named_actor(h.actor, h.user_id, h.subject), h.origin, h.subject,
        @session_pseudonym(h.salt, h.session_key), n.seq, 1, coalesce(h.flags, '{}'), statement_timestamp()
    FROM stored n JOIN held h ON h.session_key = n.session_key
    WHERE h.entry_id IS NOT NULL AND h.is_recorded
    RETURNING entry_id
)
SELECT n.session_key::text, n.seq, EXISTS (SELECT FROM recorded) AS is_recorded FROM stored n

-- name: level_of_namespace
-- The level of a namespace's trail.
-- row: level text
SELECT coalesce((SELECT l.level FROM strandline.audit_level l WHERE l.namespace = %(namespace)s), 'changes') AS level

-- name: names_of_owner
-- The names of an owner, from one of the sessions.
-- row: namespace text, user_id text?
SELECT s.namespace, s.user_id FROM strandline.session s WHERE s.shard_key = %(shard_key)s LIMIT 1

-- name: unsealed_namespaces
-- Namespaces with acts that no seal covers yet.
-- row: namespace text
SELECT e.namespace FROM strandline.audit_entry e GROUP BY e.namespace LIMIT %(limit)s

-- name: open_chains
-- Begin the chains of namespaces that have none yet.
-- repeatable
INSERT INTO strandline.audit_chain (shard_key, namespace)
SELECT n.shard_key, n.namespace FROM unnest(%(shard_keys)s::uuid[], %(namespaces)s::text[]) AS n (shard_key, namespace)
WHERE NOT EXISTS (SELECT FROM strandline.audit_chain c WHERE c.shard_key = n.shard_key)
ORDER BY n.shard_key
ON CONFLICT DO NOTHING

-- name: lock_chains
-- Lock the chains to extend, except chains that another sealer has locked.
-- row: shard_key uuid
SELECT c.shard_key FROM strandline.audit_chain c WHERE c.shard_key = ANY (%(shard_keys)s::uuid[])
ORDER BY c.shard_key FOR NO KEY UPDATE SKIP LOCKED

-- name: chain_ends
-- Where chains end: how many seals and entries each has, and the MAC of its last seal.
-- row: shard_key uuid, seals bigint, entries bigint, mac bytea?, sealed_at timestamptz?
SELECT c.shard_key, c.seals, c.entries, s.mac, s.sealed_at FROM strandline.audit_chain c
LEFT JOIN strandline.audit_seal s ON s.shard_key = c.shard_key AND s.number = c.seals
WHERE c.shard_key = ANY (%(shard_keys)s::uuid[])

-- name: read_unsealed
-- Acts of namespaces that no seal covers yet, whatever their time, locked until they are under it; those that an erasure
-- changes at this moment are left to a later seal.
-- row: shard_key uuid, entry_id uuid, namespace text, act text, actor text?, origin text?, subject uuid?, session uuid?,
--     seq bigint?, amount bigint?, detail text?, flags text[], created_at timestamptz
SELECT e.shard_key, e.entry_id, e.namespace, e.act, e.actor, e.origin, e.subject, e.session, e.seq, e.count AS amount,
    e.detail::text, e.flags, e.created_at
FROM strandline.audit_entry e WHERE e.namespace = ANY (%(namespaces)s::text[])
LIMIT %(limit)s FOR UPDATE SKIP LOCKED

-- name: subject_salts
-- The secrets of owners by their pseudonyms; none of one that was erased.
-- params: subjects uuid[]
-- row: pseudonym
SELECT a.subject, a.salt FROM strandline.audit_subject a WHERE a.subject = ANY (%(subjects)s::uuid[])

-- name: add_seals
-- The next seal of each chain.
-- params: seals json
INSERT INTO strandline.audit_seal (
    shard_key, number, entries, entries_before, entry_ids, leaves, root, previous, key_id, mac, sealed_at)
SELECT s.* FROM json_to_recordset(%(seals)s::json) AS s (
    shard_key uuid, number bigint, entries integer, entries_before bigint, entry_ids uuid[], leaves bytea, root bytea,
    previous bytea, key_id text, mac bytea, sealed_at timestamptz)

-- name: move_sealed
-- Put acts under their seals, each at its place; returns how many there were. An origin without a digest, as of a user who
-- was erased in the meantime, is left out.
-- params: entry_ids uuid[], chain_keys uuid[], seals bigint[], places integer[], digests bytea?[]
-- row: entries bigint
WITH moved AS (
    DELETE FROM strandline.audit_entry e
    USING unnest(%(shard_keys)s::uuid[], %(entry_ids)s::uuid[], %(chain_keys)s::uuid[], %(seals)s::bigint[],
        %(places)s::integer[], %(digests)s::bytea[])
        AS n (shard_key, entry_id, chain_key, seal, place, origin_digest)
    WHERE e.shard_key = n.shard_key AND e.entry_id = n.entry_id
    RETURNING n.chain_key, n.seal, n.place, e.entry_id, e.act, e.actor, e.origin, n.origin_digest, e.subject, e.session,
        e.seq, e.count, e.detail, e.flags, e.created_at
), kept AS (
    INSERT INTO strandline.audit_sealed (
        shard_key, seal, place, entry_id, act, actor, origin, origin_digest, subject, session, seq, count, detail, flags,
        created_at)
    SELECT m.chain_key, m.seal, m.place, m.entry_id, m.act, m.actor,
        CASE WHEN m.origin_digest IS NOT NULL THEN m.origin END, m.origin_digest, m.subject, m.session, m.seq, m.count,
        m.detail, m.flags, m.created_at
    FROM moved m
    RETURNING seal
)
SELECT count(*) AS entries FROM kept

-- name: advance_chains
-- The new ends of chains.
-- params: seals bigint[], entries bigint[]
UPDATE strandline.audit_chain c SET seals = n.seals, entries = n.entries
FROM unnest(%(shard_keys)s::uuid[], %(seals)s::bigint[], %(entries)s::bigint[]) AS n (shard_key, seals, entries)
WHERE c.shard_key = n.shard_key

-- name: chain_of
-- How long a namespace's chain is, and how much of it was pruned.
-- row: seals bigint, pruned_seals bigint, entries bigint
SELECT c.seals, c.pruned_seals, c.entries FROM strandline.audit_chain c WHERE c.shard_key = %(shard_key)s

-- name: chains_of_name
-- The chain under the key of a namespace, and each that gives this namespace as its own, whatever key it stands under.
-- row: shard_key uuid, namespace text
SELECT c.shard_key, c.namespace FROM strandline.audit_chain c
WHERE c.shard_key = %(shard_key)s OR c.namespace = %(namespace)s
ORDER BY c.shard_key

-- name: keys_of_trails
-- The keys that chains, seals or sealed acts stand under.
-- row: shard_key uuid!
WITH RECURSIVE sealing AS (
    (SELECT s.shard_key FROM strandline.audit_seal s ORDER BY s.shard_key LIMIT 1)
    UNION ALL
    SELECT (SELECT s.shard_key FROM strandline.audit_seal s WHERE s.shard_key > o.shard_key ORDER BY s.shard_key LIMIT 1)
    FROM sealing o WHERE o.shard_key IS NOT NULL
), sealed AS (
    (SELECT e.shard_key FROM strandline.audit_sealed e ORDER BY e.shard_key LIMIT 1)
    UNION ALL
    SELECT (SELECT e.shard_key FROM strandline.audit_sealed e WHERE e.shard_key > o.shard_key ORDER BY e.shard_key LIMIT 1)
    FROM sealed o WHERE o.shard_key IS NOT NULL
)
SELECT k.shard_key FROM (SELECT c.shard_key FROM strandline.audit_chain c
    UNION SELECT o.shard_key FROM sealing o UNION SELECT o.shard_key FROM sealed o) AS k
WHERE k.shard_key IS NOT NULL ORDER BY k.shard_key

-- name: unsealed_of
-- How many acts of a namespace no seal covers yet.
-- row: entries bigint
SELECT count(*) AS entries FROM strandline.audit_entry e WHERE e.namespace = %(namespace)s

-- name: seals_after
-- A page of a chain.
-- params: after bigint
-- row: number bigint, entries integer, entries_before bigint, entry_ids uuid[], leaves bytea, root bytea, previous bytea,
--     key_id text, mac bytea, sealed_at timestamptz
SELECT s.number, s.entries, s.entries_before, s.entry_ids, s.leaves, s.root, s.previous, s.key_id, s.mac, s.sealed_at
FROM strandline.audit_seal s WHERE s.shard_key = %(shard_key)s AND s.number > %(after)s
ORDER BY s.number LIMIT %(limit)s

-- name: sealed_entries
-- The acts that a range of seals covers, in their order.
-- params: from_seal bigint
-- row: seal bigint, place integer, entry_id uuid, act text, actor text?, origin text?, origin_digest bytea?, subject
--     uuid?, session uuid?, seq bigint?, amount bigint?, detail text?, flags text[], created_at timestamptz, salt bytea?
SELECT e.seal, e.place, e.entry_id, e.act, e.actor, e.origin, e.origin_digest, e.subject, e.session, e.seq, e.count AS amount,
    e.detail::text, e.flags, e.created_at, a.salt
FROM strandline.audit_sealed e LEFT JOIN strandline.audit_subject a ON a.subject = e.subject
WHERE e.shard_key = %(shard_key)s AND e.seal BETWEEN %(from_seal)s AND %(through_seal)s
ORDER BY e.seal, e.place

-- name: stray_sealed
-- Acts under seals that do not exist, or that were pruned: of these the last one stays, without its acts.
-- row: seal bigint, place integer, entry_id uuid
SELECT e.seal, e.place, e.entry_id FROM strandline.audit_sealed e
WHERE e.shard_key = %(shard_key)s AND (e.seal <= %(pruned_seals)s OR NOT EXISTS (
    SELECT FROM strandline.audit_seal s WHERE s.shard_key = %(shard_key)s AND s.number = e.seal))
ORDER BY e.seal, e.place LIMIT %(limit)s

-- name: recorded_prunings
-- The acts that say that a chain was pruned up to this seal, with the MAC that they give for it; seal is NULL for one that
-- no seal covers yet.
-- row: seal bigint?, mac text?
SELECT e.seal, e.detail ->> 'mac' AS mac FROM strandline.audit_sealed e
WHERE e.shard_key = %(shard_key)s AND e.act = 'audit.prune'
    AND (e.detail ->> 'through_seal')::bigint = %(through_seal)s
UNION ALL
SELECT NULL, e.detail ->> 'mac' FROM strandline.audit_entry e
WHERE e.shard_key = %(shard_key)s AND e.act = 'audit.prune'
    AND (e.detail ->> 'through_seal')::bigint = %(through_seal)s

-- name: set_audit_level
-- Set the level of a namespace's trail.
WITH ruled AS (
    INSERT INTO strandline.namespace_rule (namespace, records_puts) VALUES (%(namespace)s, %(level)s = 'all')
    ON CONFLICT (namespace) DO UPDATE SET records_puts = excluded.records_puts
)
INSERT INTO strandline.audit_level (namespace, level) VALUES (%(namespace)s, %(level)s)
ON CONFLICT (namespace) DO UPDATE SET level = excluded.level, updated_at = excluded.updated_at

-- name: audit_namespaces
-- Namespaces with a level of their own or a chain, with what is known of both; in the order of their names.
-- params: namespace text?
-- row: namespace text, level text, seals bigint, pruned_seals bigint, entries bigint, mac bytea?, sealed_at timestamptz?
SELECT coalesce(c.namespace, l.namespace) AS namespace, coalesce(l.level, 'changes') AS level,
    coalesce(c.seals, 0) AS seals, coalesce(c.pruned_seals, 0) AS pruned_seals, coalesce(c.entries, 0) AS entries, s.mac,
    s.sealed_at
FROM strandline.audit_chain c
FULL JOIN strandline.audit_level l ON l.namespace = c.namespace
LEFT JOIN strandline.audit_seal s ON s.shard_key = c.shard_key AND s.number = c.seals
WHERE %(namespace)s::text IS NULL OR coalesce(c.namespace, l.namespace) = %(namespace)s::text
ORDER BY 1

-- name: list_acts
-- Acts of a namespace, newest first: those that no seal covers yet, and the sealed ones from the end of the chain; each
-- with the user that its pseudonym leads to. Filters that are NULL let all pass. Only what is behind a place of the list:
-- before_at and before_id while it is among the unsealed (what was listed there may be sealed), before_seal and
-- before_place in the chain.
-- params: act text?, subject uuid?, before_at timestamptz?, before_seal bigint?, before_place integer?, entry_id uuid?
-- row: entry_id uuid, seal bigint?, place integer?, act text, actor text?, origin text?, subject uuid?, user_id text?,
--     session uuid?, seq bigint?, amount bigint?, detail text?, flags text[], created_at timestamptz
SELECT e.entry_id, e.seal, e.place, e.act, e.actor, e.origin, e.subject, a.user_id, e.session, e.seq, e.count AS amount,
    e.detail::text, e.flags, e.created_at
FROM (
    (SELECT n.entry_id, NULL::bigint AS seal, NULL::integer AS place, n.act, n.actor, n.origin, n.subject, n.session,
        n.seq, n.count, n.detail, n.flags, n.created_at
    FROM strandline.audit_entry n
    WHERE n.namespace = %(namespace)s AND @passes(n) AND %(before_seal)s::bigint IS NULL
    ORDER BY n.created_at DESC, n.entry_id DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT n.entry_id, n.seal, n.place, n.act, n.actor, n.origin, n.subject, n.session, n.seq, n.count, n.detail,
        n.flags, n.created_at
    FROM strandline.audit_sealed n
    WHERE n.shard_key = %(shard_key)s AND @passes(n)
        AND (%(before_seal)s::bigint IS NULL
            OR (n.seal, n.place) < (%(before_seal)s::bigint, %(before_place)s::integer))
    ORDER BY n.seal DESC, n.place DESC LIMIT %(limit)s)
) AS e
LEFT JOIN strandline.audit_subject a ON a.subject = e.subject
ORDER BY e.seal DESC NULLS FIRST, e.place DESC, e.created_at DESC, e.entry_id DESC LIMIT %(limit)s

-- name: subject_of
-- The pseudonym of an owner, and the secret of its sessions' pseudonyms.
-- row: pseudonym
SELECT a.subject, a.salt FROM strandline.audit_subject a WHERE a.shard_key = %(shard_key)s

-- name: lock_chain
-- Lock a namespace's chain, with how long it is and how much of it was pruned.
-- row: seals bigint, pruned_seals bigint
SELECT c.seals, c.pruned_seals FROM strandline.audit_chain c WHERE c.shard_key = %(shard_key)s FOR NO KEY UPDATE

-- name: prunable_through
-- The last of the first seals, at most as many seals and acts as given, that were all made before a time; one seal at
-- least, however many acts it has. With its MAC.
-- params: before timestamptz, max_acts bigint
-- row: number bigint, mac bytea
SELECT n.number, n.mac FROM (
    SELECT s.number, s.mac, s.entries, bool_and(s.sealed_at < %(before)s) OVER (ORDER BY s.number) AS is_old,
        sum(s.entries) OVER (ORDER BY s.number) AS acts
    FROM strandline.audit_seal s
    JOIN strandline.audit_chain c ON c.shard_key = %(shard_key)s AND s.number < c.seals
    WHERE s.shard_key = %(shard_key)s AND s.number > %(pruned_seals)s ORDER BY s.number LIMIT %(limit)s) AS n
WHERE n.is_old AND (n.acts <= %(max_acts)s OR n.acts = n.entries)
ORDER BY n.number DESC LIMIT 1

-- name: prunable
-- How many seals, with how many acts, pruning up to a time would take, and the last of them; as prunable_through goes.
-- params: before timestamptz
-- row: entries bigint, through_seal bigint?
SELECT coalesce(sum(n.entries), 0)::bigint AS entries, max(n.number) AS through_seal FROM (
    SELECT s.number, s.entries, bool_and(s.sealed_at < %(before)s) OVER (ORDER BY s.number) AS is_old
    FROM strandline.audit_seal s
    JOIN strandline.audit_chain c ON c.shard_key = %(shard_key)s AND s.number < c.seals AND s.number > c.pruned_seals
    WHERE s.shard_key = %(shard_key)s) AS n
WHERE n.is_old

-- name: prune_entries
-- Delete the acts of the seals up to a number.
-- row: entries bigint
WITH gone AS (
    DELETE FROM strandline.audit_sealed e WHERE e.shard_key = %(shard_key)s AND e.seal <= %(through_seal)s
    RETURNING e.seal
)
SELECT count(*) AS entries FROM gone

-- name: prune_seals
-- Delete the seals before a number; that one stays, so that the next can be seen to follow it.
DELETE FROM strandline.audit_seal s WHERE s.shard_key = %(shard_key)s AND s.number < %(through_seal)s

-- name: mark_pruned
-- Note up to which seal a chain was pruned.
UPDATE strandline.audit_chain c SET pruned_seals = %(through_seal)s WHERE c.shard_key = %(shard_key)s

-- name: forget_unsealed_origins
-- Take the origins out of an owner's acts that no seal covers yet.
-- params: subject uuid
-- row: entry_id uuid
UPDATE strandline.audit_entry e SET origin = NULL
WHERE e.shard_key = %(shard_key)s AND e.subject = %(subject)s AND e.origin IS NOT NULL
RETURNING e.entry_id

-- name: forget_sealed_origins
-- Take the origins out of so many sealed acts of an owner by the pseudonym; the seals cover their digests.
-- params: chain_key uuid, subject uuid
-- row: entry_id uuid
WITH chosen AS MATERIALIZED (
    SELECT n.seal, n.place FROM strandline.audit_sealed n
    WHERE n.shard_key = %(chain_key)s AND n.subject = %(subject)s AND n.origin IS NOT NULL
    LIMIT %(limit)s
)
UPDATE strandline.audit_sealed e SET origin = NULL FROM chosen c
WHERE e.shard_key = %(chain_key)s AND e.seal = c.seal AND e.place = c.place AND e.origin IS NOT NULL
RETURNING e.entry_id

-- name: commit_durably
-- Have the commit of this transaction wait for the disk, whatever the connection's default is.
-- row: setting text
SELECT set_config('synchronous_commit', 'on', true) AS setting
