-- Searching: text that the search of small scopes and that of big ones share (derivations.sql says how it is used).
--
-- Most are lists of queries for a WITH, which name what the others there have: docs/architecture/vectors-and-search.md
-- says which weighs what, and why.  All in float8: by default this would be numeric arithmetic.

-- fragment: search_parameters()
-- The parameters of search_v1, which explains them, and of the two functions that do its work.
p_shard_key uuid, p_generation_id integer, p_scope_key uuid, p_visible_in uuid, p_visible_from bigint,
    p_embedding halfvec, p_lexemes text[], p_similarity_cutoff float8, p_top_k integer, p_messages boolean,
    p_facts_generation_id integer, p_facts_shown uuid[], p_topics text[], p_agent_id text, p_team_id text,
    p_is_own boolean, p_names text[], p_dates_from date[], p_dates_through date[], p_dates_fit float8[],
    p_words integer DEFAULT NULL, p_roles text[] DEFAULT NULL, p_since timestamptz DEFAULT NULL,
    p_until timestamptz DEFAULT NULL, p_labels bigint[] DEFAULT NULL, p_clear_labels bigint[] DEFAULT NULL,
    p_facts_alone_id integer DEFAULT NULL, p_top_facts integer DEFAULT NULL

-- fragment: search_arguments()
-- The same as it is handed on.
p_shard_key, p_generation_id, p_scope_key, p_visible_in, p_visible_from, p_embedding, p_lexemes,
            p_similarity_cutoff, p_top_k, p_messages, p_facts_generation_id, p_facts_shown, p_topics,
            p_agent_id, p_team_id, p_is_own, p_names, p_dates_from, p_dates_through, p_dates_fit, p_words, p_roles, p_since,
            p_until, p_labels, p_clear_labels, p_facts_alone_id, p_top_facts

-- fragment: search_columns()
session_key uuid, from_seq bigint, through_seq bigint, fact_id uuid, score float8, similarity float8

-- fragment: note_change(owner, kind)
-- To be done wherever an owner's facts, or pieces of its own messages, are written or deleted: processes keep them.  The
-- kind 'added' is for new pieces where all others stay, 'pieces' for any other change of them.  A row per transaction, so
-- that nothing is waited for; a set of such rows that was there once never comes back, since rows go only where one of
-- their kind comes, nor in a database that was restored, whose transactions may have numbers that were used before.
WITH earlier_changes AS (
    @drop_changes({owner}, {kind})
)
@add_change({owner}, {kind})

-- fragment: noted_change(owner, kind)
-- The same as queries of a WITH.
change AS (
    @add_change({owner}, {kind})
), earlier_changes AS (
    @drop_changes({owner}, {kind})
)

-- fragment: add_change(owner, kind)
INSERT INTO strandline.derived_change (shard_key, kind, change_id)
VALUES ({owner}, {kind}, pg_current_xact_id()::text::bigint)
ON CONFLICT (shard_key, kind, change_id) DO UPDATE SET changed_at = excluded.changed_at

-- fragment: drop_changes(owner, kind)
-- Eight rows tell versions apart as well as all; rows that another transaction has locked are passed over.
DELETE FROM strandline.derived_change c WHERE c.shard_key = {owner} AND c.kind = {kind} AND c.change_id IN (
    SELECT o.change_id FROM strandline.derived_change o WHERE o.shard_key = {owner} AND o.kind = {kind}
        AND o.change_id <> pg_current_xact_id()::text::bigint
    ORDER BY o.change_id DESC OFFSET 8 FOR UPDATE SKIP LOCKED)

-- fragment: version_of(owner, kind)
-- The version of an owner's facts, or of the changes of one kind of its pieces.
(SELECT coalesce(string_agg(noted.change_id || '.' || extract(epoch FROM noted.changed_at), ','
        ORDER BY noted.change_id), '')
    FROM strandline.derived_change noted WHERE noted.shard_key = {owner} AND noted.kind = {kind})

-- fragment: version_of_pieces(owner)
-- The changes that may have taken pieces away, and behind a | those that only added some.
@version_of({owner}, 'pieces') || '|' || @version_of({owner}, 'added')

-- fragment: next_pieces(owner, generation_id, scope_key, through, since, at_once)
-- The next pieces of a scope behind the key of one, numbered from 0 by their keys.  scope_key: one session, or NULL for
-- all that lies under the shard key.  since: of the pieces written from this transaction on, or 0 for all; a row has the
-- last 32 bits of its transaction's number.
SELECT c.*, row_number() OVER (ORDER BY c.session_key, c.from_seq, c.piece) - 1 AS number
FROM strandline.chunk c
WHERE c.shard_key = {owner} AND c.generation_id = {generation_id}
    AND c.session_key BETWEEN coalesce({scope_key}, '00000000-0000-0000-0000-000000000000')
        AND coalesce({scope_key}, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    AND (c.session_key, c.from_seq, c.piece) > {through}
    AND ({since} = 0 OR @newest_transaction() - (@newest_transaction() - c.xmin::text::bigint & 4294967295) >= {since})
ORDER BY c.session_key, c.from_seq, c.piece LIMIT {at_once}

-- fragment: newest_transaction()
pg_snapshot_xmax(pg_current_snapshot())::text::bigint

-- fragment: index_part(owner)
-- The CTE ``pieces`` for an index in memory, as JSON: columns in the order of the pieces' keys; and, by word, the numbers
-- of the pieces that it occurs in, and how often in each.  Vectors are sent as halfvec sends them.  version: that of the
-- owner's pieces.  begins_at: the first transaction that the statement's snapshot may not show.
(SELECT json_build_object(
    'begins_at', pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
    'version', @version_of_pieces({owner}),
    'session_keys', array_agg(p.session_key ORDER BY p.number),
    'from_seqs', array_agg(p.from_seq ORDER BY p.number), 'last_piece', (array_agg(p.piece ORDER BY p.number DESC))[1],
    'through_seqs', array_agg(p.through_seq ORDER BY p.number), 'lengths', array_agg(p.length ORDER BY p.number),
    'roles', array_agg(p.role ORDER BY p.number),
    'speakers', array_agg(array_to_string(p.speaker, ' ') ORDER BY p.number),
    'tones', array_agg(p.tone ORDER BY p.number), 'said_on', array_agg(p.said_on ORDER BY p.number),
    'has_vector', array_agg(p.embedding IS NOT NULL ORDER BY p.number),
    'vectors', encode(string_agg(halfvec_send(p.embedding), ''::bytea ORDER BY p.number), 'hex'),
    'words', (SELECT json_object_agg(w.lexeme, w.holders) FROM (
        SELECT u.lexeme, json_build_array(array_agg(p.number), array_agg(cardinality(u.positions))) AS holders
        FROM pieces p CROSS JOIN LATERAL unnest(p.lexemes) AS u GROUP BY u.lexeme) AS w))::text
FROM pieces p)

-- fragment: index_head(owner, facts_generation_id, added, part)
-- The first row of the messages that an index finds: the version of the owner's pieces; if they are asked for, all live
-- facts up to a number of them, with their words; and the places of added pieces.  In place of an id their part of an
-- index, which may be large: the envelope is read on the event loop.
SELECT 0 AS place, 0::bigint AS seq, {part} AS id, ''::text AS role, 0 AS tokens, 'epoch'::timestamptz AS created_at,
    json_build_object('version', @version_of_pieces({owner}),
        'facts_version', {facts_generation_id} || ':' || @version_of({owner}, 'facts'),
        'facts', (SELECT json_agg(f) FROM (
            SELECT t.fact_id, t.text, t.said_at, @said_in({owner}, t.generation_id, t.fact_id) AS sources, t.lexemes
            FROM strandline.fact t
            WHERE t.shard_key = {owner} AND t.generation_id = {facts_generation_id} AND t.live
            ORDER BY t.said_at DESC, t.fact_id LIMIT %(max_facts)s) AS f),
        'added', {added})::text AS envelope, NULL::text AS metadata

-- fragment: messages_of_hits(owner, hits)
-- The messages of hits (place, session_key, from_seq, through_seq), each with those next to it.
SELECT m.place, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM @filled((SELECT h.place, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope, m.metadata, m.bytes
    FROM {hits} AS h
    CROSS JOIN LATERAL (
        -- The limit keeps this a look-up per hit.
        SELECT w.* FROM strandline.message w
        WHERE w.shard_key = {owner} AND w.session_key = h.session_key
            AND w.seq BETWEEN h.from_seq - %(beside)s::integer AND h.through_seq + %(beside)s::integer
            AND @is_visible(w, {owner})
        LIMIT 1000000) AS m), (page.place, page.seq)) AS m

-- fragment: given_hits()
SELECT h.place, (%(sessions)s::uuid[])[h.number] AS session_key, h.from_seq, h.through_seq
FROM unnest(%(numbers)s::integer[], %(from_seqs)s::bigint[], %(through_seqs)s::bigint[]) WITH ORDINALITY
    AS h (number, from_seq, through_seq, place)

-- fragment: said_in(owner, generation_id, fact_id)
-- Where a fact comes from, as JSON: a session, by name as well, and numbers of its messages; NULL for none.
(SELECT json_agg(json_build_array(said.session_key, named.session_id, said.seqs))
    FROM strandline.fact_revision said LEFT JOIN strandline.session named
        ON named.shard_key = {owner} AND named.session_key = said.session_key
    WHERE said.shard_key = {owner} AND said.generation_id = {generation_id} AND said.fact_id = {fact_id}
        AND said.operation <> 'invalidate' AND said.session_key IS NOT NULL)

-- fragment: embedded(shard_key, generation_id, message)
-- The vectors of a message's first pieces.
SELECT piece.embedding FROM strandline.chunk piece
    WHERE piece.shard_key = {shard_key} AND piece.generation_id = {generation_id}
        AND piece.session_key = {message}.session_key AND piece.from_seq = {message}.seq AND piece.embedding IS NOT NULL
    ORDER BY piece.piece LIMIT 4

-- fragment: any_word()
-- Most pieces hold no word of the query, which this says sooner than a look for each.
(SELECT string_agg('''' || replace(replace(u.lexeme, '\', '\\'), '''', '''''') || '''', ' | ')
    FROM unnest(p_lexemes) AS u (lexeme))::tsquery

-- fragment: is_sought(message, roles, since, until, labels, clear_labels, session_key)
-- Whether a filter lets a message pass; NULL: of all roles, times, labels.  Its labels are those of the session with this
-- key, and are led over to the message's.
(({roles} IS NULL OR {message}.role = ANY ({roles}))
    AND {message}.created_at BETWEEN coalesce({since}, '-infinity') AND coalesce({until}, 'infinity')
    AND ({labels} IS NULL OR {message}.labels @> @labels_in({message}.session_key, {labels}, {session_key})
        OR {clear_labels} IS NOT NULL
            AND {message}.labels @> @labels_in({message}.session_key, {clear_labels}, {session_key})))

-- fragment: labels_in(own_key, labels, session_key)
ARRAY(SELECT asked.label # @session_number({session_key}) # @session_number({own_key})
    FROM unnest({labels}) AS asked (label))

-- fragment: query_vectors()
-- The query without what the whole scope has in common: the mean of its first pieces, less of it where they are few.
mean_vector AS MATERIALIZED (
    SELECT avg(f.embedding) AS centre, count(f.embedding) / (count(f.embedding) + 10::float8) AS share
    FROM first_pieces f WHERE p_embedding IS NOT NULL
), centred_query AS MATERIALIZED (
    -- offset: of a vector's product with the query less that with the centre. length: that of query - share * centre,
    -- times the usual length of piece - share * centre; vectors are of length 1, their mean is shorter.
    -- code: of a vector in the direction of the query from the centre, twice as far away as pieces are: the codes of
    -- pieces are made of whole vectors, and of an embedder whose vectors are all near to each other 200 candidates
    -- hold 95 per cent of the ten nearest of 30,000 so, and 93 by the code of the direction alone.
    SELECT n.centre, n.share,
        CASE WHEN n.centre IS NOT NULL THEN strandline.search_code_v1(n.centre
            + array_fill(2 * n.usual, ARRAY[vector_dims(n.centre)])::halfvec
                * l2_normalize(p_embedding - n.centre)) END AS code,
        n.share * (n.centre <#> p_embedding) - n.share * n.share * (n.centre <#> n.centre) AS offset,
        sqrt(greatest(1e-6::float8, 1 + 2 * n.share * (n.centre <#> p_embedding)
            - n.share * n.share * (n.centre <#> n.centre))) * n.usual AS length
    FROM (SELECT m.centre, m.share,
            sqrt(greatest(0.05::float8, 1 + (2 * m.share - m.share * m.share) * (m.centre <#> m.centre))) AS usual
        FROM mean_vector m) AS n
)

-- fragment: similarity()
-- The cosine of a piece to the query; vectors are of length 1.
coalesce(-(c.embedding <#> p_embedding), 0)

-- fragment: contrast()
-- The same without what the scope has in common, at the scale of the scope's pieces.
coalesce((a.share * (c.embedding <#> a.centre) - (c.embedding <#> p_embedding) + a.offset) / a.length, 0)
    -- Of a few words a vector says little.
    * CASE WHEN c.tone = 1 THEN 1 ELSE least(1, c.length / 18.0::float8) END

-- fragment: exact_bounds()
-- Which pieces an exact comparison reads, and the words that it looks for.
bounds AS MATERIALIZED (
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
)

-- fragment: exactly_compared_piece()
-- A piece (c) as an exact comparison needs it, next to the query (a).
c.session_key, c.from_seq, c.piece, c.through_seq, c.length, c.role, c.tone, c.said_on,
    c.speaker && p_names AS is_named,
    CASE WHEN c.lexemes @@ (SELECT words FROM bounds)
        THEN ts_filter(setweight(c.lexemes, 'A', p_lexemes), '{a}') END AS found,
    @similarity() AS similarity,
    @contrast() AS contrast

-- fragment: is_in_exact_bounds()
-- Whether a piece (c) is of the scope, and is not shown anyway.
c.shard_key = p_shard_key AND c.generation_id = p_generation_id
    AND c.session_key BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
    AND NOT (c.session_key = p_visible_in AND c.through_seq >= p_visible_from)

-- fragment: facts_to_search()
-- Alone they are those of the whole owner, whatever is shown.
searched_facts AS MATERIALIZED (
    SELECT f.fact_id, f.said_at, f.lexemes, @by_length(cardinality(f.lexemes)) AS length
    FROM strandline.fact f
    WHERE f.shard_key = p_shard_key AND f.generation_id = p_facts_generation_id AND f.live
        AND f.fact_id <> ALL (p_facts_shown)
        AND (p_topics IS NULL OR f.topics && p_topics)
        AND (p_agent_id IS NULL OR f.agent_id = p_agent_id) AND (p_team_id IS NULL OR f.team_id = p_team_id)
        AND EXISTS (
            SELECT FROM strandline.fact_revision r
            WHERE r.shard_key = p_shard_key AND r.generation_id = p_facts_generation_id
                AND r.fact_id = f.fact_id AND r.operation <> 'invalidate'
                AND (p_facts_alone_id IS NOT NULL OR (p_scope_key IS NULL OR r.session_key = p_scope_key)
                    AND (r.session_key IS DISTINCT FROM p_visible_in OR p_visible_from > ANY (r.seqs))))
), fact_sources AS MATERIALIZED (
    SELECT k.fact_id, r.session_key, s.seq
    FROM searched_facts k JOIN strandline.fact_revision r ON r.shard_key = p_shard_key
        AND r.generation_id = p_facts_generation_id AND r.fact_id = k.fact_id AND r.operation <> 'invalidate'
        AND (p_facts_alone_id IS NOT NULL OR p_scope_key IS NULL OR r.session_key = p_scope_key)
    CROSS JOIN LATERAL unnest(r.seqs) AS s (seq)
    WHERE r.session_key IS NOT NULL
), fact_words AS MATERIALIZED (
    SELECT w.fact_id, w.length, w.lexeme FROM (
        -- Kept apart, as otherwise each fact's words are compared with each of the query's.
        SELECT k.fact_id, k.length, u.lexeme FROM searched_facts k CROSS JOIN LATERAL unnest(k.lexemes) AS u (lexeme)
        OFFSET 0) AS w
    WHERE w.lexeme IN (SELECT unnest(p_lexemes))
)

-- fragment: counted_words()
word_counts AS MATERIALIZED (
    SELECT o.number + p.from_seq AS number, p.said_on, u.lexeme,
        sum(cardinality(u.positions)) / @by_length(min(p.length)) AS times
    FROM pieces_with_words p JOIN session_offsets o ON o.session_key = p.session_key
    CROSS JOIN LATERAL unnest(p.found) AS u
    GROUP BY o.number + p.from_seq, p.said_on, u.lexeme
)

-- fragment: neighbours()
-- The weight of a word for the messages next to its own, if they are of the same day.
(-3, 0.1::float8), (-2, 0.2), (-1, 0.4), (0, 1), (1, 0.4), (2, 0.2), (3, 0.1)

-- fragment: messages_with_neighbours(best)
-- The messages that say most with what is next to them.
neighbour_shares (distance, share) AS (
    VALUES @neighbours()
), best_with_neighbours AS (
    SELECT n.number FROM (
        SELECT w.number + d.distance AS number, w.lexeme, sum(w.times * d.share) AS times
        FROM best_messages t JOIN word_counts w ON w.number = t.number CROSS JOIN neighbour_shares d
        GROUP BY w.number + d.distance, w.lexeme) AS n
    JOIN word_weights r ON r.lexeme = n.lexeme
    GROUP BY n.number ORDER BY sum(r.weight * @saturated(n.times)) DESC, n.number
    LIMIT {best}
)

-- fragment: scored_facts()
fact_text_scores AS MATERIALIZED (
    SELECT k.fact_id, sum(r.weight_in_fact * @saturated(1 / k.length)) AS text
    FROM fact_words k JOIN word_weights r ON r.lexeme = k.lexeme GROUP BY k.fact_id
)

-- fragment: candidates()
candidate_messages AS MATERIALIZED (
    SELECT n.number FROM (
        SELECT h.number FROM best_with_neighbours h
        UNION ALL
        SELECT o.number + n.from_seq FROM near_pieces n JOIN session_offsets o ON o.session_key = n.session_key
        UNION ALL
        SELECT o.number + c.seq FROM (SELECT w.fact_id FROM fact_text_scores w ORDER BY w.text DESC, w.fact_id
            LIMIT (SELECT candidates FROM bounds)) AS w
        JOIN fact_sources c ON c.fact_id = w.fact_id JOIN session_offsets o ON o.session_key = c.session_key) AS n
    GROUP BY n.number
)

-- fragment: ranked()
-- Texts and vectors as one score, times what else speaks for a message: who speaks, how, and when; and the best.
fact_similarities AS (
    SELECT c.fact_id, max(p.similarity) AS similarity, max(p.contrast) AS contrast
    FROM fact_sources c JOIN session_offsets o ON o.session_key = c.session_key
    JOIN message_similarities p ON p.number = o.number + c.seq
    GROUP BY c.fact_id
), message_factors AS (
    SELECT m.number,
        -- Asked once for all: as a join it is counted again for each message.
        CASE WHEN (SELECT bool_or(n.is_named) FROM message_similarities n)
            THEN CASE WHEN m.is_named THEN 1 ELSE 0.7::float8 END * CASE WHEN m.tone = 2 THEN 0.85::float8 ELSE 1 END
            ELSE CASE WHEN p_is_own AND m.role = 'assistant' THEN 0.7::float8 ELSE 1 END
                * CASE WHEN m.tone = 1 THEN 1.3::float8 ELSE 1 END END
        * CASE WHEN p_dates_from = '{}' THEN 1 ELSE 0.3::float8 + 0.7::float8 * m.day_fit END AS factor, m.day_fit
    FROM (
        SELECT s.*, coalesce((
            SELECT max(d.fit) FROM unnest(p_dates_from, p_dates_through, p_dates_fit) AS d (first, last, fit)
            WHERE s.said_on BETWEEN d.first AND d.last), 0) AS day_fit
        FROM message_similarities s) AS m
), both_scores AS MATERIALIZED (
    SELECT p.number, p.through_seq, p.said_on, NULL::uuid AS fact_id, NULL::timestamptz AS said_at, p.similarity, p.contrast,
        coalesce(b.score, 0) AS text, f.factor, f.day_fit
    FROM message_similarities p JOIN message_factors f ON f.number = p.number
    LEFT JOIN message_text_scores b ON b.number = p.number AND b.said_on IS NOT DISTINCT FROM p.said_on
    WHERE p_messages
    UNION ALL
    SELECT NULL, NULL, NULL, k.fact_id, k.said_at, coalesce(s.similarity, 0), coalesce(s.contrast, 0), coalesce(w.text, 0), 1, 0
    FROM searched_facts k LEFT JOIN fact_similarities s ON s.fact_id = k.fact_id
    LEFT JOIN fact_text_scores w ON w.fact_id = k.fact_id
), whole_weights AS MATERIALIZED (
    -- Of all words; with facts, or of messages without them.
    SELECT true AS with_facts, coalesce(sum(r.weight_in_fact) FILTER (WHERE r.is_held), 0) + max(r.weight_of_none)
        * greatest(0, coalesce(p_words, count(*)) - count(*) FILTER (WHERE r.is_held)) AS weight
    FROM word_weights r
    UNION ALL
    SELECT false, coalesce(sum(r.weight) FILTER (WHERE r.is_in_messages), 0) + max(r.weight_of_none_there)
        * greatest(0, coalesce(p_words, count(*)) - count(*) FILTER (WHERE r.is_in_messages))
    FROM word_weights r
), full_text_score AS MATERIALIZED (
    -- The best text's, or more if no text has much of the query and vectors say more: from a contrast of 0.15, which
    -- vectors drawn at random have, to one of 0.25.
    SELECT b.with_facts, nullif(greatest(max(b.text), 0.35::float8
        * least(1, greatest(0, (max(b.contrast) - 0.15::float8) / 0.1::float8)) * max(w.weight)), 0) AS score
    FROM (SELECT o.text, o.contrast, p_facts_alone_id IS NULL OR o.fact_id IS NOT NULL AS with_facts
        FROM both_scores o) AS b JOIN whole_weights w ON w.with_facts = b.with_facts
    GROUP BY b.with_facts
), fused_scores AS (
    SELECT t.number, t.through_seq, t.said_on, t.fact_id, t.said_at, t.similarity, t.factor
            * (coalesce(t.text / (SELECT f.score FROM full_text_score f
                WHERE f.with_facts = (p_facts_alone_id IS NULL OR t.fact_id IS NOT NULL)), 0)
            * CASE WHEN p_embedding IS NULL THEN 1 ELSE 0.53::float8 END + 0.47::float8 * t.contrast + 0.1::float8 * t.day_fit) AS score
    FROM both_scores t
), session_bests AS (
    SELECT (t.number >> 40) << 40 AS number, max(t.score) AS score FROM fused_scores t
    WHERE t.number IS NOT NULL GROUP BY (t.number >> 40) << 40
), final_scores AS (
    -- Of several sessions: what one says next to its best message says less that is new.
    SELECT o.session_key, t.number - o.number AS seq, t.number, t.through_seq, t.said_on, t.fact_id, t.said_at, t.similarity,
        t.score * CASE WHEN p_scope_key IS NULL AND t.score < b.score THEN 0.9::float8 ELSE 1 END AS score
    FROM fused_scores t
    LEFT JOIN session_bests b ON b.number = (t.number >> 40) << 40
    LEFT JOIN session_offsets o ON o.number = b.number
    WHERE t.score > 0
)
(SELECT s.session_key, s.seq, s.through_seq, s.fact_id, least(s.score, 1), s.similarity FROM final_scores s
    WHERE s.similarity >= p_similarity_cutoff AND (p_facts_alone_id IS NULL OR s.fact_id IS NULL)
    ORDER BY s.score DESC, s.said_on DESC NULLS LAST, s.number DESC, s.said_at DESC, s.fact_id LIMIT p_top_k)
UNION ALL
(SELECT NULL, NULL, NULL, s.fact_id, least(s.score, 1), s.similarity FROM final_scores s
    WHERE p_facts_alone_id IS NOT NULL AND s.fact_id IS NOT NULL
    ORDER BY s.score DESC, s.said_at DESC, s.fact_id LIMIT p_top_facts)

-- fragment: compared_exactly()
-- The rest of a search that reads each piece of its scope (pieces).
pieces_with_words AS (
    SELECT p.session_key, p.from_seq, p.length, p.said_on, p.found FROM pieces p WHERE p.found IS NOT NULL
), @facts_to_search(), session_offsets AS MATERIALIZED (
    -- Where the numbers of a session's messages begin: so far apart that no word reaches from one to the next.
    SELECT o.session_key, row_number() OVER (ORDER BY o.session_key) << 40 AS number FROM (
        SELECT p.session_key FROM pieces p UNION SELECT c.session_key FROM fact_sources c) AS o
), @counted_words(), word_weights AS MATERIALIZED (
    SELECT DISTINCT a.lexeme, @rarity(n.places, coalesce(h.places, 0)) AS weight,
        @rarity(n.places + k.facts, coalesce(h.places, 0) + coalesce(o.facts, 0)) AS weight_in_fact,
        @rarity(n.places + k.facts, 0) AS weight_of_none, coalesce(h.places, 0) + coalesce(o.facts, 0) > 0 AS is_held,
        @rarity(n.places, 0) AS weight_of_none_there, coalesce(h.places, 0) > 0 AS is_in_messages
    FROM unnest(p_lexemes) AS a (lexeme)
    CROSS JOIN (SELECT count(*)::float8 AS places FROM pieces p WHERE p.piece = 0) AS n
    CROSS JOIN (SELECT count(*) AS facts FROM searched_facts) AS k
    LEFT JOIN (SELECT w.lexeme, count(*) AS places FROM word_counts w GROUP BY w.lexeme) AS h ON h.lexeme = a.lexeme
    LEFT JOIN (SELECT f.lexeme, count(*) AS facts FROM fact_words f GROUP BY f.lexeme) AS o ON o.lexeme = a.lexeme
), message_similarities AS MATERIALIZED (
    SELECT o.number + p.from_seq AS number, max(p.through_seq) AS through_seq,
        greatest(max(p.similarity), 0) AS similarity, greatest(least(max(p.contrast), 1), 0) AS contrast,
        min(p.role) AS role, max(p.tone) AS tone, min(p.said_on) AS said_on, bool_or(p.is_named) AS is_named
    FROM pieces p JOIN session_offsets o ON o.session_key = p.session_key
    GROUP BY o.number + p.from_seq
), neighbour_shares (distance, share) AS (
    VALUES @neighbours()
), message_text_scores AS (
    SELECT n.number, n.said_on, sum(n.weight * @saturated(n.times)) AS score FROM (
        SELECT c.number + d.distance AS number, c.said_on, c.lexeme, c.weight, sum(c.times * d.share) AS times FROM (
            SELECT w.number, w.said_on, w.lexeme, w.times, r.weight
            FROM word_counts w JOIN word_weights r ON r.lexeme = w.lexeme OFFSET 0) AS c
        CROSS JOIN neighbour_shares d
        GROUP BY c.number + d.distance, c.said_on, c.lexeme, c.weight) AS n
    GROUP BY n.number, n.said_on
), @scored_facts(), @ranked()
