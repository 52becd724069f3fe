-- search_v1: the best messages and facts of a scope for a query; words and vectors are fused by score, half and
-- half, and without a vector only the words count.
--
-- Candidates first, and exact scores only for them.  By meaning: the pieces whose codes (search_code_v1, kept in the
-- index of the primary key) differ least from the query's.  By words: an index leads to the pieces that hold
-- one (of a small scope all are read), all of these are counted, and what says most by itself is spread to the
-- messages beside it.  Of each kind there are as many as `bounds` says, so a scope that holds no more is searched
-- exactly; what is lost in larger ones is measured by `make bench` (recall) and bounded by
-- tests/producers/search/test_search_scopes.py.
--
-- Words: BM25 (sql/fragments/bm25.sql).  A word counts in part for the messages beside its own;
-- as in BM25F, counts are set against the length of the message they are of before they are added up.
-- Vectors: the cosine of the query without what the whole scope has in common (the mean of its first pieces,
-- less of it where they are few), since that says nothing of one message.  A message has its best piece's.
-- Facts: their words count as a message's do, with nothing beside them, and as rare as they are in messages and facts
-- together (an owner may have facts, and no messages that are indexed);
-- by meaning a fact is as near as the nearest candidate that it comes from, and what the best facts by words
-- come from is a candidate too.
-- docs/performance.md says how these constants were chosen; `make bench-recall` measures what they find.
--
-- p_scope_key: one session, or NULL for all that lies under the shard key.
-- p_visible_from: of p_visible_in, messages from here on are shown anyway and not looked for, nor facts that
-- come from them alone.
-- p_generation_id: the derivation of vectors to look at, or NULL for none.
-- p_facts_generation_id: the derivation of facts to look at, or NULL for none; p_facts_shown: without these;
-- p_topics, p_agent_id, p_team_id: only those of any of these topics, and of this agent and team (NULL: of all).
-- A fact belongs to a session if a message there is among its sources; facts that people added belong only to the
-- owner. similarity: the cosine, 0 if it is negative or unknown. All in float8: by default this would be numeric
-- arithmetic.
--
-- The settings: one plan for all, made once per connection, since making it takes as long as searching a small
-- scope.  It does not ask statistics, which cannot tell how many rows a scope has: where ten are expected a
-- nested loop over ten thousand takes seconds.  Compiling the query, or starting workers for it, takes longer
-- than running it.
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
    p_facts_shown uuid[],
    p_topics text[],
    p_agent_id text,
    p_team_id text
) RETURNS TABLE (session_key uuid, from_seq bigint, through_seq bigint, fact_id uuid, score float8,
    similarity float8)
LANGUAGE sql STABLE
SET enable_seqscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off
SET max_parallel_workers_per_gather = 0
SET plan_cache_mode = force_generic_plan
AS $function$
WITH bounds AS MATERIALIZED (
    -- As a range of sessions, which one plan can look up.
    SELECT coalesce(p_scope_key, '00000000-0000-0000-0000-000000000000') AS first,
        coalesce(p_scope_key, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AS last,
        greatest(200, 3 * p_top_k) AS candidates
), mean_vector AS MATERIALIZED (
    SELECT avg(f.embedding) AS centre, count(*) / (count(*) + 10::float8) AS share FROM (
        SELECT c.embedding FROM strandline.chunk c
        WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
            AND c.session_key BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
            AND p_embedding IS NOT NULL AND c.embedding IS NOT NULL
        ORDER BY c.session_key, c.from_seq, c.piece LIMIT 300) AS f
), centred_query AS MATERIALIZED (
    -- The length of query - share * centre; vectors are of length 1, their mean is shorter.
    SELECT centre, share, strandline.search_code_v1(l2_normalize(p_embedding - centre)) AS code,
        sqrt(greatest(1e-6::float8, 1 + 2 * share * (centre <#> p_embedding)
            - share * share * (centre <#> centre))) AS length FROM mean_vector
), near_pieces AS MATERIALIZED (
    -- By codes, in the index alone.
    SELECT c.session_key, c.from_seq FROM strandline.chunk c
    WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
        AND c.session_key BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
        AND NOT (c.session_key = p_visible_in AND c.through_seq >= p_visible_from)
        AND p_embedding IS NOT NULL
    ORDER BY c.code <~> (SELECT code FROM centred_query) LIMIT (SELECT candidates FROM bounds)
), scope_size AS MATERIALIZED (
    SELECT count(*) FILTER (WHERE c.piece = 0)::float8 AS places, count(*) <= 1000 AS few
    FROM strandline.chunk c
    WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
        AND c.session_key BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
        AND NOT (c.session_key = p_visible_in AND c.through_seq >= p_visible_from)
        AND p_lexemes <> '{}'
), pieces_with_words AS MATERIALIZED (
    SELECT c.session_key, c.from_seq, c.length, ts_filter(setweight(c.lexemes, 'A', p_lexemes), '{a}') AS found
    FROM (
        -- Of a small scope all pieces: its owner may have said the same words in thousands of others.
        SELECT f.* FROM (
            SELECT a.session_key, a.from_seq, a.length, a.lexemes FROM strandline.chunk a
            WHERE a.shard_key = p_shard_key AND a.generation_id = p_generation_id
                AND a.session_key BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
                AND NOT (a.session_key = p_visible_in AND a.through_seq >= p_visible_from)
                AND (SELECT few FROM scope_size) AND p_lexemes <> '{}'
                AND ts_filter(setweight(a.lexemes, 'A', p_lexemes), '{a}') <> ''
            -- There are no more; the planner is told, and makes no tables for a million.
            LIMIT 1000) AS f
        UNION ALL
        -- The keys are compared in a form that no other index serves than the one over terms.
        SELECT b.session_key, b.from_seq, b.length, b.lexemes FROM strandline.chunk b
        WHERE strandline.search_terms_v1(b.shard_key, b.generation_id, b.lexemes)
                && strandline.search_terms_v1(p_shard_key, p_generation_id, array_to_tsvector(p_lexemes))
            AND b.shard_key IS NOT DISTINCT FROM p_shard_key
            AND b.generation_id IS NOT DISTINCT FROM p_generation_id
            AND (p_scope_key IS NULL OR b.session_key IS NOT DISTINCT FROM p_scope_key)
            AND NOT (b.session_key = p_visible_in AND b.through_seq >= p_visible_from)
            AND NOT (SELECT few FROM scope_size)) AS c
), searched_facts AS MATERIALIZED (
    SELECT f.fact_id, f.lexemes, @by_length(cardinality(f.lexemes)) AS length
    FROM strandline.fact f
    WHERE f.shard_key = p_shard_key AND f.generation_id = p_facts_generation_id AND f.live
        AND f.fact_id <> ALL (p_facts_shown)
        AND (p_topics IS NULL OR f.topics && p_topics)
        AND (p_agent_id IS NULL OR f.agent_id = p_agent_id) AND (p_team_id IS NULL OR f.team_id = p_team_id)
        AND EXISTS (
            SELECT FROM strandline.fact_revision r
            WHERE r.shard_key = p_shard_key AND r.generation_id = p_facts_generation_id
                AND r.fact_id = f.fact_id AND r.operation <> 'invalidate'
                AND (p_scope_key IS NULL OR r.session_key = p_scope_key)
                AND (r.session_key IS DISTINCT FROM p_visible_in OR p_visible_from > ANY (r.seqs)))
), fact_sources AS MATERIALIZED (
    SELECT k.fact_id, r.session_key, s.seq
    FROM searched_facts k JOIN strandline.fact_revision r ON r.shard_key = p_shard_key
        AND r.generation_id = p_facts_generation_id AND r.fact_id = k.fact_id AND r.operation <> 'invalidate'
        AND (p_scope_key IS NULL OR r.session_key = p_scope_key)
    CROSS JOIN LATERAL unnest(r.seqs) AS s (seq)
    WHERE r.session_key IS NOT NULL
), session_offsets AS MATERIALIZED (
    -- Where the numbers of a session's messages begin: so far apart that no word reaches from one to the next.
    SELECT o.session_key, row_number() OVER (ORDER BY o.session_key) << 40 AS number FROM (
        SELECT p.session_key FROM pieces_with_words p UNION ALL SELECT n.session_key FROM near_pieces n
        UNION ALL SELECT c.session_key FROM fact_sources c) AS o
    GROUP BY o.session_key
), word_counts AS MATERIALIZED (
    SELECT o.number + p.from_seq AS number, u.lexeme,
        sum(cardinality(u.positions)) / @by_length(min(p.length)) AS times
    FROM pieces_with_words p JOIN session_offsets o ON o.session_key = p.session_key
    CROSS JOIN LATERAL unnest(p.found) AS u
    GROUP BY o.number + p.from_seq, u.lexeme
), word_weights AS MATERIALIZED (
    SELECT DISTINCT a.lexeme, @rarity(n.places, coalesce(h.places, 0)) AS weight,
        @rarity(n.places + k.facts, coalesce(h.places, 0) + coalesce(o.facts, 0)) AS weight_in_fact
    FROM unnest(p_lexemes) AS a (lexeme) CROSS JOIN scope_size n
    CROSS JOIN (SELECT count(*) AS facts FROM searched_facts) AS k
    LEFT JOIN (SELECT w.lexeme, count(*) AS places FROM word_counts w GROUP BY w.lexeme) AS h ON h.lexeme = a.lexeme
    LEFT JOIN (
        SELECT u.lexeme, count(*) AS facts FROM searched_facts f CROSS JOIN LATERAL unnest(f.lexemes) AS u (lexeme)
        WHERE u.lexeme = ANY (p_lexemes) GROUP BY u.lexeme) AS o ON o.lexeme = a.lexeme
), best_messages AS (
    -- The messages that say most by themselves, and then, with what is beside them, the best of those around.
    SELECT w.number FROM word_counts w JOIN word_weights r ON r.lexeme = w.lexeme
    GROUP BY w.number ORDER BY sum(r.weight * @saturated(w.times)) DESC, w.number
    LIMIT (SELECT candidates FROM bounds)
), neighbour_shares (distance, share) AS (
    VALUES (-3, 0.1::float8), (-2, 0.3), (-1, 0.4), (0, 1), (1, 0.4), (2, 0.3), (3, 0.1)
), best_with_neighbours AS (
    SELECT n.number FROM (
        SELECT w.number + d.distance AS number, w.lexeme, sum(w.times * d.share) AS times
        FROM best_messages t JOIN word_counts w ON w.number = t.number CROSS JOIN neighbour_shares d
        GROUP BY w.number + d.distance, w.lexeme) AS n
    JOIN word_weights r ON r.lexeme = n.lexeme
    GROUP BY n.number ORDER BY sum(r.weight * @saturated(n.times)) DESC, n.number
    LIMIT (SELECT candidates FROM bounds)
), fact_text_scores AS MATERIALIZED (
    SELECT k.fact_id, sum(r.weight_in_fact * @saturated(1 / k.length)) AS text
    FROM searched_facts k CROSS JOIN LATERAL unnest(k.lexemes) AS u (lexeme) JOIN word_weights r ON r.lexeme = u.lexeme
    GROUP BY k.fact_id
), candidate_messages AS MATERIALIZED (
    SELECT n.number FROM (
        SELECT h.number FROM best_with_neighbours h
        UNION ALL
        SELECT o.number + n.from_seq FROM near_pieces n JOIN session_offsets o ON o.session_key = n.session_key
        UNION ALL
        SELECT o.number + c.seq FROM (SELECT w.fact_id FROM fact_text_scores w ORDER BY w.text DESC, w.fact_id
            LIMIT (SELECT candidates FROM bounds)) AS w
        JOIN fact_sources c ON c.fact_id = w.fact_id JOIN session_offsets o ON o.session_key = c.session_key) AS n
    GROUP BY n.number
), message_similarities AS MATERIALIZED (
    SELECT n.number, max(p.through_seq) AS through_seq, greatest(max(p.similarity), 0) AS similarity,
        greatest(max(p.contrast), 0) AS contrast
    FROM candidate_messages n JOIN session_offsets o ON o.number = (n.number >> 40) << 40 CROSS JOIN LATERAL (
        SELECT c.through_seq, coalesce(-(c.embedding <#> p_embedding), 0) AS similarity,
            coalesce((a.share * (c.embedding <#> a.centre) - (c.embedding <#> p_embedding)) / a.length, 0)
                AS contrast
        FROM strandline.chunk c CROSS JOIN centred_query a
        WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
            AND c.session_key = o.session_key AND c.from_seq = n.number - o.number
            AND NOT (c.session_key = p_visible_in AND c.through_seq >= p_visible_from)
        -- The limit keeps this a look-up per candidate.
        LIMIT 10000) AS p
    GROUP BY n.number
), message_text_scores AS (
    SELECT n.number, sum(r.weight * @saturated(n.times)) AS score FROM (
        SELECT c.number, w.lexeme, sum(w.times * d.share) AS times
        FROM candidate_messages c CROSS JOIN neighbour_shares d JOIN word_counts w ON w.number = c.number + d.distance
        GROUP BY c.number, w.lexeme) AS n
    JOIN word_weights r ON r.lexeme = n.lexeme GROUP BY n.number
), fact_similarities AS (
    SELECT c.fact_id, max(p.similarity) AS similarity, max(p.contrast) AS contrast
    FROM fact_sources c JOIN session_offsets o ON o.session_key = c.session_key
    JOIN message_similarities p ON p.number = o.number + c.seq
    GROUP BY c.fact_id
), both_scores AS MATERIALIZED (
    SELECT p.number, p.through_seq, NULL::uuid AS fact_id, p.similarity, p.contrast,
        coalesce(b.score, 0) AS text
    FROM message_similarities p LEFT JOIN message_text_scores b ON b.number = p.number WHERE p_messages
    UNION ALL
    SELECT NULL, NULL, k.fact_id, coalesce(s.similarity, 0), coalesce(s.contrast, 0), coalesce(w.text, 0)
    FROM searched_facts k LEFT JOIN fact_similarities s ON s.fact_id = k.fact_id
    LEFT JOIN fact_text_scores w ON w.fact_id = k.fact_id
), fused_scores AS (
    SELECT t.number, t.through_seq, t.fact_id, t.similarity,
        coalesce(t.text / nullif((SELECT max(o.text) FROM both_scores o), 0), 0)
            * CASE WHEN p_embedding IS NULL THEN 1 ELSE 0.5::float8 END + 0.5::float8 * t.contrast AS score
    FROM both_scores t
)
SELECT o.session_key, s.number - o.number, s.through_seq, s.fact_id, s.score, s.similarity
FROM fused_scores s LEFT JOIN session_offsets o ON o.number = (s.number >> 40) << 40
WHERE s.score > 0 AND s.similarity >= p_similarity_cutoff
ORDER BY s.score DESC, s.number, s.fact_id LIMIT p_top_k
$function$
