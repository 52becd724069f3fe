-- serving_v1: which derivation of each pipeline serves an owner (p_pipelines NULL: of all pipelines).
--
-- The one that serves everybody, unless the owner has a row of its own in scope_generation: while a replay
-- switches owner by owner, and no longer.  Plain enough that the planner takes it into the statement that asks,
-- where it costs one look-up by primary key.
CREATE FUNCTION strandline.serving_v1(p_shard_key uuid, p_pipelines text[])
RETURNS TABLE (generation_id integer, pipeline text, version text, entry_scope text, config jsonb)
LANGUAGE sql STABLE AS $function$
    SELECT g.generation_id, g.pipeline, g.version, g.entry_scope, g.config
    FROM strandline.generation g
    LEFT JOIN strandline.scope_generation o ON o.shard_key = p_shard_key AND o.pipeline = g.pipeline
    WHERE (p_pipelines IS NULL OR g.pipeline = ANY (p_pipelines))
        AND CASE WHEN o.generation_id IS NULL THEN g.state = 'serving'
            ELSE g.generation_id = o.generation_id END
$function$;
