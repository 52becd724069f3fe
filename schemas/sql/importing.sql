-- Importing history in bulk.

-- name: known_messages
-- How many of these ids stand in the session as it is now.
SELECT count(*) FROM strandline.session s
JOIN strandline.message m ON m.shard_key = s.shard_key AND m.incarnation = s.incarnation
    AND m.id = ANY (%(ids)s::text[])
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s

-- name: make_import_table
-- Where COPY writes to: a table of this connection alone, empty again when the transaction ends.
CREATE TEMPORARY TABLE IF NOT EXISTS strandline_import (
    place integer, id text, role text, tokens integer, bytes integer, digest bytea, envelope text, metadata text,
    created_at timestamptz, calls text, answers text) ON COMMIT DELETE ROWS

-- name: copy_import
-- Messages in their order.
COPY pg_temp.strandline_import (
    place, id, role, tokens, bytes, digest, envelope, metadata, created_at, calls, answers) FROM STDIN

-- name: put_imported
-- Put what was copied, as ``put`` does.
SELECT p.status, p.detail, p.seqs, p.to_flush
FROM (
    SELECT array_agg(i.id ORDER BY i.place) AS ids, array_agg(i.role ORDER BY i.place) AS roles,
        array_agg(i.tokens ORDER BY i.place) AS tokens, array_agg(i.bytes ORDER BY i.place) AS bytes,
        array_agg(i.digest ORDER BY i.place) AS digests,
        array_agg(i.envelope ORDER BY i.place) AS envelopes,
        array_agg(i.metadata ORDER BY i.place) AS metadata,
        array_agg(i.created_at ORDER BY i.place) AS created_at,
        array_agg(i.calls ORDER BY i.place) AS calls, array_agg(i.answers ORDER BY i.place) AS answers
    FROM pg_temp.strandline_import i) AS a
CROSS JOIN LATERAL strandline.put_v1(
    %(shard_key)s, %(session_key)s, %(claimed)s, %(session)s::jsonb, a.ids, a.roles, a.tokens, a.bytes, a.digests,
    a.envelopes, a.metadata, a.created_at, a.calls, a.answers) AS p
