-- search_v1: the best messages and facts of a scope for a query; words and vectors are fused by score, about half and
-- half, and without a vector only the words count.
--
-- Words: BM25 (sql/fragments/bm25.sql).  A word counts in part for the messages next to its own;
-- as in BM25F, counts are set against the length of the message they are of before they are added up.
-- Vectors: the cosine of query and piece without what the whole scope has in common (the mean of its first pieces,
-- less of it where they are few), since that says nothing of one message, and at the scale by which the scope's
-- pieces differ: so an embedder whose cosines are all alike ranks as one whose cosines are far apart.  A message has
-- its best piece's; of a few words a vector says little.
-- Then what else speaks for a message: who speaks, if the query names a speaker of the scope or speaks of the asker;
-- how, if it reads like a standing wish of the user, or asks; and when, if the query names a date.
-- Facts: their words count as a message's do, with nothing next to them, and as rare as they are in messages and facts
-- together (an owner may have facts, and no messages that are indexed);
-- by meaning a fact is as near as the nearest candidate that it comes from, and what the best facts by words
-- come from is a candidate too.
-- docs/search-trials.md says how these constants were chosen; `make bench-recall` measures what they find.
--
-- p_scope_key: one session, or NULL for all that lies under the shard key.
-- p_visible_from: of p_visible_in, messages from here on are shown anyway and not looked for, nor facts that
-- come from them alone.
-- p_generation_id: the derivation of vectors to look at, or NULL for none.
-- p_facts_generation_id: the derivation of facts to look at, or NULL for none; p_facts_shown: without these;
-- p_topics, p_agent_id, p_team_id: only those of any of these topics, and of this agent and team (NULL: of all).
-- p_is_own: whether the query speaks of the asker.  p_names: its lexemes that may be names.
-- p_words: how many words p_lexemes are of: a word may be written in several ways, and sealed by several keys; NULL: as
-- many as lexemes.
-- p_dates_from, p_dates_through, p_dates_fit: ranges of days that it names, and how well a day in each fits, 0 to 1.
-- p_roles, p_since, p_until, p_labels, p_clear_labels: only messages of these roles and times, and with all of these
-- labels of p_visible_in's session, as sealed or in clear (NULL: of all).
-- p_facts_alone_id: a derivation of which the best p_top_facts facts of the whole owner follow, ranked by themselves.
-- A fact belongs to a session if a message there is among its sources; facts that people added belong only to the
-- owner. score: 0 to 1.  similarity: the cosine, 0 if it is negative or unknown.
--
-- The settings: one plan for all, made once per connection, since making it takes as long as searching a small
-- scope.  It does not ask statistics, which cannot tell how many rows a scope has: where ten are expected a
-- nested loop over ten thousand takes seconds, and where ten thousand are expected it would sort them all instead of
-- reading the first in their order.  Compiling the query, or starting workers for it, takes longer than running it.
CREATE FUNCTION strandline.search_v1(@search_parameters())
RETURNS TABLE (@search_columns())
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET enable_sort = off
SET jit = off
SET max_parallel_workers_per_gather = 0
SET plan_cache_mode = force_generic_plan
AS $function$
#variable_conflict use_column
DECLARE
    alone_id CONSTANT integer := p_facts_alone_id;
BEGIN
    -- Facts alone and messages are ranked together if all of the owner's pieces are few, and are those looked for.
    IF alone_id IS NOT NULL AND p_top_k > 0 AND num_nonnulls(p_roles, p_since, p_until, p_labels) = 0 AND (
        SELECT count(*) <= 1000 AND NOT coalesce(bool_or(n.is_beside), false) FROM (
            SELECT c.session_key <> p_scope_key OR c.session_key = p_visible_in AND c.through_seq >= p_visible_from AS is_beside
            FROM strandline.chunk c
            WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id LIMIT 1001) AS n)
    THEN
        p_facts_generation_id := alone_id;
        p_facts_shown := '{}';
        RETURN QUERY SELECT * FROM strandline.search_small_v1(@search_arguments());
        RETURN;
    END IF;
    p_facts_alone_id := NULL;
    IF p_top_k = 0 THEN
        NULL;
    ELSIF num_nonnulls(p_roles, p_since, p_until, p_labels) > 0 THEN
        RETURN QUERY SELECT * FROM strandline.search_filtered_v1(@search_arguments());
    ELSIF EXISTS (
        SELECT FROM strandline.chunk c
        WHERE c.shard_key = p_shard_key AND c.generation_id = p_generation_id
            AND c.session_key BETWEEN coalesce(p_scope_key, '00000000-0000-0000-0000-000000000000')
                AND coalesce(p_scope_key, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
            AND NOT (c.session_key = p_visible_in AND c.through_seq >= p_visible_from)
        OFFSET 1000)
    THEN
        RETURN QUERY SELECT * FROM strandline.search_big_v1(@search_arguments());
    ELSE
        RETURN QUERY SELECT * FROM strandline.search_small_v1(@search_arguments());
    END IF;
    IF alone_id IS NOT NULL THEN
        RETURN QUERY SELECT * FROM strandline.search_v1(p_shard_key, p_generation_id, NULL, p_shard_key, 4611686018427387904,
            p_embedding, p_lexemes, 0, p_top_facts, false, alone_id, '{}', NULL, NULL, NULL, p_is_own, p_names,
            p_dates_from, p_dates_through, p_dates_fit, p_words);
    END IF;
END
$function$
