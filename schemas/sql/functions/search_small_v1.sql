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
WITH @exact_bounds(), @query_vectors(), pieces AS MATERIALIZED (
    SELECT p.* FROM (
        SELECT @exactly_compared_piece()
        FROM strandline.chunk c CROSS JOIN centred_query a
        WHERE @is_in_exact_bounds()
        -- There are no more; the planner is told, and makes no tables for a million.
        LIMIT 1000) AS p
), @compared_exactly()
$function$
