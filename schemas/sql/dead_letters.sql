-- Dead letters: list, retry and drop. No session row is locked here.

-- name: list_dead_letters
-- Dead letters with their names, oldest first; dropped ones only if asked for.  Behind a place in that order, if one is
-- given, and so many at most.
-- params: namespace text?, pipeline text?, stage text?, event_id uuid?, dropped boolean, after_session uuid?,
--     after_seq bigint?, after_generation integer?, after_stage text?, limit bigint?
-- row: event_id uuid, stage text, generation_id integer, pipeline text, namespace text, session_id text, user_id
--     text?, shard_key uuid, session_key uuid, scope_key uuid, from_seq bigint, through_seq bigint, message_count
--     integer, tokens bigint, cause text, flushed_at timestamptz, died_at timestamptz, batch_id uuid, reason text,
--     current boolean, generation_state text, dropped_at timestamptz?, retry_at timestamptz?, retries smallint
SELECT d.event_id, d.stage, d.generation_id, g.pipeline, s.namespace, s.session_id, s.user_id,
    d.shard_key, d.session_key, d.scope_key, d.from_seq, d.through_seq, e.message_count, e.tokens, e.cause,
    e.created_at AS flushed_at, d.created_at AS died_at, d.batch_id, d.reason,
    s.incarnation = d.incarnation AS current, g.state AS generation_state, d.dropped_at, d.retry_at,
    d.retries
FROM strandline.dead_letter d
JOIN strandline.flush_event e ON e.shard_key = d.shard_key AND e.event_id = d.event_id
JOIN strandline.session s ON s.shard_key = d.shard_key AND s.session_key = d.session_key
JOIN strandline.generation g ON g.generation_id = d.generation_id
WHERE (%(namespace)s::text IS NULL OR s.namespace = %(namespace)s)
    AND (%(session_id)s::text IS NULL OR s.session_id = %(session_id)s)
    AND (%(pipeline)s::text IS NULL OR g.pipeline = %(pipeline)s)
    AND (%(stage)s::text IS NULL OR d.stage = %(stage)s)
    AND (%(event_id)s::uuid IS NULL OR d.event_id = %(event_id)s)
    AND (d.dropped_at IS NULL OR %(dropped)s::boolean)
    AND (%(after_at)s::timestamptz IS NULL OR (d.created_at, d.session_key, d.from_seq, d.generation_id, d.stage)
        > (%(after_at)s, %(after_session)s::uuid, %(after_seq)s::bigint, %(after_generation)s::integer,
            %(after_stage)s::text))
ORDER BY d.created_at, d.session_key, d.from_seq, d.generation_id, d.stage LIMIT %(limit)s

-- name: ripe_letters
-- The dead letters that are to be retried now.  Nothing is locked: a retry deletes the letter.
-- row: event_id uuid, stage text, generation_id integer
SELECT d.event_id, d.stage, d.generation_id FROM strandline.dead_letter d
WHERE d.retry_at <= statement_timestamp() AND d.dropped_at IS NULL AND d.stage = ANY (%(stages)s::text[])
    AND @is_kept(d.generation_id)
ORDER BY d.retry_at LIMIT %(limit)s

-- name: reopen_lane
-- The lane's failure counts are cleared, and it may be tried at once.  The row stays locked until the end.
-- An ordered lane is also taken from its holder, which would continue from a state that is about to be deleted.
-- params: seize boolean
-- row: lease_epoch bigint
UPDATE strandline.lane SET postponements = 0, failures = 0, crashes = 0, last_error = NULL,
    postponed_at = statement_timestamp(), next_attempt_at = statement_timestamp(),
    lease_epoch = lease_epoch + %(seize)s::boolean::integer,
    holder = CASE WHEN %(seize)s::boolean THEN NULL ELSE holder END,
    deadline_at = CASE WHEN %(seize)s::boolean THEN NULL ELSE deadline_at END
WHERE shard_key = %(shard_key)s AND scope_key = %(scope_key)s AND generation_id = %(generation_id)s
    AND stage = %(stage)s
RETURNING lease_epoch

-- name: revive_event
-- Delete the dead letter and its receipt, and make the event due again; after a reset it is void instead. Merge work
-- is sized by its candidates, as when extract passed it on.  Where the derivation does not serve the owner, it is
-- left to the replay slots (ring_at: infinity).
-- retries: how often it was retried by itself, this one included.
-- params: retries smallint
-- row: current boolean
WITH letter AS (
    DELETE FROM strandline.dead_letter d
    WHERE d.shard_key = %(shard_key)s AND d.session_key = %(session_key)s
        AND d.generation_id = %(generation_id)s AND d.stage = %(stage)s AND d.from_seq = %(from_seq)s
        AND d.event_id = %(event_id)s AND d.dropped_at IS NULL
    RETURNING d.*
), placed AS (
    SELECT l.*, e.tokens, e.created_at AS flushed_at, s.namespace, s.incarnation = l.incarnation AS current,
        e.cause, EXISTS (
            SELECT FROM @serving(%(shard_key)s, NULL) v WHERE v.generation_id = l.generation_id
            ) AS is_live
    FROM letter l JOIN strandline.flush_event e ON e.shard_key = %(shard_key)s AND e.event_id = l.event_id
    JOIN strandline.session s ON s.shard_key = %(shard_key)s AND s.session_key = l.session_key
), voided AS (
    UPDATE strandline.receipt r SET outcome = 'void', batch_id = NULL, applied_at = statement_timestamp()
    FROM placed p WHERE NOT p.current AND r.shard_key = %(shard_key)s AND r.event_id = p.event_id
        AND r.generation_id = p.generation_id AND r.stage = p.stage
), gone AS (
    DELETE FROM strandline.receipt r USING placed p
    WHERE p.current AND r.shard_key = %(shard_key)s AND r.event_id = p.event_id
        AND r.generation_id = p.generation_id AND r.stage = p.stage
), again AS (
    INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq,
        scope_key, event_id, incarnation, tokens, namespace, precedence, created_at, ring_at, retries)
    SELECT p.shard_key, p.session_key, p.generation_id, p.stage, p.from_seq, p.through_seq, p.scope_key,
        p.event_id, p.incarnation, @work_tokens(p.stage, p.tokens, %(shard_key)s, p.generation_id, p.event_id),
        p.namespace, CASE WHEN p.is_live AND p.cause <> 'import' THEN 0 ELSE 1 END, p.flushed_at,
        CASE WHEN p.is_live THEN statement_timestamp() ELSE 'infinity' END, %(retries)s
    FROM placed p WHERE p.current
)
SELECT current FROM placed

-- name: refold
-- Take an ordered lane back to before the first of its folds that holds what comes behind an event: behind
-- it in the conversation, or, where a lane serves several sessions, flushed after it.
-- row: event_id uuid
SELECT strandline.refold_v1(%(shard_key)s, %(scope_key)s, %(generation_id)s, %(stage)s, %(event_id)s) AS event_id

-- name: drop_letter
-- Give up for good: receipt and batch stay dead, and the letter stays as the record of the drop.
-- row: batch_id uuid
UPDATE strandline.dead_letter SET dropped_at = statement_timestamp(), retry_at = NULL
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND generation_id = %(generation_id)s
    AND stage = %(stage)s AND from_seq = %(from_seq)s AND event_id = %(event_id)s AND dropped_at IS NULL
RETURNING batch_id
