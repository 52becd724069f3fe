-- search_big_v1: search_v1 of a scope with more pieces than are read one by one.
--
-- Work per question is bounded, but for one look at each code.  By meaning: the pieces whose codes (search_code_v1,
-- kept in the index of the primary key) differ least from the query's.  By words: an index leads to the pieces that hold a
-- seldom word of the query, or two of the usual ones; what these pieces say by themselves chooses the messages that
-- are read with those next to them, so that a candidate's score is exact.  How usual a word is, the first pieces of the
-- scope say: `make bench` (recall) and tests/producers/search/test_search_scopes.py measure and bound what is lost.
--
-- For search_v1 alone, which makes the settings.
CREATE FUNCTION strandline.search_big_v1(@search_parameters())
RETURNS TABLE (@search_columns())
LANGUAGE sql STABLE
-- Once more, so that it is not put into the statement that calls it.
SET jit = off
AS $function$
WITH RECURSIVE bounds AS MATERIALIZED (
    -- As a range of sessions, which one plan can look up.
    SELECT coalesce(p_scope_key, '00000000-0000-0000-0000-000000000000') AS first,
        coalesce(p_scope_key, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AS last,
        greatest(200, 2 * p_top_k) AS candidates, greatest(500, 3 * p_top_k) AS usual,
        @any_word() AS words
), first_pieces AS MATERIALIZED (
    -- They stand for the whole scope: for what it has in common, and for how usual a word is.
    SELECT c.embedding, ts_filter(setweight(c.lexemes, 'A', p_lexemes), '{a}') AS found FROM strandline.chunk c
    WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
        AND c.session_key BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
    ORDER BY c.session_key, c.from_seq, c.piece LIMIT 300
), @query_vectors(), near_pieces AS MATERIALIZED (
    -- By codes, in the index alone.
    SELECT c.session_key, c.from_seq FROM strandline.chunk c
    WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
        AND c.session_key BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
        AND NOT (c.session_key = p_visible_in AND c.through_seq >= p_visible_from)
        AND p_embedding IS NOT NULL
    ORDER BY c.code <~> (SELECT code FROM centred_query) LIMIT (SELECT candidates FROM bounds)
), some_sessions (session_key, number) AS (
    -- The first of a big scope, from one to the next without what lies between.
    SELECT f.session_key, 1 FROM (
        SELECT c.session_key FROM strandline.chunk c
        WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
            AND c.session_key BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
        ORDER BY c.session_key LIMIT 1) AS f
    UNION ALL
    SELECT n.session_key, s.number + 1 FROM some_sessions s CROSS JOIN LATERAL (
        SELECT c.session_key FROM strandline.chunk c
        WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
            AND c.session_key > s.session_key AND c.session_key <= (SELECT last FROM bounds)
        ORDER BY c.session_key LIMIT 1) AS n
    WHERE s.number < 64
), scope_places AS MATERIALIZED (
    -- How many messages there are, about: as far as these sessions reach, and their keys, which are spread evenly, say
    -- how much of the scope they are.
    SELECT e.places / CASE WHEN e.sessions < 64 THEN 1 ELSE e.share END AS places FROM (
        SELECT sum(l.from_seq - f.from_seq + 1)::float8 AS places, count(*) AS sessions,
            (1 + max(('x' || left(s.session_key::text, 8))::bit(32)::bigint)) / 4294967296.0::float8 AS share
        FROM some_sessions s
        CROSS JOIN LATERAL (
            SELECT c.from_seq FROM strandline.chunk c
            WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id AND c.session_key = s.session_key
            ORDER BY c.from_seq LIMIT 1) AS f
        CROSS JOIN LATERAL (
            SELECT c.from_seq FROM strandline.chunk c
            WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id AND c.session_key = s.session_key
            ORDER BY c.from_seq DESC LIMIT 1) AS l) AS e
), word_shares AS MATERIALIZED (
    -- holders: how many messages of the scope hold a word, about, by the first pieces.  is_sought: the pieces with the
    -- rarer words are read, and those that hold two of the others; a message that has one of the others, and nothing
    -- else of the query, is not looked for by words.
    SELECT e.lexeme, e.holders, e.number, e.holders > b.usual AS is_usual,
        e.holders <= b.usual OR e.number = 1 AS is_sought
    FROM bounds b CROSS JOIN (
        SELECT a.lexeme, coalesce(h.pieces, 0) * z.places / greatest(k.pieces, 1) AS holders,
            row_number() OVER (ORDER BY coalesce(h.pieces, 0), a.lexeme) AS number
        FROM (SELECT DISTINCT u.lexeme FROM unnest(p_lexemes) AS u (lexeme)) AS a
        CROSS JOIN scope_places z CROSS JOIN (SELECT count(*)::float8 AS pieces FROM first_pieces) AS k
        LEFT JOIN (
            SELECT u.lexeme, count(*) AS pieces FROM first_pieces f CROSS JOIN LATERAL unnest(f.found) AS u
            GROUP BY u.lexeme) AS h ON h.lexeme = a.lexeme) AS e
), sought_terms AS MATERIALIZED (
    SELECT strandline.search_terms_v1(p_shard_key, p_generation_id, array_to_tsvector(array_agg(s.lexeme))) AS terms
    FROM word_shares s WHERE s.is_sought
), pieces_with_sought AS (
    -- The keys are compared in a form that no other index serves than the one over terms.
    SELECT b.session_key, b.from_seq, b.length, b.said_on, b.lexemes FROM strandline.chunk b
    WHERE strandline.search_terms_v1(b.shard_key, b.generation_id, b.lexemes) && (SELECT terms FROM sought_terms)
        AND b.shard_key IS NOT DISTINCT FROM p_shard_key
        AND b.generation_id IS NOT DISTINCT FROM p_generation_id
        AND (p_scope_key IS NULL OR b.session_key IS NOT DISTINCT FROM p_scope_key)
        AND NOT (b.session_key = p_visible_in AND b.through_seq >= p_visible_from)
    LIMIT 10000
), pieces_with_pairs AS (
    SELECT DISTINCT ON (f.session_key, f.from_seq, f.piece) f.session_key, f.from_seq, f.length, f.said_on, f.lexemes FROM (
        SELECT strandline.search_terms_v1(p_shard_key, p_generation_id,
            array_to_tsvector(ARRAY[s.lexeme, t.lexeme])) AS terms
        FROM word_shares s JOIN word_shares t ON t.number > s.number
        WHERE s.is_usual AND t.is_usual
        ORDER BY s.number + t.number LIMIT 10) AS p
    CROSS JOIN LATERAL (
        SELECT b.session_key, b.from_seq, b.piece, b.length, b.said_on, b.lexemes FROM strandline.chunk b
        WHERE strandline.search_terms_v1(b.shard_key, b.generation_id, b.lexemes) @> p.terms
            AND b.shard_key IS NOT DISTINCT FROM p_shard_key
            AND b.generation_id IS NOT DISTINCT FROM p_generation_id
            AND (p_scope_key IS NULL OR b.session_key IS NOT DISTINCT FROM p_scope_key)
            AND NOT (b.session_key = p_visible_in AND b.through_seq >= p_visible_from)
            AND NOT strandline.search_terms_v1(b.shard_key, b.generation_id, b.lexemes)
                && (SELECT terms FROM sought_terms)
        LIMIT 1000) AS f
), pieces_found AS MATERIALIZED (
    SELECT * FROM pieces_with_sought UNION ALL SELECT * FROM pieces_with_pairs
), pieces_to_fill AS (
    -- Where these are too few: some of those that hold the next word alone.
    SELECT b.session_key, b.from_seq, b.length, b.said_on, b.lexemes FROM strandline.chunk b
    WHERE strandline.search_terms_v1(b.shard_key, b.generation_id, b.lexemes) && (
            SELECT strandline.search_terms_v1(p_shard_key, p_generation_id, array_to_tsvector(ARRAY[s.lexeme]))
            FROM word_shares s
            WHERE NOT s.is_sought
                AND (SELECT count(*) FROM pieces_found) < (SELECT candidates FROM bounds)
            ORDER BY s.number LIMIT 1)
        AND b.shard_key IS NOT DISTINCT FROM p_shard_key
        AND b.generation_id IS NOT DISTINCT FROM p_generation_id
        AND (p_scope_key IS NULL OR b.session_key IS NOT DISTINCT FROM p_scope_key)
        AND NOT (b.session_key = p_visible_in AND b.through_seq >= p_visible_from)
        AND NOT EXISTS (
            SELECT FROM pieces_found f WHERE f.session_key = b.session_key AND f.from_seq = b.from_seq)
    LIMIT (SELECT 5 * candidates FROM bounds)
), pieces_with_words AS MATERIALIZED (
    SELECT c.session_key, c.from_seq, c.length, c.said_on, ts_filter(setweight(c.lexemes, 'A', p_lexemes), '{a}') AS found
    FROM (SELECT * FROM pieces_found UNION ALL SELECT * FROM pieces_to_fill) AS c
), @facts_to_search(), session_offsets AS MATERIALIZED (
    -- Where the numbers of a session's messages begin: so far apart that no word reaches from one to the next.
    SELECT o.session_key, row_number() OVER (ORDER BY o.session_key) << 40 AS number FROM (
        SELECT p.session_key FROM pieces_with_words p UNION ALL SELECT n.session_key FROM near_pieces n
        UNION ALL SELECT c.session_key FROM fact_sources c) AS o
    GROUP BY o.session_key
), @counted_words(), word_weights AS MATERIALIZED (
    SELECT h.lexeme, @rarity(h.places, h.holders) AS weight,
        @rarity(h.places + h.facts, h.holders + coalesce(o.facts, 0)) AS weight_in_fact,
        @rarity(h.places + h.facts, 0) AS weight_of_none, h.holders + coalesce(o.facts, 0) > 0 AS is_held,
        @rarity(h.places, 0) AS weight_of_none_there, h.holders > 0 AS is_in_messages
    FROM (
        SELECT s.lexeme, k.facts, greatest(z.places, w.places) AS places,
            CASE WHEN s.is_sought AND (SELECT count(*) FROM pieces_with_words) < 10000
                THEN coalesce(w.places, 0) ELSE s.holders END AS holders
        FROM word_shares s CROSS JOIN scope_places z
        CROSS JOIN (SELECT count(*) AS facts FROM searched_facts) AS k
        LEFT JOIN (SELECT c.lexeme, count(*) AS places FROM word_counts c GROUP BY c.lexeme) AS w ON w.lexeme = s.lexeme
    ) AS h
    LEFT JOIN (SELECT f.lexeme, count(*) AS facts FROM fact_words f GROUP BY f.lexeme) AS o ON o.lexeme = h.lexeme
), best_messages AS (
    -- The messages that say most by themselves, and then, with what is next to them, the best of those around.
    SELECT w.number FROM word_counts w JOIN word_weights r ON r.lexeme = w.lexeme
    GROUP BY w.number ORDER BY sum(r.weight * @saturated(w.times)) DESC, w.number
    LIMIT (SELECT b.candidates * least(4, greatest(1, z.places / 20000)) FROM bounds b CROSS JOIN scope_places z)
), @messages_with_neighbours(
    (SELECT b.candidates * least(2, greatest(1, z.places / 20000)) FROM bounds b CROSS JOIN scope_places z)
), @scored_facts(), @candidates(), candidate_pieces AS MATERIALIZED (
    SELECT n.number, p.* FROM candidate_messages n JOIN session_offsets o ON o.number = (n.number >> 40) << 40
    CROSS JOIN LATERAL (
        SELECT c.through_seq, c.role, c.tone, c.said_on, c.speaker && p_names AS is_named,
            @similarity() AS similarity,
            @contrast() AS contrast
        FROM strandline.chunk c CROSS JOIN centred_query a
        WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
            AND c.session_key = o.session_key AND c.from_seq = n.number - o.number
            AND NOT (c.session_key = p_visible_in AND c.through_seq >= p_visible_from)
        -- The limit keeps this a look-up per candidate.
        LIMIT 10000) AS p
), message_similarities AS MATERIALIZED (
    SELECT n.number, max(n.through_seq) AS through_seq, greatest(max(n.similarity), 0) AS similarity,
        greatest(least(max(n.contrast), 1), 0) AS contrast, min(n.role) AS role, max(n.tone) AS tone,
        min(n.said_on) AS said_on, bool_or(n.is_named) AS is_named
    FROM candidate_pieces n GROUP BY n.number
), counted_ranges AS (
    -- The candidates and the messages next to them, which may hold words that were not sought.  The last number says whose
    -- session it is: what is next to a session's first message may lie before it.
    SELECT max(n.number) AS number, min(n.number) - 3 AS first, max(n.number) + 3 AS last FROM (
        SELECT g.number, sum(g.is_apart) OVER (ORDER BY g.number) AS island FROM (
            SELECT m.number, coalesce(m.number - lag(m.number) OVER (ORDER BY m.number) > 6, true)::integer AS is_apart
            FROM candidate_messages m) AS g) AS n
    GROUP BY n.island
), near_word_counts AS MATERIALIZED (
    SELECT p.number, p.said_on, u.lexeme, sum(cardinality(u.positions)) / @by_length(min(p.length)) AS times
    FROM (
        SELECT o.number + c.from_seq AS number, c.length, c.said_on, c.found
        FROM counted_ranges r JOIN session_offsets o ON o.number = (r.number >> 40) << 40
        CROSS JOIN LATERAL (
            SELECT n.from_seq, n.length, n.said_on, ts_filter(setweight(n.lexemes, 'A', p_lexemes), '{a}') AS found
            FROM strandline.chunk n
            WHERE n.shard_key = p_shard_key AND n.generation_id = p_generation_id AND n.session_key = o.session_key
                AND n.from_seq BETWEEN r.first - o.number AND r.last - o.number
                AND NOT (n.session_key = p_visible_in AND n.through_seq >= p_visible_from)
                AND n.lexemes @@ (SELECT words FROM bounds)
            LIMIT 10000) AS c) AS p
    CROSS JOIN LATERAL unnest(p.found) AS u
    GROUP BY p.number, p.said_on, u.lexeme
), message_text_scores AS (
    SELECT n.number, n.said_on, sum(r.weight * @saturated(n.times)) AS score FROM (
        SELECT c.number, c.said_on, w.lexeme, sum(w.times * d.share) AS times
        FROM message_similarities c CROSS JOIN neighbour_shares d
        JOIN near_word_counts w ON w.number = c.number + d.distance AND w.said_on IS NOT DISTINCT FROM c.said_on
        GROUP BY c.number, c.said_on, w.lexeme) AS n
    JOIN word_weights r ON r.lexeme = n.lexeme GROUP BY n.number, n.said_on
), @ranked()
$function$
