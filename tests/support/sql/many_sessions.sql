-- Many sessions of 500 messages, as if flushed every 25 and consumed; a chunk is one message.

-- name: sessions
INSERT INTO strandline.session (shard_key, session_key, next_seq, window_from, flushed_through,
    window_tokens, window_messages, window_bytes, token_limit, flush_at_tokens, token_flush_size,
    max_window_messages, max_window_bytes, namespace, session_id, tokenizer,
    pipelines) SELECT md5('o' || n)::uuid, md5('s' || n)::uuid, 501, 476, 475, 500, 25, 2250, 3000, 2000, 500, 2000, 16000000, 'many',
    's' || n, 'o200k_base', '{facts,summary,vectors}' FROM generate_series(1, {sessions}) AS n

-- name: messages
INSERT INTO strandline.message (shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest,
    envelope, created_at) SELECT shard_key, session_key, seq, incarnation, 'm' || seq, 'user', 20, 90, '\x00',
    '{"content": "what somebody said that is about as long as most of what people say in a chat"}', now()
    FROM strandline.session, generate_series(1, 500) AS seq WHERE namespace = 'many'

-- name: events
INSERT INTO strandline.flush_event (shard_key, session_key, from_seq, through_seq, event_id, incarnation,
    cause, message_count, tokens, version) SELECT shard_key, session_key, n * 25 + 1, n * 25 + 25,
    gen_random_uuid(), incarnation, 'threshold', 25, 500, 1 FROM strandline.session, generate_series(0, 18)
    AS n WHERE namespace = 'many'

-- name: batches
INSERT INTO strandline.batch (shard_key, batch_id, scope_key, generation_id, stage, state, lease_epoch,
    event_ids, context_seqs) SELECT e.shard_key, gen_random_uuid(), CASE w.stage WHEN 'merge' THEN e.shard_key
    ELSE e.session_key END, g.generation_id, w.stage, 'applied', 1, ARRAY[e.event_id], ARRAY(
        SELECT generate_series(greatest(1, e.from_seq - (g.config ->> 'context_tokens')::integer / 20),
            e.from_seq - 1) WHERE w.stage = 'extract') FROM strandline.flush_event
    e JOIN strandline.session s USING (shard_key, session_key) CROSS JOIN (VALUES ('facts', 'extract'),
    ('facts', 'merge'), ('summary', 'summary'), ('vectors', 'vectors')) AS w (pipeline, stage) JOIN
    strandline.generation g USING (pipeline) WHERE s.namespace = 'many'

-- name: receipts
INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome, batch_id) SELECT
    b.shard_key, b.event_ids[1], b.generation_id, b.stage, 'applied', b.batch_id FROM strandline.batch b
    JOIN strandline.session s USING (shard_key) WHERE s.namespace = 'many'

-- name: chunks
INSERT INTO strandline.chunk SELECT e.shard_key, b.generation_id, e.session_key, e.from_seq + n, 0,
    e.from_seq + n, e.event_id, b.batch_id, 9, 'somebody:1 said:2 chat:3'::tsvector,
    array_fill(0.0625, ARRAY[256])::vector::halfvec FROM strandline.batch b JOIN strandline.flush_event e ON
    e.shard_key = b.shard_key AND e.event_id = b.event_ids[1] AND b.stage = 'vectors' JOIN
    strandline.session s ON s.session_key = e.session_key AND s.namespace = 'many', generate_series(0, 24)
    AS n

-- name: states
INSERT INTO strandline.block_state (shard_key, scope_key, generation_id, ordinal, through_seq, state, batch_id)
    SELECT b.shard_key, b.scope_key, b.generation_id, e.through_seq, e.through_seq, '{"text": "so far"}', b.batch_id FROM
    strandline.batch b JOIN strandline.flush_event e ON e.shard_key = b.shard_key AND e.event_id =
    b.event_ids[1] AND b.stage = 'summary' JOIN strandline.session s ON s.session_key = e.session_key AND
    s.namespace = 'many'

-- name: candidates
INSERT INTO strandline.fact_candidate (shard_key, generation_id, event_id, ordinal, session_key, batch_id,
    text, fingerprint, seqs, topics, said_at, model, prompt_hash) SELECT b.shard_key, b.generation_id, e.event_id, n,
    e.session_key, b.batch_id, 'fact ' || n, decode(md5(n::text), 'hex'), ARRAY[e.from_seq + n], '{}', now(), 'm', 'p' FROM
    strandline.batch b JOIN strandline.flush_event e ON e.shard_key = b.shard_key AND e.event_id =
    b.event_ids[1] AND b.stage = 'extract' JOIN strandline.session s ON s.session_key = e.session_key AND
    s.namespace = 'many', generate_series(0, 2) AS n

-- name: facts
INSERT INTO strandline.fact (shard_key, generation_id, fact_id, text, fingerprint, lexemes, topics, said_at)
    SELECT shard_key, generation_id, md5(event_id::text || ordinal)::uuid, text || event_id,
    decode(md5(event_id::text || ordinal), 'hex'), '{fact}', '{}', now() FROM strandline.fact_candidate c
    WHERE c.model = 'm'

-- name: revisions
INSERT INTO strandline.fact_revision (shard_key, generation_id, fact_id, revision, operation, text,
    fingerprint, lexemes, event_id, session_key, seqs, extract_batch_id, merge_batch_id, model, prompt_hash)
    SELECT c.shard_key, c.generation_id, md5(c.event_id::text || c.ordinal)::uuid, 1, 'add', c.text,
    decode(md5(c.event_id::text || c.ordinal), 'hex'), '{fact}', c.event_id, c.session_key, c.seqs,
    c.batch_id, r.batch_id, 'm', 'p' FROM strandline.fact_candidate c JOIN strandline.receipt r ON
    r.shard_key = c.shard_key AND r.event_id = c.event_id AND r.stage = 'merge' WHERE c.model = 'm'
