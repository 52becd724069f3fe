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
WITH @exact_bounds(), @query_vectors(), pieces AS MATERIALIZED (
    SELECT p.* FROM (
        SELECT @exactly_compared_piece()
        FROM strandline.chunk c CROSS JOIN centred_query a
        WHERE @is_in_exact_bounds()
            -- Never true, which the planner does not know: so this is a look-up per piece, and no join.
            AND (p_top_k < 0 OR EXISTS (
                SELECT FROM strandline.message m
                WHERE m.shard_key = p_shard_key AND m.session_key = c.session_key AND m.seq = c.from_seq
                    AND @is_sought(m, p_roles, p_since, p_until, p_labels, p_clear_labels, p_visible_in)))
        ORDER BY c.said_on DESC, c.session_key, c.from_seq DESC LIMIT 10000) AS p
), @compared_exactly()
$function$
