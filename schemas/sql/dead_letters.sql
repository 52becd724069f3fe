-- Dead letters: looked at, tried again, or given up.  No session row is locked here.

-- name: list_dead_letters
-- Dead letters with their names, oldest first.
SELECT d.event_id, d.stage, d.generation_id, g.pipeline, s.namespace, s.session_id, s.user_id,
    d.shard_key, d.session_key, d.scope_key, d.from_seq, d.through_seq, e.message_count, e.tokens, e.cause,
    e.created_at AS flushed_at, d.created_at AS died_at, d.batch_id, d.reason,
    s.incarnation = d.incarnation AS current
FROM strandline.dead_letter d
JOIN strandline.flush_event e ON e.shard_key = d.shard_key AND e.event_id = d.event_id
JOIN strandline.session s ON s.shard_key = d.shard_key AND s.session_key = d.session_key
JOIN strandline.generation g ON g.generation_id = d.generation_id
WHERE (%(namespace)s::text IS NULL OR s.namespace = %(namespace)s)
    AND (%(session_id)s::text IS NULL OR s.session_id = %(session_id)s)
    AND (%(pipeline)s::text IS NULL OR g.pipeline = %(pipeline)s)
    AND (%(stage)s::text IS NULL OR d.stage = %(stage)s)
    AND (%(event_id)s::uuid IS NULL OR d.event_id = %(event_id)s)
ORDER BY d.created_at, d.session_key, d.from_seq, d.generation_id, d.stage

-- name: reopen_lane
-- What befell the lane is forgotten, and it may be tried at once.  The row stays locked until the end.
-- An ordered lane is also taken from its holder, who would go on from a state that is about to go.
UPDATE strandline.lane SET postponements = 0, failures = 0, crashes = 0, last_error = NULL,
    next_attempt_at = clock_timestamp(), lease_epoch = lease_epoch + %(seize)s::boolean::integer,
    holder = CASE WHEN %(seize)s::boolean THEN NULL ELSE holder END,
    deadline_at = CASE WHEN %(seize)s::boolean THEN NULL ELSE deadline_at END
WHERE shard_key = %(shard_key)s AND scope_key = %(scope_key)s AND generation_id = %(generation_id)s
    AND stage = %(stage)s
RETURNING lease_epoch

-- name: revive_event
-- The dead letter and its receipt go, and the event is due again; after a reset it is void instead.
-- What merge has to do is sized by its candidates, as when extract passed it on.
WITH letter AS (
    DELETE FROM strandline.dead_letter d
    WHERE d.shard_key = %(shard_key)s AND d.session_key = %(session_key)s
        AND d.generation_id = %(generation_id)s AND d.stage = %(stage)s AND d.from_seq = %(from_seq)s
        AND d.event_id = %(event_id)s
    RETURNING d.*
), placed AS (
    SELECT l.*, e.tokens, EXISTS (
        SELECT FROM strandline.session s WHERE s.shard_key = l.shard_key
            AND s.session_key = l.session_key AND s.incarnation = l.incarnation) AS current
    FROM letter l JOIN strandline.flush_event e ON e.shard_key = l.shard_key AND e.event_id = l.event_id
), voided AS (
    UPDATE strandline.receipt r SET outcome = 'void', batch_id = NULL, applied_at = clock_timestamp()
    FROM placed p WHERE NOT p.current AND r.shard_key = p.shard_key AND r.event_id = p.event_id
        AND r.generation_id = p.generation_id AND r.stage = p.stage
), gone AS (
    DELETE FROM strandline.receipt r USING placed p
    WHERE p.current AND r.shard_key = p.shard_key AND r.event_id = p.event_id
        AND r.generation_id = p.generation_id AND r.stage = p.stage
), again AS (
    INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq,
        scope_key, event_id, incarnation, tokens, ring_at)
    SELECT p.shard_key, p.session_key, p.generation_id, p.stage, p.from_seq, p.through_seq, p.scope_key,
        p.event_id, p.incarnation, CASE WHEN p.scope_key = p.session_key THEN p.tokens ELSE coalesce((
            SELECT greatest(1, sum(length(c.text)) / 4) FROM strandline.fact_candidate c
            WHERE c.shard_key = p.shard_key AND c.generation_id = p.generation_id
                AND c.event_id = p.event_id), 1) END,
        clock_timestamp()
    FROM placed p WHERE p.current
)
SELECT current FROM placed

-- name: refold_start
-- Where folding again has to begin for this seq: a batch that reaches past it is done again as a whole.
SELECT min(e.from_seq) FROM strandline.batch b
CROSS JOIN LATERAL unnest(b.event_ids) AS covered (event_id)
JOIN strandline.flush_event e ON e.shard_key = b.shard_key AND e.event_id = covered.event_id
WHERE b.shard_key = %(shard_key)s AND b.scope_key = %(scope_key)s AND b.generation_id = %(generation_id)s
    AND b.stage = %(stage)s AND b.state = 'applied'
    AND EXISTS (
        SELECT FROM strandline.flush_event o WHERE o.shard_key = b.shard_key
            AND o.event_id = ANY (b.event_ids) AND o.from_seq >= %(from_seq)s)

-- name: refold
-- Unfold an ordered lane from a seq on: its states go, its batches are void (their answers spoke of a
-- state that is no more), and what was applied is due again.  Other dead letters stay what they are.
WITH unfolded AS (
    DELETE FROM strandline.block_state b
    WHERE b.shard_key = %(shard_key)s AND b.scope_key = %(scope_key)s
        AND b.generation_id = %(generation_id)s AND b.through_seq >= %(from_seq)s
), voided AS (
    UPDATE strandline.batch b SET state = 'void', closed_at = coalesce(b.closed_at, clock_timestamp())
    WHERE b.shard_key = %(shard_key)s AND b.scope_key = %(scope_key)s
        AND b.generation_id = %(generation_id)s AND b.stage = %(stage)s AND b.state IN ('open', 'applied')
        AND EXISTS (
            SELECT FROM strandline.flush_event o WHERE o.shard_key = b.shard_key
                AND o.event_id = ANY (b.event_ids) AND o.from_seq >= %(from_seq)s)
), gone AS (
    DELETE FROM strandline.receipt r USING strandline.flush_event e
    WHERE e.shard_key = %(shard_key)s AND e.session_key = %(scope_key)s AND e.from_seq >= %(from_seq)s
        AND r.shard_key = e.shard_key AND r.event_id = e.event_id
        AND r.generation_id = %(generation_id)s AND r.stage = %(stage)s AND r.outcome = 'applied'
    RETURNING r.event_id
)
INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq,
    scope_key, event_id, incarnation, tokens, ring_at)
SELECT e.shard_key, e.session_key, %(generation_id)s, %(stage)s, e.from_seq, e.through_seq, %(scope_key)s,
    e.event_id, e.incarnation, e.tokens, clock_timestamp()
FROM gone JOIN strandline.flush_event e ON e.shard_key = %(shard_key)s AND e.event_id = gone.event_id
RETURNING event_id

-- name: drop_letter
-- Give up for good: the receipt stays dead, and the batch says, by being void, that this was decided.
WITH letter AS (
    DELETE FROM strandline.dead_letter d
    WHERE d.shard_key = %(shard_key)s AND d.session_key = %(session_key)s
        AND d.generation_id = %(generation_id)s AND d.stage = %(stage)s AND d.from_seq = %(from_seq)s
        AND d.event_id = %(event_id)s
    RETURNING d.shard_key, d.batch_id
), marked AS (
    UPDATE strandline.batch b SET state = 'void' FROM letter l
    WHERE b.shard_key = l.shard_key AND b.batch_id = l.batch_id AND b.state = 'dead'
)
SELECT batch_id FROM letter
