-- Searching: chunks of messages, facts, and messages without a chunk.

-- name: insert_chunks
-- Searchable pieces with their lexemes and vectors.
-- seals: lexemes tsvector, speakers array
WITH @noted_change(%(shard_key)s, 'added')
INSERT INTO strandline.chunk (shard_key, generation_id, session_key, from_seq, piece, through_seq,
    event_id, batch_id, length, lexemes, embedding, role, speaker, tone, said_on)
SELECT %(shard_key)s, %(generation_id)s, c.session_key, c.from_seq, c.piece, c.through_seq, c.event_id,
    %(batch_id)s, c.length, c.lexemes::tsvector, c.embedding::halfvec, c.role, c.speaker::text[], c.tone, c.said_on
FROM unnest(%(session_keys)s::uuid[], %(from_seqs)s::bigint[], %(pieces)s::integer[],
    %(through_seqs)s::bigint[], %(event_ids)s::uuid[], %(lengths)s::integer[], %(lexemes)s::text[],
    %(embeddings)s::text[], %(roles)s::text[], %(speakers)s::text[], %(tones)s::smallint[], %(said_on)s::date[])
    AS c (session_key, from_seq, piece, through_seq, event_id, length, lexemes, embedding, role, speaker, tone, said_on)

-- name: search_chunks
-- The best messages and facts of a scope for a query, best first; a message with those next to it (search_hits_v1).
-- Then, of all of the owner's facts, the best by themselves; and a row with the next part of an index (index_part_v1).
-- params: generation_id integer?, scope_key uuid?, messages boolean, facts_shown uuid[], topics text[]?,
--     facts_alone_id integer?, top_facts integer, part_of uuid?, through_session uuid, through_piece integer,
--     pieces_since bigint, at_once bigint, roles text[]?, labels bigint[]?
-- row: score float8, similarity float8, session_key uuid?, from_seq bigint!, through_seq bigint!, seq bigint!, id
--     text!, role text!, tokens integer!, created_at timestamptz!, envelope text!, metadata text?, fact_id uuid?, fact
--     text!, sources text?, part text?
-- opens: envelope, metadata, fact text fact
-- seals: lexemes query, names query, topics, labels label - session_key, clear_labels transition
-- repeatable
SELECT h.*, NULL::text AS part FROM strandline.search_hits_v1(%(shard_key)s, %(generation_id)s, %(scope_key)s,
    %(session_key)s, %(visible_from)s, %(embedding)s::halfvec, %(lexemes)s::text[], %(similarity_cutoff)s, %(top_k)s,
    %(messages)s, %(facts_generation_id)s::integer, %(facts_shown)s::uuid[], %(topics)s::text[], %(agent_id)s,
    %(team_id)s, %(is_own)s, %(names)s::text[], %(dates_from)s::date[], %(dates_through)s::date[], %(dates_fit)s::float8[],
    %(words)s::integer, %(roles)s::text[], %(since)s::timestamptz, %(until)s::timestamptz, %(labels)s::bigint[],
    %(clear_labels)s::bigint[], %(facts_alone_id)s::integer, %(top_facts)s, %(beside)s::integer) AS h
UNION ALL
SELECT 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    strandline.index_part_v1(%(shard_key)s, %(generation_id)s, %(part_of)s, %(through_session)s, %(through_seq)s,
        %(through_piece)s, %(pieces_since)s, %(at_once)s)
WHERE %(at_once)s > 0

-- name: facts_by_words
-- The best of an owner's facts by the words of a query alone, best first, ranked as search_v1 ranks them without pieces;
-- its steps for pieces take longer than all of this.
-- params: facts_generation_id integer, topics text[]?, top_facts bigint
-- row: score float8, fact_id uuid, fact text, said_at timestamptz, sources text?
-- opens: fact text fact
-- seals: lexemes query, topics
-- repeatable
WITH searched AS MATERIALIZED (
    SELECT f.fact_id, f.said_at, f.lexemes FROM strandline.fact f
    WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(facts_generation_id)s::integer AND f.live
        AND @is_asked_for(f)
), words AS (
    -- The facts with a word are counted over the rows, so that nothing is joined, whatever the planner expects.
    SELECT w.fact_id, w.said_at, w.length, count(*) OVER (PARTITION BY w.lexeme) AS holders FROM (
        SELECT k.fact_id, k.said_at, @by_length(cardinality(k.lexemes)) AS length, unnest(k.lexemes) AS lexeme
        FROM searched k) AS w
    WHERE w.lexeme IN (SELECT unnest(%(lexemes)s::text[]))
), best AS (
    SELECT t.fact_id, t.said_at, t.text / max(t.text) OVER () AS score FROM (
        SELECT w.fact_id, w.said_at,
            sum(@rarity((SELECT count(*) FROM searched), w.holders) * @saturated(1 / w.length)) AS text
        FROM words w GROUP BY w.fact_id, w.said_at) AS t
    ORDER BY score DESC, t.said_at DESC, t.fact_id LIMIT %(top_facts)s
)
SELECT b.score, b.fact_id, t.text AS fact, b.said_at,
    @said_in(%(shard_key)s, %(facts_generation_id)s::integer, b.fact_id)::text AS sources
FROM best b CROSS JOIN LATERAL (
    -- The limit keeps this a look-up per fact.
    SELECT w.text FROM strandline.fact w
    WHERE w.shard_key = %(shard_key)s AND w.generation_id = %(facts_generation_id)s::integer AND w.fact_id = b.fact_id
    LIMIT 1) AS t
ORDER BY b.score DESC, b.said_at DESC, b.fact_id

-- name: indexed_hits
-- Messages that an index in memory has ranked, each with those next to it, after a row that tells the version of the
-- owner's pieces now; and, if they are asked for, all live facts up to a number of them, with their words.
-- params: sessions uuid[], numbers integer[]
-- row: message_of_hit
-- opens: envelope, metadata, envelope within facts.*.text=text:fact
@index_head(%(shard_key)s, %(facts_generation_id)s::integer, NULL, ''::text)
UNION ALL
@messages_of_hits(%(shard_key)s, (@given_hits()))
ORDER BY place, seq

-- name: added_hits
-- As indexed_hits, for an index that lacks only added pieces: the id of the first row is their part of an index, and
-- behind the messages that the index has ranked come those of the first added pieces in the session that is searched
-- (shown_in, NULL: in all), in the order of the part.
-- params: sessions uuid[], numbers integer[], scope_key uuid?, pieces_since bigint, at_once bigint, shown_in uuid?,
--     shown bigint
-- row: message_of_hit
-- opens: envelope, metadata, envelope within facts.*.text=text:fact
WITH pieces AS MATERIALIZED (
    @next_pieces(%(shard_key)s, %(generation_id)s, %(scope_key)s::uuid,
        ('00000000-0000-0000-0000-000000000000', 0, -1), %(pieces_since)s::bigint, %(at_once)s)
), shown AS (
    SELECT p.session_key, p.from_seq, p.through_seq, row_number() OVER (ORDER BY p.number) AS place
    FROM pieces p
    WHERE p.piece = 0 AND p.session_key = coalesce(%(shown_in)s::uuid, p.session_key)
    ORDER BY p.number LIMIT %(shown)s
)
@index_head(%(shard_key)s, %(facts_generation_id)s::integer, (SELECT json_build_object(
    'session_keys', json_agg(s.session_key ORDER BY s.place), 'from_seqs', json_agg(s.from_seq ORDER BY s.place))
    FROM shown s), @index_part(%(shard_key)s))
UNION ALL
@messages_of_hits(%(shard_key)s, (@given_hits()
    UNION ALL
    SELECT cardinality(%(numbers)s::integer[]) + s.place, s.session_key, s.from_seq, s.through_seq FROM shown s))
ORDER BY place, seq

-- name: unsearched_messages
-- Messages that a search by chunks cannot find, newest first: of the sessions last put to, those that are not
-- delivered, that vectors have not covered, or that were flushed while the session fed no vectors. session_key: whose
-- labels the filter has.
-- params: scope_key uuid?, excluded_session uuid?, sessions bigint, generation_id integer?, messages bigint, roles
--     text[]?, labels bigint[]?
-- row: message_of_session
-- opens: envelope, metadata
-- seals: labels label - session_key, clear_labels transition
WITH s AS (
    SELECT t.session_key, t.incarnation, t.next_seq, t.flushed_through, t.pipelines,
        greatest(t.log_start_seq, t.pinned_through + 1) AS first_seq,
        @is_expired(t, %(shard_key)s, t.session_key) AS is_expired,
        @oldest(%(shard_key)s, t.session_key, t.namespace) AS oldest, @important(t.session_key, t.namespace) AS important
    FROM strandline.session t
    WHERE t.shard_key = %(shard_key)s
        AND (%(scope_key)s::uuid IS NULL OR t.session_key = %(scope_key)s::uuid)
        AND (%(excluded_session)s::uuid IS NULL OR t.session_key <> %(excluded_session)s::uuid)
    ORDER BY t.last_put_at DESC LIMIT %(sessions)s
), flushed AS (
    -- Under which policy, as the fragment fed tells it of one message.
    SELECT s.session_key, 1 + coalesce(max(c.flushed_through), 0) AS from_seq, s.flushed_through AS through_seq,
        'vectors' = ANY (s.pipelines) AS fed
    FROM s LEFT JOIN strandline.policy_change c ON c.shard_key = %(shard_key)s AND c.session_key = s.session_key
    GROUP BY s.session_key, s.flushed_through, s.pipelines
    UNION ALL
    SELECT s.session_key,
        1 + coalesce(lag(c.flushed_through) OVER (PARTITION BY s.session_key ORDER BY c.number), 0),
        c.flushed_through, c.before -> 'pipelines' @> '["vectors"]'
    FROM s JOIN strandline.policy_change c ON c.shard_key = %(shard_key)s AND c.session_key = s.session_key
), gap AS (
    SELECT s.session_key, greatest(s.flushed_through + 1, s.first_seq) AS from_seq, s.next_seq - 1 AS through_seq,
        true AS fed
    FROM s WHERE s.flushed_through + 1 < s.next_seq
    UNION
    SELECT s.session_key, greatest(f.from_seq, s.first_seq), f.through_seq, false
    FROM s JOIN flushed f USING (session_key)
    WHERE NOT f.fed AND greatest(f.from_seq, s.first_seq) <= f.through_seq
    UNION
    SELECT d.session_key, d.from_seq, d.through_seq, true FROM s JOIN strandline.due d
        ON d.shard_key = %(shard_key)s AND d.session_key = s.session_key
        AND (d.incarnation = s.incarnation OR d.was_applied)
        AND d.generation_id = %(generation_id)s::integer
    UNION
    SELECT d.session_key, d.from_seq, d.through_seq, true FROM s JOIN strandline.dead_letter d
        ON d.shard_key = %(shard_key)s AND d.session_key = s.session_key AND d.incarnation = s.incarnation
        AND d.generation_id = %(generation_id)s::integer AND d.dropped_at IS NULL
)
SELECT m.session_key, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM @filled((SELECT m.session_key, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope, m.metadata, m.bytes
    FROM gap g JOIN s ON s.session_key = g.session_key CROSS JOIN LATERAL (
    SELECT * FROM strandline.message n
    WHERE n.shard_key = %(shard_key)s AND n.session_key = g.session_key
        AND n.seq BETWEEN g.from_seq AND g.through_seq
        AND (NOT s.is_expired AND n.created_at > s.oldest OR n.labels @> ARRAY[s.important])
        AND @is_sought(n, %(roles)s::text[], %(since)s::timestamptz, %(until)s::timestamptz, %(labels)s::bigint[],
            %(clear_labels)s::bigint[], %(session_key)s::uuid)
    ORDER BY n.seq DESC LIMIT %(messages)s) AS m
    -- A replay may have covered it since.
    WHERE g.fed OR NOT EXISTS (
        SELECT FROM strandline.chunk c
        WHERE c.shard_key = %(shard_key)s AND c.generation_id = %(generation_id)s::integer
            AND c.session_key = g.session_key AND c.from_seq = m.seq)
    ORDER BY m.created_at DESC, m.seq DESC LIMIT %(messages)s), (page.created_at, page.seq) DESC) AS m
ORDER BY m.created_at DESC, m.seq DESC

-- name: session_names
-- The names of an owner's sessions.
-- row: session_name
SELECT session_key, session_id FROM strandline.session
WHERE shard_key = %(shard_key)s AND session_key = ANY (%(session_keys)s::uuid[])
