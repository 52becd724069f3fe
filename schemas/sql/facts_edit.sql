-- An owner's facts as people see and edit them, and people's events, which outlive every derivation. Edits lock the
-- owner's merge lanes first, as a merge that writes does, and rows of facts after them.

-- name: open_fact_lanes
-- Insert the rows of the owner's merge lanes, for every derivation that is kept, so that they can be locked
-- (open_fact_lanes_v1); returns the erasure that keeps the owner away, and the first data key of the owner's present life.
-- row: erasure integer?, first_data_key integer
-- repeatable
SELECT erasure, first_data_key FROM strandline.open_fact_lanes_v1(%(shard_key)s, %(stage)s)

-- name: lock_fact_lanes
-- Keep merges of this owner, and other edits, from writing until this transaction ends: in the order of the
-- derivations, and so only where all of them have their row.  What this transaction does to them is noted.
-- No other derivation begins to serve in the meantime (lock_pipeline): an edit gives back what it did where it did it.
-- row: generation_id integer
-- repeatable
WITH @noted_change(%(shard_key)s, 'facts')
SELECT l.generation_id
FROM strandline.lane l JOIN strandline.generation g ON g.generation_id = l.generation_id
WHERE l.shard_key = %(shard_key)s AND l.scope_key = %(shard_key)s AND l.stage = %(stage)s
    AND g.pipeline = 'facts' AND g.state <> 'retired'
    AND NOT EXISTS (
        SELECT FROM strandline.generation o WHERE o.pipeline = 'facts' AND o.state <> 'retired'
            AND NOT EXISTS (
                SELECT FROM strandline.lane m WHERE m.shard_key = %(shard_key)s
                    AND m.scope_key = %(shard_key)s AND m.generation_id = o.generation_id
                    AND m.stage = %(stage)s))
ORDER BY l.generation_id FOR UPDATE OF l FOR SHARE OF g

-- name: fact_derivations
-- The derivations of facts that are kept, and which of them serves the owner.
-- row: generation_id integer, serving boolean
SELECT g.generation_id, v.generation_id IS NOT NULL AS serving
FROM strandline.generation g
LEFT JOIN @serving(%(shard_key)s, '{facts}') v ON v.generation_id = g.generation_id
WHERE g.pipeline = 'facts' AND g.state <> 'retired'
ORDER BY g.generation_id

-- name: record_fact_event
-- Record a person's change as the owner's next event, with what workers have not read by then: it was said before, also
-- where a sender's clock is fast.
-- instruction: the event of the instruction that asks for it, if one does.
-- params: fact_id uuid?, payload json?, traces jsonb?, instruction uuid?
-- row: recorded
-- seals: payload, traces
WITH unread AS (
    SELECT d.session_key, d.from_seq, d.through_seq FROM strandline.due d
    JOIN @serving(%(shard_key)s, '{facts}') g ON g.generation_id = d.generation_id
    WHERE d.shard_key = %(shard_key)s
    UNION SELECT d.session_key, d.from_seq, d.through_seq FROM strandline.dead_letter d
    JOIN @serving(%(shard_key)s, '{facts}') g ON g.generation_id = d.generation_id
    WHERE d.shard_key = %(shard_key)s AND d.dropped_at IS NULL
    UNION SELECT m.session_key, min(m.seq), max(m.seq) FROM strandline.session s
    JOIN strandline.message m ON m.shard_key = s.shard_key AND m.session_key = s.session_key
        AND m.seq > s.flushed_through AND m.created_at > statement_timestamp()
    WHERE s.shard_key = %(shard_key)s GROUP BY m.session_key
)
INSERT INTO strandline.fact_event (shard_key, number, kind, fact_id, payload, traces, waiting, actor, instruction)
SELECT %(shard_key)s, coalesce(max(e.number), 0) + 1, %(kind)s, %(fact_id)s::uuid, %(payload)s::json,
    %(traces)s::jsonb, coalesce((SELECT jsonb_agg(jsonb_build_array(u.session_key, u.from_seq, u.through_seq))
        FROM unread u WHERE %(kind)s IN ('delete', 'replace', 'clear')), '[]'), %(actor)s, %(instruction)s::uuid
FROM strandline.fact_event e WHERE e.shard_key = %(shard_key)s
RETURNING number, created_at

-- name: fact_was_deleted
-- Whether a person or an agent deleted the owner's fact of this id.
-- row: was_deleted boolean
SELECT EXISTS (SELECT FROM strandline.fact_event e
    WHERE e.shard_key = %(shard_key)s AND e.fact_id = %(fact_id)s AND e.kind = 'delete') AS was_deleted

-- name: added_facts
-- Which of these ids people's events have added facts under, whatever became of the facts.
-- row: fact_id uuid
SELECT e.fact_id FROM strandline.fact_event e
WHERE e.shard_key = %(shard_key)s AND e.kind = 'add' AND e.fact_id = ANY (%(fact_ids)s::uuid[])

-- name: name_fact_owner
-- Record the namespace of an owner whom people give facts; there may be no session that names it.
-- repeatable
INSERT INTO strandline.fact_owner (shard_key, namespace, user_id) VALUES (%(shard_key)s, %(namespace)s, %(user_id)s)
ON CONFLICT DO NOTHING

-- name: owners_with_facts
-- The next owners of a namespace who have facts, or may come to: each with how many are live, and whether
-- there is anything new since they were last cleared.
-- params: after uuid
-- row: shard_key uuid, live bigint, is_new boolean
WITH owner AS (
    (SELECT DISTINCT s.shard_key FROM strandline.session s
        WHERE s.namespace = %(namespace)s AND s.shard_key > %(after)s AND ('facts' = ANY (s.pipelines)
            -- Or it fed them once.
            OR EXISTS (SELECT FROM strandline.policy_change c WHERE c.shard_key = s.shard_key
                AND c.session_key = s.session_key AND c.before -> 'pipelines' ? 'facts'))
        ORDER BY s.shard_key LIMIT %(limit)s)
    UNION
    (SELECT o.shard_key FROM strandline.fact_owner o
        WHERE o.namespace = %(namespace)s AND o.shard_key > %(after)s ORDER BY o.shard_key LIMIT %(limit)s)
    ORDER BY shard_key LIMIT %(limit)s
)
SELECT w.shard_key, (
        SELECT count(*) FROM strandline.fact f
        JOIN @serving(w.shard_key, '{facts}') g ON g.generation_id = f.generation_id
        WHERE f.shard_key = w.shard_key AND f.live) AS live,
    cleared.at IS NULL
        OR EXISTS (SELECT FROM strandline.fact f WHERE f.shard_key = w.shard_key)
        OR EXISTS (SELECT FROM strandline.session s WHERE s.shard_key = w.shard_key
            AND s.last_put_at > cleared.at) AS is_new
FROM owner w CROSS JOIN LATERAL (
    SELECT max(e.created_at) AS at FROM strandline.fact_event e
    WHERE e.shard_key = w.shard_key AND e.kind = 'clear') AS cleared
ORDER BY w.shard_key

-- name: fact_events
-- All events of people on an owner's facts, in order.
-- row: number bigint, kind text, fact_id uuid?, payload text?, traces text, waiting text, created_at timestamptz
-- opens: payload, traces
SELECT e.number, e.kind, e.fact_id, e.payload::text, e.traces::text, e.waiting::text, e.created_at
FROM strandline.fact_event e WHERE e.shard_key = %(shard_key)s ORDER BY e.number

-- name: deciding_fact_events
-- The deletions, corrections and clearings that may concern some candidates: by words or by session; of their traces
-- only those that do.
-- params: fingerprints text[]
-- row: number bigint, kind text, fact_id uuid?, traces text, waiting text, actor text?, created_at timestamptz
-- seals: fingerprints hex, lexemes query
-- opens: traces
SELECT e.number, e.kind, e.fact_id, alike.traces::text, e.waiting::text, e.actor, e.created_at
FROM strandline.fact_event e CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_agg(t.trace), '[]') AS traces FROM jsonb_array_elements(e.traces) AS t (trace)
    WHERE t.trace->>'fingerprint' = ANY (%(fingerprints)s::text[])
        OR (t.trace->>'session_key')::uuid = ANY (%(session_keys)s::uuid[])
        OR coalesce(t.trace->'words', t.trace->'lexemes') ?| %(lexemes)s::text[]) AS alike
WHERE e.shard_key = %(shard_key)s AND e.kind IN ('delete', 'replace', 'clear')
    AND (e.kind = 'clear' OR e.fact_id = ANY (%(fact_ids)s::uuid[]) OR alike.traces <> '[]')
ORDER BY e.number

-- name: blank_fact_events
-- Remove the text from earlier events of deleted facts (NULL: of all): by their ids, or by the
-- numbers of the events that worded them.
-- params: fact_ids uuid[]?, number bigint, numbers bigint[]
-- repeatable
UPDATE strandline.fact_event e SET payload = NULL,
    traces = CASE WHEN %(fact_ids)s::uuid[] IS NULL THEN '[]'::jsonb ELSE e.traces END
WHERE e.shard_key = %(shard_key)s AND e.number < %(number)s
    AND (%(fact_ids)s::uuid[] IS NULL OR e.fact_id = ANY (%(fact_ids)s::uuid[])
        OR e.number = ANY (%(numbers)s::bigint[]))

-- name: fact_traces
-- The traces of facts: each wording with its messages, including those of facts condensed into them.
-- row: root uuid, traces text
-- opens: traces
WITH RECURSIVE part AS (
    SELECT wanted.fact_id AS root, wanted.fact_id FROM unnest(%(fact_ids)s::uuid[]) AS wanted (fact_id)
    UNION
    SELECT p.root, f.fact_id FROM part p JOIN strandline.fact f ON f.shard_key = %(shard_key)s
        AND f.generation_id = %(generation_id)s AND f.condensed_into = p.fact_id
)
SELECT p.root, json_agg(json_build_object('fingerprint', encode(r.fingerprint, 'hex'),
    'session_key', r.session_key, 'seqs', r.seqs,
    'said_by', f.said_by, 'text', r.text, 'own_text', r.own_text))::text AS traces
FROM part p
JOIN strandline.fact f ON f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s
    AND f.fact_id = p.fact_id
JOIN strandline.fact_revision r ON r.shard_key = f.shard_key AND r.generation_id = f.generation_id
    AND r.fact_id = f.fact_id AND r.operation <> 'invalidate'
GROUP BY p.root

-- name: twin_sessions
-- The sessions that hold copies of delivered messages of others by a fork, or what those are copies of: with the last one.
-- row: session_key uuid, twin_key uuid, through_seq bigint
SELECT e.session_key, o.session_key AS twin_key, max(o.through_seq) AS through_seq
FROM strandline.flush_event e
JOIN strandline.flush_event o ON o.shard_key = e.shard_key AND o.session_key <> e.session_key
    AND o.created_at = e.created_at AND o.from_seq = e.from_seq AND o.through_seq = e.through_seq
WHERE e.shard_key = %(shard_key)s AND e.session_key = ANY (%(session_keys)s::uuid[])
GROUP BY e.session_key, o.session_key

-- name: lock_session_lanes
-- Lock the lanes of an owner and of some sessions, in the order of all who lock several.
-- row: generation_id integer
-- repeatable
SELECT l.generation_id FROM strandline.lane l
WHERE l.shard_key = %(shard_key)s
    AND (l.scope_key = %(shard_key)s OR l.scope_key = ANY (%(session_keys)s::uuid[]))
ORDER BY l.scope_key, l.generation_id, l.stage FOR UPDATE

-- name: live_facts
-- The ids of an owner's live facts in one derivation.
-- row: fact_id uuid
SELECT f.fact_id FROM strandline.fact f
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.live

-- name: own_fact_traces
-- The traces of facts: each wording with its messages; a condensed one by its words, because its messages are those
-- of its parts.
-- row: fact_id uuid, traces text
-- opens: traces
SELECT f.fact_id, json_agg(CASE WHEN r.operation = 'condense'
    THEN json_build_object('fingerprint', encode(r.fingerprint, 'hex'), 'text', r.text)
    ELSE json_build_object('fingerprint', encode(r.fingerprint, 'hex'),
        'session_key', r.session_key, 'seqs', r.seqs,
        'said_by', f.said_by, 'text', r.text, 'own_text', r.own_text) END)::text AS traces
FROM strandline.fact f
JOIN strandline.fact_revision r ON r.shard_key = f.shard_key AND r.generation_id = f.generation_id
    AND r.fact_id = f.fact_id AND r.operation <> 'invalidate'
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s
    AND f.fact_id = ANY (%(fact_ids)s::uuid[])
GROUP BY f.fact_id

-- name: uncondense
-- Take apart the condensed facts that hold these; return the facts that are live again, or separate now.
-- row: fact_id uuid
-- repeatable
SELECT unnest(strandline.uncondense_v1(%(shard_key)s, %(generation_id)s, %(fact_ids)s::uuid[])) AS fact_id

-- name: facts_that_hold
-- For each of some facts the one that it was condensed into in the end, or the fact itself.
-- row: fact_id uuid
WITH RECURSIVE held AS (
    SELECT f.fact_id, f.condensed_into FROM strandline.fact f
    WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s
        AND f.fact_id = ANY (%(fact_ids)s::uuid[])
    UNION
    SELECT f.fact_id, f.condensed_into FROM held h JOIN strandline.fact f ON f.shard_key = %(shard_key)s
        AND f.generation_id = %(generation_id)s AND f.fact_id = h.condensed_into
)
SELECT h.fact_id FROM held h WHERE h.condensed_into IS NULL

-- name: facts_of_traces
-- Facts of one derivation that once had these words, or come from these sessions, even if they were condensed; except
-- those that were said again, or worded by a person, since then.
-- params: fingerprints text[], number bigint
-- row: fact_id uuid, text text, live boolean
-- seals: fingerprints hex
-- opens: text
SELECT f.fact_id, f.text, f.live FROM strandline.fact f
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s
    AND EXISTS (
        SELECT FROM strandline.fact_revision r WHERE r.shard_key = %(shard_key)s
            AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id
            AND (encode(r.fingerprint, 'hex') = ANY (%(fingerprints)s::text[])
                OR r.operation <> 'condense' AND r.session_key = ANY (%(session_keys)s::uuid[])))
    AND NOT EXISTS (
        SELECT FROM strandline.fact_revision r WHERE r.shard_key = %(shard_key)s
            AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id
            AND (r.fact_event > %(number)s OR EXISTS (
                SELECT FROM strandline.flush_event e CROSS JOIN unnest(r.seqs) AS cited (seq)
                WHERE e.shard_key = %(shard_key)s AND e.session_key = r.session_key
                    AND e.created_at > %(at)s::timestamptz
                    AND cited.seq BETWEEN e.from_seq AND e.through_seq)))
ORDER BY f.live DESC, f.created_at, f.fact_id

-- name: live_fact_like
-- The live fact that says the same words.
-- row: fact_id uuid
-- seals: fingerprint
SELECT f.fact_id FROM strandline.fact f
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.live
    AND f.fingerprint = %(fingerprint)s

-- name: near_facts
-- The live facts that share most words or kinds with a text, closest first.
-- row: fact_text
-- seals: lexemes query
-- opens: text
SELECT f.fact_id, f.text FROM strandline.fact f
CROSS JOIN LATERAL (
    SELECT count(*) AS shared FROM unnest(f.lexemes) AS l (lexeme) WHERE l.lexeme = ANY (%(lexemes)s::text[])) AS o
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.live
    AND f.lexemes && %(lexemes)s::text[]
ORDER BY o.shared DESC, f.said_at DESC, f.fact_id LIMIT %(limit)s

-- name: find_fact
-- One fact of one derivation, the fact that its doubt concerns, and by which event people last worded it.
-- row: fact_id uuid, text text, live boolean, created_at timestamptz, valid_from timestamptz, said_at timestamptz,
--     topics text[], about_date date?, doubts uuid?, worded_by bigint?
-- opens: text, topics
SELECT f.fact_id, f.text, f.live, f.created_at, f.valid_from, f.said_at, f.topics, f.about_date,
    CASE WHEN @is_doubtful(f, %(shard_key)s) THEN f.doubt_fact_id END AS doubts,
    (SELECT max(r.fact_event) FROM strandline.fact_revision r WHERE r.shard_key = %(shard_key)s
        AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id) AS worded_by
FROM strandline.fact f
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.fact_id = %(fact_id)s

-- name: facts_until
-- All facts that were there, or were said, up to a moment; except those that a person's event since then worded, such
-- as an imported one, which is older than its event.
-- params: until timestamptz, number bigint
-- row: fact_id uuid
SELECT f.fact_id FROM strandline.fact f
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s
    AND (f.created_at <= %(until)s::timestamptz OR f.said_at <= %(until)s::timestamptz)
    AND NOT EXISTS (
        SELECT FROM strandline.fact_revision r WHERE r.shard_key = %(shard_key)s
            AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id AND r.fact_event > %(number)s)

-- name: write_fact
-- Insert a fact as a person worded it; no row if it exists already, or if another fact has these words.
-- params: valid_from timestamptz, created_at timestamptz, input text?, number bigint
-- row: fact_id uuid
-- seals: text, fingerprint, lexemes word, topics, input
-- repeatable
INSERT INTO strandline.fact (shard_key, generation_id, fact_id, text, fingerprint, lexemes, topics,
    about_date, said_at, valid_from, created_at, updated_at, input, agent_id, team_id)
SELECT %(shard_key)s, %(generation_id)s, %(fact_id)s, %(text)s, %(fingerprint)s, %(lexemes)s::text[],
    %(topics)s::text[], %(about_date)s::date, %(at)s, %(valid_from)s, %(created_at)s, %(at)s, %(input)s,
    %(agent_id)s, %(team_id)s
WHERE NOT EXISTS (
    SELECT FROM strandline.fact_revision r WHERE r.shard_key = %(shard_key)s
        AND r.generation_id = %(generation_id)s AND r.fact_event = %(number)s)
ON CONFLICT (shard_key, generation_id, fact_id) DO NOTHING
RETURNING fact_id

-- name: reword_fact
-- Give a fact a person's words; valid_from and created_at stay. If it had ended in this derivation, it is live again:
-- the person says so.
-- row: fact_id uuid
-- seals: text, fingerprint, lexemes word, topics
-- repeatable
UPDATE strandline.fact f SET text = %(text)s, fingerprint = %(fingerprint)s, lexemes = %(lexemes)s::text[],
    topics = %(topics)s::text[], about_date = coalesce(%(about_date)s::date, f.about_date),
    said_at = greatest(f.said_at, %(at)s), updated_at = statement_timestamp(), live = true, invalidated_at = NULL,
    invalidated_by = NULL, condensed_into = NULL, valid_until = NULL, doubt_operation = NULL, doubt_reason = NULL,
    doubt_fact_id = NULL
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.fact_id = %(fact_id)s
RETURNING f.fact_id

-- name: repeat_fact
-- A person adds a fact that is known already: it gets the person's other values, and is no longer doubtful.
-- params: input text?
-- seals: topics, input
-- repeatable
UPDATE strandline.fact f SET said_at = greatest(f.said_at, %(at)s), updated_at = statement_timestamp(),
    topics = (SELECT coalesce(array_agg(DISTINCT t), '{}') FROM unnest(f.topics || %(topics)s::text[]) AS t),
    about_date = coalesce(%(about_date)s::date, f.about_date), input = coalesce(%(input)s, f.input),
    agent_id = coalesce(%(agent_id)s, f.agent_id), team_id = coalesce(%(team_id)s, f.team_id),
    doubt_operation = NULL, doubt_reason = NULL, doubt_fact_id = NULL
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.fact_id = %(fact_id)s

-- name: mark_doubt
-- A person's or agent's fact may contradict another one; not if an event since then has worded it.
-- params: number bigint
-- repeatable
UPDATE strandline.fact f SET doubt_operation = 'invalidate', doubt_reason = %(doubt_reason)s,
    doubt_fact_id = %(doubt_fact_id)s
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.fact_id = %(fact_id)s
    AND NOT EXISTS (
        SELECT FROM strandline.fact_revision r WHERE r.shard_key = %(shard_key)s
            AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id AND r.fact_event > %(number)s)

-- name: revise_by_person
-- The person's event in the fact's history.
-- params: number bigint
-- seals: text, fingerprint, lexemes word
-- repeatable
INSERT INTO strandline.fact_revision (shard_key, generation_id, fact_id, revision, operation, text,
    fingerprint, lexemes, seqs, fact_event)
SELECT %(shard_key)s, %(generation_id)s, %(fact_id)s, coalesce(max(r.revision), 0) + 1, %(operation)s,
    %(text)s, %(fingerprint)s, %(lexemes)s::text[], '{}', %(number)s
FROM strandline.fact_revision r
WHERE r.shard_key = %(shard_key)s AND r.generation_id = %(generation_id)s AND r.fact_id = %(fact_id)s

-- name: set_feedback
-- Record people's opinion of a fact.
-- params: feedback text?
-- seals: feedback
-- repeatable
UPDATE strandline.fact f SET feedback = %(feedback)s, updated_at = statement_timestamp()
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s
    AND f.fact_id = ANY (%(fact_ids)s::uuid[])

-- name: remove_facts
-- Delete facts, each with those condensed into it; return which, whether they were live, and the events by which
-- people had worded them.
-- params: number bigint
-- row: fact_id uuid, live boolean, worded_by bigint[]
-- repeatable
SELECT fact_id, live, worded_by FROM strandline.remove_facts_v1(
    %(shard_key)s, %(generation_id)s, %(fact_ids)s::uuid[], %(number)s)

-- name: owner_topics
-- The topics of an owner's live facts, the most frequent first, each with the number of its facts.
-- row: topic text, facts bigint
-- opens: topic name topic
SELECT listed.topic, count(DISTINCT f.fact_id) AS facts
FROM strandline.fact f
JOIN @serving(%(shard_key)s, '{facts}') g ON g.generation_id = f.generation_id
CROSS JOIN LATERAL unnest(f.topics) AS listed (topic)
WHERE f.shard_key = %(shard_key)s AND f.live
GROUP BY listed.topic ORDER BY count(DISTINCT f.fact_id) DESC, listed.topic LIMIT %(limit)s

-- name: list_facts
-- A page of an owner's facts with where each came from, up to the one that fills it, and how many there are in all;
-- always one row.
-- params: fact_ids uuid[]?, topics text[]?, sort text, after_made timestamptz?, after_id uuid?
-- row: total bigint, is_cut boolean, fact_id uuid?, text text!, topics text[]!, said_by text?, about_date date?, said_at
--     timestamptz!, valid_from timestamptz!, valid_until timestamptz?, invalidated_at timestamptz?, invalidated_by uuid?,
--     condensed_into uuid?, input text?, agent_id text?, team_id text?, feedback text?, is_doubtful boolean!,
--     doubt_operation text?, doubt_reason text?, doubt_fact_id uuid?, created_at timestamptz!, updated_at timestamptz!,
--     revisions text?
-- seals: topics
-- opens: text, topics, said_by, input, feedback, revisions within *.text=text:fact
WITH found AS MATERIALIZED (
    SELECT f.fact_id, f.generation_id, f.said_at, f.created_at, f.updated_at FROM strandline.fact f
    JOIN @serving(%(shard_key)s, '{facts}') g ON g.generation_id = f.generation_id
    WHERE f.shard_key = %(shard_key)s AND (f.live OR %(with_invalidated)s)
        AND (%(fact_ids)s::uuid[] IS NULL OR f.fact_id = ANY (%(fact_ids)s::uuid[]))
        AND @is_asked_for(f)
        AND (NOT %(doubtful)s OR @is_doubtful(f, %(shard_key)s))
        AND f.said_at BETWEEN coalesce(%(since)s::timestamptz, '-infinity')
            AND coalesce(%(until)s::timestamptz, 'infinity')
), page AS (
    -- Facts of one moment in the order in which they were made; 'oldest' is the reverse of 'newest'; 'given': as asked
    -- for.
    SELECT f.*, row_number() OVER (ORDER BY CASE %(sort)s
            WHEN 'given' THEN array_position(%(fact_ids)s::uuid[], f.fact_id) END,
        CASE %(sort)s WHEN 'newest' THEN f.said_at WHEN 'updated' THEN f.updated_at END DESC,
        CASE %(sort)s WHEN 'oldest' THEN f.said_at END,
        CASE WHEN %(sort)s <> 'oldest' THEN f.created_at END DESC, f.created_at, f.fact_id) AS place
    FROM found f
    -- Behind a fact by its place, and not by a count: one that came or went in the meantime moves no other.
    WHERE %(after_id)s::uuid IS NULL OR CASE %(sort)s
        WHEN 'oldest' THEN (f.said_at, f.created_at, f.fact_id)
            > (%(after_at)s::timestamptz, %(after_made)s::timestamptz, %(after_id)s::uuid)
        ELSE (CASE %(sort)s WHEN 'newest' THEN f.said_at ELSE f.updated_at END, f.created_at)
                < (%(after_at)s::timestamptz, %(after_made)s::timestamptz)
            OR ((CASE %(sort)s WHEN 'newest' THEN f.said_at ELSE f.updated_at END, f.created_at)
                = (%(after_at)s::timestamptz, %(after_made)s::timestamptz) AND f.fact_id > %(after_id)s::uuid)
        END
    ORDER BY place LIMIT %(limit)s OFFSET %(offset)s
)
SELECT t.total, t.asked > count(f.place) OVER () AS is_cut, f.fact_id, f.text, f.topics, f.said_by, f.about_date, f.said_at,
    f.valid_from, f.valid_until, f.invalidated_at, f.invalidated_by, f.condensed_into, f.input, f.agent_id, f.team_id,
    f.feedback, f.is_doubtful, f.doubt_operation, f.doubt_reason, f.doubt_fact_id, f.created_at, f.updated_at, f.revisions
FROM (SELECT (SELECT count(*) FROM found) AS total, (SELECT count(*) FROM page) AS asked) AS t
LEFT JOIN @filled((
    SELECT f.*, p.place, @is_doubtful(f, %(shard_key)s) AS is_doubtful, h.revisions,
        octet_length(concat(f.text, f.topics, f.input, f.feedback, h.revisions)) AS bytes
    FROM page p
    JOIN strandline.fact f ON f.shard_key = %(shard_key)s AND f.generation_id = p.generation_id
        AND f.fact_id = p.fact_id
    CROSS JOIN LATERAL (
        SELECT json_agg(json_build_object(
            'operation', r.operation, 'text', r.text, 'event_id', r.event_id,
            'message_ids', (SELECT json_agg(m.id ORDER BY m.seq) FROM strandline.message m
                WHERE m.shard_key = %(shard_key)s AND m.session_key = r.session_key AND m.seq = ANY (r.seqs)),
            'seqs', r.seqs, 'model', r.model, 'prompt_hash', r.prompt_hash, 'fact_event', r.fact_event,
            'actor', e.actor, 'created_at', r.created_at) ORDER BY r.revision)::text AS revisions
        FROM @newest_revisions(%(shard_key)s, p.generation_id, p.fact_id) AS r
        LEFT JOIN strandline.fact_event e ON e.shard_key = %(shard_key)s AND e.number = r.fact_event) AS h
    ), page.place) AS f ON true
ORDER BY f.place

-- name: fact_texts
-- A page of the texts of an owner's facts, for a search by substring.
-- params: after uuid
-- row: fact_text
-- opens: text
SELECT f.fact_id, f.text FROM strandline.fact f
JOIN @serving(%(shard_key)s, '{facts}') g ON g.generation_id = f.generation_id
WHERE f.shard_key = %(shard_key)s AND (f.live OR %(with_invalidated)s) AND f.fact_id > %(after)s
ORDER BY f.fact_id LIMIT %(limit)s

-- name: facts_as_they_are
-- The words of facts that a merge was planned with, as they are now.
-- row: fact_id uuid, text text, fingerprint bytea
-- opens: text, fingerprint fingerprint - text
SELECT f.fact_id, f.text, f.fingerprint FROM strandline.fact f
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.live
    AND f.fact_id = ANY (%(fact_ids)s::uuid[])
