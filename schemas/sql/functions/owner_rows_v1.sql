-- owner_rows_v1: how many rows there are of an owner, or of one of its sessions or scopes, by table.
--
-- As erased_rows_v1 it takes the tables from the catalog.
CREATE FUNCTION strandline.owner_rows_v1(p_shard_key uuid, p_scope_key uuid)
RETURNS TABLE (table_name text, rows bigint)
LANGUAGE plpgsql AS $function$
DECLARE
    one record;
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
        table_name := one.relname;
        EXECUTE format('SELECT count(*) FROM strandline.%I WHERE %I = $1 AND ($1 = $2 OR %s)', one.relname,
            one.attname, CASE WHEN one.scoped IS NULL THEN 'false' ELSE format('%I = $2', one.scoped) END)
            INTO rows USING p_shard_key, p_scope_key;
        RETURN NEXT;
    END LOOP;
END
$function$;
