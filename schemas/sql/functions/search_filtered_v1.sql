-- search_filtered_v1: search_v1 of the messages that a filter lets pass, each of which is compared exactly: the newest
-- 10,000 of them by their days.  Messages beside that do not pass say nothing of a message.
--
-- For search_v1 alone, which makes the settings.
CREATE FUNCTION strandline.search_filtered_v1(@search_parameters())
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
            -- Never true, which the planner does not know: so this is a look-up per piece, and no join.
            AND (p_top_k < 0 OR EXISTS (
                SELECT FROM strandline.message m
                WHERE m.shard_key = p_shard_key AND m.session_key = c.session_key AND m.seq = c.from_seq
                    AND @is_sought(m, p_roles, p_since, p_until, p_labels, p_clear_labels, p_visible_in)))
        ORDER BY c.said_on DESC, c.session_key, c.from_seq DESC LIMIT 10000) AS p
), @compared_exactly()
$function$
