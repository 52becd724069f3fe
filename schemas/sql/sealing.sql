-- Encryption: which namespaces seal their content, and the wrapped keys of their owners.

-- name: find_data_keys
-- The wrapped keys of an owner, and whether any namespace of this database is sealed; one row at least.
-- params: shard_key uuid
-- row: is_in_use boolean, number integer?, namespace text!, kek_id text!, wrapped bytea!, is_settled boolean!
-- repeatable
SELECT EXISTS (SELECT FROM strandline.encryption) AS is_in_use, k.number, k.namespace, k.kek_id, k.wrapped,
    k.settled_at IS NOT NULL AS is_settled
FROM (SELECT 1) AS one
LEFT JOIN strandline.data_key k ON k.shard_key = %(shard_key)s
ORDER BY k.number

-- name: find_encryption
-- How a namespace's content is sealed; no row if it is not.
-- params: namespace text
-- row: kek_id text, vectors text
-- repeatable
SELECT e.kek_id, e.vectors FROM strandline.encryption e WHERE e.namespace = %(namespace)s

-- name: add_data_key
-- Give an owner its first keys, unless another process has; an owner without any rows has nothing to be sealed.
-- params: shard_key uuid, namespace text, kek_id text, wrapped bytea
-- repeatable
INSERT INTO strandline.data_key (shard_key, number, namespace, kek_id, wrapped, settled_at)
SELECT %(shard_key)s, 1, %(namespace)s, %(kek_id)s, %(wrapped)s, CASE WHEN NOT EXISTS (
        SELECT FROM strandline.session s WHERE s.shard_key = %(shard_key)s
    ) AND NOT EXISTS (
        SELECT FROM strandline.fact_event v WHERE v.shard_key = %(shard_key)s
    ) AND NOT EXISTS (
        SELECT FROM strandline.store_item i WHERE i.shard_key = %(shard_key)s
    ) AND NOT EXISTS (
        SELECT FROM strandline.shared_session h WHERE h.shard_key = %(shard_key)s
    ) THEN clock_timestamp() END
ON CONFLICT (shard_key, number) DO NOTHING
