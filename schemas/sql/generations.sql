-- Generations: what each derivation of a pipeline is made with, how a new one is filled, and which one serves.

-- name: register_generation
-- The first derivation of a pipeline in this database.  One that serves already stays as it was made; only if
-- it has derived nothing yet does it take on what it is to be made with from now on.
-- params: version text
WITH adopted AS (
    UPDATE strandline.generation g SET config = %(config)s::jsonb, prompts = %(prompts)s::jsonb
    WHERE g.pipeline = %(pipeline)s AND g.state = 'serving'
        AND (g.version, g.entry_scope) = (%(version)s, %(entry_scope)s)
        AND (g.config, g.prompts) <> (%(config)s::jsonb, %(prompts)s::jsonb)
        AND NOT EXISTS (SELECT FROM strandline.batch b WHERE b.generation_id = g.generation_id)
)
INSERT INTO strandline.generation (pipeline, version, state, entry_stage, entry_scope, config, prompts)
SELECT %(pipeline)s, %(version)s, 'serving', %(entry_stage)s, %(entry_scope)s, %(config)s::jsonb,
    %(prompts)s::jsonb
WHERE NOT EXISTS (
    SELECT FROM strandline.generation g WHERE g.pipeline = %(pipeline)s AND g.state = 'serving')
ON CONFLICT (pipeline) WHERE state = 'serving' DO NOTHING

-- name: serving_generations
-- The default serving derivation of each pipeline; an owner may have another one.
-- row: generation
SELECT generation_id, pipeline, version, state, entry_scope, config::text, prompts::text,
    backfilled_through IS NULL AS is_filled
FROM strandline.generation WHERE state = 'serving'
ORDER BY pipeline

-- name: find_generation
-- One derivation, whatever its state.
-- row: generation
SELECT generation_id, pipeline, version, state, entry_scope, config::text, prompts::text,
    backfilled_through IS NULL AS is_filled
FROM strandline.generation WHERE generation_id = %(generation_id)s

-- name: kept_generations
-- The derivations that are fed: all but the pruned ones.
-- row: generation
SELECT generation_id, pipeline, version, state, entry_scope, config::text, prompts::text,
    backfilled_through IS NULL AS is_filled
FROM strandline.generation WHERE state <> 'retired'
ORDER BY pipeline, generation_id

-- name: lock_pipeline
-- Keep others from beginning, switching or pruning a derivation of this pipeline until the transaction ends.
-- row: generation_id integer, state text, served_until timestamptz?
SELECT generation_id, state, served_until FROM strandline.generation WHERE pipeline = %(pipeline)s
ORDER BY generation_id FOR UPDATE

-- name: begin_generation
-- A derivation next to the one that serves: fed by every flush that sees this row, closed to workers so far.
-- params: version text
-- row: generation_id integer
INSERT INTO strandline.generation (pipeline, version, state, entry_stage, entry_scope, config, prompts,
    fed_since, backfilled_through)
VALUES (%(pipeline)s, %(version)s, 'preparing', %(entry_stage)s, %(entry_scope)s, %(config)s::jsonb,
    %(prompts)s::jsonb, NULL, '00000000-0000-0000-0000-000000000000')
RETURNING generation_id

-- name: transactions_begun
-- A number above those of all transactions that have written so far.  (The upper end of a snapshot will not do: it is
-- the number after the last transaction that has ended, and higher ones may be under way.)
-- row: number bigint
SELECT pg_current_xact_id()::text::bigint AS number

-- name: transactions_under_way
-- The number of the oldest transaction that has written and has not ended.
-- row: number bigint
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS number

-- name: feed_generation
-- Mark that every flush feeds it from now on.
UPDATE strandline.generation SET state = 'feeding', fed_since = statement_timestamp(), state_since = statement_timestamp()
WHERE generation_id = %(generation_id)s AND state = 'preparing'

-- name: owners_after
-- Owners that have events to derive from, in order.
-- params: after uuid
-- row: shard_key uuid
SELECT DISTINCT o.shard_key FROM (
    (SELECT DISTINCT e.shard_key FROM strandline.flush_event e
        WHERE e.shard_key > %(after)s::uuid ORDER BY e.shard_key LIMIT %(limit)s)
    UNION ALL
    (SELECT DISTINCT p.shard_key FROM strandline.fact_event p
        WHERE p.shard_key > %(after)s::uuid ORDER BY p.shard_key LIMIT %(limit)s)
) AS o
ORDER BY o.shard_key LIMIT %(limit)s

-- name: lock_owner_lanes
-- Keep retention from removing messages of an owner until this transaction ends: it locks lanes of theirs, in this order.
-- row: lanes integer
-- repeatable
SELECT count(*)::integer AS lanes FROM (
    SELECT FROM strandline.lane l WHERE l.shard_key = %(shard_key)s
    ORDER BY l.scope_key, l.generation_id, l.stage FOR UPDATE) AS locked

-- name: lanes_to_fill
-- Lanes of an owner in which a derivation has not seen events that fit (missing), and whether it is to derive any.
-- params: namespace text?
-- row: scope_key uuid, is_known boolean
SELECT m.scope_key, bool_or(m.is_known) AS is_known
FROM @missing(%(shard_key)s, %(generation_id)s, %(last_stage)s) m
WHERE (m.is_known OR NOT m.was_void) AND @fits(m, m)
GROUP BY m.scope_key ORDER BY m.scope_key

-- name: backfill_owner
-- Make due the matching events of an owner that a derivation has not seen, in one lane or in all: a page of them, or
-- none if it has seen all. From before a reset, only events that the serving derivation still knows are derived
-- again; the others are void.
-- params: scope_key uuid?, namespace text?
-- row: backlog
WITH missing AS MATERIALIZED (
    SELECT m.* FROM @missing(%(shard_key)s, %(generation_id)s, %(last_stage)s) m
    WHERE (m.is_known OR NOT m.was_void) AND @fits(m, m)
        AND (%(scope_key)s::uuid IS NULL OR m.scope_key = %(scope_key)s)
), taken AS MATERIALIZED (
    -- The rows of the events are locked: a reset that forgets waits, and then sees the rows written here; an event
    -- that it has deleted is left out.
    SELECT m.* FROM missing m
    JOIN strandline.flush_event e ON e.shard_key = %(shard_key)s AND e.session_key = m.session_key
        AND e.from_seq = m.from_seq AND e.event_id = m.event_id
    ORDER BY m.session_key, m.from_seq LIMIT %(limit)s FOR KEY SHARE OF e
), revived AS (
    DELETE FROM strandline.receipt r USING taken t
    WHERE t.was_void AND r.shard_key = %(shard_key)s AND r.event_id = t.event_id
        AND r.generation_id = %(generation_id)s AND r.stage = t.stage
), voided AS (
    INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome)
    SELECT %(shard_key)s, event_id, %(generation_id)s, stage, 'void' FROM taken WHERE NOT is_known
), made_due AS (
    INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq,
        scope_key, event_id, incarnation, tokens, namespace, precedence, created_at, ring_at, was_applied)
    SELECT %(shard_key)s, session_key, %(generation_id)s, stage, from_seq, through_seq, scope_key, event_id,
        incarnation, @work_tokens(stage, tokens, %(shard_key)s, %(generation_id)s, taken.event_id), namespace, 1,
        created_at, 'infinity', is_memory FROM taken WHERE is_known
)
SELECT count(*)::integer AS events, coalesce(sum(tokens), 0)::bigint AS tokens FROM taken

-- name: truncated_event
-- An event of an owner of which messages are gone from the log, if there is one. Those that a correction took back are
-- not missed, nor those that retention removed: what they gave is the base of what is derived.
-- row: session_id text, from_seq bigint, through_seq bigint, message_count integer, remaining integer
SELECT s.session_id, e.from_seq, e.through_seq, e.message_count, l.remaining
FROM strandline.flush_event e
JOIN strandline.session s ON s.shard_key = e.shard_key AND s.session_key = e.session_key
    AND s.incarnation = e.incarnation
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS remaining FROM strandline.message m
    WHERE m.shard_key = %(shard_key)s AND m.session_key = e.session_key
        AND m.seq BETWEEN e.from_seq AND e.through_seq) AS l
WHERE e.shard_key = %(shard_key)s AND l.remaining < e.message_count
    AND NOT (@is_removed(%(shard_key)s, e.session_key, e.from_seq)
        OR @is_removed(%(shard_key)s, e.session_key, e.through_seq))
    AND l.remaining < e.message_count - (
    SELECT count(DISTINCT u.seq) FROM strandline.superseded u
    JOIN strandline.popped p ON p.shard_key = %(shard_key)s AND p.session_key = u.session_key AND p.seq = u.seq
    WHERE u.shard_key = %(shard_key)s AND u.session_key = e.session_key AND u.was_delivered
        AND u.seq BETWEEN e.from_seq AND e.through_seq)
ORDER BY e.session_key, e.from_seq LIMIT 1

-- name: open_backfilled
-- Workers may work on the owners up to this one.
-- params: through uuid
UPDATE strandline.generation SET backfilled_through = %(through)s
WHERE generation_id = %(generation_id)s AND backfilled_through < %(through)s

-- name: end_backfill
-- Mark that everything flushed so far is due or done in it.
UPDATE strandline.generation SET backfilled_through = NULL, fed_since = '-infinity'
WHERE generation_id = %(generation_id)s AND backfilled_through IS NOT NULL

-- name: uncovered_owners
-- A page of owners: how many of their events a derivation lacks, how many of those are dead letters, and how many
-- are neither that nor were flushed since it was made; whether it serves them already, or a fence stands, so that nothing
-- of them is derived; and whether what they search is shared with other owners.
-- params: after uuid
-- row: shard_key uuid, events integer, dead integer, older integer, is_settled boolean, is_shared boolean
SELECT o.shard_key, u.events, u.dead, u.older, @is_fenced(o.shard_key) OR EXISTS (
    SELECT FROM strandline.scope_generation s
    JOIN strandline.generation g ON g.generation_id = s.generation_id AND g.pipeline = s.pipeline
    WHERE s.shard_key = o.shard_key AND s.generation_id = %(generation_id)s) AS is_settled, EXISTS (
    SELECT FROM strandline.session s JOIN strandline.generation g ON g.generation_id = %(generation_id)s
        AND g.pipeline = 'vectors'
    WHERE s.shard_key = o.shard_key AND s.shared_key IS NOT NULL) AS is_shared
FROM (
    SELECT p.shard_key FROM (
        (SELECT DISTINCT e.shard_key FROM strandline.flush_event e
            WHERE e.shard_key > %(after)s::uuid ORDER BY e.shard_key LIMIT %(limit)s)
        UNION ALL
        (SELECT DISTINCT f.shard_key FROM strandline.fact_event f
            WHERE f.shard_key > %(after)s::uuid ORDER BY f.shard_key LIMIT %(limit)s)) AS p
    GROUP BY p.shard_key ORDER BY p.shard_key LIMIT %(limit)s
) AS o
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS events, count(d.event_id)::integer AS dead,
        count(*) FILTER (WHERE d.event_id IS NULL AND e.created_at <= n.created_at)::integer AS older
    FROM @uncovered(o.shard_key, %(generation_id)s, %(last_stage)s) AS m (event_id)
    JOIN strandline.generation n ON n.generation_id = %(generation_id)s
    JOIN strandline.flush_event e ON e.shard_key = o.shard_key AND e.event_id = m.event_id
    LEFT JOIN strandline.dead_letter d ON d.shard_key = o.shard_key AND d.generation_id = %(generation_id)s
        AND d.event_id = m.event_id) AS u
ORDER BY o.shard_key

-- name: switch_owner
-- Let this derivation serve the owner, if it covers all that the earlier one covers: check and switch are one
-- statement. Its row is locked, so that who retires it sees that it serves, or is waited for.
-- row: shard_key uuid
INSERT INTO strandline.scope_generation AS s (shard_key, pipeline, generation_id)
SELECT %(shard_key)s, n.pipeline, n.generation_id FROM strandline.generation n
WHERE n.generation_id = %(generation_id)s AND n.state = 'feeding'
    AND (n.backfilled_through IS NULL OR %(shard_key)s <= n.backfilled_through)
    AND NOT EXISTS (
        SELECT FROM @uncovered(%(shard_key)s, %(generation_id)s, %(last_stage)s) AS uncovered)
FOR KEY SHARE OF n
ON CONFLICT (shard_key, pipeline) DO UPDATE SET generation_id = excluded.generation_id,
    switched_at = excluded.switched_at, paused_until = NULL
WHERE s.generation_id <> excluded.generation_id
RETURNING shard_key

-- name: pause_owner
-- For some seconds, the serving derivation takes up no more work of the owner, so that the other one can catch up.
INSERT INTO strandline.scope_generation AS s (shard_key, pipeline, generation_id, paused_until)
SELECT %(shard_key)s, v.pipeline, v.generation_id,
    statement_timestamp() + make_interval(secs => %(seconds)s)
FROM @serving(%(shard_key)s, ARRAY[%(pipeline)s::text]) v
ON CONFLICT (shard_key, pipeline) DO UPDATE SET paused_until = excluded.paused_until
-- The row that was to be inserted has the present time as its switched_at.
WHERE s.generation_id = excluded.generation_id AND (s.paused_until IS NULL OR s.paused_until < excluded.switched_at)

-- name: ring_owner
-- Ring for due work of this owner in the derivation that serves it now, as for any live work.
UPDATE strandline.due SET ring_at = statement_timestamp()
WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s AND ring_at = 'infinity'

-- name: end_serving
-- The derivation that served by default is still fed, so that it can be rolled back to.
-- row: generation_id integer
UPDATE strandline.generation SET state = 'feeding', served_until = statement_timestamp(),
    state_since = statement_timestamp()
WHERE pipeline = %(pipeline)s AND state = 'serving' AND generation_id <> %(generation_id)s
RETURNING generation_id

-- name: begin_serving
-- Let this derivation serve all owners.
-- row: generation_id integer
UPDATE strandline.generation SET state = 'serving', served_until = NULL, state_since = statement_timestamp()
WHERE generation_id = %(generation_id)s AND state = 'feeding'
RETURNING generation_id

-- name: forget_owners_generations
-- Remove the exceptions: all owners of a pipeline are served by the same derivation again.
-- row: generation_id integer
DELETE FROM strandline.scope_generation WHERE pipeline = %(pipeline)s
RETURNING generation_id

-- name: ring_generation
-- Ring for due work in the derivation that serves all owners now, as for any live work.
UPDATE strandline.due SET ring_at = statement_timestamp()
WHERE generation_id = %(generation_id)s AND stage = ANY (%(stages)s::text[]) AND ring_at = 'infinity'

-- name: list_generations
-- All derivations, newest last, with their contents and their backlog.
-- params: pipeline text?
-- row: generation_id integer, pipeline text, state text, version text, config text, created_at timestamptz,
--     served_until timestamptz?, is_filled boolean, due bigint, dead bigint, owners bigint
SELECT g.generation_id, g.pipeline, g.state, g.version, g.config::text, g.created_at, g.served_until,
    g.backfilled_through IS NULL AS is_filled,
    (SELECT count(*) FROM strandline.due d WHERE d.generation_id = g.generation_id) AS due,
    (SELECT count(*) FROM strandline.dead_letter d WHERE d.generation_id = g.generation_id
        AND d.dropped_at IS NULL) AS dead,
    (SELECT count(*) FROM strandline.scope_generation s WHERE s.generation_id = g.generation_id
        AND g.state <> 'serving') AS owners
FROM strandline.generation g
WHERE %(pipeline)s::text IS NULL OR g.pipeline = %(pipeline)s
ORDER BY g.pipeline, g.generation_id

-- name: retire_generation
-- Retire it: it is no longer fed, and no worker works on it.
-- row: pipeline text
UPDATE strandline.generation g SET state = 'retired',
    state_since = CASE WHEN g.state = 'retired' THEN g.state_since ELSE statement_timestamp() END
WHERE g.generation_id = %(generation_id)s AND g.state IN ('preparing', 'feeding', 'retired') AND NOT EXISTS (
    SELECT FROM strandline.scope_generation s WHERE s.generation_id = g.generation_id)
RETURNING g.pipeline

-- name: owners_with_rows
-- Owners who may have rows of a derivation, in order.
-- params: after uuid
-- row: shard_key uuid
SELECT DISTINCT o.shard_key FROM (
    (SELECT DISTINCT s.shard_key FROM strandline.session s
        WHERE s.shard_key > %(after)s::uuid ORDER BY s.shard_key LIMIT %(limit)s)
    UNION ALL
    (SELECT DISTINCT p.shard_key FROM strandline.fact_event p
        WHERE p.shard_key > %(after)s::uuid ORDER BY p.shard_key LIMIT %(limit)s)
    UNION ALL
    (SELECT DISTINCT h.shard_key FROM strandline.shared_session h
        WHERE h.shard_key > %(after)s::uuid ORDER BY h.shard_key LIMIT %(limit)s)
) AS o
ORDER BY o.shard_key LIMIT %(limit)s

-- name: prune_lanes
-- Take the lanes of an owner's derivation from their holders, and lock them: wait for a worker that is writing; a
-- later one finds its lease gone.
-- row: stage text
SELECT l.stage FROM strandline.lane l
WHERE l.shard_key = %(shard_key)s AND l.generation_id = %(generation_id)s
ORDER BY l.scope_key, l.stage FOR UPDATE

-- name: lone_facts
-- The facts of an owner's derivation whose id no other one has.
-- row: fact_id uuid
SELECT f.fact_id FROM strandline.fact f
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND NOT EXISTS (
    SELECT FROM strandline.fact o WHERE o.shard_key = %(shard_key)s AND o.generation_id <> %(generation_id)s
        AND o.fact_id = f.fact_id)

-- name: note_former
-- Note facts of an owner's derivation before prune_owner, so that their ids are found later (note_former_v1).
SELECT FROM strandline.note_former_v1(%(shard_key)s, %(generation_id)s, NULL, %(fact_ids)s::uuid[])

-- name: prune_owner
-- Delete all rows of an owner's derivation, whose lanes are locked; the cost of its model calls stays in the ledger.
-- row: events integer
WITH lanes AS (
    DELETE FROM strandline.lane WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s
), due AS (
    DELETE FROM strandline.due WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s
), batches AS (
    DELETE FROM strandline.batch WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s
    RETURNING batch_id
), answers AS (
    DELETE FROM strandline.answer a USING batches b
    WHERE a.shard_key = %(shard_key)s AND a.batch_id = b.batch_id
), receipts AS (
    DELETE FROM strandline.receipt WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s
    RETURNING event_id
), letters AS (
    DELETE FROM strandline.dead_letter WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s
), candidates AS (
    DELETE FROM strandline.fact_candidate
    WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s
), facts AS (
    DELETE FROM strandline.fact WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s
), revisions AS (
    DELETE FROM strandline.fact_revision
    WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s
), condensations AS (
    DELETE FROM strandline.condensation WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s
), states AS (
    DELETE FROM strandline.block_state WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s
), @noted_change(%(shard_key)s, 'pieces'), inputs AS (
    DELETE FROM strandline.archived_input WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s
), chunks AS (
    DELETE FROM strandline.chunk WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s
)
SELECT count(*)::integer AS events FROM receipts
