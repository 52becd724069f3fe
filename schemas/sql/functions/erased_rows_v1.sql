-- erased_rows_v1: how many rows there are of owners and sessions that were erased, by table.
--
-- It takes the tables from the catalog, not from the plan of the erasure: each that has a key of an owner
-- (shard_key, owner_key), and of those each that has a key of a session or scope.
-- p_shard_key, p_scope_key: of one fence; NULL: of all that stand, but for erasures that are under way.
CREATE FUNCTION strandline.erased_rows_v1(p_shard_key uuid, p_scope_key uuid)
RETURNS TABLE (table_name text, rows bigint)
LANGUAGE plpgsql AS $function$
DECLARE
    one record;
    found bigint;
    narrower text;
BEGIN
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
            'SELECT count(*) FROM strandline.erasure_fence f JOIN strandline.%I t ON t.%I = f.shard_key'
            || ' WHERE f.readmitted_at IS NULL AND ($1 IS NULL OR (f.shard_key, f.scope_key) = ($1, $2))'
            || ' AND (f.scope_key = f.shard_key OR %s) AND ($1 IS NOT NULL OR EXISTS ('
            || 'SELECT FROM strandline.erasure e WHERE e.number = f.number AND e.state = ''done''))', one.relname, one.attname, narrower)
            INTO found USING p_shard_key, p_scope_key;
        table_name := one.relname;
        rows := found;
        RETURN NEXT;
    END LOOP;
END
$function$;
