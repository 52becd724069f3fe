-- Capturing of facts: the acts of operators, the act that applies to a batch, and the outcome of single events.

-- name: record_capture_act
-- Record an act of a namespace (owner_key NULL) or of one owner; no row if another one took the number in the meantime.
-- params: owner_key uuid?, capture json
-- row: recorded
INSERT INTO strandline.capture_act (namespace, number, owner_key, capture, actor)
SELECT %(namespace)s, 1 + coalesce(max(a.number), 0), %(owner_key)s::uuid, %(capture)s::json, %(actor)s
FROM strandline.capture_act a WHERE a.namespace = %(namespace)s
ON CONFLICT DO NOTHING
RETURNING number, created_at

-- name: newest_capture_acts
-- The newest act of a namespace, and that of an owner in it.
-- params: owner_key uuid?
-- row: number bigint, owner_key uuid?, capture text, actor text?, created_at timestamptz
SELECT DISTINCT ON (a.owner_key) a.number, a.owner_key, a.capture::text, a.actor, a.created_at
FROM strandline.capture_act a
WHERE a.namespace = %(namespace)s AND (a.owner_key IS NULL OR a.owner_key = %(owner_key)s::uuid)
ORDER BY a.owner_key, a.number DESC

-- name: capture_acts
-- The acts of a namespace (owner_key NULL) or of one owner in it, newest first.
-- params: owner_key uuid?
-- row: capture_act
SELECT a.number, a.capture::text, a.actor, a.created_at FROM strandline.capture_act a
WHERE a.namespace = %(namespace)s AND a.owner_key IS NOT DISTINCT FROM %(owner_key)s::uuid
ORDER BY a.number DESC LIMIT %(limit)s

-- name: batch_capture
-- What applies to the events of a batch: of its namespace and of its owner; no row if there is no act.
-- row: number bigint, common text?, own text?
SELECT b.capture_number AS number, @common_capture(s.namespace, b.capture_number) AS common,
    @own_capture(s.namespace, %(shard_key)s, b.capture_number) AS own
FROM strandline.batch b
JOIN strandline.flush_event e ON e.shard_key = %(shard_key)s AND e.event_id = b.event_ids[1]
JOIN strandline.session s ON s.shard_key = %(shard_key)s AND s.session_key = e.session_key
WHERE b.shard_key = %(shard_key)s AND b.batch_id = %(batch_id)s AND b.capture_number IS NOT NULL

-- name: withhold_candidate
-- A candidate cannot become a fact, since an act has an operation switched off.
-- params: number bigint, ordinal integer
UPDATE strandline.fact_candidate SET withheld_by = %(number)s
WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s AND event_id = %(event_id)s
    AND ordinal = %(ordinal)s

-- name: source_events
-- The flush events of a session's current incarnation, in their order.
-- row: event_id uuid
SELECT e.event_id FROM strandline.session s
JOIN strandline.flush_event e ON e.shard_key = %(shard_key)s AND e.session_key = s.session_key
    AND e.incarnation = s.incarnation
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s
ORDER BY e.from_seq

-- name: events_left
-- How many of some events the derivation that serves an owner has not merged yet; and why one of them was given up, if
-- one was.
-- row: events bigint, failure text?
SELECT count(*) AS events, (
        SELECT min(d.reason) FROM @serving(%(shard_key)s, '{facts}') AS serving
        JOIN strandline.dead_letter d ON d.shard_key = %(shard_key)s AND d.generation_id = serving.generation_id
            AND d.event_id = ANY (%(event_ids)s::uuid[])) AS failure
FROM unnest(%(event_ids)s::uuid[]) AS wanted (event_id)
WHERE NOT EXISTS (
    SELECT FROM @serving(%(shard_key)s, '{facts}') AS serving
    JOIN strandline.receipt r ON r.shard_key = %(shard_key)s AND r.event_id = wanted.event_id
        AND r.generation_id = serving.generation_id AND (r.stage = 'merge' OR r.outcome <> 'applied'))

-- name: changes_of_events
-- What some events did to the facts of the derivation that serves an owner, each operation on a fact once; those of an
-- instruction are recorded as edits.
-- row: fact_id uuid, operation text
WITH change AS (
    SELECT r.fact_id, r.operation, r.created_at
    FROM @serving(%(shard_key)s, '{facts}') AS serving
    JOIN strandline.fact_revision r ON r.shard_key = %(shard_key)s AND r.generation_id = serving.generation_id
        AND r.event_id = ANY (%(event_ids)s::uuid[]) AND r.operation IN ('add', 'update', 'invalidate')
    UNION ALL
    SELECT e.fact_id, CASE e.kind WHEN 'replace' THEN 'update' WHEN 'delete' THEN 'invalidate' ELSE e.kind END,
        e.created_at
    FROM strandline.fact_event e
    WHERE e.shard_key = %(shard_key)s AND e.instruction = ANY (%(event_ids)s::uuid[])
)
SELECT c.fact_id, c.operation FROM change c
GROUP BY c.fact_id, c.operation ORDER BY min(c.created_at), c.fact_id

-- name: is_carried_out
-- Whether an instruction has changed facts already, or is gone with its session.
-- row: is_over boolean
SELECT EXISTS (
        SELECT FROM strandline.fact_event e WHERE e.shard_key = %(shard_key)s AND e.instruction = %(event_id)s)
    OR NOT EXISTS (
        SELECT FROM strandline.flush_event f JOIN strandline.session s ON s.shard_key = %(shard_key)s
            AND s.session_key = f.session_key AND s.incarnation = f.incarnation
        WHERE f.shard_key = %(shard_key)s AND f.event_id = %(event_id)s) AS is_over

-- name: newest_facts
-- The owner's newest live facts, the longest known first.
-- row: fact_id uuid, text text, said_at timestamptz, fingerprint bytea, is_by_assistants boolean
-- opens: text, fingerprint fingerprint - text
SELECT n.fact_id, n.text, n.said_at, n.fingerprint, @is_assistants_fact(n, %(shard_key)s) AS is_by_assistants FROM (
    SELECT f.* FROM strandline.fact f
    WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.live
    ORDER BY f.said_at DESC, f.fact_id LIMIT %(limit)s) AS n
ORDER BY n.said_at, n.fact_id
