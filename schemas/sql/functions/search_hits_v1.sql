-- search_hits_v1: what search_v1 finds, each with its text: a message with those beside it, a fact with its sentence.
--
-- p_is_shared: the messages are those of a shared scope.  p_beside: how many to show before and after each.
-- All of it is from the snapshot of the statement that calls this, as the function is STABLE.
-- Returns a row per message to show, or per fact, in the order of search_v1.
CREATE FUNCTION strandline.search_hits_v1(
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
    p_team_id text,
    p_is_own boolean,
    p_names text[],
    p_dates_from date[],
    p_dates_through date[],
    p_dates_fit float8[],
    p_beside integer,
    p_is_shared boolean
) RETURNS TABLE (
    score float8, similarity float8, session_key uuid, from_seq bigint, through_seq bigint, seq bigint, id text,
    role text, tokens integer, created_at timestamptz, envelope text, metadata text, fact_id uuid, fact text)
LANGUAGE plpgsql STABLE AS $function$
#variable_conflict use_column
DECLARE
    hit record;
BEGIN
    FOR hit IN
        SELECT f.* FROM strandline.search_v1(p_shard_key, p_generation_id, p_scope_key, p_visible_in, p_visible_from,
            p_embedding, p_lexemes, p_similarity_cutoff, p_top_k, p_messages, p_facts_generation_id,
            p_facts_shown, p_topics, p_agent_id, p_team_id, p_is_own, p_names, p_dates_from, p_dates_through, p_dates_fit) AS f
    LOOP
        IF hit.fact_id IS NOT NULL THEN
            RETURN QUERY SELECT hit.score, hit.similarity, NULL::uuid, NULL::bigint, NULL::bigint, NULL::bigint,
                    NULL::text, NULL::text, NULL::integer, NULL::timestamptz, NULL::text, NULL::text, t.fact_id, t.text
                FROM strandline.fact t
                WHERE t.shard_key = p_shard_key AND t.generation_id = p_facts_generation_id
                  AND t.fact_id = hit.fact_id;
        ELSIF p_is_shared THEN
            RETURN QUERY SELECT hit.score, hit.similarity, hit.session_key, hit.from_seq, hit.through_seq, m.seq,
                    m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text, NULL::uuid, NULL::text
                FROM strandline.shared_message m
                WHERE m.shard_key = p_shard_key AND m.session_key = hit.session_key
                  AND m.seq BETWEEN hit.from_seq - p_beside AND hit.through_seq + p_beside
                ORDER BY m.seq;
        ELSE
            RETURN QUERY SELECT hit.score, hit.similarity, hit.session_key, hit.from_seq, hit.through_seq, m.seq,
                    m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text, NULL::uuid, NULL::text
                FROM strandline.message m
                WHERE m.shard_key = p_shard_key AND m.session_key = hit.session_key
                  AND m.seq BETWEEN hit.from_seq - p_beside AND hit.through_seq + p_beside
                ORDER BY m.seq;
        END IF;
    END LOOP;
END
$function$;
