-- Reading: one statement and one snapshot for a prompt.

-- name: read
-- One snapshot for a read: part 0 is the header (marks, coverage, facts, states), part 1 the tail,
-- newest first and cut off by count and bytes, and the question of the turn inside of which the window begins, part 2
-- the pinned head or what replaced it, the newest system message behind it, and the window, without what is known of it.
-- A chosen generation stands in for the one of its pipeline that serves.
-- params: tail_rows bigint, tail_bytes bigint, known_through bigint?, known_from bigint?, known_seal text?,
--     known_facts text?, generation_id integer?
-- row: part integer, seq bigint, id text, role text, tokens integer, created_at timestamptz, envelope text, metadata
--     text?
-- opens: envelope, metadata, envelope within facts.*.text=text:fact;states.*=json:state
WITH s AS (
    -- Few columns, and its row for the caller made here: each part that reads it sets all of its columns up.
    SELECT x.window_from, x.next_seq, x.log_start_seq, x.pinned_through, x.question_seqs, x.prompt, x.newest_note,
        x.corrections, x.incarnation, x.is_ruled, x.shown_from, x.oldest, x.important, json_build_object(
            'window_from', x.window_from, 'flushed_through', x.flushed_through,
            'pinned_through', x.pinned_through, 'question_seqs', x.question_seqs, 'next_seq', x.next_seq,
            'log_start_seq', x.log_start_seq, 'token_limit', x.token_limit, 'flush_at_tokens', x.flush_at_tokens,
            'token_flush_size', x.token_flush_size, 'pipelines', x.pipelines,
            'shared_key', x.shared_key, 'time_zone', x.time_zone, 'idle_seconds', x.idle_seconds,
            'max_window_messages', x.max_window_messages, 'max_window_bytes', x.max_window_bytes,
            'message_flush_size', x.message_flush_size, 'deliver', x.deliver, 'prompt', x.prompt,
            'prompts', x.prompts, 'undelivered', @undelivered(x), 'deliver_at', @deliver_at(x),
            'tokens', x.pinned_tokens + x.window_tokens) AS session
    FROM (
        -- newest_note: of the newest system message; an index on these alone has it.
        SELECT t.*, common.number IS NOT NULL AS is_ruled, @bounds_of(t, %(session_key)s), (
                SELECT max(n.seq) FROM strandline.message n
                WHERE n.shard_key = %(shard_key)s AND n.session_key = %(session_key)s
                    AND n.role IN ('system', 'developer')) AS newest_note,
            CASE WHEN t.prompts IS NOT NULL THEN @prompt_of(t, %(shard_key)s, %(session_key)s) END AS prompt
        FROM strandline.session t @acts_applied(%(shard_key)s, %(session_key)s, t.namespace)
        WHERE t.shard_key = %(shard_key)s AND t.session_key = %(session_key)s OFFSET 0) AS x
), chosen AS (
    SELECT c.generation_id, c.pipeline, c.version, c.entry_scope, c.config FROM strandline.generation c
    WHERE c.generation_id = %(generation_id)s::integer AND c.pipeline = ANY (%(pipelines)s::text[])
        AND c.state <> 'retired'
        -- Until all of the owner is due in it, nothing would say what it lacks.
        AND (c.backfilled_through IS NULL OR %(shard_key)s <= c.backfilled_through)
), g AS (
    SELECT generation_id, pipeline, version, entry_scope, config
    FROM @serving(%(shard_key)s, %(pipelines)s) AS serving
    WHERE serving.pipeline IS DISTINCT FROM (SELECT chosen.pipeline FROM chosen)
    UNION ALL SELECT * FROM chosen
), pending AS (
    -- By the keys as they are given, here and below: those of s would not lead into an index before s is read.
    SELECT g.pipeline, d.from_seq, d.through_seq FROM (
        SELECT w.generation_id, w.incarnation, w.from_seq, w.through_seq FROM strandline.due w
        WHERE w.shard_key = %(shard_key)s AND w.session_key = %(session_key)s
        UNION ALL
        SELECT w.generation_id, w.incarnation, w.from_seq, w.through_seq FROM strandline.dead_letter w
        WHERE w.shard_key = %(shard_key)s AND w.session_key = %(session_key)s AND w.dropped_at IS NULL
    ) AS d JOIN g USING (generation_id), s
    WHERE d.incarnation = s.incarnation AND d.from_seq >= s.log_start_seq
), gap AS (
    SELECT DISTINCT d.from_seq, least(d.through_seq, s.window_from - 1) AS through_seq, d.is_question
    FROM s CROSS JOIN LATERAL (
        SELECT p.from_seq, p.through_seq, false AS is_question FROM pending p
        UNION ALL
        SELECT q.seq, q.seq, true FROM unnest(s.question_seqs) AS q (seq) WHERE q.seq > s.pinned_through) AS d
    WHERE d.from_seq < s.window_from
), tail AS (
    -- Per gap: as a plain join, a generic plan reads the whole log even if there is no gap.
    SELECT * FROM (
        SELECT t.*, gap.is_question, sum(t.bytes) FILTER (WHERE NOT gap.is_question) OVER (ORDER BY t.seq DESC)
            AS taken_bytes
        FROM s CROSS JOIN gap CROSS JOIN LATERAL (
            SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope, m.metadata, m.bytes
            FROM strandline.message m
            WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
                AND m.seq BETWEEN gap.from_seq AND gap.through_seq AND @is_within(m, s)
            ORDER BY m.seq DESC LIMIT %(tail_rows)s) AS t
        ) AS t
    WHERE t.taken_bytes <= %(tail_bytes)s OR t.is_question
    ORDER BY t.is_question DESC, t.seq DESC LIMIT %(tail_rows)s
), known AS (
    -- The window that the process has cached, if it is still current (producers/reading/window_cache.py): the last
    -- message has the same seal, so it is the same row of the same table, and not another one with the same words; and
    -- nothing was corrected since.
    -- And nothing of it is past its time.
    SELECT %(known_through)s::bigint AS through_seq FROM s
    WHERE s.window_from >= %(known_from)s::bigint AND s.shown_from = s.log_start_seq
        AND (s.oldest = '-infinity' OR NOT EXISTS (
            SELECT FROM strandline.message m
            WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
                AND m.seq BETWEEN s.window_from AND %(known_through)s::bigint AND @is_within(m, s) IS NOT TRUE))
        AND EXISTS (
        SELECT FROM strandline.message m
        WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
            AND m.seq = %(known_through)s::bigint
            AND md5((s.corrections, m.xmin, m.incarnation, m.id, m.digest, m.created_at)::text) = %(known_seal)s::text)
), versions AS MATERIALIZED (
    SELECT g.generation_id, g.generation_id || ':' || @version_of(%(shard_key)s, 'facts') AS facts
    FROM g WHERE g.pipeline = 'facts'
)
SELECT 0 AS part, 0::bigint AS seq, ''::text AS id, ''::text AS role, 0 AS tokens,
    'epoch'::timestamptz AS created_at,
    json_build_object(
        'session', (SELECT session FROM s),
        'known', EXISTS (SELECT FROM known),
        'seal', (SELECT l.seal FROM s CROSS JOIN LATERAL (
            SELECT md5((s.corrections, m.xmin, m.incarnation, m.id, m.digest, m.created_at)::text) AS seal
            FROM strandline.message m
            WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
                AND m.seq >= s.window_from AND m.seq < s.next_seq AND @is_within(m, s)
            ORDER BY m.seq DESC LIMIT 1) AS l),
        -- Part of the window may be past its age: it then begins where a conversation can.
        'is_aging', (SELECT s.oldest > '-infinity' FROM s),
        'serving', (SELECT json_object_agg(g.pipeline, json_build_object(
            'generation_id', g.generation_id, 'version', g.version,
            -- Only for the search.
            'config', CASE WHEN g.pipeline = 'vectors' THEN g.config END)) FROM g),
        'pending', (SELECT json_agg(json_build_array(p.pipeline, p.from_seq, p.through_seq)) FROM pending p),
        -- By which a process knows whether what it keeps is what there is; what it knows already is not told.
        'facts_version', (SELECT v.facts FROM versions v),
        'pieces_version', @version_of_pieces(%(shard_key)s),
        -- Whether anything is sealed in this database at all.
        'is_sealing', EXISTS (SELECT FROM strandline.encryption),
        -- Whether time alone may take something from what is found, and whether the owner has no other session.
        'is_bounded', EXISTS (SELECT FROM s WHERE s.is_ruled)
            OR EXISTS (SELECT FROM strandline.session_retention_act a WHERE a.shard_key = %(shard_key)s)
            OR EXISTS (SELECT FROM strandline.expired_life l WHERE l.shard_key = %(shard_key)s),
        'is_alone', NOT EXISTS (SELECT FROM strandline.session o
            WHERE o.shard_key = %(shard_key)s AND o.session_key <> %(session_key)s),
        'facts', (SELECT json_agg(f ORDER BY f.said_at, f.fact_id) FROM versions v CROSS JOIN LATERAL (
            -- Per generation, of which there is one: as a join, all facts would be sorted for the newest few.
            SELECT t.fact_id, t.text, t.said_at, @said_in(%(shard_key)s, t.generation_id, t.fact_id) AS sources
            FROM strandline.fact t
            WHERE t.shard_key = %(shard_key)s AND t.generation_id = v.generation_id AND t.live
            ORDER BY t.said_at DESC LIMIT %(max_facts)s) AS f
            WHERE v.facts IS DISTINCT FROM %(known_facts)s::text),
        -- By which a process knows that it has to forget what it has cached of others.
        'erasures', (SELECT max(e.number) FROM strandline.erasure e),
        'states', (SELECT json_object_agg(g.pipeline, b.state) FROM g CROSS JOIN LATERAL (
            SELECT state FROM strandline.block_state b
            WHERE b.shard_key = %(shard_key)s AND b.generation_id = g.generation_id AND b.scope_key
                = CASE g.entry_scope WHEN 'owner' THEN %(shard_key)s::uuid ELSE %(session_key)s::uuid END
            ORDER BY b.ordinal DESC LIMIT 1) AS b)
    )::text AS envelope, NULL::text AS metadata
UNION ALL
SELECT 1, t.seq, t.id, t.role, t.tokens, t.created_at, t.envelope::text, t.metadata::text FROM tail t
UNION ALL
-- Bounds of seq are given by value: in a join, a plan without statistics reads the whole log for each part.
SELECT 2, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM s JOIN strandline.message m ON m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
    AND m.seq >= (SELECT greatest(b.window_from, (SELECT k.through_seq + 1 FROM known k)) FROM s b)
    AND m.seq < (SELECT b.next_seq FROM s b) AND @is_within(m, s)
UNION ALL
SELECT 2, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM s JOIN strandline.message m ON m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
    AND m.seq >= (SELECT coalesce(b.prompt, b.log_start_seq) FROM s b)
    AND m.seq <= (SELECT least(coalesce(b.prompt, b.pinned_through), b.window_from - 1) FROM s b) AND @is_within(m, s)
UNION ALL
SELECT 2, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM s JOIN strandline.message m ON m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
    AND m.seq = (SELECT b.newest_note FROM s b) AND m.seq > s.pinned_through AND m.seq < s.window_from
    AND m.seq IS DISTINCT FROM s.prompt AND @is_within(m, s)
ORDER BY part, seq

-- name: calls_of_results
-- Before a number, the newest messages with some calls, and the results of all their calls; for results that came when
-- their calls had left the window.
-- params: calls text[], before_seq bigint, within bigint
-- row: message
-- opens: envelope, metadata
WITH retained AS MATERIALIZED (@retained(%(shard_key)s, %(session_key)s)), paired AS MATERIALIZED (
    SELECT m.seq, m.role, m.calls, m.answers FROM strandline.message m
    WHERE @is_of_log(m) AND m.seq BETWEEN %(before_seq)s::bigint - %(within)s::bigint AND %(before_seq)s::bigint - 1
        AND (m.calls IS NOT NULL OR m.answers IS NOT NULL)
), called AS MATERIALIZED (
    SELECT p.seq, p.calls FROM paired p
    WHERE p.role = 'assistant' AND EXISTS (
        SELECT FROM json_array_elements_text(p.calls) AS made (call) WHERE made.call = ANY (%(calls)s::text[]))
    ORDER BY p.seq DESC LIMIT 8
)
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM strandline.message m
WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s AND m.seq IN (
    SELECT c.seq FROM called c
    UNION
    SELECT p.seq FROM paired p JOIN called c ON p.seq > c.seq
    WHERE EXISTS (
        SELECT FROM json_array_elements_text(c.calls) AS made (call)
        JOIN json_array_elements_text(p.answers) AS answered (call) USING (call)))
ORDER BY m.seq

-- name: coverage
-- Which ranges some pipelines have not covered yet, and the last message there is (for a bounded wait); and whether a
-- range waits for more to share its model call (end_delay).
-- row: pipeline text?, from_seq bigint?, last_seq bigint, waits boolean
SELECT g.pipeline, d.from_seq, s.next_seq - 1 AS last_seq, d.ready_at IS NOT NULL AS waits
FROM strandline.session s
LEFT JOIN @serving(%(shard_key)s, %(pipelines)s) g ON true
LEFT JOIN strandline.due d ON d.shard_key = %(shard_key)s AND d.session_key = %(session_key)s
    AND d.generation_id = g.generation_id AND d.incarnation = s.incarnation AND d.from_seq <= %(seq)s
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s

-- name: serving_generation
-- The derivation of a pipeline that serves an owner, and its recipe; the version of the owner's pieces, and its time zone.
-- row: generation_id integer, config text, pieces_version text, time_zone text?
SELECT generation_id, config::text, @version_of_pieces(%(shard_key)s) AS pieces_version,
    @owners_zone(%(shard_key)s) AS time_zone
FROM @serving(%(shard_key)s, ARRAY[%(pipeline)s::text]) AS serving

-- name: fact_sources
-- Some live facts of an owner, of a generation or (NULL) the serving one: when each was last said, and where; a row
-- per session that said it.
-- params: generation_id integer?
-- row: fact_id uuid, said_at timestamptz, session_key uuid?, seqs bigint[]?
SELECT f.fact_id, f.said_at, r.session_key, r.seqs
FROM (
    SELECT coalesce(%(generation_id)s::integer, v.generation_id) AS generation_id
    FROM @serving(%(shard_key)s, '{facts}') AS v) AS serving
JOIN strandline.fact f ON f.shard_key = %(shard_key)s AND f.generation_id = serving.generation_id AND f.live
    AND f.fact_id = ANY (%(fact_ids)s::uuid[])
LEFT JOIN strandline.fact_revision r ON r.shard_key = %(shard_key)s AND r.generation_id = f.generation_id
    AND r.fact_id = f.fact_id AND r.operation <> 'invalidate'
