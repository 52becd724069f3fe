-- append_act_v1: append an act to the audit trail, in the transaction that carries it out.
--
-- p_shard_key is the key of the owner concerned, or that of the namespace's chain if the act concerns no owner
-- (p_has_owner false).  p_act: entry_id, act, level ('changes' or 'all': from which on it is recorded), actor, origin,
-- seq, count, detail, flags, on_behalf_of (whom a key says that it acts for; it becomes part of detail).  Nothing is appended where the namespace's level is lower, but for a pruning of the trail.
-- An owner's first act makes the pseudonym.  Content and names are not stored: the owner is its pseudonym, and so is an
-- actor who is that very user; a session is a digest by a secret of the owner's.
-- Of an owner or a session that was erased, or is being erased at this moment, the act stands under a random key,
-- without a pseudonym: nothing leads to the owner again.
-- p_lazily: the commit does not wait for the disk.  Returns whether the act was appended.
CREATE FUNCTION strandline.append_act_v1(
    p_shard_key uuid, p_has_owner boolean, p_namespace text, p_user_id text, p_session_key uuid, p_act jsonb,
    p_lazily boolean
) RETURNS boolean
LANGUAGE plpgsql AS $function$
DECLARE
    this_level CONSTANT text := coalesce(
        (SELECT l.level FROM strandline.audit_level l WHERE l.namespace = p_namespace), 'changes');
    whom record;
    is_erased boolean;
    this_place CONSTANT uuid := gen_random_uuid();
    subject uuid;
    session uuid;
    new_subject uuid;
    new_salt bytea;
    happened_at CONSTANT timestamptz := clock_timestamp();
BEGIN
    -- A chain that was pruned is sound only with the act that says so.
    IF p_act ->> 'act' <> 'audit.prune' AND (this_level = 'off' OR this_level <> 'all' AND p_act ->> 'level' = 'all')
    THEN
        RETURN false;
    END IF;
    IF p_lazily THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    -- Whoever sets the fence is not waited for: the caller may hold what that waits for.
    is_erased := p_has_owner AND NOT (
        pg_try_advisory_xact_lock_shared(@erasing_lock(p_shard_key))
        AND (p_session_key IS NULL OR pg_try_advisory_xact_lock_shared(@erasing_lock(p_session_key))));
    is_erased := is_erased OR p_has_owner AND EXISTS (
        SELECT FROM strandline.erasure_fence f WHERE f.shard_key = p_shard_key AND @stands(f)
            AND f.scope_key IN (p_shard_key, p_session_key));
    IF NOT is_erased THEN
        SELECT a.subject, a.salt, a.user_id INTO whom FROM strandline.audit_subject a WHERE a.shard_key = p_shard_key;
        IF whom.user_id IS NULL AND p_user_id IS NOT NULL AND FOUND THEN
            -- It was made by an act that knew the owner by the key alone.
            UPDATE strandline.audit_subject a SET user_id = p_user_id WHERE a.shard_key = p_shard_key;
        ELSIF NOT FOUND AND p_has_owner THEN
            new_subject := gen_random_uuid();
            new_salt := uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
            INSERT INTO strandline.audit_subject (shard_key, subject, salt, namespace, user_id)
                VALUES (p_shard_key, new_subject, new_salt, p_namespace, p_user_id)
                ON CONFLICT DO NOTHING;
            SELECT a.subject, a.salt INTO whom FROM strandline.audit_subject a WHERE a.shard_key = p_shard_key;
        END IF;
        subject := whom.subject;
        session := CASE WHEN p_session_key IS NOT NULL THEN @session_pseudonym(whom.salt, p_session_key) END;
    END IF;
    INSERT INTO strandline.audit_entry (
            shard_key, entry_id, namespace, act, actor, origin, subject, session, seq, count, detail, flags, created_at)
        VALUES (
            CASE WHEN is_erased THEN this_place ELSE p_shard_key END, (p_act ->> 'entry_id')::uuid, p_namespace,
            p_act ->> 'act', CASE WHEN is_erased AND p_act ->> 'actor' = p_user_id THEN 'user:erased'
                ELSE @named_actor(p_act ->> 'actor', p_user_id, subject) END,
            CASE WHEN NOT is_erased THEN p_act ->> 'origin' END, subject, session, (p_act ->> 'seq')::bigint, (p_act ->> 'count')::bigint,
            (CASE WHEN p_act ? 'on_behalf_of' THEN coalesce(p_act -> 'detail', '{}') || jsonb_build_object('on_behalf_of',
                CASE WHEN is_erased AND p_act ->> 'on_behalf_of' = p_user_id THEN 'user:erased'
                    ELSE @named_actor(p_act ->> 'on_behalf_of', p_user_id, subject) END)
                ELSE p_act -> 'detail' END)::json,
            ARRAY(SELECT jsonb_array_elements_text(coalesce(p_act -> 'flags', '[]'))), happened_at);
    RETURN true;
END
$function$;
