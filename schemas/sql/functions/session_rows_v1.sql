-- session_rows_v1: how many rows there are that go with a session, by table: those under its key, and of its owner the
-- tables in which nothing says which session a row is of.
--
-- The difference between before and after a forgetting reset is the number of rows that it deletes.
CREATE FUNCTION strandline.session_rows_v1(p_shard_key uuid, p_session_key uuid) RETURNS jsonb
LANGUAGE plpgsql AS $function$
DECLARE
    counts jsonb;
    one text;
    found bigint;
BEGIN
    SELECT coalesce(jsonb_object_agg(r.table_name, r.rows) FILTER (WHERE r.rows > 0), '{}') INTO counts
        FROM strandline.owner_rows_v1(p_shard_key, p_session_key) AS r;
    FOREACH one IN ARRAY ARRAY['fact', 'fact_revision', 'receipt', 'answer'] LOOP
        EXECUTE format('SELECT count(*) FROM strandline.%I WHERE shard_key = $1', one)
            INTO found USING p_shard_key;
        counts := counts || jsonb_build_object(one, found);
    END LOOP;
    RETURN counts;
END
$function$;
