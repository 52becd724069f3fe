-- owner_rows_v1: how many rows there are of an owner, or of one of its sessions or scopes, by table.
CREATE FUNCTION strandline.owner_rows_v1(p_shard_key uuid, p_scope_key uuid)
RETURNS TABLE (table_name text, rows bigint)
LANGUAGE plpgsql AS $function$
DECLARE
    one record;
BEGIN
    FOR one IN @owner_tables() LOOP
        table_name := one.relname;
        EXECUTE format('SELECT count(*) FROM strandline.%I WHERE %I = $1 AND ($1 = $2 OR %s)', one.relname,
            one.attname, CASE WHEN one.scoped IS NULL THEN 'false' ELSE format('%I = $2', one.scoped) END)
            INTO rows USING p_shard_key, p_scope_key;
        RETURN NEXT;
    END LOOP;
END
$function$;
