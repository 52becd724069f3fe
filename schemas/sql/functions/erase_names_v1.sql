-- erase_names_v1: replace an owner's names where others' rows and the operator's hold them, and delete its acts on
-- capturing and its keys of the service.
--
-- p_user_id: of a user, who may be named as an actor in the namespace, and in the selection of a replay; NULL for a
-- session without a user, or where the name is not known.  Sessions in selections are found in the directory, which
-- therefore goes after this.  p_session_id: only this session's name.  p_mark takes the place of a name: it is random,
-- and no replay that goes on selects anything by it.
-- Returns how many rows were changed or deleted.
CREATE FUNCTION strandline.erase_names_v1(
    p_number integer, p_owner_key uuid, p_namespace text, p_user_id text, p_session_id text, p_mark text
) RETURNS bigint
LANGUAGE plpgsql AS $function$
DECLARE
    one text;
    acts bigint := 0;
    selections bigint;
    renamed bigint;
    actors bigint := 0;
    service_keys bigint := 0;
    -- NULL, which no actor is, where the name is that of an operator, a key or a worker next to the user's.
    actor_id CONSTANT text := CASE WHEN NOT @is_reserved_actor(p_user_id) THEN p_user_id END;
BEGIN
    @lock_unfinished(p_number);
    IF p_session_id IS NULL THEN
        DELETE FROM strandline.capture_act a WHERE a.owner_key = p_owner_key;
        GET DIAGNOSTICS acts = ROW_COUNT;
    END IF;
    UPDATE strandline.replay r SET selection = r.selection || jsonb_build_object('session_id', p_mark)
        WHERE CASE WHEN p_session_id IS NOT NULL THEN r.selection ->> 'session_id' = p_session_id
                AND r.selection ->> 'namespace' IS NOT DISTINCT FROM p_namespace
            ELSE EXISTS (
                SELECT FROM strandline.session_owner o WHERE o.namespace = r.selection ->> 'namespace'
                    AND o.session_id = r.selection ->> 'session_id' AND o.owner_key = p_owner_key) END;
    GET DIAGNOSTICS selections = ROW_COUNT;
    IF p_user_id IS NOT NULL AND p_session_id IS NULL THEN
        UPDATE strandline.replay r SET selection = r.selection || jsonb_build_object('user_id', p_mark)
            WHERE r.selection ->> 'user_id' = p_user_id AND r.selection ->> 'namespace' IS NOT DISTINCT FROM p_namespace;
        GET DIAGNOSTICS renamed = ROW_COUNT;
        selections := selections + renamed;
        UPDATE strandline.fact_event t SET actor = p_mark
            WHERE t.actor = actor_id AND t.shard_key <> p_owner_key AND (
            EXISTS (SELECT FROM strandline.session s WHERE s.shard_key = t.shard_key AND s.namespace = p_namespace)
            OR EXISTS (
                SELECT FROM strandline.fact_owner o WHERE o.shard_key = t.shard_key AND o.namespace = p_namespace));
        GET DIAGNOSTICS renamed = ROW_COUNT;
        actors := actors + renamed;
        FOREACH one IN ARRAY ARRAY['correction', 'policy_change', 'session_retention_act'] LOOP
            EXECUTE format(
                'UPDATE strandline.%I t SET actor = $1 WHERE t.actor = $2 AND t.shard_key <> $3 AND EXISTS ('
                || 'SELECT FROM strandline.session s WHERE s.shard_key = t.shard_key AND s.session_key = t.session_key'
                || ' AND s.namespace = $4)', one)
                USING p_mark, actor_id, p_owner_key, p_namespace;
            GET DIAGNOSTICS renamed = ROW_COUNT;
            actors := actors + renamed;
        END LOOP;
        FOREACH one IN ARRAY ARRAY['capture_act', 'retention_act', 'audit_entry', 'erasure'] LOOP
            EXECUTE format('UPDATE strandline.%I t SET actor = $1 WHERE t.actor = $2 AND t.namespace = $3', one)
                USING p_mark, actor_id, p_namespace;
            GET DIAGNOSTICS renamed = ROW_COUNT;
            actors := actors + renamed;
        END LOOP;
        DELETE FROM strandline.service_key k WHERE k.namespace = p_namespace AND k.user_id = p_user_id;
        GET DIAGNOSTICS service_keys = ROW_COUNT;
    END IF;
    UPDATE strandline.erasure e SET rows_erased = e.rows_erased + acts + service_keys,
            updated_at = statement_timestamp(),
            steps = e.steps || jsonb_build_object(
                'capture_act', coalesce((e.steps ->> 'capture_act')::bigint, 0) + acts,
                'replay_names', coalesce((e.steps ->> 'replay_names')::bigint, 0) + selections,
                'service_key', coalesce((e.steps ->> 'service_key')::bigint, 0) + service_keys,
                'actor_names', coalesce((e.steps ->> 'actor_names')::bigint, 0) + actors)
        WHERE e.number = p_number;
    RETURN acts + selections + actors + service_keys;
END
$function$;
