-- Replays: deriving memory from the log again, as a new derivation or in place.

-- name: replay_lanes
-- Lanes with work of derivations that do not serve, free to be taken, from an owner on: so many of each stage.
-- params: dead_after_seconds numeric
-- row: lane
SELECT f.shard_key, f.scope_key, f.generation_id, f.stage
FROM unnest(%(stages)s::text[]) AS s (stage) CROSS JOIN LATERAL (
    SELECT DISTINCT d.shard_key, d.scope_key, d.generation_id, d.stage
    FROM strandline.due d
    JOIN strandline.generation g ON g.generation_id = d.generation_id AND g.state <> 'retired'
        AND (g.backfilled_through IS NULL OR d.shard_key <= g.backfilled_through)
    WHERE d.stage = s.stage AND d.ring_at = 'infinity' AND d.shard_key >= %(from_shard)s
        AND NOT EXISTS (
            SELECT FROM strandline.lane l WHERE l.shard_key = d.shard_key AND l.scope_key = d.scope_key
                AND l.generation_id = d.generation_id AND l.stage = d.stage
                AND @is_taken(l, statement_timestamp(), %(dead_after_seconds)s))
        AND NOT EXISTS (
            SELECT FROM strandline.namespace_limit n
            WHERE n.namespace = d.namespace AND @waits(n, statement_timestamp()))
        AND NOT (g.state = 'feeding' AND d.stage <> g.entry_stage AND EXISTS (
            SELECT FROM strandline.due e WHERE e.shard_key = d.shard_key AND e.stage = g.entry_stage
                AND e.generation_id = d.generation_id AND e.created_at < g.created_at))
    ORDER BY d.shard_key, d.scope_key, d.generation_id LIMIT %(limit)s) AS f

-- name: take_replay_call
-- Take one model call from what replays may ask for in the owner's namespace: the seconds to wait, 0 for none.
-- The allowance fills up by the second, to one second's worth (and at least one call).
-- params: calls_per_second float8
-- row: wait_seconds float8
WITH place AS (
    SELECT s.namespace FROM strandline.session s WHERE s.shard_key = %(shard_key)s LIMIT 1
), made AS (
    INSERT INTO strandline.replay_budget (namespace, calls_left)
    SELECT namespace, greatest(1, %(calls_per_second)s::float8) - 1 FROM place
    ON CONFLICT DO NOTHING
    RETURNING namespace
), taken AS (
    INSERT INTO strandline.replay_budget AS b (namespace, calls_left, filled_at)
    SELECT namespace, 0, statement_timestamp() FROM place WHERE NOT EXISTS (SELECT FROM made)
    ON CONFLICT (namespace) DO UPDATE SET filled_at = excluded.filled_at,
        calls_left = least(greatest(1, %(calls_per_second)s::float8), b.calls_left + %(calls_per_second)s::float8
            * abs(extract(epoch FROM excluded.filled_at - b.filled_at))::float8) - 1
    WHERE b.calls_left + %(calls_per_second)s::float8
        * abs(extract(epoch FROM excluded.filled_at - b.filled_at))::float8 >= 1
    RETURNING namespace
)
SELECT CASE WHEN NOT EXISTS (SELECT FROM place) OR EXISTS (SELECT FROM made) OR EXISTS (SELECT FROM taken)
    THEN 0 ELSE 1 / %(calls_per_second)s::float8 END AS wait_seconds

-- name: replay_rate
-- How many model calls a second the replay of a derivation was begun with; NULL: as the settings say.
-- row: calls_per_second float8?
SELECT calls_per_second FROM strandline.replay
WHERE generation_id = %(generation_id)s AND kind = 'new' ORDER BY replay_id DESC LIMIT 1

-- name: begin_replay
-- Record that a replay begins.
-- params: selection jsonb, held boolean, calls_per_second float8?
-- row: replay_id integer
INSERT INTO strandline.replay (kind, pipeline, generation_id, selection, held, calls_per_second)
VALUES (%(kind)s, %(pipeline)s, %(generation_id)s, %(selection)s::jsonb, %(held)s, %(calls_per_second)s)
RETURNING replay_id

-- name: find_replays
-- Replays, newest last; alive are those whose process has reported lately.
-- params: replay_id integer?, pipeline text?, unfinished boolean
-- row: replay
SELECT r.replay_id, r.kind, r.pipeline, r.generation_id, r.selection::text, r.state, r.held, r.position,
    r.calls_per_second, r.counts::text, r.started_at, r.updated_at,
    r.state = 'running' AND r.updated_at > statement_timestamp() - interval '15 seconds' AS is_alive
FROM strandline.replay r
WHERE (%(replay_id)s::integer IS NULL OR r.replay_id = %(replay_id)s)
    AND (%(pipeline)s::text IS NULL OR r.pipeline = %(pipeline)s)
    AND (NOT %(unfinished)s::boolean OR r.state <> 'done')
ORDER BY r.replay_id

-- name: replays_before
-- The next replays, newest first; alive are those whose process has reported lately.
-- params: before integer?
-- row: replay
SELECT r.replay_id, r.kind, r.pipeline, r.generation_id, r.selection::text, r.state, r.held, r.position,
    r.calls_per_second, r.counts::text, r.started_at, r.updated_at,
    r.state = 'running' AND r.updated_at > statement_timestamp() - interval '15 seconds' AS is_alive
FROM strandline.replay r
WHERE %(before)s::integer IS NULL OR r.replay_id < %(before)s
ORDER BY r.replay_id DESC LIMIT %(limit)s

-- name: take_replay
-- Resume a replay that is not running elsewhere.
-- row: replay_id integer
UPDATE strandline.replay SET state = 'running', stop_asked = false, updated_at = statement_timestamp()
WHERE replay_id = %(replay_id)s
    AND (state = 'stopped' OR (state = 'running' AND updated_at <= statement_timestamp() - interval '15 seconds'))
RETURNING replay_id

-- name: ask_replay_to_stop
-- Ask whichever process carries a replay on to stop; one that no process carries on is stopped by this.
-- row: replay_id integer
UPDATE strandline.replay SET stop_asked = true,
    state = CASE WHEN updated_at > statement_timestamp() - interval '15 seconds' THEN state ELSE 'stopped' END
WHERE replay_id = %(replay_id)s AND state = 'running'
RETURNING replay_id

-- name: report_replay
-- Record a replay's progress, which also shows that its process lives; the row says whether it was asked to stop.
-- params: state text, position uuid?
-- row: stop_asked boolean
UPDATE strandline.replay SET state = %(state)s, position = coalesce(%(position)s, position),
    counts = counts || %(counts)s::jsonb, updated_at = statement_timestamp()
WHERE replay_id = %(replay_id)s
RETURNING stop_asked

-- name: generation_backlog
-- The due work in a derivation, by stage.
-- row: stage text, due integer
SELECT d.stage, count(*)::integer AS due FROM strandline.due d WHERE d.generation_id = %(generation_id)s
GROUP BY d.stage

-- name: owners_backlog
-- How much is due in a derivation for some owners.
-- row: due integer
SELECT count(*)::integer AS due FROM strandline.due d
WHERE d.shard_key = ANY (%(shard_keys)s::uuid[]) AND d.generation_id = %(generation_id)s

-- name: older_backlog
-- How much is due in a derivation from flushes before a moment (NULL: now), of owners whom no fence keeps away; and that
-- moment.
-- params: before timestamptz?
-- row: due integer, moment timestamptz
SELECT count(d.event_id)::integer AS due, m.moment FROM (
    SELECT coalesce(%(before)s::timestamptz, statement_timestamp()) AS moment) AS m
LEFT JOIN strandline.due d ON d.generation_id = %(generation_id)s AND d.created_at < m.moment
    AND NOT @is_fenced(d.shard_key)
GROUP BY m.moment

-- name: selected_owners
-- Owners with matching sessions, in order.
-- params: after uuid, namespace text?
-- row: shard_key uuid
SELECT DISTINCT s.shard_key FROM strandline.session s
WHERE s.shard_key > %(after)s::uuid AND (%(namespace)s::text IS NULL OR s.namespace = %(namespace)s)
    AND (%(session_id)s::text IS NULL OR s.session_id = %(session_id)s)
    AND (%(user_id)s::text IS NULL OR s.user_id = %(user_id)s)
ORDER BY s.shard_key LIMIT %(limit)s

-- name: selected_batches
-- The batches that a derivation applied from an owner's matching events, in order, each with its lane and events;
-- is_removed: retention has removed messages of it, so it cannot be derived again, and stays as it is.
-- params: namespace text?
-- row: batch_id uuid, scope_key uuid, event_ids uuid[], is_removed boolean
SELECT b.batch_id, b.scope_key, b.event_ids,
    b.carried_from IS NOT NULL OR @has_removed(b.event_ids, %(shard_key)s) AS is_removed
FROM strandline.batch b
WHERE b.shard_key = %(shard_key)s AND b.generation_id = %(generation_id)s AND b.stage = %(stage)s
    AND b.state = 'applied' AND EXISTS (
        SELECT FROM strandline.flush_event e
        JOIN strandline.session s ON s.shard_key = e.shard_key AND s.session_key = e.session_key
        WHERE e.shard_key = %(shard_key)s AND e.event_id = ANY (b.event_ids) AND @fits(s, e))
ORDER BY b.created_at, b.batch_id

-- name: open_lane
-- A lane that no worker has taken yet, so that it can be locked.
INSERT INTO strandline.lane (shard_key, scope_key, generation_id, stage)
VALUES (%(shard_key)s, %(scope_key)s, %(generation_id)s, %(stage)s)
ON CONFLICT DO NOTHING

-- name: lane_states
-- The states of an ordered lane in order, each with the batch that made it; is_removed: retention has removed messages
-- of it, so it is taken as it is: the base of those after it.
-- row: ordinal bigint, through_seq bigint, state text, batch_id uuid, event_ids uuid[], is_removed boolean
-- opens: state
SELECT f.ordinal, f.through_seq, f.state::text, f.batch_id, b.event_ids,
    b.carried_from IS NOT NULL OR @has_removed(b.event_ids, %(shard_key)s) AS is_removed
FROM strandline.block_state f
JOIN strandline.batch b ON b.shard_key = f.shard_key AND b.batch_id = f.batch_id
WHERE f.shard_key = %(shard_key)s AND f.scope_key = %(scope_key)s AND f.generation_id = %(generation_id)s
ORDER BY f.ordinal

-- name: rewrite_state
-- The state of a batch as it is derived again.
-- params: state jsonb
-- row: ordinal bigint
-- seals: state
UPDATE strandline.block_state SET state = %(state)s::jsonb
WHERE shard_key = %(shard_key)s AND scope_key = %(scope_key)s AND generation_id = %(generation_id)s
    AND batch_id = %(batch_id)s
RETURNING ordinal

-- name: digest_chunks
-- A digest of the stored chunks of a batch.
-- row: chunk_digest
SELECT count(*)::integer AS pieces, md5(coalesce(string_agg((c.session_key, c.from_seq, c.piece, c.through_seq,
    c.event_id, c.length, c.lexemes, c.embedding, c.code, c.role, c.speaker, c.tone, c.said_on)::text, '|'
    ORDER BY c.session_key, c.from_seq, c.piece), '')) AS digest
FROM strandline.chunk c
WHERE c.shard_key = %(shard_key)s AND c.generation_id = %(generation_id)s AND c.batch_id = %(batch_id)s

-- name: digest_derived_chunks
-- The same digest of the chunks that `insert_chunks` would write.
-- row: chunk_digest
SELECT count(*)::integer AS pieces, md5(coalesce(string_agg((c.session_key, c.from_seq, c.piece, c.through_seq,
    c.event_id, c.length, c.lexemes::tsvector, c.embedding::halfvec,
    strandline.search_code_v1(c.embedding::halfvec), c.role, c.speaker::text[], c.tone, c.said_on)::text, '|'
    ORDER BY c.session_key, c.from_seq, c.piece), '')) AS digest
FROM unnest(%(session_keys)s::uuid[], %(from_seqs)s::bigint[], %(pieces)s::integer[],
    %(through_seqs)s::bigint[], %(event_ids)s::uuid[], %(lengths)s::integer[], %(lexemes)s::text[],
    %(embeddings)s::text[], %(roles)s::text[], %(speakers)s::text[], %(tones)s::smallint[], %(said_on)s::date[])
    AS c (session_key, from_seq, piece, through_seq, event_id, length, lexemes, embedding, role, speaker, tone, said_on)

-- name: delete_chunks
-- Delete the pieces of a batch, which are written again.
WITH @noted_change(%(shard_key)s, 'pieces')
DELETE FROM strandline.chunk
WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s AND batch_id = %(batch_id)s

-- name: stored_candidates
-- The candidates of a batch as extract made them; edits of facts do not change these columns.
-- row: event_id uuid, ordinal integer, session_key uuid, text text, seqs bigint[], topics text[], said_by text?,
--     about_date date?, said_at timestamptz, model text, prompt_hash text
-- opens: text, topics, said_by
SELECT c.event_id, c.ordinal, c.session_key, c.text, c.seqs, c.topics, c.said_by, c.about_date, c.said_at, c.model,
    c.prompt_hash
FROM strandline.fact_candidate c
WHERE c.shard_key = %(shard_key)s AND c.generation_id = %(generation_id)s AND c.batch_id = %(batch_id)s
ORDER BY c.event_id, c.ordinal

-- name: stored_answers
-- The answers of a batch.
-- row: step text, model text, prompt_hash text, body bytea
-- opens: body bytes answer
SELECT step, model, prompt_hash, body FROM strandline.answer
WHERE shard_key = %(shard_key)s AND batch_id = %(batch_id)s

-- name: lock_lane_for_replay
-- Lock a lane, so that no worker, and no reset that forgets, writes in it until the transaction ends.
-- row: lease_epoch bigint
SELECT lease_epoch FROM strandline.lane
WHERE shard_key = %(shard_key)s AND scope_key = %(scope_key)s AND generation_id = %(generation_id)s
    AND stage = %(stage)s
FOR UPDATE

-- name: is_applied
-- Whether a batch still counts as applied: one that a reset has touched does not.
-- row: applied integer
SELECT 1 AS applied FROM strandline.batch
WHERE shard_key = %(shard_key)s AND batch_id = %(batch_id)s AND state = 'applied'

-- name: redo_batch
-- Its answers are gone: make its events due again, so that the model is called again.  What was derived from before a
-- reset is due in its session's present incarnation, as in unfold_v1.
-- row: event_id uuid
WITH voided AS (
    UPDATE strandline.batch SET state = 'void'
    WHERE shard_key = %(shard_key)s AND batch_id = %(batch_id)s AND state = 'applied'
    RETURNING event_ids
), gone AS (
    DELETE FROM strandline.receipt r USING voided v
    WHERE r.shard_key = %(shard_key)s AND r.event_id = ANY (v.event_ids)
        AND r.generation_id = %(generation_id)s AND r.stage = %(stage)s AND r.batch_id = %(batch_id)s
    RETURNING r.event_id
), @noted_change(%(shard_key)s, 'pieces'), pieces AS (
    DELETE FROM strandline.chunk c
    WHERE c.shard_key = %(shard_key)s AND c.generation_id = %(generation_id)s AND c.batch_id = %(batch_id)s
)
INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq,
    scope_key, event_id, incarnation, tokens, namespace, precedence, created_at, ring_at, was_applied)
SELECT e.shard_key, e.session_key, %(generation_id)s, %(stage)s, e.from_seq, e.through_seq, %(scope_key)s,
    e.event_id, s.incarnation, e.tokens, s.namespace, 1, e.created_at, 'infinity', true
FROM gone JOIN strandline.flush_event e ON e.shard_key = %(shard_key)s AND e.event_id = gone.event_id
JOIN strandline.session s ON s.shard_key = e.shard_key AND s.session_key = e.session_key
RETURNING event_id

-- name: unfold_from
-- Take an ordered lane back to before one of its states (NULL: only drop its open batch).
-- params: ordinal bigint?
-- row: event_id uuid
SELECT strandline.unfold_v1(%(shard_key)s, %(scope_key)s, %(generation_id)s, %(stage)s, %(ordinal)s, true) AS event_id

-- name: replay_size
-- The work of a replay in place: the matching events of a pipeline, and their tokens.
-- params: namespace text?, only_dead boolean
-- row: backlog
SELECT count(*)::integer AS events, coalesce(sum(e.tokens), 0)::bigint AS tokens FROM strandline.flush_event e
JOIN strandline.session s ON s.shard_key = e.shard_key AND s.session_key = e.session_key
WHERE (%(pipeline)s::text = ANY (s.pipelines)
        OR %(pipeline)s::text = ANY (@fed(e.shard_key, e.session_key, e.from_seq)))
    AND @fits(s, e)
    AND (NOT %(only_dead)s::boolean OR EXISTS (
        SELECT FROM strandline.dead_letter d WHERE d.shard_key = e.shard_key AND d.event_id = e.event_id
            AND d.generation_id = %(generation_id)s AND d.dropped_at IS NULL))

-- name: event_sizes
-- Events with the sizes that a batch is limited by, in the order of a lane.
-- row: event_id uuid, tokens bigint
SELECT e.event_id, e.tokens FROM strandline.flush_event e
WHERE e.shard_key = %(shard_key)s AND e.event_id = ANY (%(event_ids)s::uuid[])
ORDER BY array_position(%(event_ids)s::uuid[], e.event_id)

-- name: derivable_events
-- The events of an owner that a new derivation of a pipeline would derive (as backfill_owner makes them due), in
-- the order of its lanes: by session, or by time.
-- params: by_owner boolean
-- row: session_key uuid, event_id uuid, tokens bigint
SELECT e.session_key, e.event_id, e.tokens FROM strandline.flush_event e
JOIN strandline.session s ON s.shard_key = e.shard_key AND s.session_key = e.session_key
    AND (%(pipeline)s::text = ANY (s.pipelines)
        OR %(pipeline)s::text = ANY (@fed(%(shard_key)s, e.session_key, e.from_seq)))
WHERE e.shard_key = %(shard_key)s AND NOT @is_event_removed(e, %(shard_key)s) AND (e.incarnation = s.incarnation
    OR @is_memory(%(shard_key)s, e.event_id, %(pipeline)s::text, %(last_stage)s))
ORDER BY CASE WHEN NOT %(by_owner)s::boolean THEN e.session_key END,
    CASE WHEN NOT %(by_owner)s::boolean THEN e.from_seq END, e.created_at, e.session_key, e.from_seq

-- name: derived_candidates
-- The candidates of the derivation that serves an owner, by event, in the order of the flushes: the tokens of the event,
-- all texts, and those that neither a person nor an act has dropped.
-- row: event_id uuid, tokens bigint, all_texts text[], texts text[]
-- opens: all_texts text fact, texts text fact
SELECT c.event_id, e.tokens, array_agg(c.text ORDER BY c.ordinal) AS all_texts,
    coalesce(array_agg(c.text ORDER BY c.ordinal) FILTER (WHERE c.dropped_by IS NULL
        AND c.withheld_by IS NULL), '{}') AS texts
FROM @serving(%(shard_key)s, '{facts}') v
JOIN strandline.fact_candidate c ON c.shard_key = %(shard_key)s AND c.generation_id = v.generation_id
JOIN strandline.flush_event e ON e.shard_key = c.shard_key AND e.event_id = c.event_id
GROUP BY c.event_id, e.tokens, e.created_at, e.session_key, e.from_seq
ORDER BY e.created_at, e.session_key, e.from_seq

-- name: ledger_averages
-- Per stage of a pipeline, over the latest calls: how many there were for how many tokens of events, and their size.
-- row: stage text, calls float8, input_tokens float8, output_tokens float8, tokens float8
WITH latest AS MATERIALIZED (
    SELECT m.* FROM strandline.model_call m JOIN strandline.generation g ON g.generation_id = m.generation_id
    WHERE g.pipeline = %(pipeline)s ORDER BY m.created_at DESC LIMIT 500
)
SELECT c.stage, count(*)::float8 AS calls, avg(c.input_tokens)::float8 AS input_tokens,
    avg(c.output_tokens)::float8 AS output_tokens,
    coalesce((SELECT sum(e.tokens) FROM strandline.batch b
        JOIN strandline.flush_event e ON e.shard_key = b.shard_key AND e.event_id = ANY (b.event_ids)
        WHERE (b.shard_key, b.batch_id) IN (SELECT o.shard_key, o.batch_id FROM latest o WHERE o.stage = c.stage)
    ), 0)::float8 AS tokens
FROM latest c GROUP BY c.stage

-- name: compare_facts
-- The live facts of two derivations of an owner, matched by their words, or else by a message they both come from.
-- row: change text, before text?, after text?
-- opens: before text fact, after text fact
WITH old AS (
    SELECT f.fact_id, f.text, f.fingerprint FROM strandline.fact f
    WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(old)s AND f.live
), new AS (
    SELECT f.fact_id, f.text, f.fingerprint FROM strandline.fact f
    WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(new)s AND f.live
), source AS (
    SELECT DISTINCT r.generation_id, r.fact_id, r.session_key, u.seq FROM strandline.fact_revision r
    CROSS JOIN unnest(r.seqs) AS u (seq)
    WHERE r.shard_key = %(shard_key)s AND r.generation_id IN (%(old)s, %(new)s)
), pair AS (
    SELECT o.fact_id AS old_id, n.fact_id AS new_id FROM old o JOIN new n ON n.fingerprint = o.fingerprint
    UNION ALL
    SELECT DISTINCT ON (o.fact_id) o.fact_id, n.fact_id
    FROM old o
    JOIN source a ON a.generation_id = %(old)s AND a.fact_id = o.fact_id
    JOIN source b ON b.generation_id = %(new)s AND b.session_key = a.session_key AND b.seq = a.seq
    JOIN new n ON n.fact_id = b.fact_id
    WHERE NOT EXISTS (SELECT FROM new x WHERE x.fingerprint = o.fingerprint)
        AND NOT EXISTS (SELECT FROM old y WHERE y.fingerprint = n.fingerprint)
)
SELECT CASE WHEN n.fact_id IS NULL THEN 'gone' WHEN o.fingerprint = n.fingerprint THEN 'same'
    ELSE 'changed' END AS change, o.text AS before, n.text AS after
FROM old o LEFT JOIN pair p ON p.old_id = o.fact_id LEFT JOIN new n ON n.fact_id = p.new_id
UNION ALL
SELECT 'added', NULL, n.text FROM new n WHERE NOT EXISTS (SELECT FROM pair p WHERE p.new_id = n.fact_id)
ORDER BY 1, 2, 3

-- name: compare_states
-- The newest states of two derivations of an owner's lanes, side by side.
-- row: session_id text, before text?, after text?
-- opens: before json state, after json state
SELECT coalesce(s.session_id, '') AS session_id, o.state::text AS before, n.state::text AS after
FROM (
    SELECT DISTINCT f.scope_key FROM strandline.block_state f
    WHERE f.shard_key = %(shard_key)s AND f.generation_id IN (%(old)s, %(new)s)
) AS l
LEFT JOIN strandline.session s ON s.shard_key = %(shard_key)s AND s.session_key = l.scope_key
LEFT JOIN LATERAL (
    SELECT b.state FROM strandline.block_state b WHERE b.shard_key = %(shard_key)s
        AND b.scope_key = l.scope_key AND b.generation_id = %(old)s ORDER BY b.ordinal DESC LIMIT 1) AS o ON true
LEFT JOIN LATERAL (
    SELECT b.state FROM strandline.block_state b WHERE b.shard_key = %(shard_key)s
        AND b.scope_key = l.scope_key AND b.generation_id = %(new)s ORDER BY b.ordinal DESC LIMIT 1) AS n ON true
ORDER BY 1

-- name: owner_names
-- The names of an owner: a namespace, and the user or the session.
-- row: shard_key uuid, namespace text, user_id text?, session_id text
SELECT s.shard_key, s.namespace, s.user_id, min(s.session_id) AS session_id FROM strandline.session s
WHERE s.shard_key = ANY (%(shard_keys)s::uuid[])
GROUP BY s.shard_key, s.namespace, s.user_id

-- name: cited_messages
-- The messages that facts of a derivation come from.
-- row: session_key uuid, seq bigint
SELECT DISTINCT r.session_key, cited.seq
FROM strandline.fact_revision r CROSS JOIN LATERAL unnest(r.seqs) AS cited (seq)
WHERE r.shard_key = %(shard_key)s AND r.generation_id = %(generation_id)s
    AND r.fact_id = ANY (%(fact_ids)s::uuid[]) AND r.operation <> 'invalidate' AND r.session_key IS NOT NULL
