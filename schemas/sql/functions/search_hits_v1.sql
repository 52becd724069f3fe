-- search_hits_v1: what search_v1 finds, each with its text: a message with those next to it, a fact with its sentence,
-- when it was last said (created_at), and where.
--
-- p_is_shared: the messages are those of a shared scope.  p_beside: how many to show before and after each.
-- All of it is from the snapshot of the statement that calls this, as the function is STABLE.
-- Returns a row per message to show, or per fact, in the order of search_v1.
CREATE FUNCTION strandline.search_hits_v1(
    @search_parameters(), p_beside integer DEFAULT 0, p_is_shared boolean DEFAULT false
) RETURNS TABLE (
    score float8, similarity float8, session_key uuid, from_seq bigint, through_seq bigint, seq bigint, id text,
    role text, tokens integer, created_at timestamptz, envelope text, metadata text, fact_id uuid, fact text,
    sources text)
LANGUAGE plpgsql STABLE AS $function$
#variable_conflict use_column
DECLARE
    places bigint[];
    sessions uuid[];
    firsts bigint[];
    lasts bigint[];
    facts uuid[];
    scores float8[];
    similarities float8[];
BEGIN
    SELECT array_agg(h.place), array_agg(h.session_key), array_agg(h.from_seq), array_agg(h.through_seq),
        array_agg(h.fact_id), array_agg(h.score), array_agg(h.similarity)
    INTO places, sessions, firsts, lasts, facts, scores, similarities
    FROM (
        SELECT f.*, row_number() OVER () AS place FROM strandline.search_v1(@search_arguments()) AS f) AS h;
    p_facts_generation_id := coalesce(p_facts_alone_id, p_facts_generation_id);
    RETURN QUERY
    WITH hits AS (
        SELECT * FROM unnest(places, sessions, firsts, lasts, facts, scores, similarities)
            AS h (place, session_key, from_seq, through_seq, fact_id, score, similarity)
    ), shown AS (
        -- The limits keep these look-ups per hit.
        SELECT h.place, h.score, h.similarity, h.session_key, h.from_seq, h.through_seq, m.seq, m.id, m.role,
            m.tokens, m.created_at, m.envelope, m.metadata, m.bytes, NULL::uuid AS fact_id, NULL::text AS fact,
            NULL::text AS sources
        FROM hits h CROSS JOIN LATERAL (
            SELECT w.* FROM strandline.message w
            WHERE w.shard_key = p_shard_key AND w.session_key = h.session_key
                AND w.seq BETWEEN h.from_seq - p_beside AND h.through_seq + p_beside
                AND @is_visible(w, p_shard_key)
            LIMIT 1000000) AS m
        WHERE h.fact_id IS NULL AND NOT p_is_shared
        UNION ALL
        SELECT h.place, h.score, h.similarity, h.session_key, h.from_seq, h.through_seq, m.seq, m.id, m.role,
            m.tokens, m.created_at, m.envelope, m.metadata, octet_length(m.envelope::text), NULL, NULL, NULL
        FROM hits h CROSS JOIN LATERAL (
            SELECT w.* FROM strandline.shared_message w
            WHERE w.shard_key = p_shard_key AND w.session_key = h.session_key
                AND w.seq BETWEEN h.from_seq - p_beside AND h.through_seq + p_beside AND @is_shared_visible(w)
            LIMIT 1000000) AS m
        WHERE h.fact_id IS NULL AND p_is_shared
        UNION ALL
        SELECT h.place, h.score, h.similarity, NULL, NULL, NULL, NULL, NULL, NULL, NULL, t.said_at, NULL, NULL, 0,
            t.fact_id, t.text, @said_in(p_shard_key, p_facts_generation_id, h.fact_id)::text
        FROM hits h CROSS JOIN LATERAL (
            SELECT w.fact_id, w.text, w.said_at FROM strandline.fact w
            WHERE w.shard_key = p_shard_key AND w.generation_id = p_facts_generation_id AND w.fact_id = h.fact_id
            LIMIT 1) AS t
        WHERE h.fact_id IS NOT NULL
    )
    SELECT s.score, s.similarity, s.session_key, s.from_seq, s.through_seq, s.seq, s.id, s.role, s.tokens,
        s.created_at, s.envelope::text, s.metadata::text, s.fact_id, s.fact, s.sources
    FROM (
        SELECT w.*, sum(w.bytes) OVER (ORDER BY w.place, w.seq) - w.bytes AS bytes_before FROM shown w) AS s
    WHERE s.bytes_before < @max_shown_bytes() OR p_facts_alone_id IS NOT NULL AND s.fact_id IS NOT NULL
    ORDER BY s.place, s.seq;
END
$function$;
