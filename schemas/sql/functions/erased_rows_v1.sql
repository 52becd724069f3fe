-- erased_rows_v1: how many rows there are of owners and sessions that were erased, by table.
--
-- p_shard_key, p_scope_key: of one fence that stands; NULL: of all whose last record is an erasure that is finished, also
-- if the fence is gone, and of all other fences that stand, but for erasures that are under way.
CREATE FUNCTION strandline.erased_rows_v1(p_shard_key uuid, p_scope_key uuid)
RETURNS TABLE (table_name text, rows bigint)
LANGUAGE plpgsql AS $function$
DECLARE
    one record;
    narrower text;
    owners uuid[];
    scopes uuid[];
BEGIN
    SELECT array_agg(k.shard_key), array_agg(k.scope_key) INTO owners, scopes FROM (
        SELECT f.shard_key, f.scope_key FROM strandline.erasure_fence f
            WHERE @stands(f) AND CASE WHEN p_shard_key IS NULL THEN NOT @is_unfinished(f.number)
                ELSE (f.shard_key, f.scope_key) = (p_shard_key, p_scope_key) END
        UNION SELECT e.owner_key, e.scope_key FROM strandline.erasure e WHERE p_shard_key IS NULL AND @is_final(e)) AS k;
    FOR one IN @owner_tables() LOOP
        narrower := CASE WHEN one.scoped IS NULL THEN 'false' ELSE format('t.%I = f.scope_key', one.scoped) END;
        EXECUTE format(
            'SELECT count(*) FROM unnest($1, $2) AS f (shard_key, scope_key) JOIN strandline.%I t ON t.%I = f.shard_key'
            || ' WHERE f.scope_key = f.shard_key OR %s', one.relname, one.attname, narrower)
            INTO rows USING owners, scopes;
        table_name := one.relname;
        RETURN NEXT;
    END LOOP;
END
$function$;
