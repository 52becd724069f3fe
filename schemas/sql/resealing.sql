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
    m.calls::text, m.answers, m.labels
FROM strandline.message m
WHERE m.shard_key = %(shard_key)s AND (m.session_key, m.seq) > (%(after_session)s, %(after_seq)s)
    AND (left(m.envelope::text, length(%(prefix)s)) <> %(prefix)s OR left(m.metadata::text, length(%(prefix)s)) <> %(prefix)s
        OR octet_length(m.digest) <> 17 OR left(m.answers, 9) <> 'sealed:3:' OR left(m.calls::text, 11) <> '["sealed:3:')
ORDER BY m.session_key, m.seq LIMIT %(limit)s

-- name: reseal_messages
-- Store messages in the form that they are to have.
-- params: shard_key uuid, session_keys uuid[], seqs bigint[], versions text[], digests bytea[], envelopes text[],
--     metadata text?[], calls text?[], answers text?[], labels text?[]
-- row: seq bigint
-- repeatable
UPDATE strandline.message m SET digest = n.digest, envelope = n.envelope::json, metadata = n.metadata::json,
    calls = n.calls::json, answers = n.answers, labels = n.labels::bigint[]
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
-- row: run_id text
-- repeatable
UPDATE strandline.session_run r SET digests = %(digests)s::bytea[]
WHERE r.shard_key = %(shard_key)s AND r.session_key = %(session_key)s AND r.run_id = %(run_id)s
    AND r.digests = %(known)s::bytea[]
RETURNING r.run_id
