-- search_v1: the best messages and facts of a scope for a query, by an exact scan; words and vectors are fused
-- by score, half and half, and without a vector the words decide alone.
--
-- Words: BM25 (k1 = 1.2, b = 0.75) against a length of 40 lexemes, whatever the scope holds, so that long
-- answers do not swamp short turns.  A word counts in part for the messages beside the one that it stands in;
-- as in BM25F, counts are set against the length of the message they are of before they are added up.
-- Vectors: the cosine of the query without what the whole scope has in common (the mean of its first pieces,
-- less of it where they are few), since that says nothing of one message.  A message has its best piece's.
-- Facts: their words count as a message's do, with nothing beside them, and as rare as they are in the messages;
-- by meaning a fact is as near as the nearest message that it comes from.
-- docs/performance.md says how these constants were chosen; `make bench-recall` measures what they find.
--
-- p_scope_key: one session, or NULL for all that lies under the shard key.
-- p_visible_from: of p_visible_in, messages from here on are shown anyway and not looked for, nor facts that
-- come from them alone.
-- p_facts_generation_id: the derivation of facts to look at, or NULL for none; p_facts_shown: without these.
-- A fact is of a session if something said there is among its sources; what people added is of the owner alone.
-- similarity: the cosine, 0 where it is negative or there is none.  All in float8: left to itself this would be
-- numeric arithmetic.
--
-- The settings: how many rows a scope has cannot be told from statistics, and where ten are expected a nested
-- loop over ten thousand takes seconds; compiling the query takes longer than running it; and one plan for
-- session and owner alike would read all of the owner each time.
CREATE FUNCTION strandline.search_v1(
    p_shard_key uuid,
    p_generation_id integer,
    p_scope_key uuid,
    p_visible_in uuid,
    p_visible_from bigint,
    p_embedding halfvec,
    p_lexemes text[],
    p_similarity_cutoff float8,
    p_top_k integer,
    p_messages boolean,
    p_facts_generation_id integer,
    p_facts_shown uuid[]
) RETURNS TABLE (session_key uuid, from_seq bigint, through_seq bigint, fact_id uuid, score float8,
    similarity float8)
LANGUAGE sql STABLE
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off
SET plan_cache_mode = force_custom_plan
AS $function$
WITH sample AS MATERIALIZED (
    SELECT avg(f.embedding) AS centre, count(*) / (count(*) + 10::float8) AS share FROM (
        SELECT c.embedding FROM strandline.chunk c
        WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
            AND (p_scope_key IS NULL OR c.session_key = p_scope_key)
            AND p_embedding IS NOT NULL AND c.embedding IS NOT NULL
        ORDER BY c.session_key, c.from_seq, c.piece LIMIT 300) AS f
), common AS MATERIALIZED (
    -- The length of query - share * centre; vectors are of length 1, their mean is shorter.
    SELECT centre, share, sqrt(greatest(1e-6::float8, 1 + 2 * share * (centre <#> p_embedding)
        - share * share * (centre <#> centre))) AS length FROM sample
), origin AS MATERIALIZED (
    -- Where the numbers of a session's messages begin: so far apart that no word reaches from one to the next.
    SELECT o.session_key, row_number() OVER () << 40 AS number FROM (
        SELECT DISTINCT c.session_key FROM strandline.chunk c
        WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
            AND (p_scope_key IS NULL OR c.session_key = p_scope_key)) AS o
), piece AS MATERIALIZED (
    SELECT o.number + c.from_seq AS number, c.through_seq, c.length,
        coalesce(-(c.embedding <#> p_embedding), 0) AS similarity,
        coalesce((a.share * (c.embedding <#> a.centre) - (c.embedding <#> p_embedding)) / a.length, 0)
            AS contrast,
        nullif(ts_filter(setweight(c.lexemes, 'A', p_lexemes), '{a}'), '') AS found
    FROM strandline.chunk c JOIN origin o ON o.session_key = c.session_key CROSS JOIN common a
    WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
        AND (p_scope_key IS NULL OR c.session_key = p_scope_key)
        AND NOT (c.session_key = p_visible_in AND c.through_seq >= p_visible_from)
), place AS MATERIALIZED (
    SELECT p.number, max(p.through_seq) AS through_seq, sum(p.length)::float8 AS length,
        greatest(max(p.similarity), 0) AS similarity, greatest(max(p.contrast), 0) AS contrast
    FROM piece p GROUP BY p.number
), word AS MATERIALIZED (
    SELECT p.number, u.lexeme,
        sum(cardinality(u.positions)) / (0.25::float8 + 0.75::float8 * min(p.length) / 40) AS times
    FROM piece c JOIN place p ON p.number = c.number CROSS JOIN LATERAL unnest(c.found) AS u
    WHERE c.found IS NOT NULL
    GROUP BY p.number, u.lexeme
), rarity AS MATERIALIZED (
    SELECT a.lexeme, ln(1 + (n.places - count(w.number) + 0.5::float8) / (count(w.number) + 0.5::float8)) AS weight
    FROM unnest(p_lexemes) AS a (lexeme) CROSS JOIN (SELECT count(*)::float8 AS places FROM place) AS n
    LEFT JOIN word w ON w.lexeme = a.lexeme GROUP BY a.lexeme, n.places
), nearby AS (
    SELECT w.number + d.distance AS number, w.lexeme, sum(w.times * d.share) AS times
    FROM word w CROSS JOIN (VALUES (-3, 0.1::float8), (-2, 0.3), (-1, 0.4), (0, 1), (1, 0.4), (2, 0.3),
        (3, 0.1)) AS d (distance, share)
    GROUP BY w.number + d.distance, w.lexeme
), bm25 AS (
    SELECT n.number, sum(r.weight * n.times / (n.times + 1.2::float8)) AS score
    FROM nearby n JOIN rarity r ON r.lexeme = n.lexeme
    GROUP BY n.number
), known AS MATERIALIZED (
    SELECT f.fact_id, f.lexemes, 0.25::float8 + 0.75::float8 * cardinality(f.lexemes) / 40 AS length
    FROM strandline.fact f
    WHERE f.shard_key = p_shard_key AND f.generation_id = p_facts_generation_id AND f.live
        AND f.fact_id <> ALL (p_facts_shown) AND EXISTS (
            SELECT FROM strandline.fact_revision r
            WHERE r.shard_key = p_shard_key AND r.generation_id = p_facts_generation_id
                AND r.fact_id = f.fact_id AND r.operation <> 'invalidate'
                AND (p_scope_key IS NULL OR r.session_key = p_scope_key)
                AND (r.session_key IS DISTINCT FROM p_visible_in OR p_visible_from > ANY (r.seqs)))
), said AS (
    SELECT k.fact_id, max(p.similarity) AS similarity, max(p.contrast) AS contrast
    FROM known k JOIN strandline.fact_revision r ON r.shard_key = p_shard_key
        AND r.generation_id = p_facts_generation_id AND r.fact_id = k.fact_id AND r.operation <> 'invalidate'
    JOIN origin o ON o.session_key = r.session_key
    CROSS JOIN LATERAL unnest(r.seqs) AS cited (seq)
    JOIN place p ON p.number = o.number + cited.seq
    GROUP BY k.fact_id
), worded AS (
    SELECT k.fact_id, sum(r.weight / (1 + 1.2::float8 * k.length)) AS text
    FROM known k CROSS JOIN LATERAL unnest(k.lexemes) AS u (lexeme) JOIN rarity r ON r.lexeme = u.lexeme
    GROUP BY k.fact_id
), both_scores AS MATERIALIZED (
    SELECT p.number, p.through_seq, NULL::uuid AS fact_id, p.similarity, p.contrast,
        coalesce(b.score, 0) AS text
    FROM place p LEFT JOIN bm25 b ON b.number = p.number WHERE p_messages
    UNION ALL
    SELECT NULL, NULL, k.fact_id, coalesce(s.similarity, 0), coalesce(s.contrast, 0), coalesce(w.text, 0)
    FROM known k LEFT JOIN said s ON s.fact_id = k.fact_id LEFT JOIN worded w ON w.fact_id = k.fact_id
), scored AS (
    SELECT t.number, t.through_seq, t.fact_id, t.similarity,
        coalesce(t.text / nullif((SELECT max(o.text) FROM both_scores o), 0), 0)
            * CASE WHEN p_embedding IS NULL THEN 1 ELSE 0.5::float8 END + 0.5::float8 * t.contrast AS score
    FROM both_scores t
)
SELECT o.session_key, s.number - o.number, s.through_seq, s.fact_id, s.score, s.similarity
FROM scored s LEFT JOIN origin o ON o.number = (s.number >> 40) << 40
WHERE s.score > 0 AND s.similarity >= p_similarity_cutoff
ORDER BY s.score DESC, s.number, s.fact_id LIMIT p_top_k
$function$
