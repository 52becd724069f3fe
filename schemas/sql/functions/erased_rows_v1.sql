-- erased_rows_v1: how many rows there are of owners and sessions that were erased, by table.
--
-- It takes the tables from the catalog, not from the plan of the erasure: each that has a key of an owner
-- (shard_key, owner_key), and of those each that has a key of a session or scope.
-- p_shard_key, p_scope_key: of one fence that stands; NULL: of all whose last record is an erasure that is finished, also
-- if the fence is gone, and of all other fences that stand, but for erasures that are under way.
CREATE FUNCTION strandline.erased_rows_v1(p_shard_key uuid, p_scope_key uuid)
RETURNS TABLE (table_name text, rows bigint)
LANGUAGE plpgsql AS $function$
DECLARE
    one record;
    found bigint;
    narrower text;
    owners uuid[];
    scopes uuid[];
BEGIN
    SELECT array_agg(k.shard_key), array_agg(k.scope_key) INTO owners, scopes FROM (
        SELECT f.shard_key, f.scope_key FROM strandline.erasure_fence f
            WHERE @stands(f) AND CASE WHEN p_shard_key IS NULL THEN NOT @is_unfinished(f.number)
                ELSE (f.shard_key, f.scope_key) = (p_shard_key, p_scope_key) END
        UNION SELECT e.owner_key, e.scope_key FROM strandline.erasure e WHERE p_shard_key IS NULL AND @is_final(e)) AS k;
    FOR one IN
        SELECT c.relname, a.attname, (
            SELECT o.attname FROM pg_catalog.pg_attribute o WHERE o.attrelid = c.oid AND NOT o.attisdropped
                AND o.attname IN ('session_key', 'scope_key') ORDER BY o.attname DESC LIMIT 1) AS scoped
        FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname IN ('shard_key', 'owner_key')
            AND a.atttypid = 'uuid'::regtype AND NOT a.attisdropped
        WHERE c.relnamespace = (
                SELECT n.relnamespace FROM pg_catalog.pg_class n WHERE n.oid = to_regclass('strandline.erasure'))
            AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname NOT IN ('erasure', 'erasure_fence')
        ORDER BY c.relname, a.attname
    LOOP
        narrower := CASE WHEN one.scoped IS NULL THEN 'false' ELSE format('t.%I = f.scope_key', one.scoped) END;
        EXECUTE format(
            'SELECT count(*) FROM unnest($1, $2) AS f (shard_key, scope_key) JOIN strandline.%I t ON t.%I = f.shard_key'
            || ' WHERE f.scope_key = f.shard_key OR %s', one.relname, one.attname, narrower)
            INTO found USING owners, scopes;
        table_name := one.relname;
        rows := found;
        RETURN NEXT;
    END LOOP;
END
$function$;
