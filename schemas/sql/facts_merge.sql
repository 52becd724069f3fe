-- Facts as extract, merge and condensing derive them.

-- name: note_facts_change
-- A merge is about to change facts of an owner.
-- row: noted integer
WITH @noted_change(%(shard_key)s, 'facts')
SELECT 1 AS noted

-- name: insert_candidates
-- Insert the candidates that extract found.
-- params: candidates json
-- seals: candidates within *.text=text:fact;*.fingerprint=hex;*.topics.*=name:topic;*.said_by=name:said_by
INSERT INTO strandline.fact_candidate (shard_key, generation_id, event_id, ordinal, session_key, batch_id,
    text, fingerprint, seqs, topics, said_by, about_date, said_at, model, prompt_hash)
SELECT %(shard_key)s, %(generation_id)s, c.event_id, c.ordinal, c.session_key, %(batch_id)s, c.text,
    decode(c.fingerprint, 'hex'), c.seqs, c.topics, c.said_by, c.about_date, c.said_at, %(model)s, %(prompt_hash)s
FROM json_to_recordset(%(candidates)s::json) AS c (
    event_id uuid, ordinal integer, session_key uuid, text text, fingerprint text, seqs bigint[], topics text[],
    said_by text, about_date date, said_at timestamptz)

-- name: pending_candidates
-- The candidates that a merge has to apply, in the order of its batch; with the lines that extract saw as context.
-- row: event_id uuid, ordinal integer, session_key uuid, batch_id uuid, text text, seqs bigint[], topics text[],
--     said_by text?, about_date date?, said_at timestamptz, model text, prompt_hash text, context_seqs bigint[],
--     flushed_at timestamptz?, is_by_assistants boolean
-- opens: text, topics, said_by
SELECT c.event_id, c.ordinal, c.session_key, c.batch_id, c.text, c.seqs, c.topics, c.said_by, c.about_date,
    c.said_at, c.model, c.prompt_hash, coalesce((
        SELECT b.context_seqs FROM strandline.batch b
        WHERE b.shard_key = %(shard_key)s AND b.batch_id = c.batch_id), '{}') AS context_seqs, (
        SELECT e.created_at FROM strandline.flush_event e
        WHERE e.shard_key = %(shard_key)s AND e.session_key = c.session_key
            AND e.from_seq <= (SELECT max(seq) FROM unnest(c.seqs) AS cited (seq))
        ORDER BY e.from_seq DESC LIMIT 1) AS flushed_at,
    @is_by_assistants(%(shard_key)s, c.session_key, c.seqs) AS is_by_assistants
FROM unnest(%(event_ids)s::uuid[]) WITH ORDINALITY AS wanted (event_id, place)
JOIN strandline.fact_candidate c ON c.shard_key = %(shard_key)s
    AND c.generation_id = %(generation_id)s AND c.event_id = wanted.event_id AND c.dropped_by IS NULL
    AND c.withheld_by IS NULL
ORDER BY wanted.place, c.ordinal

-- name: drop_candidate
-- Drop a candidate because of a person's event.
-- params: number bigint, ordinal integer
UPDATE strandline.fact_candidate SET dropped_by = %(number)s
WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s AND event_id = %(event_id)s
    AND ordinal = %(ordinal)s

-- name: related_facts
-- The owner's live facts that have most to do with one of the candidates, closest first: all while they are few; with
-- the person's event that worded a fact last, if one did.  Near are facts by words and kinds of statement, each by how
-- few hold it, none that half of them hold; and by the vectors of the messages, as far as there are any.  With the last
-- message of each session that a fact comes from.
-- params: fingerprints bytea[], numbers integer[], weights float8[], sessions uuid[], cited integer[], meaning float8
-- row: fact_id uuid, text text, said_at timestamptz, fingerprint bytea, is_by_assistants boolean, number bigint?,
--     created_at timestamptz!, session_keys uuid[], last_seqs bigint[]
-- seals: fingerprints query, lexemes query
-- opens: text, fingerprint fingerprint - text
WITH known AS MATERIALIZED (
    SELECT f.fact_id, f.lexemes, f.said_at, f.fingerprint = ANY (%(fingerprints)s::bytea[]) AS is_same
    FROM strandline.fact f
    WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.live
), amount AS MATERIALIZED (
    SELECT count(*)::float8 AS facts FROM known
), asked AS MATERIALIZED (
    -- Sealed, the words are there twice, one list after the other.
    SELECT w.lexeme, (%(numbers)s::integer[])[n.place] AS candidate, (%(weights)s::float8[])[n.place] AS weight
    FROM unnest(%(lexemes)s::text[]) WITH ORDINALITY AS w (lexeme, place)
    CROSS JOIN LATERAL (SELECT mod(w.place - 1, cardinality(%(numbers)s::integer[])) + 1 AS place) AS n
), held AS MATERIALIZED (
    SELECT u.fact_id, u.lexeme
    FROM (SELECT k.fact_id, unnest(k.lexemes) AS lexeme FROM known k) AS u
    WHERE u.lexeme = ANY (%(lexemes)s::text[])
), telling AS MATERIALIZED (
    SELECT q.candidate, q.lexeme,
        q.weight * ln((a.facts - h.times + 0.5::float8) / (h.times + 0.5::float8)) AS weight
    FROM (SELECT lexeme, count(*) AS times FROM held GROUP BY lexeme) AS h
    JOIN asked q ON q.lexeme = h.lexeme CROSS JOIN amount a
    WHERE 2 * h.times < a.facts
), served AS MATERIALIZED (
    SELECT v.generation_id FROM @serving(%(shard_key)s, ARRAY['vectors']) AS v
    WHERE (SELECT a.facts FROM amount a) > %(limit)s::bigint
), said AS MATERIALIZED (
    -- Here and below the limits keep this a look-up per row.
    SELECT m.candidate, c.embedding
    FROM unnest(%(sessions)s::uuid[], %(seqs)s::bigint[], %(cited)s::integer[]) AS m (session_key, seq, candidate)
    CROSS JOIN LATERAL (@embedded(%(shard_key)s, (SELECT v.generation_id FROM served v), m)) AS c
), cited AS MATERIALIZED (
    -- The messages of each fact, of which the last few count.
    SELECT s.fact_id, s.session_key, s.seq, row_number() OVER (PARTITION BY s.fact_id ORDER BY s.revision) AS place,
        count(*) OVER (PARTITION BY s.fact_id) AS places
    FROM (
        SELECT r.fact_id, r.revision, r.session_key, unnest(r.seqs) AS seq FROM strandline.fact_revision r
        WHERE r.shard_key = %(shard_key)s AND r.generation_id = %(generation_id)s AND r.operation <> 'invalidate'
            AND EXISTS (SELECT FROM said)) AS s
    JOIN known k ON k.fact_id = s.fact_id
), pieces AS MATERIALIZED (
    SELECT m.fact_id, c.embedding
    FROM cited m CROSS JOIN LATERAL (@embedded(%(shard_key)s, (SELECT v.generation_id FROM served v), m)) AS c
    WHERE m.place > m.places - 4
), centre AS MATERIALIZED (
    -- What all have in common says nothing; of a few it cannot be told.
    SELECT CASE WHEN count(*) >= 20 THEN avg(p.embedding) END AS embedding FROM pieces p
), directions AS MATERIALIZED (
    SELECT p.fact_id, coalesce(p.embedding - c.embedding, p.embedding) AS direction
    FROM pieces p CROSS JOIN centre c
), said_directions AS MATERIALIZED (
    SELECT s.candidate, coalesce(s.embedding - c.embedding, s.embedding) AS direction
    FROM said s CROSS JOIN centre c
), candidates AS (
    SELECT candidate FROM asked UNION SELECT candidate FROM said
), scores AS (
    SELECT c.candidate, best.fact_id, best.score FROM candidates c CROSS JOIN LATERAL (
        SELECT n.fact_id, sum(n.score) AS score FROM (
            SELECT h.fact_id, t.weight AS score
            FROM held h JOIN telling t ON t.lexeme = h.lexeme AND t.candidate = c.candidate
            UNION ALL
            SELECT d.fact_id, %(meaning)s::float8 * greatest(0, max(1 - (d.direction <=> s.direction)))
            FROM directions d CROSS JOIN said_directions s WHERE s.candidate = c.candidate GROUP BY d.fact_id) AS n
        GROUP BY n.fact_id ORDER BY score DESC FETCH FIRST (%(limit)s::bigint) ROWS WITH TIES) AS best
), placed AS (
    SELECT s.fact_id, s.score, rank() OVER (PARTITION BY s.candidate ORDER BY s.score DESC) AS place FROM scores s
), shown AS (
    SELECT p.fact_id, min(p.place) AS place, max(p.score) AS score FROM placed p GROUP BY p.fact_id
), newest AS (
    SELECT k.fact_id FROM known k ORDER BY k.is_same DESC, k.said_at DESC, k.fact_id LIMIT %(limit)s
), nearest AS (
    SELECT k.fact_id, row_number() OVER (
        ORDER BY k.is_same DESC, s.place, s.score DESC NULLS LAST, k.said_at DESC, k.fact_id) AS place
    FROM known k LEFT JOIN shown s ON s.fact_id = k.fact_id
    WHERE s.fact_id IS NOT NULL OR k.fact_id IN (SELECT n.fact_id FROM newest n)
    ORDER BY place LIMIT %(limit)s
)
SELECT f.fact_id, f.text, f.said_at, f.fingerprint, @is_assistants_fact(f, %(shard_key)s) AS is_by_assistants,
    worded.number, worded.created_at, coalesce(said.session_keys, '{}') AS session_keys,
    coalesce(said.last_seqs, '{}') AS last_seqs
FROM nearest n CROSS JOIN LATERAL (
    SELECT * FROM strandline.fact t
    WHERE t.shard_key = %(shard_key)s AND t.generation_id = %(generation_id)s AND t.fact_id = n.fact_id LIMIT 1) AS f
LEFT JOIN LATERAL (
    SELECT e.number, e.created_at FROM strandline.fact_revision r
    JOIN strandline.fact_event e ON e.shard_key = r.shard_key AND e.number = r.fact_event
    WHERE r.shard_key = %(shard_key)s AND r.generation_id = %(generation_id)s AND r.fact_id = n.fact_id
    ORDER BY r.revision DESC LIMIT 1) AS worded ON true LEFT JOIN LATERAL (
    SELECT array_agg(o.session_key) AS session_keys, array_agg(o.last_seq) AS last_seqs
    FROM (
        SELECT r.session_key, max(s.seq) AS last_seq FROM strandline.fact_revision r
        CROSS JOIN LATERAL unnest(r.seqs) AS s (seq)
        WHERE r.shard_key = %(shard_key)s AND r.generation_id = %(generation_id)s AND r.fact_id = n.fact_id
            AND r.operation <> 'invalidate'
        GROUP BY r.session_key) AS o) AS said ON true
ORDER BY n.place

-- name: add_fact
-- Insert a new fact with its first revision. If a live fact has the same words, that one is kept instead, with the
-- candidate as another source, and without the doubt.
-- Its id follows from its event and words, so that each derivation of the event gives it again, with the feedback and
-- creation that it had.  A fact that other messages said first has the id from these: another derivation of the event
-- tells it, or what went with a correction of messages that were delivered together.  An id that this derivation has,
-- or a person deleted, is not given again; fact_id is that of the fact if there is no other.
-- params: said_by text?
-- row: fact_id uuid, is_new boolean
-- seals: text, fingerprint, lexemes word, topics, said_by, own_text, own_fingerprint, own_lexemes
WITH named AS (
    SELECT o.fact_id, o.created_at
    FROM (SELECT md5(uuid_send(%(event_id)s) || %(fingerprint)s)::uuid AS fact_id) AS lasting
    CROSS JOIN LATERAL (
        SELECT had.fact_id, had.created_at FROM strandline.generation g CROSS JOIN LATERAL (
            SELECT f.fact_id, f.created_at FROM strandline.fact f WHERE f.shard_key = %(shard_key)s
                AND f.generation_id = g.generation_id AND f.fact_id = lasting.fact_id
            UNION ALL
            SELECT f.fact_id, f.created_at FROM strandline.fact f WHERE f.shard_key = %(shard_key)s
                AND f.generation_id = g.generation_id AND f.live AND f.fingerprint = %(fingerprint)s AND EXISTS (
                    SELECT FROM strandline.fact_revision r WHERE r.shard_key = %(shard_key)s
                        AND r.generation_id = g.generation_id AND r.fact_id = f.fact_id
                        AND r.event_id = %(event_id)s AND r.operation <> 'invalidate')) AS had
        WHERE g.pipeline = 'facts' AND g.generation_id <> %(generation_id)s
        UNION ALL
        SELECT f.fact_id, f.created_at FROM strandline.former_fact f
        WHERE f.shard_key = %(shard_key)s AND f.session_key = %(session_key)s
            AND %(fingerprint)s = ANY (f.fingerprints) AND EXISTS (
                SELECT FROM strandline.batch b
                JOIN strandline.flush_event e ON e.shard_key = %(shard_key)s AND e.event_id = ANY (b.event_ids)
                JOIN unnest(f.seqs) AS cited (seq) ON cited.seq BETWEEN e.from_seq AND e.through_seq
                WHERE b.shard_key = %(shard_key)s AND b.batch_id = %(extract_batch_id)s)
        UNION ALL VALUES (lasting.fact_id, NULL::timestamptz), (%(fact_id)s, NULL)) AS o
    WHERE NOT EXISTS (
            SELECT FROM strandline.fact f WHERE f.shard_key = %(shard_key)s
                AND f.generation_id = %(generation_id)s AND f.fact_id = o.fact_id)
        AND NOT EXISTS (
            SELECT FROM strandline.fact_event e WHERE e.shard_key = %(shard_key)s AND e.kind = 'delete'
                AND e.fact_id = o.fact_id)
    ORDER BY o.created_at IS NULL, o.fact_id <> lasting.fact_id, o.created_at, o.fact_id LIMIT 1
), kept AS (
    INSERT INTO strandline.fact (shard_key, generation_id, fact_id, text, fingerprint, lexemes, topics,
        said_by, about_date, said_at, valid_from, doubt_operation, doubt_reason, doubt_fact_id, created_at, feedback)
    SELECT %(shard_key)s, %(generation_id)s, n.fact_id, %(text)s, %(fingerprint)s, %(lexemes)s::text[],
        %(topics)s::text[], %(said_by)s, %(about_date)s, %(said_at)s, %(said_at)s, %(doubt_operation)s,
        %(doubt_reason)s, %(doubt_fact_id)s, coalesce(n.created_at, statement_timestamp()), (
            SELECT e.payload->>'feedback' FROM strandline.fact_event e
            WHERE e.shard_key = %(shard_key)s AND e.kind = 'feedback' AND e.fact_id = n.fact_id
            ORDER BY e.number DESC LIMIT 1)
    FROM named n
    ON CONFLICT (shard_key, generation_id, fingerprint) WHERE live
        DO UPDATE SET updated_at = excluded.updated_at, said_at = greatest(fact.said_at, excluded.said_at),
            valid_from = least(fact.valid_from, excluded.valid_from)
    RETURNING fact_id
)
INSERT INTO strandline.fact_revision (shard_key, generation_id, fact_id, revision, operation, text,
    fingerprint, lexemes, own_text, own_fingerprint, own_lexemes, event_id, session_key, seqs,
    extract_batch_id, merge_batch_id, model, prompt_hash)
SELECT %(shard_key)s, %(generation_id)s, k.fact_id, coalesce((
        SELECT max(r.revision) FROM strandline.fact_revision r
        WHERE r.shard_key = %(shard_key)s AND r.generation_id = %(generation_id)s
            AND r.fact_id = k.fact_id), 0) + 1,
    CASE WHEN k.fact_id = n.fact_id THEN 'add' ELSE 'duplicate' END,
    %(text)s, %(fingerprint)s, %(lexemes)s::text[], %(own_text)s, %(own_fingerprint)s,
    %(own_lexemes)s::text[], %(event_id)s, %(session_key)s, %(seqs)s::bigint[],
    %(extract_batch_id)s, %(merge_batch_id)s, %(model)s, %(prompt_hash)s
FROM kept k CROSS JOIN named n
RETURNING fact_id, operation = 'add' AS is_new

-- name: update_fact
-- Update a fact, if it still has the words that the merge was planned with; its earlier words stay in its revisions.
-- params: expected bytea
-- row: fact_id uuid
-- seals: text, fingerprint, lexemes word, topics, expected digest
UPDATE strandline.fact f SET text = %(text)s, fingerprint = %(fingerprint)s, lexemes = %(lexemes)s::text[],
    topics = (SELECT coalesce(array_agg(DISTINCT t), '{}') FROM unnest(f.topics || %(topics)s::text[]) AS t),
    about_date = CASE WHEN %(said_at)s < f.said_at THEN coalesce(f.about_date, %(about_date)s)
        ELSE coalesce(%(about_date)s, f.about_date) END,
    said_at = greatest(f.said_at, %(said_at)s), updated_at = statement_timestamp()
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.fact_id = %(fact_id)s
    AND f.live AND f.fingerprint = %(expected)s AND NOT EXISTS (
        SELECT FROM strandline.fact o WHERE o.shard_key = %(shard_key)s AND o.live
            AND o.generation_id = f.generation_id AND o.fingerprint = %(fingerprint)s
            AND o.fact_id <> f.fact_id)
RETURNING f.fact_id

-- name: confirm_fact
-- Said again: change only when it was first and last said.
-- row: fact_id uuid
UPDATE strandline.fact f SET said_at = greatest(f.said_at, %(said_at)s),
    valid_from = least(f.valid_from, %(said_at)s), updated_at = statement_timestamp()
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.fact_id = %(fact_id)s
RETURNING f.fact_id

-- name: invalidate_fact
-- End a fact that is no longer true, because of a later statement; it stays, with the fact that replaced it.
-- params: by_fact_id uuid, expected bytea
-- row: fact_id uuid
-- seals: expected digest
UPDATE strandline.fact f SET live = false, invalidated_at = statement_timestamp(), invalidated_by = %(by_fact_id)s,
    valid_until = greatest(f.valid_from, %(said_at)s), updated_at = statement_timestamp()
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.fact_id = %(fact_id)s
    AND f.live AND f.fingerprint = %(expected)s
RETURNING f.fact_id

-- name: insert_revision
-- Provenance: the operation on a fact, with its event, messages, prompt and model; and the candidate's own words, if
-- the fact is worded differently.
-- seals: text, fingerprint, lexemes word, own_text, own_fingerprint, own_lexemes
INSERT INTO strandline.fact_revision (shard_key, generation_id, fact_id, revision, operation, text,
    fingerprint, lexemes, own_text, own_fingerprint, own_lexemes, event_id, session_key, seqs,
    extract_batch_id, merge_batch_id, model, prompt_hash)
SELECT %(shard_key)s, %(generation_id)s, %(fact_id)s, coalesce(max(r.revision), 0) + 1, %(operation)s,
    %(text)s, %(fingerprint)s, %(lexemes)s::text[], %(own_text)s, %(own_fingerprint)s,
    %(own_lexemes)s::text[], %(event_id)s, %(session_key)s, %(seqs)s::bigint[],
    %(extract_batch_id)s, %(merge_batch_id)s, %(model)s, %(prompt_hash)s
FROM strandline.fact_revision r
WHERE r.shard_key = %(shard_key)s AND r.generation_id = %(generation_id)s AND r.fact_id = %(fact_id)s

-- name: condensing
-- How many live facts an owner has, how many the last attempt to condense them left, and the smallest max_facts of
-- some sessions.
-- row: live bigint, left_by_last integer, max_facts integer?
SELECT (SELECT count(*) FROM strandline.fact f WHERE f.shard_key = %(shard_key)s
        AND f.generation_id = %(generation_id)s AND f.live) AS live,
    coalesce((SELECT c.facts_after FROM strandline.condensation c WHERE c.shard_key = %(shard_key)s
        AND c.generation_id = %(generation_id)s ORDER BY c.created_at DESC LIMIT 1), 0) AS left_by_last,
    (SELECT min(s.max_facts) FROM strandline.session s WHERE s.shard_key = %(shard_key)s
        AND s.session_key = ANY (%(session_keys)s::uuid[])) AS max_facts

-- name: condensable_facts
-- The live facts that no person has worded or judged and that no doubt concerns, longest known first.
-- row: fact_id uuid, text text, said_at timestamptz, fingerprint bytea, lexemes text[], is_by_assistants boolean
-- opens: text, fingerprint fingerprint - text
SELECT f.fact_id, f.text, f.said_at, f.fingerprint, f.lexemes, @is_assistants_fact(f, %(shard_key)s) AS is_by_assistants
FROM strandline.fact f
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.live AND f.feedback IS NULL
    AND NOT EXISTS (
        SELECT FROM strandline.fact_revision r WHERE r.shard_key = %(shard_key)s
            AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id AND r.fact_event IS NOT NULL)
    AND NOT @is_doubtful(f, %(shard_key)s) AND NOT EXISTS (
        SELECT FROM strandline.fact beside WHERE beside.shard_key = %(shard_key)s
            AND beside.generation_id = f.generation_id AND beside.live AND beside.doubt_fact_id = f.fact_id)
ORDER BY f.said_at, f.fact_id LIMIT %(limit)s

-- name: end_condensed
-- End the facts that one sentence condenses: they stay, and name it.
-- row: fact_id uuid
UPDATE strandline.fact f SET live = false, condensed_into = %(fact_id)s, updated_at = statement_timestamp()
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.live
    AND f.fact_id = ANY (%(parts)s::uuid[])
RETURNING f.fact_id

-- name: add_condensed
-- The sentence, with the time, topics and speaker of what it holds, and every source of it.
-- seals: text, fingerprint, lexemes word, topics
WITH part AS (
    SELECT f.* FROM strandline.fact f WHERE f.shard_key = %(shard_key)s
        AND f.generation_id = %(generation_id)s AND f.fact_id = ANY (%(parts)s::uuid[])
), made AS (
    INSERT INTO strandline.fact (shard_key, generation_id, fact_id, text, fingerprint, lexemes, topics,
        said_by, about_date, said_at, valid_from)
    SELECT %(shard_key)s, %(generation_id)s, %(fact_id)s, %(text)s, %(fingerprint)s, %(lexemes)s::text[],
        CASE WHEN cardinality(%(topics)s::text[]) > 0 THEN %(topics)s::text[] ELSE (
            SELECT coalesce(array_agg(DISTINCT t.topic), '{}') FROM part o CROSS JOIN unnest(o.topics) AS t (topic))
        END, CASE WHEN count(DISTINCT coalesce(said_by, '')) = 1 THEN min(said_by) END,
        CASE WHEN count(DISTINCT coalesce(about_date, '-infinity')) = 1 THEN min(about_date) END,
        max(said_at), min(valid_from)
    FROM part
), source AS (
    SELECT DISTINCT ON (r.event_id, r.extract_batch_id, r.seqs) r.* FROM strandline.fact_revision r
    WHERE r.shard_key = %(shard_key)s AND r.generation_id = %(generation_id)s
        AND r.fact_id = ANY (%(parts)s::uuid[]) AND r.operation <> 'invalidate'
    ORDER BY r.event_id, r.extract_batch_id, r.seqs, r.created_at
)
INSERT INTO strandline.fact_revision (shard_key, generation_id, fact_id, revision, operation, text,
    fingerprint, lexemes, event_id, session_key, seqs, extract_batch_id, merge_batch_id, condense_batch_id,
    model, prompt_hash)
SELECT %(shard_key)s, %(generation_id)s, %(fact_id)s, row_number() OVER (ORDER BY s.created_at, s.event_id,
    s.seqs), 'condense', %(text)s, %(fingerprint)s, %(lexemes)s::text[], s.event_id, s.session_key, s.seqs,
    s.extract_batch_id, s.merge_batch_id, %(batch_id)s, %(model)s, %(prompt_hash)s
FROM source s

-- name: record_condensation
-- Record the outcome of an attempt to condense.
-- params: facts_before integer, facts_after integer, reason text?
INSERT INTO strandline.condensation (shard_key, generation_id, batch_id, outcome, facts_before, facts_after,
    reason)
VALUES (%(shard_key)s, %(generation_id)s, %(batch_id)s, %(outcome)s, %(facts_before)s, %(facts_after)s,
    %(reason)s)
ON CONFLICT DO NOTHING
