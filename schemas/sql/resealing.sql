-- Resealing: the rows of an owner that are in clear, or sealed under a data key before the newest one, page by page;
-- and the same rows in the form that they are to have. A row that was changed in between is left as it is, by the
-- transaction that wrote it, and found again in the next pass. Nothing but the form of content is ever changed.

-- name: unsealed_messages
-- The next messages of an owner of which something is not sealed under the newest data key, whose tokens begin with
-- the prefix.
-- params: shard_key uuid, prefix text, after_session uuid, after_seq bigint, limit bigint
-- row: session_key uuid, seq bigint, version text, id text, digest bytea, envelope text, metadata text?, calls text?,
--     answers text?, labels bigint[]?
-- repeatable
SELECT m.session_key, m.seq, m.xmin::text AS version, m.id, m.digest, m.envelope::text, m.metadata::text,
    m.calls::text, m.answers::text, m.labels
FROM strandline.message m
WHERE m.shard_key = %(shard_key)s AND (m.session_key, m.seq) > (%(after_session)s, %(after_seq)s)
    AND (left(m.envelope::text, length(%(prefix)s)) <> %(prefix)s OR left(m.metadata::text, length(%(prefix)s)) <> %(prefix)s
        OR octet_length(m.digest) <> 17 OR left(m.answers::text, 11) <> '["sealed:3:' OR left(m.calls::text, 11) <> '["sealed:3:')
ORDER BY m.session_key, m.seq LIMIT %(limit)s

-- name: reseal_messages
-- Store messages in the form that they are to have.
-- params: shard_key uuid, session_keys uuid[], seqs bigint[], versions text[], digests bytea[], envelopes text[],
--     metadata text?[], calls text?[], answers text?[], labels text?[]
-- row: seq bigint
-- repeatable
UPDATE strandline.message m SET digest = n.digest, envelope = n.envelope::json, metadata = n.metadata::json,
    calls = n.calls::json, answers = n.answers::json, labels = n.labels::bigint[]
FROM unnest(%(session_keys)s::uuid[], %(seqs)s::bigint[], %(versions)s::text[], %(digests)s::bytea[],
    %(envelopes)s::text[], %(metadata)s::text[], %(calls)s::text[], %(answers)s::text[], %(labels)s::text[])
    AS n (session_key, seq, version, digest, envelope, metadata, calls, answers, labels)
WHERE m.shard_key = %(shard_key)s AND m.session_key = n.session_key AND m.seq = n.seq AND m.xmin::text = n.version
RETURNING m.seq

-- name: unsealed_shared_messages
-- The same of copies in a shared scope.
-- params: shard_key uuid, prefix text, after_session uuid, after_seq bigint, limit bigint
-- row: session_key uuid, seq bigint, version text, id text, envelope text, metadata text?
-- repeatable
SELECT m.session_key, m.seq, m.xmin::text AS version, m.id, m.envelope::text, m.metadata::text
FROM strandline.shared_message m
WHERE m.shard_key = %(shard_key)s AND (m.session_key, m.seq) > (%(after_session)s, %(after_seq)s)
    AND (left(m.envelope::text, length(%(prefix)s)) <> %(prefix)s
        OR left(m.metadata::text, length(%(prefix)s)) <> %(prefix)s)
ORDER BY m.session_key, m.seq LIMIT %(limit)s

-- name: reseal_shared_messages
-- Store copies in the form that they are to have.
-- params: shard_key uuid, session_keys uuid[], seqs bigint[], versions text[], envelopes text[], metadata text?[]
-- row: seq bigint
-- repeatable
UPDATE strandline.shared_message m SET envelope = n.envelope::json, metadata = n.metadata::json
FROM unnest(%(session_keys)s::uuid[], %(seqs)s::bigint[], %(versions)s::text[], %(envelopes)s::text[],
    %(metadata)s::text[]) AS n (session_key, seq, version, envelope, metadata)
WHERE m.shard_key = %(shard_key)s AND m.session_key = n.session_key AND m.seq = n.seq AND m.xmin::text = n.version
RETURNING m.seq

-- name: unsealed_corrections
-- The next corrections of an owner whose digest of the content asked for is not keyed.
-- params: shard_key uuid, after_session uuid, after_number integer, limit bigint
-- row: session_key uuid, number integer, digest bytea
-- repeatable
SELECT c.session_key, c.number, c.digest FROM strandline.correction c
WHERE c.shard_key = %(shard_key)s AND (c.session_key, c.number) > (%(after_session)s, %(after_number)s)
    AND octet_length(c.digest) <> 17
ORDER BY c.session_key, c.number LIMIT %(limit)s

-- name: reseal_corrections
-- Store the keyed forms of these digests.
-- params: shard_key uuid, session_keys uuid[], numbers integer[], digests bytea[]
-- row: number integer
-- repeatable
UPDATE strandline.correction c SET digest = n.digest
FROM unnest(%(session_keys)s::uuid[], %(numbers)s::integer[], %(digests)s::bytea[]) AS n (session_key, number, digest)
WHERE c.shard_key = %(shard_key)s AND c.session_key = n.session_key AND c.number = n.number
RETURNING c.number

-- name: unsealed_chunks
-- The next pieces of an owner's messages, of any generation, with words that are not keyed.
-- With vectors off, those that still have one as well.
-- params: shard_key uuid, has_vectors boolean, after_generation integer, after_session uuid, after_seq bigint, after_piece
--     integer, limit bigint
-- row: generation_id integer, session_key uuid, from_seq bigint, piece integer, version text, lexemes text, speaker text[]
-- repeatable
SELECT c.generation_id, c.session_key, c.from_seq, c.piece, c.xmin::text AS version, c.lexemes::text, c.speaker
FROM strandline.chunk c
WHERE c.shard_key = %(shard_key)s AND (c.generation_id, c.session_key, c.from_seq, c.piece)
        > (%(after_generation)s, %(after_session)s, %(after_seq)s, %(after_piece)s)
    AND (NOT %(has_vectors)s AND c.embedding IS NOT NULL
        OR EXISTS (SELECT FROM unnest(tsvector_to_array(c.lexemes)) AS u (word) WHERE left(u.word, 1) <> 'K')
        OR EXISTS (SELECT FROM unnest(c.speaker) AS u (word) WHERE left(u.word, 1) <> 'K'))
ORDER BY c.generation_id, c.session_key, c.from_seq, c.piece LIMIT %(limit)s

-- name: reseal_chunks
-- Store pieces with keyed words.
-- params: shard_key uuid, has_vectors boolean, generation_ids integer[], session_keys uuid[], from_seqs bigint[], pieces
--     integer[], versions text[], lexemes text[], speakers text[]
-- row: piece integer
-- repeatable
WITH change AS (
    @note_change(%(shard_key)s, 'pieces')
)
UPDATE strandline.chunk c SET lexemes = n.lexemes::tsvector, speaker = n.speaker::text[],
    embedding = CASE WHEN %(has_vectors)s THEN c.embedding END
FROM unnest(%(generation_ids)s::integer[], %(session_keys)s::uuid[], %(from_seqs)s::bigint[], %(pieces)s::integer[],
    %(versions)s::text[], %(lexemes)s::text[], %(speakers)s::text[])
    AS n (generation_id, session_key, from_seq, piece, version, lexemes, speaker)
WHERE c.shard_key = %(shard_key)s AND c.generation_id = n.generation_id AND c.session_key = n.session_key
    AND c.from_seq = n.from_seq AND c.piece = n.piece AND c.xmin::text = n.version
RETURNING c.piece

-- name: unsealed_states
-- The next states of an owner's lanes that are not sealed under the newest data key.
-- params: shard_key uuid, prefix text, after_batch uuid, limit bigint
-- row: batch_id uuid, version text, state text
-- repeatable
SELECT b.batch_id, b.xmin::text AS version, b.state::text FROM strandline.block_state b
WHERE b.shard_key = %(shard_key)s AND b.batch_id > %(after_batch)s
    AND left(b.state::text, length(%(prefix)s)) <> %(prefix)s
ORDER BY b.batch_id LIMIT %(limit)s

-- name: reseal_states
-- Store states in the form that they are to have.
-- params: shard_key uuid, batch_ids uuid[], versions text[], states text[]
-- row: batch_id uuid
-- repeatable
UPDATE strandline.block_state b SET state = n.state::jsonb
FROM unnest(%(batch_ids)s::uuid[], %(versions)s::text[], %(states)s::text[]) AS n (batch_id, version, state)
WHERE b.shard_key = %(shard_key)s AND b.batch_id = n.batch_id AND b.xmin::text = n.version
RETURNING b.batch_id

-- name: unsealed_answers
-- The next stored answers of models that are not sealed under the newest data key.
-- params: shard_key uuid, prefix bytea, after_batch uuid, after_step text, limit bigint
-- row: batch_id uuid, step text, version text, body bytea
-- repeatable
SELECT a.batch_id, a.step, a.xmin::text AS version, a.body FROM strandline.answer a
WHERE a.shard_key = %(shard_key)s AND (a.batch_id, a.step) > (%(after_batch)s, %(after_step)s)
    AND substring(a.body for octet_length(%(prefix)s::bytea)) <> %(prefix)s::bytea
ORDER BY a.batch_id, a.step LIMIT %(limit)s

-- name: reseal_answers
-- Store answers in the form that they are to have.
-- params: shard_key uuid, batch_ids uuid[], steps text[], versions text[], bodies bytea[]
-- row: step text
-- repeatable
UPDATE strandline.answer a SET body = n.body
FROM unnest(%(batch_ids)s::uuid[], %(steps)s::text[], %(versions)s::text[], %(bodies)s::bytea[])
    AS n (batch_id, step, version, body)
WHERE a.shard_key = %(shard_key)s AND a.batch_id = n.batch_id AND a.step = n.step AND a.xmin::text = n.version
RETURNING a.step

-- name: unsealed_facts
-- The next facts of an owner, of any generation, of which something is not sealed under the newest data key.
-- params: shard_key uuid, prefix text, after_generation integer, after_fact uuid, limit bigint
-- row: generation_id integer, fact_id uuid, version text, text text, fingerprint bytea, lexemes text[], topics text[],
--     said_by text?, input text?, feedback text?
-- repeatable
SELECT f.generation_id, f.fact_id, f.xmin::text AS version, f.text, f.fingerprint, f.lexemes, f.topics, f.said_by,
    f.input, f.feedback
FROM strandline.fact f
WHERE f.shard_key = %(shard_key)s AND (f.generation_id, f.fact_id) > (%(after_generation)s, %(after_fact)s)
    AND (left(f.text, length(%(prefix)s)) <> %(prefix)s OR octet_length(f.fingerprint) <> 17
        OR left(f.input, length(%(prefix)s)) <> %(prefix)s OR left(f.feedback, length(%(prefix)s)) <> %(prefix)s
        OR left(f.said_by, 9) <> 'sealed:2:'
        OR EXISTS (SELECT FROM unnest(f.lexemes) AS u (word) WHERE left(u.word, 1) <> 'K')
        OR EXISTS (SELECT FROM unnest(f.topics) AS u (topic) WHERE left(u.topic, 9) <> 'sealed:2:'))
ORDER BY f.generation_id, f.fact_id LIMIT %(limit)s

-- name: reseal_facts
-- Store facts in the form that they are to have. One whose words another live fact has got in its keyed form in
-- between ends in favour of that one.
-- params: shard_key uuid, facts json
-- row: fact_id uuid
-- repeatable
UPDATE strandline.fact f SET text = n.text, fingerprint = decode(n.fingerprint, 'hex'), lexemes = n.lexemes,
    topics = n.topics, said_by = n.said_by, input = n.input, feedback = n.feedback,
    live = f.live AND twin.fact_id IS NULL,
    invalidated_at = CASE WHEN twin.fact_id IS NULL THEN f.invalidated_at ELSE statement_timestamp() END,
    invalidated_by = coalesce(twin.fact_id, f.invalidated_by)
FROM json_to_recordset(%(facts)s::json) AS n (
    generation_id integer, fact_id uuid, version text, text text, fingerprint text, lexemes text[], topics text[],
    said_by text, input text, feedback text)
LEFT JOIN LATERAL (
    SELECT o.fact_id FROM strandline.fact o
    WHERE o.shard_key = %(shard_key)s AND o.generation_id = n.generation_id AND o.live AND o.fact_id <> n.fact_id
        AND o.fingerprint = decode(n.fingerprint, 'hex') LIMIT 1) AS same ON true
LEFT JOIN LATERAL (
    SELECT same.fact_id FROM strandline.fact w WHERE w.shard_key = %(shard_key)s
        AND w.generation_id = n.generation_id AND w.fact_id = n.fact_id AND w.live) AS twin ON true
WHERE f.shard_key = %(shard_key)s AND f.generation_id = n.generation_id AND f.fact_id = n.fact_id
    AND f.xmin::text = n.version
RETURNING f.fact_id

-- name: unsealed_revisions
-- The next revisions of an owner's facts of which something is not sealed under the newest data key.
-- params: shard_key uuid, prefix text, after_generation integer, after_fact uuid, after_revision integer, limit bigint
-- row: generation_id integer, fact_id uuid, revision integer, version text, text text, fingerprint bytea, lexemes
--     text[], own_text text?, own_fingerprint bytea?, own_lexemes text[]?
-- repeatable
SELECT r.generation_id, r.fact_id, r.revision, r.xmin::text AS version, r.text, r.fingerprint, r.lexemes, r.own_text,
    r.own_fingerprint, r.own_lexemes
FROM strandline.fact_revision r
WHERE r.shard_key = %(shard_key)s AND (r.generation_id, r.fact_id, r.revision)
        > (%(after_generation)s, %(after_fact)s, %(after_revision)s)
    AND (left(r.text, length(%(prefix)s)) <> %(prefix)s OR octet_length(r.fingerprint) <> 17
        OR left(r.own_text, length(%(prefix)s)) <> %(prefix)s OR octet_length(r.own_fingerprint) <> 17
        OR EXISTS (SELECT FROM unnest(r.lexemes || r.own_lexemes) AS u (word) WHERE left(u.word, 1) <> 'K'))
ORDER BY r.generation_id, r.fact_id, r.revision LIMIT %(limit)s

-- name: reseal_revisions
-- Store revisions in the form that they are to have.
-- params: shard_key uuid, revisions json
-- row: fact_id uuid
-- repeatable
UPDATE strandline.fact_revision r SET text = n.text, fingerprint = decode(n.fingerprint, 'hex'), lexemes = n.lexemes,
    own_text = n.own_text, own_fingerprint = decode(n.own_fingerprint, 'hex'), own_lexemes = n.own_lexemes
FROM json_to_recordset(%(revisions)s::json) AS n (
    generation_id integer, fact_id uuid, revision integer, version text, text text, fingerprint text, lexemes text[],
    own_text text, own_fingerprint text, own_lexemes text[])
WHERE r.shard_key = %(shard_key)s AND r.generation_id = n.generation_id AND r.fact_id = n.fact_id
    AND r.revision = n.revision AND r.xmin::text = n.version
RETURNING r.fact_id

-- name: unsealed_candidates
-- The next candidates of an owner of which something is not sealed under the newest data key.
-- params: shard_key uuid, prefix text, after_generation integer, after_event uuid, after_ordinal integer, limit bigint
-- row: generation_id integer, event_id uuid, ordinal integer, version text, text text, fingerprint bytea, topics text[],
--     said_by text?
-- repeatable
SELECT c.generation_id, c.event_id, c.ordinal, c.xmin::text AS version, c.text, c.fingerprint, c.topics, c.said_by
FROM strandline.fact_candidate c
WHERE c.shard_key = %(shard_key)s AND (c.generation_id, c.event_id, c.ordinal)
        > (%(after_generation)s, %(after_event)s, %(after_ordinal)s)
    AND (left(c.text, length(%(prefix)s)) <> %(prefix)s OR left(c.said_by, 9) <> 'sealed:2:'
        OR EXISTS (SELECT FROM unnest(c.topics) AS u (topic) WHERE left(u.topic, 9) <> 'sealed:2:'))
ORDER BY c.generation_id, c.event_id, c.ordinal LIMIT %(limit)s

-- name: reseal_candidates
-- Store candidates in the form that they are to have.
-- params: shard_key uuid, candidates json
-- row: event_id uuid
-- repeatable
UPDATE strandline.fact_candidate c SET text = n.text, fingerprint = decode(n.fingerprint, 'hex'), topics = n.topics,
    said_by = n.said_by
FROM json_to_recordset(%(candidates)s::json) AS n (
    generation_id integer, event_id uuid, ordinal integer, version text, text text, fingerprint text, topics text[],
    said_by text)
WHERE c.shard_key = %(shard_key)s AND c.generation_id = n.generation_id AND c.event_id = n.event_id
    AND c.ordinal = n.ordinal AND c.xmin::text = n.version
RETURNING c.event_id

-- name: unsealed_fact_events
-- The next of people's events about an owner's facts of which something is not sealed under the newest data key.
-- params: shard_key uuid, prefix text, after_number bigint, limit bigint
-- row: number bigint, version text, payload text?, traces text
-- repeatable
SELECT e.number, e.xmin::text AS version, e.payload::text, e.traces::text FROM strandline.fact_event e
WHERE e.shard_key = %(shard_key)s AND e.number > %(after_number)s
    AND (EXISTS (
            SELECT FROM (VALUES ('text'), ('input'), ('feedback')) AS field (name)
            WHERE left(e.payload ->> field.name, length(%(prefix)s)) <> %(prefix)s)
        OR EXISTS (
            SELECT FROM jsonb_array_elements(e.traces) AS t (trace)
            WHERE length(t.trace ->> 'fingerprint') <> 34
                OR left(t.trace ->> 'of', length(%(prefix)s)) <> %(prefix)s))
ORDER BY e.number LIMIT %(limit)s

-- name: reseal_fact_events
-- Store these events in the form that they are to have.
-- params: shard_key uuid, numbers bigint[], versions text[], payloads text?[], traces text[]
-- row: number bigint
-- repeatable
UPDATE strandline.fact_event e SET payload = n.payload::json, traces = n.traces::jsonb
FROM unnest(%(numbers)s::bigint[], %(versions)s::text[], %(payloads)s::text[], %(traces)s::text[])
    AS n (number, version, payload, traces)
WHERE e.shard_key = %(shard_key)s AND e.number = n.number AND e.xmin::text = n.version
RETURNING e.number

-- name: unsealed_items
-- The next items of a store that are not sealed under the newest data key.
-- params: shard_key uuid, prefix text, after_path text, after_key text, limit bigint
-- row: path text, key text, version text, value text
-- repeatable
SELECT s.path, s.key, s.xmin::text AS version, s.value::text FROM strandline.store_item s
WHERE s.shard_key = %(shard_key)s AND (s.path, s.key) > (%(after_path)s, %(after_key)s)
    AND left(s.value::text, length(%(prefix)s)) <> %(prefix)s
ORDER BY s.path, s.key LIMIT %(limit)s

-- name: reseal_items
-- Store items in the form that they are to have.
-- params: shard_key uuid, paths text[], keys text[], versions text[], texts text[]
-- row: key text
-- repeatable
UPDATE strandline.store_item s SET value = n.value::json
FROM unnest(%(paths)s::text[], %(keys)s::text[], %(versions)s::text[], %(texts)s::text[])
    AS n (path, key, version, value)
WHERE s.shard_key = %(shard_key)s AND s.path = n.path AND s.key = n.key AND s.xmin::text = n.version
RETURNING s.key

-- name: unsealed_archived_inputs
-- The next messages from the archive, kept for a new derivation, that are not sealed under the newest data key.
-- params: shard_key uuid, prefix text, after_session uuid, after_seq bigint, after_generation integer, limit bigint
-- row: session_key uuid, seq bigint, generation_id integer, version text, id text, envelope text, metadata text?
-- repeatable
SELECT m.session_key, m.seq, m.generation_id, m.xmin::text AS version, m.id, m.envelope::text, m.metadata::text
FROM strandline.archived_input m
WHERE m.shard_key = %(shard_key)s AND (m.session_key, m.seq, m.generation_id)
        > (%(after_session)s, %(after_seq)s, %(after_generation)s)
    AND (left(m.envelope::text, length(%(prefix)s)) <> %(prefix)s
        OR left(m.metadata::text, length(%(prefix)s)) <> %(prefix)s)
ORDER BY m.session_key, m.seq, m.generation_id LIMIT %(limit)s

-- name: reseal_archived_inputs
-- Store them in the form that they are to have.
-- params: shard_key uuid, session_keys uuid[], seqs bigint[], generation_ids integer[], versions text[], envelopes
--     text[], metadata text?[]
-- row: seq bigint
-- repeatable
UPDATE strandline.archived_input m SET envelope = n.envelope::json, metadata = n.metadata::json
FROM unnest(%(session_keys)s::uuid[], %(seqs)s::bigint[], %(generation_ids)s::integer[], %(versions)s::text[],
    %(envelopes)s::text[], %(metadata)s::text[])
    AS n (session_key, seq, generation_id, version, envelope, metadata)
WHERE m.shard_key = %(shard_key)s AND m.session_key = n.session_key AND m.seq = n.seq
    AND m.generation_id = n.generation_id AND m.xmin::text = n.version
RETURNING m.seq

-- name: unsealed_responses
-- The next responses that the HTTP service keeps for a day and that are not sealed under the newest data key.
-- params: shard_key uuid, prefix text, after_request uuid, limit bigint
-- row: request_key uuid, version text, body text
-- repeatable
SELECT r.request_key, r.xmin::text AS version, r.body::text FROM strandline.kept_response r
WHERE r.shard_key = %(shard_key)s AND r.request_key > %(after_request)s
    AND left(r.body::text, length(%(prefix)s)) <> %(prefix)s
ORDER BY r.request_key LIMIT %(limit)s

-- name: reseal_responses
-- Store these responses in the form that they are to have.
-- params: shard_key uuid, request_keys uuid[], versions text[], bodies text[]
-- row: request_key uuid
-- repeatable
UPDATE strandline.kept_response r SET body = n.body::json
FROM unnest(%(request_keys)s::uuid[], %(versions)s::text[], %(bodies)s::text[]) AS n (request_key, version, body)
WHERE r.shard_key = %(shard_key)s AND r.request_key = n.request_key AND r.xmin::text = n.version
RETURNING r.request_key

-- name: unsealed_runs
-- The next runs of an owner of whose messages, as they were given, not all digests are keyed.
-- params: shard_key uuid, after_session uuid, after_run text, limit bigint
-- row: session_key uuid, run_id text, digests bytea[]
-- repeatable
SELECT r.session_key, r.run_id, r.digests FROM strandline.session_run r
WHERE r.shard_key = %(shard_key)s AND (r.session_key, r.run_id) > (%(after_session)s, %(after_run)s::text)
    AND EXISTS (SELECT FROM unnest(r.digests) AS given (digest) WHERE octet_length(given.digest) <> 17)
ORDER BY r.session_key, r.run_id LIMIT %(limit)s

-- name: reseal_run
-- Store the keyed forms of a run's digests, unless the run was changed meanwhile.
-- params: shard_key uuid, session_key uuid, run_id text, known bytea[], digests bytea[]
-- row: session_key uuid
-- repeatable
UPDATE strandline.session_run r SET digests = %(digests)s::bytea[]
WHERE r.shard_key = %(shard_key)s AND r.session_key = %(session_key)s AND r.run_id = %(run_id)s
    AND r.digests = %(known)s::bytea[]
RETURNING r.session_key
