-- Resealing (docs/architecture/encryption.md).  Written by `make queries` from schemas/tables.
-- name: unsealed_answer
-- The next rows of answer of which something is not sealed under the newest data key.
-- params: prefix text, after_batch_id uuid, after_step text
-- row: batch_id uuid, step text, body bytea, version text
SELECT t.batch_id, t.step, t.body, t.xmin::text AS version
FROM strandline.answer t
WHERE t.shard_key = %(shard_key)s AND (t.batch_id, t.step) > (%(after_batch_id)s, %(after_step)s)
    AND (substring(t.body for length(%(prefix)s::text)) <> convert_to(%(prefix)s::text, 'UTF8'))
ORDER BY t.batch_id, t.step LIMIT %(limit)s

-- name: reseal_answer
-- Store rows of answer in the form that they are to have, unless they were changed.
-- params: version text[], batch_id uuid[], step text[], body bytea[]
-- repeatable
UPDATE strandline.answer t
SET body = n.body
FROM unnest(%(batch_id)s::uuid[], %(step)s::text[], %(version)s::text[], %(body)s::bytea[])
    AS n (batch_id, step, version, body)
WHERE t.shard_key = %(shard_key)s AND t.batch_id = n.batch_id AND t.step = n.step AND t.xmin::text = n.version

-- name: unsealed_archived_input
-- The next rows of archived_input of which something is not sealed under the newest data key.
-- params: prefix text, after_seq bigint, after_generation_id integer
-- row: session_key uuid, seq bigint, generation_id integer, id text, envelope text, metadata text?, version text
SELECT t.session_key, t.seq, t.generation_id, t.id, t.envelope::text, t.metadata::text, t.xmin::text AS version
FROM strandline.archived_input t
WHERE t.shard_key = %(shard_key)s AND (t.session_key, t.seq, t.generation_id) > (%(after_session_key)s, %(after_seq)s,
    %(after_generation_id)s)
    AND (left(t.envelope::text, length(%(prefix)s::text) + 1) <> '"' || %(prefix)s::text OR left(t.metadata::text,
    length(%(prefix)s::text) + 1) <> '"' || %(prefix)s::text)
ORDER BY t.session_key, t.seq, t.generation_id LIMIT %(limit)s

-- name: reseal_archived_input
-- Store rows of archived_input in the form that they are to have, unless they were changed.
-- params: version text[], session_key uuid[], seq bigint[], generation_id integer[], envelope text[], metadata text?[]
-- repeatable
UPDATE strandline.archived_input t
SET envelope = n.envelope::json, metadata = n.metadata::json
FROM unnest(%(session_key)s::uuid[], %(seq)s::bigint[], %(generation_id)s::integer[], %(version)s::text[],
    %(envelope)s::text[], %(metadata)s::text[])
    AS n (session_key, seq, generation_id, version, envelope, metadata)
WHERE t.shard_key = %(shard_key)s AND t.session_key = n.session_key AND t.seq = n.seq AND t.generation_id =
    n.generation_id AND t.xmin::text = n.version

-- name: unsealed_block_state
-- The next rows of block_state of which something is not sealed under the newest data key.
-- params: prefix text, after_scope_key uuid, after_generation_id integer, after_ordinal bigint
-- row: scope_key uuid, generation_id integer, ordinal bigint, state text, version text
SELECT t.scope_key, t.generation_id, t.ordinal, t.state::text, t.xmin::text AS version
FROM strandline.block_state t
WHERE t.shard_key = %(shard_key)s AND (t.scope_key, t.generation_id, t.ordinal) > (%(after_scope_key)s,
    %(after_generation_id)s, %(after_ordinal)s)
    AND (left(t.state::text, length(%(prefix)s::text) + 1) <> '"' || %(prefix)s::text)
ORDER BY t.scope_key, t.generation_id, t.ordinal LIMIT %(limit)s

-- name: reseal_block_state
-- Store rows of block_state in the form that they are to have, unless they were changed.
-- params: version text[], scope_key uuid[], generation_id integer[], ordinal bigint[], state text[]
-- repeatable
UPDATE strandline.block_state t
SET state = n.state::jsonb
FROM unnest(%(scope_key)s::uuid[], %(generation_id)s::integer[], %(ordinal)s::bigint[], %(version)s::text[],
    %(state)s::text[])
    AS n (scope_key, generation_id, ordinal, version, state)
WHERE t.shard_key = %(shard_key)s AND t.scope_key = n.scope_key AND t.generation_id = n.generation_id AND t.ordinal =
    n.ordinal AND t.xmin::text = n.version

-- name: unsealed_chunk
-- The next rows of chunk of which something is not sealed under the newest data key.
-- params: has_vectors boolean, after_generation_id integer, after_from_seq bigint, after_piece integer
-- row: generation_id integer, session_key uuid, from_seq bigint, piece integer, lexemes text, speaker text[], version
--     text
SELECT t.generation_id, t.session_key, t.from_seq, t.piece, t.lexemes::text, t.speaker, t.xmin::text AS version
FROM strandline.chunk t
WHERE t.shard_key = %(shard_key)s AND (t.generation_id, t.session_key, t.from_seq, t.piece) > (%(after_generation_id)s,
    %(after_session_key)s, %(after_from_seq)s, %(after_piece)s)
    AND (EXISTS (SELECT FROM unnest(tsvector_to_array(t.lexemes)) AS u (item) WHERE left(u.item, 1) <> 'K') OR NOT
    %(has_vectors)s AND t.embedding IS NOT NULL OR EXISTS (SELECT FROM unnest(t.speaker) AS u (item) WHERE left(u.item,
    1) <> 'K'))
ORDER BY t.generation_id, t.session_key, t.from_seq, t.piece LIMIT %(limit)s

-- name: unsealed_correction
-- The next rows of correction of which something is not sealed under the newest data key.
-- params: after_number integer
-- row: session_key uuid, number integer, digest bytea?, version text
SELECT t.session_key, t.number, t.digest, t.xmin::text AS version
FROM strandline.correction t
WHERE t.shard_key = %(shard_key)s AND (t.session_key, t.number) > (%(after_session_key)s, %(after_number)s)
    AND (octet_length(t.digest) <> 17)
ORDER BY t.session_key, t.number LIMIT %(limit)s

-- name: reseal_correction
-- Store rows of correction in the form that they are to have, unless they were changed.
-- params: version text[], session_key uuid[], number integer[], digest bytea?[]
-- repeatable
UPDATE strandline.correction t
SET digest = n.digest
FROM unnest(%(session_key)s::uuid[], %(number)s::integer[], %(version)s::text[], %(digest)s::bytea[])
    AS n (session_key, number, version, digest)
WHERE t.shard_key = %(shard_key)s AND t.session_key = n.session_key AND t.number = n.number AND t.xmin::text =
    n.version

-- name: unsealed_fact
-- The next rows of fact of which something is not sealed under the newest data key.
-- params: prefix text, after_generation_id integer, after_fact_id uuid
-- row: generation_id integer, fact_id uuid, text text, fingerprint bytea, lexemes text[], topics text[], said_by
--     text?, input text?, feedback text?, version text
SELECT t.generation_id, t.fact_id, t.text, t.fingerprint, t.lexemes, t.topics, t.said_by, t.input, t.feedback,
    t.xmin::text AS version
FROM strandline.fact t
WHERE t.shard_key = %(shard_key)s AND (t.generation_id, t.fact_id) > (%(after_generation_id)s, %(after_fact_id)s)
    AND (left(t.text, length(%(prefix)s::text)) <> %(prefix)s::text OR octet_length(t.fingerprint) <> 17 OR EXISTS
    (SELECT FROM unnest(t.lexemes) AS u (item) WHERE left(u.item, 1) <> 'K') OR EXISTS (SELECT FROM unnest(t.topics) AS
    u (item) WHERE left(u.item, 9) <> 'sealed:2:') OR left(t.said_by, 9) <> 'sealed:2:' OR left(t.input,
    length(%(prefix)s::text)) <> %(prefix)s::text OR left(t.feedback, length(%(prefix)s::text)) <> %(prefix)s::text)
ORDER BY t.generation_id, t.fact_id LIMIT %(limit)s

-- name: unsealed_fact_candidate
-- The next rows of fact_candidate of which something is not sealed under the newest data key.
-- params: prefix text, after_generation_id integer, after_event_id uuid, after_ordinal integer
-- row: generation_id integer, event_id uuid, ordinal integer, text text, fingerprint bytea, topics text[], said_by
--     text?, version text
SELECT t.generation_id, t.event_id, t.ordinal, t.text, t.fingerprint, t.topics, t.said_by, t.xmin::text AS version
FROM strandline.fact_candidate t
WHERE t.shard_key = %(shard_key)s AND (t.generation_id, t.event_id, t.ordinal) > (%(after_generation_id)s,
    %(after_event_id)s, %(after_ordinal)s)
    AND (left(t.text, length(%(prefix)s::text)) <> %(prefix)s::text OR octet_length(t.fingerprint) <> 17 OR EXISTS
    (SELECT FROM unnest(t.topics) AS u (item) WHERE left(u.item, 9) <> 'sealed:2:') OR left(t.said_by, 9) <>
    'sealed:2:')
ORDER BY t.generation_id, t.event_id, t.ordinal LIMIT %(limit)s

-- name: reseal_fact_candidate
-- Store rows of fact_candidate in the form that they are to have, unless they were changed.
-- params: version text[], generation_id integer[], event_id uuid[], ordinal integer[], text text[], fingerprint
--     bytea[], said_by text?[]
-- repeatable
UPDATE strandline.fact_candidate t
SET text = n.text, fingerprint = n.fingerprint, topics = n.topics::text[], said_by = n.said_by
FROM unnest(%(generation_id)s::integer[], %(event_id)s::uuid[], %(ordinal)s::integer[], %(version)s::text[],
    %(text)s::text[], %(fingerprint)s::bytea[], %(topics)s::text[], %(said_by)s::text[])
    AS n (generation_id, event_id, ordinal, version, text, fingerprint, topics, said_by)
WHERE t.shard_key = %(shard_key)s AND t.generation_id = n.generation_id AND t.event_id = n.event_id AND t.ordinal =
    n.ordinal AND t.xmin::text = n.version

-- name: unsealed_fact_event
-- The next rows of fact_event of which something is not sealed under the newest data key.
-- params: prefix text, after_number bigint
-- row: number bigint, payload text?, traces text, version text
SELECT t.number, t.payload::text, t.traces::text, t.xmin::text AS version
FROM strandline.fact_event t
WHERE t.shard_key = %(shard_key)s AND (t.number) > (%(after_number)s)
    AND (EXISTS (SELECT FROM (VALUES ('text'), ('input'), ('feedback')) AS u (item) WHERE left(t.payload ->> u.item,
    length(%(prefix)s::text)) <> %(prefix)s::text) OR EXISTS (SELECT FROM jsonb_array_elements(t.traces) AS u (item)
    WHERE length(u.item ->> 'fingerprint') <> 34 OR left(u.item ->> 'of', length(%(prefix)s::text)) <>
    %(prefix)s::text))
ORDER BY t.number LIMIT %(limit)s

-- name: reseal_fact_event
-- Store rows of fact_event in the form that they are to have, unless they were changed.
-- params: version text[], number bigint[], payload text?[], traces text[]
-- repeatable
UPDATE strandline.fact_event t
SET payload = n.payload::json, traces = n.traces::jsonb
FROM unnest(%(number)s::bigint[], %(version)s::text[], %(payload)s::text[], %(traces)s::text[])
    AS n (number, version, payload, traces)
WHERE t.shard_key = %(shard_key)s AND t.number = n.number AND t.xmin::text = n.version

-- name: unsealed_fact_revision
-- The next rows of fact_revision of which something is not sealed under the newest data key.
-- params: prefix text, after_generation_id integer, after_fact_id uuid, after_revision integer
-- row: generation_id integer, fact_id uuid, revision integer, text text, fingerprint bytea, lexemes text[], own_text
--     text?, own_fingerprint bytea?, own_lexemes text[]?, version text
SELECT t.generation_id, t.fact_id, t.revision, t.text, t.fingerprint, t.lexemes, t.own_text, t.own_fingerprint,
    t.own_lexemes, t.xmin::text AS version
FROM strandline.fact_revision t
WHERE t.shard_key = %(shard_key)s AND (t.generation_id, t.fact_id, t.revision) > (%(after_generation_id)s,
    %(after_fact_id)s, %(after_revision)s)
    AND (left(t.text, length(%(prefix)s::text)) <> %(prefix)s::text OR octet_length(t.fingerprint) <> 17 OR EXISTS
    (SELECT FROM unnest(t.lexemes) AS u (item) WHERE left(u.item, 1) <> 'K') OR left(t.own_text,
    length(%(prefix)s::text)) <> %(prefix)s::text OR octet_length(t.own_fingerprint) <> 17 OR EXISTS (SELECT FROM
    unnest(t.own_lexemes) AS u (item) WHERE left(u.item, 1) <> 'K'))
ORDER BY t.generation_id, t.fact_id, t.revision LIMIT %(limit)s

-- name: reseal_fact_revision
-- Store rows of fact_revision in the form that they are to have, unless they were changed.
-- params: version text[], generation_id integer[], fact_id uuid[], revision integer[], text text[], fingerprint
--     bytea[], own_text text?[], own_fingerprint bytea?[], own_lexemes text?[]
-- repeatable
UPDATE strandline.fact_revision t
SET text = n.text, fingerprint = n.fingerprint, lexemes = n.lexemes::text[], own_text = n.own_text, own_fingerprint =
    n.own_fingerprint, own_lexemes = n.own_lexemes::text[]
FROM unnest(%(generation_id)s::integer[], %(fact_id)s::uuid[], %(revision)s::integer[], %(version)s::text[],
    %(text)s::text[], %(fingerprint)s::bytea[], %(lexemes)s::text[], %(own_text)s::text[],
    %(own_fingerprint)s::bytea[], %(own_lexemes)s::text[])
    AS n (generation_id, fact_id, revision, version, text, fingerprint, lexemes, own_text, own_fingerprint,
    own_lexemes)
WHERE t.shard_key = %(shard_key)s AND t.generation_id = n.generation_id AND t.fact_id = n.fact_id AND t.revision =
    n.revision AND t.xmin::text = n.version

-- name: unsealed_former_fact
-- The next rows of former_fact of which something is not sealed under the newest data key.
-- params: after_fact_id uuid
-- row: session_key uuid, fact_id uuid, fingerprints bytea[], version text
SELECT t.session_key, t.fact_id, t.fingerprints, t.xmin::text AS version
FROM strandline.former_fact t
WHERE t.shard_key = %(shard_key)s AND (t.session_key, t.fact_id) > (%(after_session_key)s, %(after_fact_id)s)
    AND (EXISTS (SELECT FROM unnest(t.fingerprints) AS u (item) WHERE octet_length(u.item) <> 17))
ORDER BY t.session_key, t.fact_id LIMIT %(limit)s

-- name: reseal_former_fact
-- Store rows of former_fact in the form that they are to have, unless they were changed.
-- params: version text[], session_key uuid[], fact_id uuid[], fingerprints text[]
-- repeatable
UPDATE strandline.former_fact t
SET fingerprints = n.fingerprints::bytea[]
FROM unnest(%(session_key)s::uuid[], %(fact_id)s::uuid[], %(version)s::text[], %(fingerprints)s::text[])
    AS n (session_key, fact_id, version, fingerprints)
WHERE t.shard_key = %(shard_key)s AND t.session_key = n.session_key AND t.fact_id = n.fact_id AND t.xmin::text =
    n.version

-- name: unsealed_kept_response
-- The next rows of kept_response of which something is not sealed under the newest data key.
-- params: prefix text, after_request_key uuid
-- row: request_key uuid, body text?, version text
SELECT t.request_key, t.body::text, t.xmin::text AS version
FROM strandline.kept_response t
WHERE t.shard_key = %(shard_key)s AND (t.request_key) > (%(after_request_key)s)
    AND (left(t.body::text, length(%(prefix)s::text) + 1) <> '"' || %(prefix)s::text)
ORDER BY t.request_key LIMIT %(limit)s

-- name: reseal_kept_response
-- Store rows of kept_response in the form that they are to have, unless they were changed.
-- params: version text[], request_key uuid[], body text?[]
-- repeatable
UPDATE strandline.kept_response t
SET body = n.body::json
FROM unnest(%(request_key)s::uuid[], %(version)s::text[], %(body)s::text[])
    AS n (request_key, version, body)
WHERE t.shard_key = %(shard_key)s AND t.request_key = n.request_key AND t.xmin::text = n.version

-- name: unsealed_message
-- The next rows of message of which something is not sealed under the newest data key.
-- params: prefix text, after_seq bigint
-- row: session_key uuid, seq bigint, id text, digest bytea, envelope text, metadata text?, calls text?, answers text?,
--     labels bigint[]?, version text
SELECT t.session_key, t.seq, t.id, t.digest, t.envelope::text, t.metadata::text, t.calls::text, t.answers::text,
    t.labels, t.xmin::text AS version
FROM strandline.message t
WHERE t.shard_key = %(shard_key)s AND (t.session_key, t.seq) > (%(after_session_key)s, %(after_seq)s)
    AND (octet_length(t.digest) <> 17 OR left(t.envelope::text, length(%(prefix)s::text) + 1) <> '"' ||
    %(prefix)s::text OR left(t.metadata::text, length(%(prefix)s::text) + 1) <> '"' || %(prefix)s::text OR
    left(t.calls::text, 11) <> '["sealed:3:' OR left(t.answers::text, 11) <> '["sealed:3:')
ORDER BY t.session_key, t.seq LIMIT %(limit)s

-- name: reseal_message
-- Store rows of message in the form that they are to have, unless they were changed.
-- params: version text[], session_key uuid[], seq bigint[], digest bytea[], envelope text[], metadata text?[], calls
--     text?[], answers text?[], labels text?[]
-- repeatable
UPDATE strandline.message t
SET digest = n.digest, envelope = n.envelope::json, metadata = n.metadata::json, calls = n.calls::json, answers =
    n.answers::json, labels = n.labels::bigint[]
FROM unnest(%(session_key)s::uuid[], %(seq)s::bigint[], %(version)s::text[], %(digest)s::bytea[], %(envelope)s::text[],
    %(metadata)s::text[], %(calls)s::text[], %(answers)s::text[], %(labels)s::text[])
    AS n (session_key, seq, version, digest, envelope, metadata, calls, answers, labels)
WHERE t.shard_key = %(shard_key)s AND t.session_key = n.session_key AND t.seq = n.seq AND t.xmin::text = n.version

-- name: unsealed_session_run
-- The next rows of session_run of which something is not sealed under the newest data key.
-- params: after_run_id text
-- row: session_key uuid, run_id text, digests bytea[], version text
SELECT t.session_key, t.run_id, t.digests, t.xmin::text AS version
FROM strandline.session_run t
WHERE t.shard_key = %(shard_key)s AND (t.session_key, t.run_id) > (%(after_session_key)s, %(after_run_id)s)
    AND (EXISTS (SELECT FROM unnest(t.digests) AS u (item) WHERE octet_length(u.item) <> 17))
ORDER BY t.session_key, t.run_id LIMIT %(limit)s

-- name: reseal_session_run
-- Store rows of session_run in the form that they are to have, unless they were changed.
-- params: version text[], session_key uuid[], run_id text[], digests text[]
-- repeatable
UPDATE strandline.session_run t
SET digests = n.digests::bytea[]
FROM unnest(%(session_key)s::uuid[], %(run_id)s::text[], %(version)s::text[], %(digests)s::text[])
    AS n (session_key, run_id, version, digests)
WHERE t.shard_key = %(shard_key)s AND t.session_key = n.session_key AND t.run_id = n.run_id AND t.xmin::text =
    n.version

-- name: unsealed_shared_message
-- The next rows of shared_message of which something is not sealed under the newest data key.
-- params: prefix text, after_seq bigint
-- row: session_key uuid, seq bigint, id text, envelope text, metadata text?, version text
SELECT t.session_key, t.seq, t.id, t.envelope::text, t.metadata::text, t.xmin::text AS version
FROM strandline.shared_message t
WHERE t.shard_key = %(shard_key)s AND (t.session_key, t.seq) > (%(after_session_key)s, %(after_seq)s)
    AND (left(t.envelope::text, length(%(prefix)s::text) + 1) <> '"' || %(prefix)s::text OR left(t.metadata::text,
    length(%(prefix)s::text) + 1) <> '"' || %(prefix)s::text)
ORDER BY t.session_key, t.seq LIMIT %(limit)s

-- name: reseal_shared_message
-- Store rows of shared_message in the form that they are to have, unless they were changed.
-- params: version text[], session_key uuid[], seq bigint[], envelope text[], metadata text?[]
-- repeatable
UPDATE strandline.shared_message t
SET envelope = n.envelope::json, metadata = n.metadata::json
FROM unnest(%(session_key)s::uuid[], %(seq)s::bigint[], %(version)s::text[], %(envelope)s::text[],
    %(metadata)s::text[])
    AS n (session_key, seq, version, envelope, metadata)
WHERE t.shard_key = %(shard_key)s AND t.session_key = n.session_key AND t.seq = n.seq AND t.xmin::text = n.version

-- name: unsealed_store_item
-- The next rows of store_item of which something is not sealed under the newest data key.
-- params: prefix text, after_path text, after_key text
-- row: path text, key text, value text, version text
SELECT t.path, t.key, t.value::text, t.xmin::text AS version
FROM strandline.store_item t
WHERE t.shard_key = %(shard_key)s AND (t.path, t.key) > (%(after_path)s, %(after_key)s)
    AND (left(t.value::text, length(%(prefix)s::text) + 1) <> '"' || %(prefix)s::text)
ORDER BY t.path, t.key LIMIT %(limit)s

-- name: reseal_store_item
-- Store rows of store_item in the form that they are to have, unless they were changed.
-- params: version text[], path text[], key text[], value text[]
-- repeatable
UPDATE strandline.store_item t
SET value = n.value::json
FROM unnest(%(path)s::text[], %(key)s::text[], %(version)s::text[], %(value)s::text[])
    AS n (path, key, version, value)
WHERE t.shard_key = %(shard_key)s AND t.path = n.path AND t.key = n.key AND t.xmin::text = n.version
