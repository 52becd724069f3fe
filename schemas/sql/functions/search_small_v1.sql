-- search_small_v1: search_v1 of a scope with at most 1,000 pieces, each of which is read and compared exactly.
--
-- No index over words is used: the owner may have said the same words in thousands of other pieces.
-- For search_v1 alone, which makes the settings.
CREATE FUNCTION strandline.search_small_v1(@search_parameters())
RETURNS TABLE (@search_columns())
LANGUAGE sql STABLE
-- Once more, so that it is not put into the statement that calls it.
SET jit = off
AS $function$
WITH bounds AS MATERIALIZED (
    -- As a range of sessions, which one plan can look up.
    SELECT coalesce(p_scope_key, '00000000-0000-0000-0000-000000000000') AS first,
        coalesce(p_scope_key, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AS last,
        @any_word() AS words
), first_pieces AS (
    SELECT c.embedding FROM strandline.chunk c
    WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
        AND c.session_key BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
        AND p_embedding IS NOT NULL
    ORDER BY c.session_key, c.from_seq, c.piece LIMIT 300
), @query_vectors(), pieces AS MATERIALIZED (
    SELECT p.* FROM (
        SELECT c.session_key, c.from_seq, c.piece, c.through_seq, c.length, c.role, c.tone, c.said_on,
            c.speaker && p_names AS is_named,
            CASE WHEN c.lexemes @@ (SELECT words FROM bounds)
                THEN ts_filter(setweight(c.lexemes, 'A', p_lexemes), '{a}') END AS found,
            @similarity() AS similarity,
            @contrast() AS contrast
        FROM strandline.chunk c CROSS JOIN centred_query a
        WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
            AND c.session_key BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
            AND NOT (c.session_key = p_visible_in AND c.through_seq >= p_visible_from)
        -- There are no more; the planner is told, and makes no tables for a million.
        LIMIT 1000) AS p
), @compared_exactly()
$function$
