-- Lanes: claim, hold and release, their batches, and their due work.  Nothing here locks a row that a
-- producer writes.

-- name: ring_due
-- Lanes of a stage with work that no worker picked up: postpone the next look, and return them (ring_due_v1).
-- row: lane
SELECT DISTINCT shard_key, scope_key, generation_id, stage
FROM strandline.ring_due_v1(%(stage)s, %(limit)s)

-- name: bring_rings_forward
-- Ring now for what is to be rung for later than any wait is long, and for what has waited long enough for its
-- budget.
-- row: brought integer
SELECT strandline.bring_rings_forward_v1(%(stages)s::text[], %(limit)s) AS brought

-- name: find_lane
-- The lane, if this database has it or work to open it for; a hint may come from another one's producer.
-- row: stage text
SELECT l.stage FROM strandline.lane l
WHERE l.shard_key = %(shard_key)s AND l.scope_key = %(scope_key)s AND l.generation_id = %(generation_id)s
    AND l.stage = %(stage)s
UNION ALL
SELECT d.stage FROM strandline.due d
WHERE d.shard_key = %(shard_key)s AND d.scope_key = %(scope_key)s AND d.generation_id = %(generation_id)s
    AND d.stage = %(stage)s
LIMIT 1

-- name: orphaned_lanes
-- Lanes whose holder died or kept them past their deadline: taken over at once, whatever ring_at says and
-- whatever waits in the queue.
-- params: dead_after_seconds numeric
-- row: lane
SELECT l.shard_key, l.scope_key, l.generation_id, l.stage FROM strandline.lane l
WHERE l.holder IS NOT NULL AND l.stage = ANY (%(stages)s::text[])
    AND (l.deadline_at < statement_timestamp()
        OR NOT @is_held(l, statement_timestamp(), %(dead_after_seconds)s))
    AND EXISTS (
        SELECT FROM strandline.due d WHERE d.shard_key = l.shard_key AND d.scope_key = l.scope_key
            AND d.generation_id = l.generation_id AND d.stage = l.stage AND d.ring_at < 'infinity'
            AND @is_ready(d, statement_timestamp()))
LIMIT %(limit)s

-- name: claim_lane
-- Claim this lane, if it has work and can be claimed (claim_lane_v1), and begin its first batch.
-- params: dead_after_seconds float8
-- row: lease_epoch bigint, postponements integer, failures integer, crashes integer, namespace text, has_lane_limit
--     boolean, has_budget boolean, batch_id uuid?, event_id uuid!, session_key uuid!, incarnation uuid!, cause text!,
--     from_seq bigint!, through_seq bigint!, message_count integer!, tokens bigint!, version smallint!, created_at
--     timestamptz!, traceparent text?
SELECT c.lease_epoch, c.postponements, c.failures, c.crashes, c.namespace, c.has_lane_limit, c.has_budget,
    b.batch_id, b.event_id, b.session_key, b.incarnation, b.cause,
    b.from_seq, b.through_seq, b.message_count, b.tokens, b.version, b.created_at, b.traceparent
FROM strandline.claim_lane_v1(%(shard_key)s, %(scope_key)s, %(generation_id)s, %(stage)s, %(worker_id)s,
    %(dead_after_seconds)s, %(deadline_seconds)s) AS c
LEFT JOIN LATERAL strandline.begin_batch_v1(
    %(shard_key)s, %(scope_key)s, %(generation_id)s, %(stage)s, c.lease_epoch, %(batch_id)s, %(token_budget)s,
    %(max_events)s) AS b ON true

-- name: take_turn
-- Claim the lane of a stage whose turn it is (take_turn_v1), and begin its first batch.
-- params: precedences smallint[], after text, owners uuid[], dead_after_seconds float8
-- row: shard_key uuid, scope_key uuid?, generation_id integer!, lease_epoch bigint!, postponements integer!, failures
--     integer!, crashes integer!, namespace text, has_lane_limit boolean, has_budget boolean, batch_id uuid?, event_id
--     uuid!, session_key uuid!, incarnation uuid!, cause text!, from_seq bigint!, through_seq bigint!, message_count
--     integer!, tokens bigint!, version smallint!, created_at timestamptz!, traceparent text?
SELECT t.shard_key, t.scope_key, t.generation_id, t.lease_epoch, t.postponements, t.failures, t.crashes,
    t.namespace, t.has_lane_limit, t.has_budget, b.batch_id, b.event_id, b.session_key, b.incarnation, b.cause,
    b.from_seq, b.through_seq, b.message_count, b.tokens, b.version, b.created_at, b.traceparent
FROM strandline.take_turn_v1(%(stage)s, %(precedences)s::smallint[], %(after)s, %(namespaces)s::text[], %(owners)s::uuid[],
    %(skipped_generations)s::integer[], %(shard_key)s, %(scope_key)s, %(generation_id)s, %(worker_id)s,
    %(dead_after_seconds)s, %(deadline_seconds)s) AS t
LEFT JOIN LATERAL (
    SELECT f.* FROM strandline.begin_batch_v1(
        t.shard_key, t.scope_key, t.generation_id, %(stage)s, t.lease_epoch, %(batch_id)s, %(token_budget)s,
        %(max_events)s) AS f
    WHERE t.lease_epoch IS NOT NULL) AS b ON true

-- name: release_lane
-- Release the lane, with its next attempt postponed where something failed.
-- params: postponements integer, failures integer, last_error text?
-- row: lease_epoch bigint
UPDATE strandline.lane SET
    holder = NULL, deadline_at = NULL, crashes = 0,
    postponements = %(postponements)s, failures = %(failures)s, last_error = %(last_error)s,
    postponed_at = statement_timestamp(),
    next_attempt_at = statement_timestamp() + make_interval(secs => %(wait_seconds)s)
WHERE shard_key = %(shard_key)s AND scope_key = %(scope_key)s AND generation_id = %(generation_id)s
    AND stage = %(stage)s AND lease_epoch = %(lease_epoch)s AND holder = %(worker_id)s
RETURNING lease_epoch

-- name: release_untouched_lane
-- Release the lane as it was found, since nothing was tried; it is not to be claimed again before its time.
UPDATE strandline.lane SET holder = NULL, deadline_at = NULL,
    postponed_at = statement_timestamp(),
    next_attempt_at = statement_timestamp() + make_interval(secs => %(wait_seconds)s)
WHERE shard_key = %(shard_key)s AND scope_key = %(scope_key)s AND generation_id = %(generation_id)s
    AND stage = %(stage)s AND lease_epoch = %(lease_epoch)s AND holder = %(worker_id)s

-- name: last_error
-- Why the lane's last attempt failed: a sentence that quotes nothing of users.
-- row: last_error text?
SELECT last_error FROM strandline.lane
WHERE shard_key = %(shard_key)s AND scope_key = %(scope_key)s AND generation_id = %(generation_id)s
    AND stage = %(stage)s

-- name: lock_lane
-- Lock the lease inside a transaction; no row means that it was lost.
-- row: held integer
SELECT 1 AS held FROM strandline.lane
WHERE shard_key = %(shard_key)s AND scope_key = %(scope_key)s AND generation_id = %(generation_id)s
    AND stage = %(stage)s AND lease_epoch = %(lease_epoch)s AND holder = %(worker_id)s
FOR UPDATE

-- name: see_lane
-- Whether the lease is held, without waiting for a lock on the lane; no row means that it was lost.
-- row: held integer
SELECT 1 AS held FROM strandline.lane
WHERE shard_key = %(shard_key)s AND scope_key = %(scope_key)s AND generation_id = %(generation_id)s
    AND stage = %(stage)s AND lease_epoch = %(lease_epoch)s AND holder = %(worker_id)s

-- name: keep_lane
-- The holder makes progress within its batch: renew the lease's deadline; no row if the lease was lost.
-- row: lease_epoch bigint
UPDATE strandline.lane SET deadline_at = statement_timestamp() + make_interval(secs => %(deadline_seconds)s)
WHERE shard_key = %(shard_key)s AND scope_key = %(scope_key)s AND generation_id = %(generation_id)s
    AND stage = %(stage)s AND lease_epoch = %(lease_epoch)s AND holder = %(worker_id)s
RETURNING lease_epoch

-- name: renew_lane
-- A batch is done: begin the next one, or give way (renew_lane_v1).
-- params: gives_way boolean, dead_after_seconds float8
-- row: lease_epoch bigint, postponements integer, failures integer, crashes integer, namespace text?, has_lane_limit
--     boolean, has_budget boolean, batch_id uuid?, event_id uuid!, session_key uuid!, incarnation uuid!, cause text!,
--     from_seq bigint!, through_seq bigint!, message_count integer!, tokens bigint!, version smallint!, created_at
--     timestamptz!, traceparent text?
SELECT r.lease_epoch, r.postponements, r.failures, r.crashes, r.namespace, r.has_lane_limit, r.has_budget, r.batch_id,
    r.event_id, r.session_key, r.incarnation, r.cause, r.from_seq, r.through_seq, r.message_count, r.tokens, r.version,
    r.created_at, r.traceparent
FROM strandline.renew_lane_v1(%(shard_key)s, %(scope_key)s, %(generation_id)s, %(stage)s, %(lease_epoch)s,
    %(worker_id)s, %(namespace)s, %(gives_way)s, %(skipped_generations)s::integer[], %(dead_after_seconds)s,
    %(deadline_seconds)s, %(batch_id)s, %(token_budget)s, %(max_events)s) AS r

-- name: release_undrained_lanes
-- Release the lanes that this worker holds in the table but no longer drains: their release did not get through.
-- A lane that is being written (by a reset, say) is left for the next time, not waited for.
-- params: older_than_seconds float8
-- row: stage text
WITH left_over AS (
    SELECT l.shard_key, l.scope_key, l.generation_id, l.stage FROM strandline.lane l
    WHERE l.holder = %(worker_id)s
        AND l.leased_at < statement_timestamp() - make_interval(secs => %(older_than_seconds)s)
        AND NOT EXISTS (
            SELECT FROM unnest(%(shard_keys)s::uuid[], %(scope_keys)s::uuid[], %(generation_ids)s::integer[],
                %(stages)s::text[]) AS active (shard_key, scope_key, generation_id, stage)
            WHERE active.shard_key = l.shard_key AND active.scope_key = l.scope_key
                AND active.generation_id = l.generation_id AND active.stage = l.stage)
    FOR UPDATE SKIP LOCKED
)
UPDATE strandline.lane l SET holder = NULL, deadline_at = NULL
FROM left_over o
WHERE l.shard_key = o.shard_key AND l.scope_key = o.scope_key AND l.generation_id = o.generation_id
    AND l.stage = o.stage
RETURNING l.stage

-- name: shorten_leases
-- No lease of this worker ends later than one that begins now: the clock may have stepped back.
UPDATE strandline.lane SET deadline_at = statement_timestamp() + make_interval(secs => %(deadline_seconds)s)
WHERE holder = %(worker_id)s
    AND deadline_at > statement_timestamp() + make_interval(secs => %(deadline_seconds)s)

-- name: lane_has_work
-- Whether anything is due in the lane, and ready.
-- row: due integer
SELECT 1 AS due FROM strandline.due d
WHERE d.shard_key = %(shard_key)s AND d.scope_key = %(scope_key)s
    AND d.generation_id = %(generation_id)s AND d.stage = %(stage)s AND @is_ready(d, statement_timestamp())
LIMIT 1

-- name: close_batch
-- The batch is over: applied, void, split or dead. The answers of a void one refer to deleted messages, perhaps to
-- some that a person wanted forgotten.
-- params: state text
-- row: batch_id uuid
WITH gone AS (
    DELETE FROM strandline.answer
    WHERE shard_key = %(shard_key)s AND batch_id = %(batch_id)s AND %(state)s = 'void'
)
UPDATE strandline.batch SET state = %(state)s, closed_at = statement_timestamp()
WHERE shard_key = %(shard_key)s AND batch_id = %(batch_id)s AND state = 'open'
RETURNING batch_id

-- name: batch_events
-- The events of a batch in its order.
-- row: event_id uuid, shard_key uuid, session_key uuid, incarnation uuid, cause text, from_seq bigint, through_seq
--     bigint, message_count integer, tokens bigint, version smallint, created_at timestamptz, traceparent text?
SELECT e.event_id, e.shard_key, e.session_key, e.incarnation, e.cause, e.from_seq, e.through_seq,
    e.message_count, e.tokens, e.version, e.created_at, e.traceparent
FROM unnest(%(event_ids)s::uuid[]) WITH ORDINALITY AS wanted (event_id, place)
JOIN strandline.flush_event e ON e.shard_key = %(shard_key)s AND e.event_id = wanted.event_id
ORDER BY wanted.place

-- name: range_messages
-- The messages of one event.
-- row: message
-- opens: envelope, metadata
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM strandline.message m
WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
    AND m.seq BETWEEN %(from_seq)s AND %(through_seq)s
ORDER BY m.seq

-- name: batch_messages
-- The messages of several events, with each event's place among them (1, 2, …); those that retention removed, as far as
-- they were taken from the archive for the derivation.
-- row: place bigint, time_zone text?, seq bigint, id text, role text, tokens integer, created_at timestamptz, envelope
--     text, metadata text?
-- opens: envelope, metadata
WITH w AS MATERIALIZED (
    SELECT g.*, @zone_of(%(shard_key)s, g.session_key, g.from_seq) AS time_zone
    FROM unnest(%(session_keys)s::uuid[], %(from_seqs)s::bigint[], %(through_seqs)s::bigint[])
        WITH ORDINALITY AS g (session_key, from_seq, through_seq, place)
)
SELECT w.place, w.time_zone, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM w
CROSS JOIN LATERAL (
    -- The offset keeps this a look-up per event.
    SELECT k.* FROM strandline.message k
    WHERE k.shard_key = %(shard_key)s AND k.session_key = w.session_key AND k.seq BETWEEN w.from_seq AND w.through_seq
    ORDER BY k.seq OFFSET 0) AS m
UNION ALL
SELECT w.place, w.time_zone, i.seq, i.id, i.role, i.tokens, i.created_at, i.envelope::text, i.metadata::text
FROM w
CROSS JOIN LATERAL (
    SELECT k.* FROM strandline.archived_input k
    WHERE k.shard_key = %(shard_key)s AND k.session_key = w.session_key AND k.generation_id = %(generation_id)s
        AND k.seq BETWEEN w.from_seq AND w.through_seq
    ORDER BY k.seq OFFSET 0) AS i
WHERE NOT EXISTS (
    SELECT FROM strandline.message m
    WHERE m.shard_key = %(shard_key)s AND m.session_key = i.session_key AND m.seq = i.seq)
ORDER BY place, seq

-- name: context_messages
-- The messages before a batch's first event that it shows as context.
-- row: seq bigint, id text, role text, tokens integer, created_at timestamptz, envelope text, metadata text?, time_zone
--     text?
-- opens: envelope, metadata
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text,
    @zone_of(%(shard_key)s, b.scope_key, m.seq) AS time_zone
FROM strandline.batch b
JOIN strandline.message m ON m.shard_key = %(shard_key)s AND m.session_key = b.scope_key
    AND m.seq = ANY (b.context_seqs)
WHERE b.shard_key = %(shard_key)s AND b.batch_id = %(batch_id)s
ORDER BY m.seq

-- name: has_context
-- Whether a batch shows lines before its first event; it is tried once more without, before it counts as failed.
-- row: has_context boolean
SELECT context_seqs <> '{}' AS has_context FROM strandline.batch
WHERE shard_key = %(shard_key)s AND batch_id = %(batch_id)s

-- name: stored_answer
-- A raw answer that an earlier attempt stored.
-- row: model text, prompt_hash text, body bytea
-- opens: body bytes answer
SELECT model, prompt_hash, body FROM strandline.answer
WHERE shard_key = %(shard_key)s AND batch_id = %(batch_id)s AND step = %(step)s

-- name: store_answer
-- Store a raw answer and its cost, if the lease still holds (store_answer_v1).
-- params: body bytea
-- row: is_first boolean
-- seals: body bytes answer
SELECT is_first FROM strandline.store_answer_v1(%(shard_key)s, %(scope_key)s, %(generation_id)s, %(stage)s,
    %(lease_epoch)s, %(worker_id)s, %(batch_id)s, %(step)s, %(model)s, %(prompt_hash)s, %(body)s,
    %(input_tokens)s, %(output_tokens)s, %(seconds)s, %(cost_usd)s::numeric)

-- name: lock_batch
-- Lock the lease, and then what is due of a batch whose events still belong to their session's incarnation, or were
-- derived before: how many leases (1, or 0 when it was taken away), and how many events.  In the order in which all
-- others lock what is due.
-- row: leases bigint, events bigint
WITH held AS (
    SELECT 1 FROM strandline.lane
    WHERE shard_key = %(shard_key)s AND scope_key = %(scope_key)s AND generation_id = %(generation_id)s
        AND stage = %(stage)s AND lease_epoch = %(lease_epoch)s AND holder = %(worker_id)s
    FOR UPDATE
), locked AS (
    SELECT d.event_id FROM strandline.due d
    WHERE EXISTS (SELECT FROM held)
        AND d.shard_key = %(shard_key)s AND d.scope_key = %(scope_key)s
        AND d.generation_id = %(generation_id)s AND d.stage = %(stage)s
        AND d.event_id = ANY (%(event_ids)s::uuid[])
        AND (d.was_applied OR @lives(d, %(shard_key)s))
    ORDER BY d.session_key, d.from_seq FOR UPDATE OF d
)
SELECT (SELECT count(*) FROM held) AS leases, (SELECT count(*) FROM locked) AS events

-- name: finish_batch
-- The effect is written: the batch is over, its work is no longer due, and receipts say how it ended.  A lane
-- that has no more to do now is released with that.  No row: there is no such open batch, and nothing was done.
-- Says whether the lane has more to do, and so is still held.
-- row: is_due boolean
WITH closed AS (
    UPDATE strandline.batch SET state = %(outcome)s, closed_at = statement_timestamp()
    WHERE shard_key = %(shard_key)s AND batch_id = %(batch_id)s AND state = 'open'
    RETURNING batch_id
), gone AS (
    DELETE FROM strandline.due d
    WHERE d.shard_key = %(shard_key)s AND d.scope_key = %(scope_key)s
        AND d.generation_id = %(generation_id)s AND d.stage = %(stage)s
        AND d.event_id = ANY (%(event_ids)s::uuid[]) AND EXISTS (SELECT FROM closed)
    RETURNING d.event_id
), receipts AS (
    INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome, batch_id)
    SELECT %(shard_key)s, event_id, %(generation_id)s, %(stage)s, %(outcome)s, %(batch_id)s FROM gone
), more AS MATERIALIZED (
    SELECT EXISTS (
        SELECT FROM strandline.due d
        WHERE d.shard_key = %(shard_key)s AND d.scope_key = %(scope_key)s
            AND d.generation_id = %(generation_id)s AND d.stage = %(stage)s
            AND d.event_id <> ALL (%(event_ids)s::uuid[]) AND @is_ready(d, statement_timestamp())) AS is_due
    FROM closed
), released AS (
    UPDATE strandline.lane l SET
        holder = NULL, deadline_at = NULL, crashes = 0, postponements = 0, failures = 0, last_error = NULL,
        postponed_at = statement_timestamp(), next_attempt_at = statement_timestamp()
    WHERE l.shard_key = %(shard_key)s AND l.scope_key = %(scope_key)s AND l.generation_id = %(generation_id)s
        AND l.stage = %(stage)s AND l.lease_epoch = %(lease_epoch)s AND l.holder = %(worker_id)s
        AND EXISTS (SELECT FROM more WHERE NOT more.is_due)
)
SELECT is_due FROM more

-- name: make_dead_letter
-- Go past an event that cannot be applied: a dead letter, whose messages stay in the tail.  It is tried again by itself
-- after the wait at the place of the retries that it has had; without one, a person has to.
-- params: reason text, retry_seconds float8[]
INSERT INTO strandline.dead_letter (shard_key, session_key, generation_id, stage, from_seq, through_seq,
    scope_key, event_id, incarnation, batch_id, reason, retries, retry_at)
SELECT d.shard_key, d.session_key, d.generation_id, d.stage, d.from_seq, d.through_seq, d.scope_key,
    d.event_id, d.incarnation, %(batch_id)s, %(reason)s, d.retries, statement_timestamp()
        + make_interval(secs => (%(retry_seconds)s::double precision[])[d.retries + 1])
FROM strandline.due d
WHERE d.shard_key = %(shard_key)s AND d.scope_key = %(scope_key)s AND d.generation_id = %(generation_id)s
    AND d.stage = %(stage)s AND d.event_id = %(event_id)s
ON CONFLICT DO NOTHING

-- name: pass_on
-- Make the events due in the pipeline's next stage, on the owner's lane.
-- Only live work is rung for; other work has ring_at infinity: that of a derivation which does not serve, which is
-- merged in the order of the flushes, and the work that a replay in place made due.
-- params: next_stage text, tokens bigint
INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq,
    scope_key, event_id, incarnation, tokens, namespace, precedence, created_at, ring_at, was_applied)
SELECT e.shard_key, e.session_key, g.generation_id, %(next_stage)s, e.from_seq, e.through_seq,
    %(scope_key)s, e.event_id, b.incarnation, %(tokens)s, b.namespace, b.precedence,
    CASE WHEN v.generation_id IS NULL THEN e.created_at ELSE statement_timestamp() END,
    CASE WHEN v.generation_id IS NULL OR b.ring_at = 'infinity' THEN 'infinity'
        ELSE statement_timestamp() + interval '2 seconds' END, b.was_applied
FROM strandline.flush_event e
JOIN strandline.generation g ON g.generation_id = %(generation_id)s
JOIN strandline.due b ON b.shard_key = e.shard_key AND b.session_key = e.session_key
    AND b.generation_id = g.generation_id AND b.stage = g.entry_stage AND b.from_seq = e.from_seq
LEFT JOIN LATERAL @serving(%(shard_key)s, ARRAY[g.pipeline]) v ON v.generation_id = g.generation_id
WHERE e.shard_key = %(shard_key)s AND e.event_id = ANY (%(event_ids)s::uuid[])

-- name: insert_receipts
-- A later stage has nothing to do for these events.
INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome, batch_id)
SELECT %(shard_key)s, event_id, %(generation_id)s, %(stage)s, 'applied', %(batch_id)s
FROM unnest(%(event_ids)s::uuid[]) AS passed (event_id)
