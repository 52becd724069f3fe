-- index_part_v1: the next pieces of a scope after one of them, for an index in memory, as JSON: columns in the order of
-- the pieces' keys; and, by word, the pieces that it occurs in, numbered from 0, and how often in each.
--
-- p_scope_key: one session, or NULL for all that lies under the shard key.  Vectors are sent as halfvec sends them.
-- version: that of the owner's pieces, in the snapshot of the statement that calls this.  begins_at: the first transaction
-- that this snapshot may not show.  p_since: such a number, for the pieces written from there on, or 0 for all; a row
-- has the last 32 bits of its transaction's number.
CREATE FUNCTION strandline.index_part_v1(
    p_shard_key uuid,
    p_generation_id integer,
    p_scope_key uuid,
    p_through_session uuid,
    p_through_seq bigint,
    p_through_piece integer,
    p_since bigint,
    p_at_once bigint
) RETURNS text
LANGUAGE plpgsql STABLE AS $function$
DECLARE
    newest CONSTANT bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
BEGIN
    RETURN (
        WITH pieces AS MATERIALIZED (
            SELECT c.*, row_number() OVER (ORDER BY c.session_key, c.from_seq, c.piece) - 1 AS number
            FROM strandline.chunk c
            WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
                AND c.session_key BETWEEN coalesce(p_scope_key, '00000000-0000-0000-0000-000000000000')
                    AND coalesce(p_scope_key, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                AND (c.session_key, c.from_seq, c.piece) > (p_through_session, p_through_seq, p_through_piece)
                AND (p_since = 0 OR newest - (newest - c.xmin::text::bigint & 4294967295) >= p_since)
            ORDER BY c.session_key, c.from_seq, c.piece LIMIT p_at_once
        ), words AS (
            SELECT u.lexeme, json_build_array(array_agg(p.number), array_agg(cardinality(u.positions))) AS holders
            FROM pieces p CROSS JOIN LATERAL unnest(p.lexemes) AS u GROUP BY u.lexeme
        )
        SELECT json_build_object(
            'begins_at', pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
            'version', @version_of_pieces(p_shard_key),
            'session_keys', array_agg(p.session_key ORDER BY p.number),
            'from_seqs', array_agg(p.from_seq ORDER BY p.number), 'last_piece', (array_agg(p.piece ORDER BY p.number DESC))[1],
            'through_seqs', array_agg(p.through_seq ORDER BY p.number), 'lengths', array_agg(p.length ORDER BY p.number),
            'roles', array_agg(p.role ORDER BY p.number),
            'speakers', array_agg(array_to_string(p.speaker, ' ') ORDER BY p.number),
            'tones', array_agg(p.tone ORDER BY p.number), 'said_on', array_agg(p.said_on ORDER BY p.number),
            'has_vector', array_agg(p.embedding IS NOT NULL ORDER BY p.number),
            'vectors', encode(string_agg(halfvec_send(p.embedding), ''::bytea ORDER BY p.number), 'hex'),
            'words', (SELECT json_object_agg(w.lexeme, w.holders) FROM words w))::text
        FROM pieces p);
END
$function$;
