-- Items: values that an application keeps under a path and a key.

-- name: put_items
-- Store items with their vectors, in place of those under the same path and key.
-- params: items json
-- seals: items within *.value=json:item
INSERT INTO strandline.store_item AS s (shard_key, path, key, value, vectors, ttl_minutes, expires_at)
SELECT %(shard_key)s, i.item ->> 'path', i.item ->> 'key', i.item -> 'value',
    ARRAY(SELECT v.vector::halfvec FROM json_array_elements_text(i.item -> 'vectors') AS v (vector)),
    (i.item ->> 'ttl_minutes')::float8,
    statement_timestamp() + (i.item ->> 'ttl_minutes')::float8 * interval '1 minute'
FROM json_array_elements(%(items)s::json) WITH ORDINALITY AS i (item, place)
ORDER BY i.place
ON CONFLICT (shard_key, path, key) DO UPDATE SET value = excluded.value, vectors = excluded.vectors,
    ttl_minutes = excluded.ttl_minutes, expires_at = excluded.expires_at, updated_at = excluded.updated_at

-- name: claim_item
-- Store an item unless there is one under its path and key, and return what is stored then. No row: another transaction
-- has just stored or deleted one; ask again.
-- params: key text, value json
-- seals: value
-- row: value text, is_new boolean
-- opens: value
WITH claimed AS (
    INSERT INTO strandline.store_item (shard_key, path, key, value)
    VALUES (%(shard_key)s, %(path)s, %(key)s, %(value)s)
    ON CONFLICT (shard_key, path, key) DO NOTHING
    RETURNING value
)
SELECT c.value::text, true AS is_new FROM claimed c
UNION ALL
SELECT s.value::text, false FROM strandline.store_item s
WHERE s.shard_key = %(shard_key)s AND s.path = %(path)s AND s.key = %(key)s

-- name: lock_items
-- Hold items by path and key until the transaction ends, in one order everywhere, so that two transactions that write
-- the same ones do not wait for each other.
-- row: key text
SELECT s.key FROM (
    SELECT * FROM unnest(%(paths)s::text[], %(keys)s::text[]) AS k (path, key) ORDER BY k.path, k.key) AS k
CROSS JOIN LATERAL (
    -- The limit keeps this a look-up per item, in their order.
    SELECT t.key FROM strandline.store_item t
    WHERE t.shard_key = %(shard_key)s AND t.path = k.path AND t.key = k.key LIMIT 1 FOR UPDATE) AS s

-- name: items_after
-- A page of the items under a path, in the order of their keys.
-- params: after text
-- row: key text, value text
-- opens: value
SELECT s.key, s.value::text FROM strandline.store_item s
WHERE s.shard_key = %(shard_key)s AND s.path = %(path)s AND s.key > %(after)s AND @unexpired(s)
ORDER BY s.key LIMIT %(limit)s

-- name: delete_items
-- Delete items by path and key; a missing item is no error.
-- repeatable
DELETE FROM strandline.store_item s USING unnest(%(paths)s::text[], %(keys)s::text[]) AS k (path, key)
WHERE s.shard_key = %(shard_key)s AND s.path = k.path AND s.key = k.key

-- name: get_items
-- Items by path and key, except expired ones.
-- row: item
-- opens: value
SELECT s.path, s.key, s.value::text, s.ttl_minutes, s.created_at, s.updated_at
FROM unnest(%(paths)s::text[], %(keys)s::text[]) AS k (path, key)
CROSS JOIN LATERAL (
    -- The limit keeps this a look-up per item.
    SELECT * FROM strandline.store_item t
    WHERE t.shard_key = %(shard_key)s AND t.path = k.path AND t.key = k.key LIMIT 1) AS s
WHERE @unexpired(s)

-- name: search_items
-- Items below a path that match a filter, those written last first.
-- row: item
-- opens: value
-- repeatable
SELECT s.path, s.key, s.value::text, s.ttl_minutes, s.created_at, s.updated_at
FROM strandline.store_item s
WHERE s.shard_key = %(shard_key)s AND s.path >= %(path_from)s AND s.path < %(path_before)s
    AND @unexpired(s) AND @fits_filter(s, %(equal)s, %(filter)s)
ORDER BY s.updated_at DESC, s.path, s.key LIMIT %(limit)s OFFSET %(offset)s

-- name: search_items_by_vector
-- Items below a path that match a filter and have vectors, by the nearest of these to the query's, nearest first.
-- Vectors of another length are those of another embedder, and are not compared.
-- params: vector halfvec, distance text
-- row: path text, key text, value text, ttl_minutes float8?, created_at timestamptz, updated_at timestamptz, score
--     float8
-- opens: value
-- repeatable
SELECT s.path, s.key, s.value::text, s.ttl_minutes, s.created_at, s.updated_at, nearest.score
FROM strandline.store_item s CROSS JOIN LATERAL (
    SELECT max(CASE WHEN vector_dims(v.vector) = vector_dims(%(vector)s::halfvec) THEN
        CASE %(distance)s
            -- A vector of zeros is as near to one as to another.
            WHEN 'cosine' THEN coalesce(nullif(1 - (v.vector <=> %(vector)s::halfvec), 'NaN'), 0)
            WHEN 'inner_product' THEN - (v.vector <#> %(vector)s::halfvec)
            ELSE - (v.vector <-> %(vector)s::halfvec)
        END END) AS score
    FROM unnest(s.vectors) AS v (vector)) AS nearest
WHERE s.shard_key = %(shard_key)s AND s.path >= %(path_from)s AND s.path < %(path_before)s
    AND @unexpired(s) AND nearest.score IS NOT NULL AND @fits_filter(s, %(equal)s, %(filter)s)
ORDER BY nearest.score DESC, s.updated_at DESC, s.path, s.key LIMIT %(limit)s OFFSET %(offset)s

-- name: refresh_items
-- Let items live on for their whole time. One that another transaction writes is left to that; none comes back.
-- repeatable
WITH live AS MATERIALIZED (
    SELECT s.path, s.key FROM unnest(%(paths)s::text[], %(keys)s::text[]) AS k (path, key)
    JOIN strandline.store_item s ON s.path = k.path AND s.key = k.key
    WHERE s.shard_key = %(shard_key)s AND s.expires_at > statement_timestamp()
    FOR NO KEY UPDATE OF s SKIP LOCKED
)
UPDATE strandline.store_item s SET expires_at = statement_timestamp() + s.ttl_minutes * interval '1 minute'
FROM live l
WHERE s.shard_key = %(shard_key)s AND s.path = l.path AND s.key = l.key

-- name: list_item_paths
-- The different paths of items below a path, each cut off at a depth, of those that match all patterns.
-- params: patterns text[], max_depth integer
-- row: labels text[]
SELECT DISTINCT (string_to_array(left(s.path, -1), '.'))[1:%(max_depth)s] AS labels
FROM strandline.store_item s
WHERE s.shard_key = %(shard_key)s AND s.path >= %(path_from)s AND s.path < %(path_before)s
    AND s.path ~ ALL (%(patterns)s::text[]) AND @unexpired(s)
ORDER BY labels LIMIT %(limit)s OFFSET %(offset)s

-- name: forget_expired_items
-- Delete a page of items whose time is over; reads do not show them as it is.
-- row: shard_key uuid
WITH page AS MATERIALIZED (
    SELECT s.shard_key, s.path, s.key FROM strandline.store_item s
    WHERE s.expires_at <= statement_timestamp()
    ORDER BY s.expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM strandline.store_item s USING page p
WHERE s.shard_key = p.shard_key AND s.path = p.path AND s.key = p.key
RETURNING s.shard_key
