-- Encryption: which namespaces seal their content, and the wrapped keys of their owners.

-- name: find_data_keys
-- The wrapped keys of an owner, and whether any namespace of this database is sealed; one row at least.
-- row: is_in_use boolean, number integer?, namespace text!, kek_id text!, wrapped bytea!, is_settled boolean!,
--     has_vectors boolean!
SELECT EXISTS (SELECT FROM strandline.encryption) AS is_in_use, k.number, k.namespace, k.kek_id, k.wrapped,
    k.settled_at IS NOT NULL AS is_settled, coalesce(e.vectors, 'clear') = 'clear' AS has_vectors
FROM (SELECT 1) AS one
LEFT JOIN strandline.data_key k ON k.shard_key = %(shard_key)s
LEFT JOIN strandline.encryption e ON e.namespace = k.namespace
ORDER BY k.number

-- name: first_data_key
-- The number of the first data key of an owner's present life.
-- row: number integer
SELECT @first_data_key(%(shard_key)s) AS number

-- name: find_encryption
-- How a namespace's content is sealed; no row if it is not.
-- row: kek_id text, probe bytea, vectors text
SELECT e.kek_id, e.probe, e.vectors FROM strandline.encryption e WHERE e.namespace = %(namespace)s

-- name: add_data_key
-- Give an owner its first keys (number is NULL) or a further one, unless another process has (add_data_key_v1); an owner
-- without any rows has nothing to be sealed. is_current: false if the namespace has another key to wrap with.
-- params: number integer?
-- row: is_current boolean
-- repeatable
SELECT strandline.add_data_key_v1(
    %(shard_key)s, %(number)s, %(namespace)s, %(kek_id)s, %(wrapped)s) AS is_current

-- name: enable_encryption
-- Seal a namespace's content from now on; no row if it is already.
-- params: vectors text
-- row: namespace text
-- repeatable
INSERT INTO strandline.encryption (namespace, kek_id, probe, vectors)
VALUES (%(namespace)s, %(kek_id)s, %(probe)s, %(vectors)s)
ON CONFLICT (namespace) DO NOTHING
RETURNING namespace

-- name: change_encryption
-- Have a namespace's new owners wrapped by another key.
-- repeatable
UPDATE strandline.encryption e SET kek_id = %(kek_id)s, probe = %(probe)s, changed_at = statement_timestamp()
WHERE e.namespace = %(namespace)s

-- name: sessions_to_seal
-- The next sessions of a namespace, of whatever kind, by their names.
-- row: session_id text, user_id text?, owner_key uuid
SELECT o.session_id, o.user_id, o.owner_key FROM strandline.session_owner o
WHERE o.namespace = %(namespace)s AND o.session_id > %(after_session_id)s
ORDER BY o.session_id LIMIT %(limit)s

-- name: fact_owners_to_seal
-- The next owners of a namespace whom people gave facts.
-- row: shard_key uuid
SELECT f.shard_key FROM strandline.fact_owner f
WHERE f.namespace = %(namespace)s AND f.shard_key > %(after_shard_key)s
ORDER BY f.shard_key LIMIT %(limit)s

-- name: seal_sessions
-- From now on these sessions take sealed messages only; returns the scopes that they share with.
-- row: shared_key uuid?
-- repeatable
UPDATE strandline.session s SET first_data_key = @first_data_key(s.shard_key)
FROM unnest(%(shard_keys)s::uuid[], %(session_keys)s::uuid[]) AS wanted (shard_key, session_key)
WHERE s.shard_key = wanted.shard_key AND s.session_key = wanted.session_key AND s.first_data_key = 0
RETURNING s.shared_key

-- name: owners_without_keys
-- Which of some owners have no keys yet.
-- row: shard_key uuid
SELECT wanted.shard_key FROM unnest(%(shard_keys)s::uuid[]) AS wanted (shard_key)
WHERE NOT EXISTS (SELECT FROM strandline.data_key k WHERE k.shard_key = wanted.shard_key)

-- name: unsettled_owners
-- The next owners of a namespace with rows that may not be sealed under their newest data key, which has this number.
-- row: shard_key uuid, number integer, age_seconds float8
SELECT k.shard_key, max(k.number) AS number,
    extract(epoch FROM statement_timestamp() - max(k.created_at))::float8 AS age_seconds
FROM strandline.data_key k
WHERE k.namespace = %(namespace)s AND k.settled_at IS NULL AND k.shard_key > %(after_shard_key)s
GROUP BY k.shard_key ORDER BY k.shard_key LIMIT %(limit)s

-- name: settle_owner
-- All of an owner's rows are sealed under this data key, or were when another process gave it a newer one.
-- params: number integer
-- repeatable
UPDATE strandline.data_key k SET settled_at = statement_timestamp()
WHERE k.shard_key = %(shard_key)s AND k.number <= %(number)s AND k.settled_at IS NULL

-- name: retire_data_keys
-- Delete the data keys of an owner before this one, under which nothing is sealed any more; unless something of the
-- owner is in an archive, which is kept as it was sealed.
-- params: number integer
-- row: number integer
-- repeatable
DELETE FROM strandline.data_key k WHERE k.shard_key = %(shard_key)s AND k.number < %(number)s
    AND NOT EXISTS (
        SELECT FROM strandline.retention_step g WHERE g.shard_key = %(shard_key)s AND g.object_name IS NOT NULL)
RETURNING k.number

-- name: owners_with_old_keys
-- The next owners of a namespace with data keys before the newest one, which is settled since so many seconds. What is
-- in an archive stays sealed as it was, and keeps all keys of its owner.
-- params: settled_seconds float8
-- row: shard_key uuid, number integer
SELECT k.shard_key, max(k.number) AS number FROM strandline.data_key k
WHERE k.namespace = %(namespace)s AND k.shard_key > %(after_shard_key)s
GROUP BY k.shard_key
HAVING count(*) > 1 AND bool_and(k.settled_at IS NOT NULL) AND NOT EXISTS (
        SELECT FROM strandline.retention_step o WHERE o.shard_key = k.shard_key AND o.object_name IS NOT NULL)
    AND max(k.settled_at) < statement_timestamp() - make_interval(secs => %(settled_seconds)s)
ORDER BY k.shard_key LIMIT %(limit)s

-- name: keys_of_namespace
-- The next data keys of a namespace.
-- params: after_number integer
-- row: shard_key uuid, number integer, kek_id text, wrapped bytea, is_newest boolean, is_settled boolean
SELECT k.shard_key, k.number, k.kek_id, k.wrapped, NOT EXISTS (
        SELECT FROM strandline.data_key n WHERE n.shard_key = k.shard_key AND n.number > k.number) AS is_newest,
    k.settled_at IS NOT NULL AS is_settled
FROM strandline.data_key k
WHERE k.namespace = %(namespace)s AND (k.shard_key, k.number) > (%(after_shard_key)s, %(after_number)s)
ORDER BY k.shard_key, k.number LIMIT %(limit)s

-- name: rewrap_data_key
-- Store a data key as the namespace's key wraps it, if it is still wrapped by the one before, and the namespace has not
-- got another key in the meantime.
-- params: number integer, old_kek_id text
-- repeatable
WITH present AS (
    SELECT e.kek_id FROM strandline.encryption e
    WHERE e.namespace = %(namespace)s AND e.kek_id = %(kek_id)s FOR SHARE
)
UPDATE strandline.data_key k SET kek_id = p.kek_id, wrapped = %(wrapped)s FROM present p
WHERE k.shard_key = %(shard_key)s AND k.number = %(number)s AND k.kek_id = %(old_kek_id)s

-- name: encryption_status
-- How far each sealed namespace, or one of them, is sealed: how many owners have keys, how many of these have rows that
-- may not be sealed under their newest one, and how many keys are old.
-- params: namespace text?
-- row: namespace text, kek_id text, vectors text, enabled_at timestamptz, owners bigint, unsettled bigint, old_keys
--     bigint
SELECT e.namespace, e.kek_id, e.vectors, e.enabled_at, counted.owners, counted.unsettled, counted.old_keys
FROM strandline.encryption e
CROSS JOIN LATERAL (
    SELECT count(DISTINCT k.shard_key) AS owners,
        count(DISTINCT k.shard_key) FILTER (WHERE k.settled_at IS NULL) AS unsettled,
        count(*) - count(DISTINCT k.shard_key) AS old_keys
    FROM strandline.data_key k WHERE k.namespace = e.namespace) AS counted
WHERE e.namespace = coalesce(%(namespace)s, e.namespace)
ORDER BY e.namespace

-- name: keks_in_use
-- Which keys wrap data keys, or are to wrap those of new owners, in which namespaces.
-- params: namespace text?
-- row: kek_id text, namespace text, data_keys bigint
SELECT used.kek_id, used.namespace, sum(used.data_keys)::bigint AS data_keys
FROM (
    SELECT k.kek_id, k.namespace, count(*) AS data_keys FROM strandline.data_key k
    WHERE k.namespace = coalesce(%(namespace)s, k.namespace) GROUP BY k.kek_id, k.namespace
    UNION ALL
    SELECT e.kek_id, e.namespace, 0 FROM strandline.encryption e
    WHERE e.namespace = coalesce(%(namespace)s, e.namespace)) AS used
GROUP BY used.kek_id, used.namespace ORDER BY used.kek_id, used.namespace

-- name: kek_samples
-- Some of what a key has wrapped for a namespace, to be unwrapped again: the probe of a namespace, and one data key.
-- row: shard_key uuid, namespace text, wrapped bytea
SELECT '00000000-0000-0000-0000-000000000000'::uuid AS shard_key, '' AS namespace, e.probe AS wrapped
FROM strandline.encryption e WHERE e.namespace = %(namespace)s AND e.kek_id = %(kek_id)s
UNION ALL
(SELECT k.shard_key, k.namespace, k.wrapped FROM strandline.data_key k
WHERE k.namespace = %(namespace)s AND k.kek_id = %(kek_id)s
ORDER BY k.shard_key, k.number LIMIT 1)

-- name: reseal_fact
-- Store facts in the form that they are to have. One whose words another live fact has got in its keyed form in
-- between ends in favour of that one.
-- params: generation_id integer[], fact_id uuid[], version text[], text text[], fingerprint bytea[], said_by text?[],
--     input text?[], feedback text?[]
-- repeatable
UPDATE strandline.fact f SET text = n.text, fingerprint = n.fingerprint, lexemes = n.lexemes::text[],
    topics = n.topics::text[], said_by = n.said_by, input = n.input, feedback = n.feedback,
    live = f.live AND twin.fact_id IS NULL,
    invalidated_at = CASE WHEN twin.fact_id IS NULL THEN f.invalidated_at ELSE statement_timestamp() END,
    invalidated_by = coalesce(twin.fact_id, f.invalidated_by)
FROM unnest(%(generation_id)s::integer[], %(fact_id)s::uuid[], %(version)s::text[], %(text)s::text[],
    %(fingerprint)s::bytea[], %(lexemes)s::text[], %(topics)s::text[], %(said_by)s::text[], %(input)s::text[],
    %(feedback)s::text[])
    AS n (generation_id, fact_id, version, text, fingerprint, lexemes, topics, said_by, input, feedback)
LEFT JOIN LATERAL (
    SELECT o.fact_id FROM strandline.fact o
    WHERE o.shard_key = %(shard_key)s AND o.generation_id = n.generation_id AND o.live AND o.fact_id <> n.fact_id
        AND o.fingerprint = n.fingerprint LIMIT 1) AS same ON true
LEFT JOIN LATERAL (
    SELECT same.fact_id FROM strandline.fact w WHERE w.shard_key = %(shard_key)s
        AND w.generation_id = n.generation_id AND w.fact_id = n.fact_id AND w.live) AS twin ON true
WHERE f.shard_key = %(shard_key)s AND f.generation_id = n.generation_id AND f.fact_id = n.fact_id
    AND f.xmin::text = n.version

-- name: reseal_chunk
-- Store pieces with keyed words; with vectors off, without their vectors.
-- params: has_vectors boolean, generation_id integer[], session_key uuid[], from_seq bigint[], piece integer[],
--     version text[], speaker text[]
-- repeatable
WITH @noted_change(%(shard_key)s, 'pieces')
UPDATE strandline.chunk c SET lexemes = n.lexemes::tsvector, speaker = n.speaker::text[],
    embedding = CASE WHEN %(has_vectors)s THEN c.embedding END
FROM unnest(%(generation_id)s::integer[], %(session_key)s::uuid[], %(from_seq)s::bigint[], %(piece)s::integer[],
    %(version)s::text[], %(lexemes)s::text[], %(speaker)s::text[])
    AS n (generation_id, session_key, from_seq, piece, version, lexemes, speaker)
WHERE c.shard_key = %(shard_key)s AND c.generation_id = n.generation_id AND c.session_key = n.session_key
    AND c.from_seq = n.from_seq AND c.piece = n.piece AND c.xmin::text = n.version
