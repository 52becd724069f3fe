-- Statements of verify: each check once over the whole scope, and all in one snapshot.
--
-- Every check gives rows of (kind, place): a kind that pipelines/inspect/verify.py has a sentence for, and
-- JSON that names where.  A check that finds nothing gives no row.  The scope is either everything
-- (owners and session_key are null), the owners of a namespace, or one session of one owner.

-- name: verify_snapshot
-- All questions see the same moment, so that a running system verifies clean.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- name: verify_limits
-- Big joins may take their time and memory here, and only here.
-- row: a text, b text, c text, d text, e text, f text
SELECT set_config('statement_timeout', '0', true) AS a, set_config('work_mem', '64MB', true) AS b,
    set_config('idle_in_transaction_session_timeout', '60000', true) AS c, set_config('jit', 'off', true) AS d,
    set_config('enable_seqscan', 'on', true) AS e, set_config('plan_cache_mode', 'force_custom_plan', true) AS f

-- name: verify_owners
-- The owners that have sessions in a namespace, or were given facts there.
-- row: shard_key uuid
SELECT s.shard_key FROM strandline.session s WHERE s.namespace = %(namespace)s
UNION SELECT f.shard_key FROM strandline.fact_owner f WHERE f.namespace = %(namespace)s

-- name: verify_unjudged
-- Owners that are not checked, since an erasure of theirs, or of one of their sessions, is not finished.
-- params: namespace text?, session_key uuid?
-- row: erasure integer, namespace text, owner_key uuid
SELECT e.number AS erasure, e.namespace, e.owner_key FROM strandline.erasure e
WHERE e.state = 'running' AND (%(namespace)s::text IS NULL OR e.namespace = %(namespace)s)
    AND (%(session_key)s::uuid IS NULL OR e.owner_key = ANY (%(owners)s::uuid[])) ORDER BY e.number

-- name: verify_names
-- The names of these sessions.
-- row: session_key uuid, namespace text, session_id text
SELECT s.session_key, s.namespace, s.session_id FROM strandline.session s
WHERE s.session_key = ANY (%(session_keys)s::uuid[])

-- name: verify_totals
-- Totals of the checked rows.
-- params: session_key uuid?
-- row: sessions bigint, messages bigint, events bigint, facts bigint, pending bigint, holes bigint, applications
--     bigint, voids bigint, dropped bigint, tombstones bigint
SELECT
    (SELECT count(*) FROM strandline.session x WHERE (%(owners)s::uuid[] IS NULL OR x.shard_key = ANY (%(owners)s))
        AND (%(session_key)s::uuid IS NULL OR x.session_key = %(session_key)s)) AS sessions,
    (SELECT count(*) FROM strandline.message x WHERE (%(owners)s::uuid[] IS NULL OR x.shard_key = ANY (%(owners)s))
        AND (%(session_key)s::uuid IS NULL OR x.session_key = %(session_key)s)) AS messages,
    (SELECT count(*) FROM strandline.flush_event x WHERE (%(owners)s::uuid[] IS NULL OR x.shard_key = ANY (%(owners)s))
        AND (%(session_key)s::uuid IS NULL OR x.session_key = %(session_key)s)) AS events,
    (SELECT count(*) FROM strandline.fact x
        WHERE (%(owners)s::uuid[] IS NULL OR x.shard_key = ANY (%(owners)s))) AS facts,
    (SELECT count(*) FROM strandline.due x WHERE (%(owners)s::uuid[] IS NULL OR x.shard_key = ANY (%(owners)s))
        AND (%(session_key)s::uuid IS NULL OR x.session_key = %(session_key)s)) AS pending,
    l.holes, r.applications, r.voids, l.dropped, (
    SELECT count(*) FROM (
        SELECT FROM strandline.fact_revision x
        WHERE (%(owners)s::uuid[] IS NULL OR x.shard_key = ANY (%(owners)s))
        GROUP BY x.shard_key, x.generation_id, x.fact_id HAVING count(*) < max(x.revision)) AS shortened) AS tombstones
FROM (
    SELECT count(*) FILTER (WHERE x.outcome = 'applied') AS applications,
        count(*) FILTER (WHERE x.outcome = 'void') AS voids
    FROM strandline.receipt x
    WHERE (%(owners)s::uuid[] IS NULL OR x.shard_key = ANY (%(owners)s))
        AND (%(session_key)s::uuid IS NULL OR EXISTS (
            SELECT FROM strandline.flush_event e WHERE e.shard_key = x.shard_key AND e.event_id = x.event_id
                AND e.session_key = %(session_key)s))) AS r
CROSS JOIN (
    SELECT count(*) FILTER (WHERE x.dropped_at IS NULL) AS holes, count(x.dropped_at) AS dropped
    FROM strandline.dead_letter x
    WHERE (%(owners)s::uuid[] IS NULL OR x.shard_key = ANY (%(owners)s))
        AND (%(session_key)s::uuid IS NULL OR x.session_key = %(session_key)s)) AS l

-- name: verify_log
-- Marks in order, no message missing between them but those popped, and counters that are the messages' sums.
-- params: session_key uuid?
-- row: finding
WITH s AS (
    SELECT x.* FROM strandline.session x WHERE @is_judged_session(x.shard_key, x.session_key)
), summed AS (
    SELECT m.shard_key, m.session_key,
        count(*) FILTER (WHERE m.seq >= s.log_start_seq AND m.seq < s.next_seq
            AND m.incarnation = s.incarnation) AS present,
        sum(m.tokens) FILTER (WHERE m.seq >= s.window_from AND m.seq < s.next_seq) AS window_tokens,
        count(*) FILTER (WHERE m.seq >= s.window_from AND m.seq < s.next_seq) AS window_messages,
        sum(m.bytes) FILTER (WHERE m.seq >= s.window_from AND m.seq < s.next_seq) AS window_bytes,
        sum(m.tokens) FILTER (WHERE m.seq BETWEEN s.log_start_seq AND s.pinned_through) AS pinned_tokens
    FROM strandline.message m JOIN s ON s.shard_key = m.shard_key AND s.session_key = m.session_key
    GROUP BY m.shard_key, m.session_key
), taken AS (
    SELECT p.shard_key, p.session_key, count(*) AS popped
    FROM strandline.popped p JOIN s ON s.shard_key = p.shard_key AND s.session_key = p.session_key
        AND p.seq >= s.log_start_seq
    GROUP BY p.shard_key, p.session_key
), removed AS (
    -- What retention took out of the log as it is now.
    SELECT g.shard_key, g.session_key, sum(g.removed) AS messages
    FROM strandline.retention_step g JOIN s ON s.shard_key = g.shard_key AND s.session_key = g.session_key
        AND g.from_seq >= s.log_start_seq
    WHERE g.state = 'removed' GROUP BY g.shard_key, g.session_key
), marked AS (
    SELECT s.*, coalesce(m.present, 0) + coalesce(t.popped, 0) + coalesce(g.messages, 0) AS present, coalesce(m.window_tokens, 0) AS window_sum,
        coalesce(m.window_messages, 0) AS window_count, coalesce(m.window_bytes, 0) AS window_size,
        coalesce(m.pinned_tokens, 0) AS pinned_sum
    FROM s LEFT JOIN summed m ON m.shard_key = s.shard_key AND m.session_key = s.session_key
    LEFT JOIN taken t ON t.shard_key = s.shard_key AND t.session_key = s.session_key
    LEFT JOIN removed g ON g.shard_key = s.shard_key AND g.session_key = s.session_key
), broken AS (
    SELECT * FROM marked WHERE present <> next_seq - log_start_seq
), seen AS (
    SELECT shard_key, session_key, log_start_seq - 1 AS seq FROM broken
    UNION ALL
    SELECT m.shard_key, m.session_key, m.seq FROM broken b JOIN strandline.message m
        ON m.shard_key = b.shard_key AND m.session_key = b.session_key
        AND m.seq >= b.log_start_seq AND m.seq < b.next_seq AND m.incarnation = b.incarnation
    UNION ALL
    SELECT p.shard_key, p.session_key, p.seq FROM broken b JOIN strandline.popped p
        ON p.shard_key = b.shard_key AND p.session_key = b.session_key AND p.seq >= b.log_start_seq
    UNION ALL
    SELECT b.shard_key, b.session_key, taken.seq FROM broken b JOIN strandline.retention_step g
        ON g.shard_key = b.shard_key AND g.session_key = b.session_key AND g.from_seq >= b.log_start_seq
        AND g.state = 'removed'
    CROSS JOIN LATERAL generate_series(g.from_seq, g.through_seq) AS taken (seq)
    UNION ALL
    SELECT shard_key, session_key, next_seq FROM broken
), gap AS (
    SELECT session_key, seq + 1 AS from_seq,
        lead(seq) OVER (PARTITION BY shard_key, session_key ORDER BY seq) - 1 AS through_seq
    FROM seen
)
SELECT 'message_missing' AS kind, json_build_object('session_key', session_key, 'from_seq', from_seq,
    'through_seq', through_seq)::text AS place
FROM gap WHERE through_seq >= from_seq
UNION ALL
SELECT k.kind, json_build_object('session_key', m.session_key, 'found', k.found, 'expected', k.expected)::text
FROM marked m CROSS JOIN LATERAL (VALUES
    ('window_tokens_wrong', m.window_tokens <> m.window_sum, m.window_tokens, m.window_sum),
    ('window_messages_wrong', m.window_messages <> m.window_count, m.window_messages, m.window_count),
    ('window_bytes_wrong', m.window_bytes <> m.window_size, m.window_bytes, m.window_size),
    ('pinned_tokens_wrong', m.pinned_tokens <> m.pinned_sum, m.pinned_tokens, m.pinned_sum),
    ('marks_out_of_order', NOT (m.log_start_seq >= 1 AND m.pinned_through >= m.log_start_seq - 1
        AND m.window_from > m.pinned_through AND m.flushed_through >= m.pinned_through
        AND m.window_from <= m.flushed_through + 1 AND m.flushed_through < m.next_seq),
        m.flushed_through, m.next_seq)
) AS k (kind, broken, found, expected)
WHERE k.broken

-- name: verify_strays
-- Messages outside their session's log: without session, past its end, or of the wrong incarnation.
-- params: session_key uuid?
-- row: finding
SELECT 'message_stray' AS kind, json_build_object('session_key', x.session_key, 'from_seq', x.seq,
    'through_seq', x.seq)::text AS place
FROM strandline.message x
LEFT JOIN strandline.session s ON s.shard_key = x.shard_key AND s.session_key = x.session_key
WHERE @is_judged_session(x.shard_key, x.session_key)
    AND (s.session_key IS NULL OR x.seq >= s.next_seq
        OR (x.seq >= s.log_start_seq) <> (x.incarnation = s.incarnation))

-- name: verify_retention
-- What retention took out of the log is gone, but for what is important; it was read back from its archive first; and
-- it went from below, so that the log begins where it ended.
-- params: session_key uuid?
-- row: finding
SELECT k.kind, json_build_object('session_key', g.session_key, 'from_seq', k.from_seq, 'through_seq', k.through_seq,
    'found', k.found, 'expected', 0)::text AS place
FROM strandline.retention_step g
LEFT JOIN strandline.session s ON s.shard_key = g.shard_key AND s.session_key = g.session_key
CROSS JOIN LATERAL (
    SELECT count(*) AS messages FROM strandline.message m
    WHERE m.shard_key = g.shard_key AND m.session_key = g.session_key AND m.seq BETWEEN g.from_seq AND g.through_seq
        AND (m.labels @> ARRAY[@session_number(g.session_key)]) IS NOT TRUE) AS present
CROSS JOIN LATERAL (
    SELECT min(m.seq) AS from_seq, max(m.seq) AS through_seq, count(*) AS messages FROM strandline.message m
    WHERE m.shard_key = g.shard_key AND m.session_key = g.session_key AND m.seq < g.from_seq
        AND m.incarnation = g.incarnation
        AND (m.seq > s.pinned_through OR m.incarnation <> s.incarnation)
        AND (m.labels @> ARRAY[@session_number(g.session_key)]) IS NOT TRUE) AS older
CROSS JOIN LATERAL (VALUES
    ('removed_present', present.messages > 0, g.from_seq, g.through_seq, present.messages),
    ('removed_unarchived', g.archive IS NOT NULL AND g.removed > 0
        AND (g.archived_at IS NULL OR g.read_back_at IS NULL OR g.rows_digest IS NULL), g.from_seq, g.through_seq,
        g.removed::bigint),
    ('removed_out_of_order', older.messages > 0, older.from_seq, older.through_seq, older.messages)
) AS k (kind, broken, from_seq, through_seq, found)
WHERE g.state = 'removed' AND k.broken AND @is_judged_session(g.shard_key, g.session_key)

-- name: verify_ranges
-- Each seq between the marks in exactly one event: contiguous, in order, none beyond the marks.
-- params: session_key uuid?
-- row: finding
WITH s AS (
    SELECT x.* FROM strandline.session x WHERE @is_judged_session(x.shard_key, x.session_key)
), placed AS (
    SELECT e.shard_key, e.session_key, e.event_id, e.from_seq, e.through_seq,
        e.incarnation = s.incarnation AS current, s.flushed_through, s.log_start_seq,
        1 + coalesce(max(e.through_seq) OVER (PARTITION BY e.shard_key, e.session_key, e.incarnation
                ORDER BY e.from_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            CASE WHEN e.incarnation = s.incarnation THEN s.pinned_through END) AS expected
    FROM strandline.flush_event e JOIN s ON s.shard_key = e.shard_key AND s.session_key = e.session_key
), ended AS (
    SELECT shard_key, session_key, max(through_seq) AS through_seq FROM placed WHERE current
    GROUP BY shard_key, session_key
)
SELECT k.kind, json_build_object('session_key', p.session_key, 'event_id', p.event_id,
    'from_seq', k.from_seq, 'through_seq', k.through_seq)::text AS place
FROM placed p CROSS JOIN LATERAL (VALUES
    ('delivered_never', p.from_seq > p.expected, p.expected, p.from_seq - 1),
    ('delivered_twice', p.from_seq < p.expected, p.from_seq, least(p.expected - 1, p.through_seq)),
    ('event_beyond_marks',
        p.through_seq > CASE WHEN p.current THEN p.flushed_through ELSE p.log_start_seq - 1 END,
        p.from_seq, p.through_seq)
) AS k (kind, broken, from_seq, through_seq)
WHERE k.broken
UNION ALL
SELECT 'delivered_never', json_build_object('session_key', s.session_key,
    'from_seq', coalesce(e.through_seq, s.pinned_through) + 1, 'through_seq', s.flushed_through)::text
FROM s LEFT JOIN ended e ON e.shard_key = s.shard_key AND e.session_key = s.session_key
WHERE coalesce(e.through_seq, s.pinned_through) < s.flushed_through

-- name: verify_event_contents
-- An event's counts agree with its messages, and with those that corrections took out of it.  The incarnation is
-- counted, not searched for: with it in the condition the index by id is taken, and each event reads its whole session.
-- params: session_key uuid?
-- row: finding
SELECT k.kind, json_build_object('session_key', x.session_key, 'event_id', x.event_id,
    'found', k.found, 'expected', k.expected)::text AS place
FROM strandline.flush_event x
LEFT JOIN strandline.session s ON s.shard_key = x.shard_key AND s.session_key = x.session_key
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE m.incarnation = x.incarnation) AS messages,
        coalesce(sum(m.tokens) FILTER (WHERE m.incarnation = x.incarnation), 0) AS tokens
    FROM strandline.message m WHERE m.shard_key = x.shard_key AND m.session_key = x.session_key
        AND m.seq BETWEEN x.from_seq AND x.through_seq) AS present
CROSS JOIN LATERAL (
    -- As they were delivered: of each message the first that was superseded after its delivery.
    SELECT count(*) FILTER (WHERE m.seq IS NULL) AS messages,
        coalesce(sum(o.tokens - coalesce(m.tokens, 0)), 0) AS tokens
    FROM (
        SELECT DISTINCT ON (u.seq) u.seq, u.tokens FROM strandline.superseded u
        WHERE u.shard_key = x.shard_key AND u.session_key = x.session_key AND u.was_delivered
            AND u.seq BETWEEN x.from_seq AND x.through_seq
        ORDER BY u.seq, u.number) AS o
    LEFT JOIN strandline.message m ON m.shard_key = x.shard_key AND m.session_key = x.session_key
        AND m.seq = o.seq AND m.incarnation = x.incarnation) AS corrected
CROSS JOIN LATERAL (
    SELECT present.messages + corrected.messages AS messages, present.tokens + corrected.tokens AS tokens) AS held
CROSS JOIN LATERAL (VALUES
    ('event_without_session', s.session_key IS NULL, 0, 1),
    ('event_count_wrong', x.message_count <> held.messages, x.message_count, held.messages),
    ('event_tokens_wrong', x.tokens <> held.tokens, x.tokens, held.tokens)
) AS k (kind, broken, found, expected)
WHERE @is_judged_session(x.shard_key, x.session_key) AND k.broken
    AND (k.kind = 'event_without_session' OR NOT (
        -- Of an event that retention took messages of, the rest cannot be counted.
        @is_removed(x.shard_key, x.session_key, x.from_seq) OR @is_removed(x.shard_key, x.session_key, x.through_seq)))

-- name: verify_corrections
-- Corrections are numbered without a gap, each with what it superseded; what a rewind took is not in the log, and
-- nothing that was derived of superseded words counts: no batch from before a correction is applied that read one of
-- its messages, as such or as context.
-- params: session_key uuid?
-- row: finding
WITH numbered AS (
    SELECT s.session_key, s.corrections, s.log_start_seq, count(c.number) AS recorded, min(c.number) AS first_number,
        max(c.number) AS last_number
    FROM strandline.session s
    LEFT JOIN strandline.correction c ON c.shard_key = s.shard_key AND c.session_key = s.session_key
    WHERE @is_judged_session(s.shard_key, s.session_key)
    GROUP BY s.shard_key, s.session_key
), concerned AS (
    SELECT u.shard_key, u.session_key, u.seq, u.number, u.was_delivered, c.kind, c.created_at,
        (u.seq BETWEEN c.from_seq AND c.through_seq) IS NOT TRUE AS is_stray
    FROM strandline.superseded u
    LEFT JOIN strandline.correction c ON c.shard_key = u.shard_key AND c.session_key = u.session_key
        AND c.number = u.number
    WHERE @is_judged_session(u.shard_key, u.session_key)
)
SELECT 'correction_missing' AS kind, json_build_object('session_key', n.session_key, 'found', n.recorded,
    'expected', n.corrections)::text AS place
FROM numbered n
WHERE CASE WHEN n.recorded > 0
    THEN n.last_number <> n.corrections OR n.last_number - n.first_number + 1 <> n.recorded
        OR n.first_number > 1 AND n.log_start_seq = 1
    ELSE n.corrections > 0 AND n.log_start_seq = 1 END
UNION ALL
SELECT k.kind, json_build_object('session_key', x.session_key, 'from_seq', x.seq, 'found', x.number)::text
FROM concerned x
LEFT JOIN strandline.message m ON m.shard_key = x.shard_key AND m.session_key = x.session_key AND m.seq = x.seq
CROSS JOIN LATERAL (VALUES
    ('superseded_stray', x.is_stray),
    ('superseded_shown', x.kind = 'rewind' AND m.seq IS NOT NULL)
) AS k (kind, broken)
WHERE k.broken
UNION ALL
SELECT 'superseded_derived', json_build_object('session_key', x.session_key, 'from_seq', x.seq, 'found', x.number,
    'event_id', e.event_id, 'generation', b.generation_id, 'stage', b.stage, 'batch_id', b.batch_id)::text
FROM concerned x
JOIN strandline.flush_event e ON e.shard_key = x.shard_key AND e.session_key = x.session_key
    AND x.seq BETWEEN e.from_seq AND e.through_seq
JOIN strandline.batch b ON b.shard_key = x.shard_key AND b.state = 'applied' AND b.created_at < x.created_at
    AND (b.event_ids @> ARRAY[e.event_id] OR b.scope_key = x.session_key AND b.context_seqs @> ARRAY[x.seq])
JOIN strandline.generation g ON g.generation_id = b.generation_id AND g.entry_stage = b.stage
WHERE x.was_delivered

-- name: verify_work
-- Each event is due or received in the first stage of each generation it was fed to, and in a later stage
-- once the one before it is applied.  A generation is owed what was flushed since it was fed; one that a replay
-- has filled from the log, everything.
-- params: session_key uuid?
-- row: finding
WITH chain AS (
    SELECT * FROM unnest(%(stages)s::text[], %(stages_before)s::text[]) AS c (stage, before)
), owed AS (
    SELECT x.shard_key, x.session_key, x.event_id, x.from_seq, g.generation_id, g.entry_stage AS stage
    FROM strandline.flush_event x
    JOIN strandline.session s ON s.shard_key = x.shard_key AND s.session_key = x.session_key
    JOIN strandline.generation g ON g.state <> 'retired'
        AND g.fed_since <= x.created_at
        -- As the policy of its time says; hardly any session's was changed, and looking is dear.
        AND g.pipeline = ANY (CASE WHEN EXISTS (
            SELECT FROM strandline.policy_change c WHERE c.shard_key = s.shard_key AND c.session_key = s.session_key)
            THEN @fed(x.shard_key, x.session_key, x.from_seq) ELSE s.pipelines END)
    WHERE @is_judged_session(x.shard_key, x.session_key)
    UNION ALL
    SELECT x.shard_key, x.session_key, x.event_id, x.from_seq, r.generation_id, c.stage
    FROM strandline.receipt r JOIN chain c ON c.before = r.stage
    JOIN strandline.flush_event x ON x.shard_key = r.shard_key AND x.event_id = r.event_id
    JOIN strandline.generation g ON g.generation_id = r.generation_id AND g.state <> 'retired'
    WHERE r.outcome = 'applied' AND @is_judged_session(x.shard_key, x.session_key)
)
SELECT 'work_missing' AS kind, json_build_object('session_key', o.session_key, 'event_id', o.event_id,
    'generation', o.generation_id, 'stage', o.stage)::text AS place
FROM owed o
LEFT JOIN strandline.receipt r ON r.shard_key = o.shard_key AND r.event_id = o.event_id
    AND r.generation_id = o.generation_id AND r.stage = o.stage
LEFT JOIN strandline.due d ON d.shard_key = o.shard_key AND d.session_key = o.session_key
    AND d.generation_id = o.generation_id AND d.stage = o.stage AND d.from_seq = o.from_seq
WHERE r.event_id IS NULL AND d.event_id IS NULL

-- name: verify_order
-- Nothing is due or received in a later stage before the one before it is applied.
-- params: session_key uuid?
-- row: finding
WITH chain AS (
    SELECT * FROM unnest(%(stages)s::text[], %(stages_before)s::text[]) AS c (stage, before)
), later AS (
    SELECT r.shard_key, r.event_id, r.generation_id, r.stage, c.before
    FROM strandline.receipt r JOIN chain c ON c.stage = r.stage
    UNION ALL
    SELECT d.shard_key, d.event_id, d.generation_id, d.stage, c.before
    FROM strandline.due d JOIN chain c ON c.stage = d.stage
)
SELECT 'work_ahead' AS kind, json_build_object('session_key', x.session_key, 'event_id', x.event_id,
    'generation', l.generation_id, 'stage', l.stage)::text AS place
FROM later l
JOIN strandline.flush_event x ON x.shard_key = l.shard_key AND x.event_id = l.event_id
LEFT JOIN strandline.receipt b ON b.shard_key = l.shard_key AND b.event_id = l.event_id
    AND b.generation_id = l.generation_id AND b.stage = l.before AND b.outcome = 'applied'
WHERE b.event_id IS NULL
    AND @is_kept(l.generation_id)
    AND @is_judged_session(x.shard_key, x.session_key)

-- name: verify_due
-- Due work belongs to an event, and to one that has not been received already.
-- params: session_key uuid?
-- row: finding
SELECT k.kind, json_build_object('session_key', x.session_key, 'event_id', x.event_id,
    'generation', x.generation_id, 'stage', x.stage)::text AS place
FROM strandline.due x
LEFT JOIN strandline.flush_event e ON e.shard_key = x.shard_key AND e.event_id = x.event_id
    AND e.session_key = x.session_key AND e.from_seq = x.from_seq AND e.through_seq = x.through_seq
    AND (e.incarnation = x.incarnation OR x.was_applied OR EXISTS (
        -- Memory from before a reset is derived again as part of the incarnation of that time.
        SELECT FROM strandline.generation g WHERE g.generation_id = x.generation_id
            AND (g.created_at > e.created_at OR g.fed_since = '-infinity' OR g.backfilled_through IS NOT NULL)
        UNION ALL
        SELECT FROM strandline.session now WHERE now.shard_key = x.shard_key AND now.session_key = x.session_key
            AND now.incarnation = x.incarnation AND e.from_seq < now.log_start_seq))
LEFT JOIN strandline.receipt r ON r.shard_key = x.shard_key AND r.event_id = x.event_id
    AND r.generation_id = x.generation_id AND r.stage = x.stage
CROSS JOIN LATERAL (VALUES
    ('due_without_event', e.event_id IS NULL),
    ('due_and_received', r.event_id IS NOT NULL),
    ('work_of_no_pipeline', EXISTS (
        SELECT FROM strandline.session s JOIN strandline.generation g ON g.generation_id = x.generation_id
        WHERE s.shard_key = x.shard_key AND s.session_key = x.session_key
            AND g.pipeline <> ALL (s.pipelines)
            AND g.pipeline <> ALL (@ever_fed(s.shard_key, s.session_key))))
) AS k (kind, broken)
WHERE k.broken AND @is_judged_session(x.shard_key, x.session_key)

-- name: verify_receipts
-- Each receipt stands for an event and for what it says: applied by its batch, void by a reset or since its messages
-- were removed, or dead with its dead letter, which stays when it is dropped.
-- params: session_key uuid?
-- row: finding
SELECT k.kind, json_build_object('session_key', e.session_key, 'event_id', x.event_id,
    'generation', x.generation_id, 'stage', x.stage, 'batch_id', x.batch_id)::text AS place
FROM strandline.receipt x
LEFT JOIN strandline.flush_event e ON e.shard_key = x.shard_key AND e.event_id = x.event_id
LEFT JOIN strandline.session s ON s.shard_key = e.shard_key AND s.session_key = e.session_key
LEFT JOIN strandline.batch b ON b.shard_key = x.shard_key AND b.batch_id = x.batch_id
    AND b.generation_id = x.generation_id AND b.event_ids @> ARRAY[x.event_id]
LEFT JOIN unnest(%(stages)s::text[], %(stages_before)s::text[]) AS c (stage, before) ON c.stage = x.stage
LEFT JOIN strandline.dead_letter d ON d.shard_key = e.shard_key AND d.session_key = e.session_key
    AND d.generation_id = x.generation_id AND d.stage = x.stage AND d.from_seq = e.from_seq
    AND d.event_id = x.event_id
CROSS JOIN LATERAL (VALUES
    ('receipt_without_event', e.event_id IS NULL),
    ('work_of_no_pipeline', EXISTS (
        SELECT FROM strandline.generation g WHERE g.generation_id = x.generation_id
            AND g.pipeline <> ALL (s.pipelines)
            AND g.pipeline <> ALL (@ever_fed(s.shard_key, s.session_key)))),
    ('applied_without_batch', x.outcome = 'applied'
        AND (b.state = 'applied' AND b.stage IN (x.stage, c.before)) IS NOT TRUE),
    ('dead_without_letter', x.outcome = 'dead'
        AND (d.event_id IS NOT NULL AND b.stage = x.stage AND b.state = 'dead') IS NOT TRUE),
    ('void_without_reset', x.outcome = 'void' AND s.incarnation = e.incarnation
        AND NOT @is_event_removed(e, x.shard_key))
) AS k (kind, broken)
WHERE k.broken AND @is_kept(x.generation_id) AND @is_judged_session(x.shard_key, e.session_key)

-- name: verify_letters
-- Each dead letter has its event, and a receipt that says dead.
-- params: session_key uuid?
-- row: finding
SELECT 'letter_without_receipt' AS kind, json_build_object('session_key', x.session_key,
    'event_id', x.event_id, 'generation', x.generation_id, 'stage', x.stage)::text AS place
FROM strandline.dead_letter x
LEFT JOIN strandline.flush_event e ON e.shard_key = x.shard_key AND e.event_id = x.event_id
    AND e.session_key = x.session_key AND e.from_seq = x.from_seq
LEFT JOIN strandline.receipt r ON r.shard_key = x.shard_key AND r.event_id = x.event_id
    AND r.generation_id = x.generation_id AND r.stage = x.stage AND r.outcome = 'dead'
WHERE (e.event_id IS NULL OR r.event_id IS NULL) AND @is_kept(x.generation_id)
    AND @is_judged_session(x.shard_key, x.session_key)

-- name: verify_batches
-- An open batch is still to be done, all of it; an applied one has the receipt of each of its events.
-- Events that a reset with derived has deleted no longer concern batches that are over.
-- params: session_key uuid?
-- row: finding
SELECT k.kind, json_build_object('session_key', e.session_key, 'event_id', covered.event_id,
    'generation', x.generation_id, 'stage', x.stage, 'batch_id', x.batch_id)::text AS place
FROM strandline.batch x
CROSS JOIN LATERAL unnest(x.event_ids) AS covered (event_id)
LEFT JOIN strandline.flush_event e ON e.shard_key = x.shard_key AND e.event_id = covered.event_id
LEFT JOIN strandline.due d ON d.shard_key = x.shard_key AND d.session_key = e.session_key
    AND d.generation_id = x.generation_id AND d.stage = x.stage AND d.from_seq = e.from_seq
LEFT JOIN strandline.receipt r ON r.shard_key = x.shard_key AND r.event_id = e.event_id
    AND r.generation_id = x.generation_id AND r.stage = x.stage AND r.outcome = 'applied'
    AND r.batch_id = x.batch_id
CROSS JOIN LATERAL (VALUES
    ('open_batch_without_event', x.state = 'open' AND e.event_id IS NULL),
    ('open_batch_not_due', x.state = 'open' AND e.event_id IS NOT NULL AND d.event_id IS NULL),
    ('applied_batch_without_receipt', x.state = 'applied' AND e.event_id IS NOT NULL AND r.event_id IS NULL)
) AS k (kind, broken)
WHERE x.state IN ('open', 'applied') AND k.broken AND @is_kept(x.generation_id)
    AND @is_judged_session(x.shard_key, coalesce(e.session_key, x.scope_key))

-- name: verify_contexts
-- The context of a batch is what its recipe makes of the log: the lines before its first event, without those that a
-- person took back; and none if the event had failed before.  When a person did so is not asked: a line that was shown
-- before it was taken back, or while it was, is not wrong.  A fork's batch of what it took over, which no worker began
-- (its epoch is 0), shows none.
-- params: session_key uuid?
-- row: finding
SELECT 'context_wrong' AS kind, json_build_object('session_key', x.scope_key, 'event_id', x.event_ids[1],
    'generation', x.generation_id, 'stage', x.stage, 'batch_id', x.batch_id, 'found', cardinality(x.context_seqs),
    'expected', before.lines)::text AS place
FROM strandline.batch x
JOIN strandline.generation g ON g.generation_id = x.generation_id AND g.state <> 'retired'
    AND g.entry_stage = x.stage
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM strandline.batch s WHERE s.shard_key = x.shard_key AND s.scope_key = x.scope_key
            AND s.generation_id = x.generation_id AND s.stage = x.stage AND s.state = 'split'
            AND x.event_ids[1] = ANY (s.event_ids)) AS failed_before
) AS split
CROSS JOIN LATERAL (
    SELECT count(*) AS lines, coalesce(array_agg(line.seq), '{}') AS seqs,
        coalesce(array_agg(line.seq) FILTER (WHERE NOT @is_taken_back(x.shard_key, line)), '{}') AS kept
    FROM @lines_before(x.shard_key, x.generation_id, x.stage, x.event_ids[1]) AS line
    WHERE NOT split.failed_before
) AS before
WHERE x.state IN ('open', 'applied') AND x.lease_epoch > 0
    AND (x.context_seqs <> '{}' OR g.config ? 'context_tokens')
    AND NOT (x.context_seqs <@ before.seqs AND x.context_seqs @> before.kept)
    AND NOT EXISTS (
        -- Lines that retention removed cannot be chosen again.
        SELECT FROM strandline.flush_event f JOIN strandline.retention_step g ON g.shard_key = f.shard_key
            AND g.session_key = f.session_key AND g.state = 'removed' AND g.through_seq >= f.from_seq - 200
            AND g.from_seq < f.from_seq
        WHERE f.shard_key = x.shard_key AND f.event_id = x.event_ids[1])
    AND @is_judged_session(x.shard_key, x.scope_key)

-- name: verify_captures
-- A batch of facts names an act on capturing that applied to each of its events, and what that act was.
-- params: session_key uuid?
-- row: finding
SELECT 'capture_wrong' AS kind, json_build_object('session_key', e.session_key, 'event_id', e.event_id,
    'generation', x.generation_id, 'stage', x.stage, 'batch_id', x.batch_id)::text AS place
FROM strandline.batch x
JOIN strandline.generation g ON g.generation_id = x.generation_id AND g.state <> 'retired'
CROSS JOIN LATERAL unnest(x.event_ids) AS covered (event_id)
JOIN strandline.flush_event e ON e.shard_key = x.shard_key AND e.event_id = covered.event_id
JOIN strandline.session s ON s.shard_key = e.shard_key AND s.session_key = e.session_key
WHERE x.capture_number IS NOT NULL
    AND (x.capture_number > @capture_number(s.namespace, x.shard_key, e.created_at)
        OR @capture_number(s.namespace, x.shard_key, e.created_at) IS NULL
        OR x.capture_hash <> @capture_hash(s.namespace, x.shard_key, x.capture_number))
    AND @is_judged_session(x.shard_key, e.session_key)

-- name: verify_candidates
-- Candidates come from the batch that their event's receipt names, and each was folded in once merged, or was dropped
-- because of a person's event.
-- params: session_key uuid?
-- row: finding
SELECT k.kind, json_build_object('session_key', x.session_key, 'event_id', x.event_id,
    'generation', x.generation_id, 'stage', g.entry_stage, 'batch_id', x.batch_id)::text AS place
FROM strandline.fact_candidate x
JOIN strandline.generation g ON g.generation_id = x.generation_id
LEFT JOIN strandline.receipt r ON r.shard_key = x.shard_key AND r.event_id = x.event_id
    AND r.generation_id = x.generation_id AND r.stage = g.entry_stage AND r.outcome = 'applied'
    AND r.batch_id = x.batch_id
LEFT JOIN unnest(%(stages)s::text[], %(stages_before)s::text[]) AS c (stage, before) ON c.before = g.entry_stage
LEFT JOIN strandline.receipt m ON m.shard_key = x.shard_key AND m.event_id = x.event_id
    AND m.generation_id = x.generation_id AND m.stage = c.stage AND m.outcome = 'applied'
LEFT JOIN (
    SELECT DISTINCT v.shard_key, v.generation_id, v.event_id, v.extract_batch_id, v.seqs
    FROM strandline.fact_revision v
) AS folded ON folded.shard_key = x.shard_key AND folded.generation_id = x.generation_id
    AND folded.event_id = x.event_id AND folded.extract_batch_id = x.batch_id AND folded.seqs = x.seqs
CROSS JOIN LATERAL (VALUES
    ('candidate_unreceipted', r.event_id IS NULL),
    ('candidate_not_folded', m.event_id IS NOT NULL AND folded.event_id IS NULL AND x.dropped_by IS NULL
        AND x.withheld_by IS NULL),
    ('candidate_withheld_by_nobody', x.withheld_by IS NOT NULL AND NOT EXISTS (
        SELECT FROM strandline.session s JOIN strandline.capture_act a ON a.namespace = s.namespace
            AND a.number = x.withheld_by AND (a.owner_key IS NULL OR a.owner_key = s.shard_key)
        WHERE s.shard_key = x.shard_key AND s.session_key = x.session_key)),
    ('candidate_dropped_by_nobody', x.dropped_by IS NOT NULL AND NOT EXISTS (
        SELECT FROM strandline.fact_event p WHERE p.shard_key = x.shard_key AND p.number = x.dropped_by
            AND p.kind <> 'feedback'))
) AS k (kind, broken)
WHERE k.broken AND @is_kept(x.generation_id) AND @is_judged_session(x.shard_key, x.session_key)

-- name: verify_chunks
-- Chunks come from the batch that their event's receipt names, and lie within their event; those of shared
-- scopes are verify_shared's.
-- params: session_key uuid?
-- row: finding
SELECT k.kind, json_build_object('session_key', x.session_key, 'event_id', x.event_id,
    'generation', x.generation_id, 'stage', g.entry_stage, 'batch_id', x.batch_id,
    'from_seq', x.from_seq, 'through_seq', x.through_seq)::text AS place
FROM strandline.chunk x
LEFT JOIN strandline.generation g ON g.generation_id = x.generation_id
LEFT JOIN strandline.flush_event e ON e.shard_key = x.shard_key AND e.event_id = x.event_id
    AND e.session_key = x.session_key
LEFT JOIN strandline.receipt r ON r.shard_key = x.shard_key AND r.event_id = x.event_id
    AND r.generation_id = x.generation_id AND r.stage = g.entry_stage AND r.outcome = 'applied'
    AND r.batch_id = x.batch_id
CROSS JOIN LATERAL (VALUES
    ('chunk_unreceipted', r.event_id IS NULL),
    ('chunk_outside_event', (x.from_seq >= e.from_seq AND x.through_seq <= e.through_seq) IS NOT TRUE)
) AS k (kind, broken)
WHERE k.broken
    AND @is_kept(x.generation_id)
    AND NOT EXISTS (SELECT FROM strandline.shared_session l WHERE l.shard_key = x.shard_key)
    AND @is_judged_session(x.shard_key, x.session_key)

-- name: verify_searchable
-- What an event brought to vectors can be found: each of its messages that has words has a chunk once the event is
-- applied.  Messages are looked at where a session has fewer chunks than messages, and only contents of plain text.  Of
-- sealed ones, if they are asked for, the envelope comes as well: only who has opened it can tell whether it has words.
-- params: session_key uuid?, with_sealed boolean
-- row: kind text, place text, shard_key uuid, id text, envelope text?
-- opens: envelope
-- owner: shard_key
WITH received AS MATERIALIZED (
    SELECT x.shard_key, x.generation_id, x.batch_id, x.stage, e.session_key, e.event_id, e.from_seq, e.through_seq,
        sum(e.message_count) OVER (PARTITION BY x.shard_key, x.generation_id, e.session_key) AS messages
    FROM strandline.receipt x
    JOIN strandline.generation g ON g.generation_id = x.generation_id AND g.entry_stage = x.stage
        AND g.pipeline = 'vectors' AND g.state <> 'retired'
    JOIN strandline.flush_event e ON e.shard_key = x.shard_key AND e.event_id = x.event_id
    WHERE x.outcome = 'applied' AND @is_judged_session(x.shard_key, e.session_key)
), present AS (
    SELECT c.shard_key, c.generation_id, c.session_key, count(*) AS chunks FROM strandline.chunk c
    WHERE c.piece = 0 AND @is_judged_session(c.shard_key, c.session_key)
    GROUP BY c.shard_key, c.generation_id, c.session_key
)
SELECT 'chunk_missing' AS kind, json_build_object('session_key', r.session_key, 'event_id', r.event_id,
    'generation', r.generation_id, 'stage', r.stage, 'batch_id', r.batch_id, 'from_seq', m.seq)::text AS place,
    m.shard_key, m.id, CASE WHEN json_typeof(m.envelope) = 'string' THEN m.envelope::text END AS envelope
FROM received r
LEFT JOIN present p ON p.shard_key = r.shard_key AND p.generation_id = r.generation_id
    AND p.session_key = r.session_key
JOIN strandline.message m ON m.shard_key = r.shard_key AND m.session_key = r.session_key
    AND m.seq BETWEEN r.from_seq AND r.through_seq
WHERE coalesce(p.chunks, 0) < r.messages AND NOT EXISTS (
        SELECT FROM strandline.chunk c WHERE c.shard_key = m.shard_key AND c.generation_id = r.generation_id
            AND c.session_key = m.session_key AND c.from_seq = m.seq)
    AND CASE WHEN json_typeof(m.envelope) = 'string' THEN %(with_sealed)s::boolean
        WHEN json_typeof(m.envelope -> 'content') = 'string' THEN m.envelope ->> 'content' ~ '[[:alnum:]]' END

-- name: verify_shared
-- Rows of a shared scope come from the events of sessions that share with it, of incarnations that were not
-- forgotten; and nothing that such a session has received is missing there.
-- params: session_key uuid?
-- row: finding
SELECT k.kind, json_build_object('session_key', x.session_key, 'event_id', x.event_id,
    'generation', x.generation_id, 'from_seq', x.from_seq, 'through_seq', x.through_seq)::text AS place
FROM strandline.chunk x
LEFT JOIN strandline.shared_message m ON m.shard_key = x.shard_key AND m.session_key = x.session_key
    AND m.seq = x.from_seq
LEFT JOIN strandline.shared_session l ON l.shard_key = x.shard_key AND l.session_key = x.session_key
    AND l.incarnation = m.incarnation
LEFT JOIN strandline.session s ON s.shard_key = l.owner_key AND s.session_key = l.session_key
LEFT JOIN strandline.flush_event e ON e.shard_key = l.owner_key AND e.event_id = x.event_id
    AND e.session_key = l.session_key
CROSS JOIN LATERAL (VALUES
    ('shared_without_consent', l.owner_key IS NOT NULL AND (s.shared_key = x.shard_key) IS NOT TRUE),
    ('shared_forgotten', l.gone_at IS NOT NULL),
    ('shared_outside_event', l.gone_at IS NULL
        AND (x.from_seq >= e.from_seq AND x.through_seq <= e.through_seq) IS NOT TRUE)
) AS k (kind, broken)
WHERE k.broken AND EXISTS (SELECT FROM strandline.shared_session z WHERE z.shard_key = x.shard_key)
    AND @is_judged_session(l.owner_key, x.session_key)
UNION ALL
SELECT 'shared_missing', json_build_object('session_key', x.session_key, 'event_id', x.event_id,
    'generation', x.generation_id, 'from_seq', x.from_seq, 'through_seq', x.through_seq)::text
FROM strandline.chunk x
JOIN strandline.session s ON s.shard_key = x.shard_key AND s.session_key = x.session_key
    AND s.shared_key IS NOT NULL
JOIN strandline.flush_event e ON e.shard_key = x.shard_key AND e.event_id = x.event_id
LEFT JOIN strandline.shared_session l ON l.shard_key = s.shared_key AND l.session_key = x.session_key
    AND l.incarnation = e.incarnation
LEFT JOIN strandline.chunk c ON c.shard_key = s.shared_key AND c.generation_id = x.generation_id
    AND c.session_key = x.session_key AND c.from_seq = x.from_seq AND c.piece = x.piece
WHERE c.shard_key IS NULL AND l.gone_at IS NULL
    AND @is_judged_session(x.shard_key, x.session_key)

-- name: verify_shared_corrections
-- No copy in a shared scope is of a message that a correction took back or replaced, unless its event is due for
-- vectors: the worker that derives it removes the copy.
-- params: session_key uuid?
-- row: finding
SELECT 'shared_superseded' AS kind, json_build_object('session_key', x.session_key, 'from_seq', x.seq,
    'through_seq', x.seq)::text AS place
FROM strandline.shared_message x
JOIN strandline.shared_session l ON l.shard_key = x.shard_key AND l.session_key = x.session_key
    AND l.incarnation = x.incarnation AND l.gone_at IS NULL
LEFT JOIN strandline.message m ON m.shard_key = l.owner_key AND m.session_key = x.session_key AND m.seq = x.seq
WHERE EXISTS (
        SELECT FROM strandline.superseded u
        WHERE u.shard_key = l.owner_key AND u.session_key = x.session_key AND u.seq = x.seq)
    -- Sealed under two keys the same content differs; but other content mostly has another length.
    AND CASE WHEN left(m.envelope::text, 8) = '"sealed:' OR left(x.envelope::text, 8) = '"sealed:'
        THEN length(split_part(m.envelope::text, ':', 4)) <> length(split_part(x.envelope::text, ':', 4))
        ELSE m.envelope::text IS DISTINCT FROM x.envelope::text END
    AND NOT EXISTS (
        SELECT FROM strandline.due d JOIN strandline.generation g ON g.generation_id = d.generation_id
            AND g.pipeline = 'vectors'
        WHERE d.shard_key = l.owner_key AND d.session_key = x.session_key
            AND x.seq BETWEEN d.from_seq AND d.through_seq)
    AND @is_judged_session(l.owner_key, x.session_key)

-- name: verify_states
-- A state stands for one applied batch of its lane, and ends where that batch ends.
-- params: session_key uuid?
-- row: finding
SELECT k.kind, json_build_object('session_key', x.scope_key, 'generation', x.generation_id,
    'stage', g.entry_stage, 'batch_id', x.batch_id, 'through_seq', x.through_seq)::text AS place
FROM (
    SELECT b.*, count(*) OVER (PARTITION BY b.shard_key, b.batch_id) AS of_batch FROM strandline.block_state b
) AS x
LEFT JOIN strandline.generation g ON g.generation_id = x.generation_id
LEFT JOIN strandline.batch b ON b.shard_key = x.shard_key AND b.batch_id = x.batch_id
    AND b.scope_key = x.scope_key AND b.generation_id = x.generation_id AND b.state = 'applied'
LEFT JOIN strandline.flush_event e ON e.shard_key = b.shard_key
    AND e.event_id = b.event_ids[cardinality(b.event_ids)]
CROSS JOIN LATERAL (VALUES
    ('state_unreceipted', (e.through_seq = x.through_seq) IS NOT TRUE),
    ('state_doubled', x.of_batch > 1)
) AS k (kind, broken)
WHERE k.broken AND @is_kept(x.generation_id) AND @is_judged_session(x.shard_key, x.scope_key)

-- name: verify_facts
-- A fact begins with an addition, says what its newest change says, is live once, and if it ended, then
-- because of another.  Where a session of the owner was reset, corrected or erased, sources may be gone: those
-- are tombstones.
-- A person may have deleted the fact that replaced another; a fact that a person deleted is not live.
-- row: finding
WITH sourced AS (
    SELECT r.shard_key, r.generation_id, r.fact_id,
        (array_agg(r.operation ORDER BY r.revision))[1] AS first_operation,
        (array_agg(r.fingerprint ORDER BY r.revision DESC)
            FILTER (WHERE r.operation NOT IN ('invalidate', 'duplicate')))[1] AS fingerprint
    FROM strandline.fact_revision r
    WHERE @is_judged(r.shard_key)
    GROUP BY r.shard_key, r.generation_id, r.fact_id
), forgetful AS (
    SELECT s.shard_key FROM strandline.session s WHERE s.log_start_seq > 1 OR s.corrections > 0
    UNION SELECT e.owner_key FROM strandline.erasure e
), removing AS (
    SELECT DISTINCT p.shard_key FROM strandline.fact_event p WHERE p.kind IN ('delete', 'replace', 'clear')
)
SELECT k.kind, json_build_object('fact_id', x.fact_id, 'generation', x.generation_id)::text AS place
FROM strandline.fact x
LEFT JOIN sourced r ON r.shard_key = x.shard_key AND r.generation_id = x.generation_id AND r.fact_id = x.fact_id
LEFT JOIN forgetful t ON t.shard_key = x.shard_key
LEFT JOIN removing d ON d.shard_key = x.shard_key
LEFT JOIN strandline.fact o ON o.shard_key = x.shard_key AND o.generation_id = x.generation_id
    AND o.fact_id = coalesce(x.invalidated_by, x.condensed_into) AND o.fact_id <> x.fact_id
CROSS JOIN LATERAL (VALUES
    ('fact_without_source', r.fact_id IS NULL OR (t.shard_key IS NULL
        AND r.first_operation NOT IN ('add', 'replace', 'condense'))),
    ('fact_text_differs', t.shard_key IS NULL AND r.fingerprint <> x.fingerprint),
    ('fact_ended_by_nothing', NOT x.live AND o.fact_id IS NULL
        AND (coalesce(x.invalidated_by, x.condensed_into) = x.fact_id
            OR (x.invalidated_at IS NOT NULL AND x.invalidated_by IS NULL AND d.shard_key IS NULL)
            OR (coalesce(x.invalidated_by, x.condensed_into) IS NOT NULL AND t.shard_key IS NULL))),
    ('fact_deleted_lives', x.live AND EXISTS (
        SELECT FROM strandline.fact_event p WHERE p.shard_key = x.shard_key AND p.kind IN ('delete', 'clear')
            AND (p.kind = 'clear' OR p.fact_id = x.fact_id
                OR p.traces @> jsonb_build_array(jsonb_build_object('fingerprint', encode(x.fingerprint, 'hex'))))
            AND NOT EXISTS (
                SELECT FROM strandline.fact_revision v
                WHERE v.shard_key = x.shard_key AND v.generation_id = x.generation_id AND v.fact_id = x.fact_id
                    AND (v.fact_event > p.number OR EXISTS (
                        SELECT FROM strandline.flush_event e WHERE e.shard_key = v.shard_key
                            AND e.session_key = v.session_key AND e.created_at > p.created_at
                            AND EXISTS (SELECT FROM unnest(v.seqs) AS cited (seq)
                                WHERE cited.seq BETWEEN e.from_seq AND e.through_seq))))))
) AS k (kind, broken)
WHERE k.broken AND @is_kept(x.generation_id) AND @is_judged(x.shard_key)
UNION ALL
SELECT 'fact_doubled', json_build_object('fact_id', min(x.fact_id::text), 'generation', x.generation_id,
    'found', count(*))::text
FROM strandline.fact x WHERE x.live AND @is_judged(x.shard_key)
GROUP BY x.shard_key, x.generation_id, x.fingerprint HAVING count(*) > 1

-- name: verify_revisions
-- Where a fact comes from can be followed: its event, its messages, and the batches that made it.
-- params: session_key uuid?
-- row: finding
SELECT k.kind, json_build_object('session_key', x.session_key, 'fact_id', x.fact_id, 'event_id', x.event_id,
    'generation', x.generation_id, 'revision', x.revision, 'batch_id', k.batch_id)::text AS place
FROM strandline.fact_revision x
LEFT JOIN strandline.generation g ON g.generation_id = x.generation_id
LEFT JOIN unnest(%(stages)s::text[], %(stages_before)s::text[]) AS c (stage, before) ON c.before = g.entry_stage
LEFT JOIN strandline.fact f ON f.shard_key = x.shard_key AND f.generation_id = x.generation_id
    AND f.fact_id = x.fact_id
LEFT JOIN strandline.flush_event e ON e.shard_key = x.shard_key AND e.event_id = x.event_id
    AND e.session_key = x.session_key
LEFT JOIN strandline.receipt xr ON xr.shard_key = x.shard_key AND xr.event_id = x.event_id
    AND xr.generation_id = x.generation_id AND xr.stage = g.entry_stage AND xr.outcome = 'applied'
    AND xr.batch_id = x.extract_batch_id
LEFT JOIN strandline.receipt mr ON mr.shard_key = x.shard_key AND mr.event_id = x.event_id
    AND mr.generation_id = x.generation_id AND mr.stage = c.stage AND mr.outcome = 'applied'
    AND mr.batch_id = x.merge_batch_id
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE NOT EXISTS (
            SELECT FROM strandline.message m WHERE m.shard_key = x.shard_key
                AND m.session_key = x.session_key AND m.seq = cited.seq)
            AND NOT @is_removed(x.shard_key, x.session_key, cited.seq)) AS missing,
        count(*) FILTER (WHERE cited.seq BETWEEN e.from_seq AND e.through_seq) AS in_event,
        count(*) FILTER (WHERE NOT EXISTS (
            SELECT FROM strandline.batch b JOIN strandline.flush_event o ON o.shard_key = b.shard_key
                AND o.event_id = ANY (b.event_ids)
            WHERE b.shard_key = x.shard_key AND b.batch_id = x.extract_batch_id
                AND o.session_key = x.session_key AND cited.seq BETWEEN o.from_seq AND o.through_seq)) AS outside
    FROM unnest(x.seqs) AS cited (seq)) AS cited
CROSS JOIN LATERAL (VALUES
    ('revision_without_fact', f.fact_id IS NULL, NULL::uuid),
    ('revision_without_event', x.fact_event IS NULL AND e.event_id IS NULL, NULL),
    ('revision_without_message', x.fact_event IS NULL AND (cited.missing > 0 OR cardinality(x.seqs) = 0), NULL),
    ('revision_without_person', x.fact_event IS NOT NULL AND NOT EXISTS (
        SELECT FROM strandline.fact_event p WHERE p.shard_key = x.shard_key AND p.number = x.fact_event
            AND p.kind IN ('add', 'replace')), NULL),
    ('revision_not_condensed', x.condense_batch_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM strandline.condensation d WHERE d.shard_key = x.shard_key AND d.outcome = 'applied'
            AND d.generation_id = x.generation_id AND d.batch_id = x.condense_batch_id), x.condense_batch_id),
    ('revision_unreceipted', e.event_id IS NOT NULL AND xr.event_id IS NULL, x.extract_batch_id),
    ('revision_unreceipted', e.event_id IS NOT NULL AND mr.event_id IS NULL, x.merge_batch_id),
    -- What was taken over from an earlier derivation may cite messages of its batch that are not carried.
    ('revision_outside_event', xr.event_id IS NOT NULL AND (cited.outside > 0 AND NOT EXISTS (
            SELECT FROM strandline.batch b WHERE b.shard_key = x.shard_key AND b.batch_id = x.extract_batch_id
                AND b.carried_from IS NOT NULL) OR cited.in_event = 0), x.extract_batch_id)
) AS k (kind, broken, batch_id)
WHERE k.broken AND @is_kept(x.generation_id) AND @is_judged_session(x.shard_key, x.session_key)

-- name: verify_generations
-- A derivation that serves some owners apart is fed for them; and each pipeline has one that serves the rest.
-- row: finding
SELECT 'served_by_none' AS kind, json_build_object('generation', x.generation_id, 'stage', x.pipeline)::text AS place
FROM strandline.scope_generation x
LEFT JOIN strandline.generation g ON g.generation_id = x.generation_id AND g.pipeline = x.pipeline
    AND g.state IN ('feeding', 'serving')
WHERE g.generation_id IS NULL AND @is_judged(x.shard_key)
UNION ALL
SELECT 'served_by_nobody', json_build_object('generation', max(g.generation_id), 'stage', g.pipeline)::text
FROM strandline.generation g WHERE g.state <> 'retired'
GROUP BY g.pipeline HAVING count(*) FILTER (WHERE g.state = 'serving') <> 1

-- name: verify_coverage
-- Per derivation that is kept: what it has applied to the end, what is due, and its holes.
-- params: session_key uuid?
-- row: generation_id integer, pipeline text, state text, applied bigint, due bigint, holes bigint
SELECT g.generation_id, g.pipeline, g.state,
    (SELECT count(*) FROM strandline.receipt x WHERE x.generation_id = g.generation_id
        AND x.stage = coalesce((SELECT c.stage FROM unnest(%(stages)s::text[], %(stages_before)s::text[])
            AS c (stage, before) WHERE c.before = g.entry_stage), g.entry_stage)
        AND x.outcome = 'applied' AND (%(owners)s::uuid[] IS NULL OR x.shard_key = ANY (%(owners)s))
        AND (%(session_key)s::uuid IS NULL OR EXISTS (
            SELECT FROM strandline.flush_event e WHERE e.shard_key = x.shard_key AND e.event_id = x.event_id
                AND e.session_key = %(session_key)s))) AS applied,
    (SELECT count(*) FROM strandline.due x WHERE x.generation_id = g.generation_id
        AND (%(owners)s::uuid[] IS NULL OR x.shard_key = ANY (%(owners)s))
        AND (%(session_key)s::uuid IS NULL OR x.session_key = %(session_key)s)) AS due,
    (SELECT count(*) FROM strandline.dead_letter x WHERE x.generation_id = g.generation_id
        AND x.dropped_at IS NULL AND (%(owners)s::uuid[] IS NULL OR x.shard_key = ANY (%(owners)s))
        AND (%(session_key)s::uuid IS NULL OR x.session_key = %(session_key)s)) AS holes
FROM strandline.generation g WHERE g.state <> 'retired' ORDER BY g.pipeline, g.generation_id

-- name: verify_fact_page
-- Facts with their texts and fingerprints, page by page: Python decides when two texts are the same.
-- params: after_generation_id integer, after_fact_id uuid
-- row: shard_key uuid, generation_id integer, fact_id uuid, text text, fingerprint bytea
-- opens: text, fingerprint fingerprint - text
-- owner: shard_key
SELECT x.shard_key, x.generation_id, x.fact_id, x.text, x.fingerprint FROM strandline.fact x
WHERE @is_judged(x.shard_key)
    AND (x.shard_key, x.generation_id, x.fact_id)
        > (%(after_shard_key)s::uuid, %(after_generation_id)s::integer, %(after_fact_id)s::uuid)
ORDER BY x.shard_key, x.generation_id, x.fact_id LIMIT %(page_size)s

-- name: verify_erased
-- Rows of users and sessions that were erased, by table (erased_rows_v1).
-- row: finding
SELECT 'erased_row' AS kind, json_build_object('table', r.table_name, 'found', r.rows)::text AS place
FROM strandline.erased_rows_v1(NULL, NULL) AS r WHERE r.rows > 0
