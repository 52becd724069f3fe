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
), pieces_with_words AS (
    SELECT p.session_key, p.from_seq, p.length, p.said_on, p.found FROM pieces p WHERE p.found IS NOT NULL
), @facts_to_search(), session_offsets AS MATERIALIZED (
    -- Where the numbers of a session's messages begin: so far apart that no word reaches from one to the next.
    SELECT o.session_key, row_number() OVER (ORDER BY o.session_key) << 40 AS number FROM (
        SELECT p.session_key FROM pieces p UNION SELECT c.session_key FROM fact_sources c) AS o
), @counted_words(), word_weights AS MATERIALIZED (
    SELECT DISTINCT a.lexeme, @rarity(n.places, coalesce(h.places, 0)) AS weight,
        @rarity(n.places + k.facts, coalesce(h.places, 0) + coalesce(o.facts, 0)) AS weight_in_fact,
        @rarity(n.places + k.facts, 0) AS weight_of_none, coalesce(h.places, 0) + coalesce(o.facts, 0) > 0 AS is_held
    FROM unnest(p_lexemes) AS a (lexeme)
    CROSS JOIN (SELECT count(*)::float8 AS places FROM pieces p WHERE p.piece = 0) AS n
    CROSS JOIN (SELECT count(*) AS facts FROM searched_facts) AS k
    LEFT JOIN (SELECT w.lexeme, count(*) AS places FROM word_counts w GROUP BY w.lexeme) AS h ON h.lexeme = a.lexeme
    LEFT JOIN (
        SELECT u.lexeme, count(*) AS facts FROM searched_facts f CROSS JOIN LATERAL unnest(f.lexemes) AS u (lexeme)
        WHERE u.lexeme = ANY (p_lexemes) GROUP BY u.lexeme) AS o ON o.lexeme = a.lexeme
), message_similarities AS MATERIALIZED (
    SELECT o.number + p.from_seq AS number, max(p.through_seq) AS through_seq,
        greatest(max(p.similarity), 0) AS similarity, greatest(least(max(p.contrast), 1), 0) AS contrast,
        min(p.role) AS role, max(p.tone) AS tone, min(p.said_on) AS said_on, bool_or(p.is_named) AS is_named
    FROM pieces p JOIN session_offsets o ON o.session_key = p.session_key
    GROUP BY o.number + p.from_seq
), neighbour_shares (distance, share) AS (
    VALUES @neighbours()
), @scored_texts(word_counts), @scored_facts(), @ranked()
$function$
