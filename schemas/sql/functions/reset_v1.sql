-- reset_v1: start a session's log over, and with p_derived forget the memory derived from it.
--
-- The incarnation changes, so that pending work and work in flight from before is void; the workers clear it away.
-- With p_derived the lanes are taken from their holders first: a worker that is writing commits before this (and its
-- rows are deleted here) or finds its lease gone.  The session row is locked last, so that no put waits while this
-- waits for a worker.
-- Returns the number of messages that were in the log, and with p_derived the incarnations that had events or
-- the log, and the facts that forgetting gave other words, or revived; no row if there is no such session.
-- p_act: the act for the audit trail (append_act_v1), NULL for none.
CREATE FUNCTION strandline.reset_v1(
    p_shard_key uuid, p_session_key uuid, p_derived boolean, p_act jsonb DEFAULT NULL)
RETURNS TABLE (messages bigint, ended uuid[], touched uuid[])
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    gone uuid[];
    events uuid[];
    stated_by uuid[];
    copies uuid[] := '{}';
    folded record;
    this_namespace text;
    this_user text;
    new_life CONSTANT uuid := gen_random_uuid();
BEGIN
    -- Where the owner or the session was erased, there is no session, and no lane is to be made for one.
    IF p_derived AND strandline.look_at_fence_v1(p_shard_key, p_session_key) IS NOT NULL THEN
        RETURN;
    END IF;
    -- Then first of all, since whoever adds a run again holds its row before it takes the lanes.
    PERFORM FROM strandline.session_run r
        WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key ORDER BY r.number FOR UPDATE;
    IF p_derived THEN
        PERFORM strandline.take_lanes_v1(p_shard_key, p_session_key);
        -- States folded from several sessions are folded again without this one.
        FOR folded IN
            SELECT t.generation_id, b.stage, min(t.ordinal) AS ordinal
            FROM strandline.block_state t
            JOIN strandline.batch b ON b.shard_key = t.shard_key AND b.batch_id = t.batch_id
            WHERE t.shard_key = p_shard_key AND t.scope_key = p_shard_key AND EXISTS (
                -- Also where its events went into a base, whose earlier states are gone.
                SELECT FROM strandline.flush_event e
                JOIN strandline.batch folded_in ON folded_in.shard_key = p_shard_key AND folded_in.state = 'applied'
                    AND folded_in.scope_key = p_shard_key AND folded_in.generation_id = t.generation_id
                    AND folded_in.stage = b.stage AND folded_in.event_ids @> ARRAY[e.event_id]
                WHERE e.shard_key = p_shard_key AND e.session_key = p_session_key
                  AND (folded_in.batch_id = t.batch_id OR folded_in.closed_at < b.closed_at
                    AND @is_event_removed(e, p_shard_key)))
            GROUP BY t.generation_id, b.stage ORDER BY t.generation_id, b.stage
        LOOP
            PERFORM strandline.unfold_v1(
                p_shard_key, p_shard_key, folded.generation_id, folded.stage, folded.ordinal);
        END LOOP;
    END IF;
    UPDATE strandline.session t SET
            incarnation = new_life, log_start_seq = t.next_seq, first_kept = NULL,
            pinned_through = t.next_seq - 1, window_from = t.next_seq,
            flushed_through = t.next_seq - 1, pinned_tokens = 0, window_tokens = 0,
            window_messages = 0, window_bytes = 0, replan_at_tokens = 0, watched_until = NULL, overdue_at = NULL,
            question_seqs = NULL
        FROM strandline.session old
        WHERE t.shard_key = p_shard_key AND t.session_key = p_session_key
          AND old.shard_key = t.shard_key AND old.session_key = t.session_key
        RETURNING t.next_seq - old.log_start_seq, ARRAY[old.incarnation], t.namespace, t.user_id
        INTO messages, ended, this_namespace, this_user;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    DELETE FROM strandline.session_run r WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key;
    IF p_derived THEN
        -- Events before all rows that name them: each statement sees the commits up to the end of the one before it.
        WITH deleted AS (
            DELETE FROM strandline.flush_event e
                WHERE e.shard_key = p_shard_key AND e.session_key = p_session_key
                RETURNING e.event_id, e.incarnation
        )
        SELECT array_agg(d.event_id), ended || coalesce(array_agg(DISTINCT d.incarnation), '{}')
            INTO events, ended FROM deleted d;
        -- Forks that stand on what this session gave its owner derive it for themselves.
        FOR folded IN
            SELECT g.generation_id FROM strandline.generation g
            WHERE g.state <> 'retired' AND (g.pipeline = 'facts' OR g.entry_scope = 'owner') ORDER BY g.generation_id
        LOOP
            copies := copies || strandline.release_forks_v1(p_shard_key, folded.generation_id, events);
        END LOOP;
        PERFORM FROM strandline.due d
            WHERE d.shard_key = p_shard_key AND d.session_key = p_session_key
            ORDER BY d.generation_id, d.stage, d.from_seq FOR UPDATE;
        DELETE FROM strandline.due d
            WHERE d.shard_key = p_shard_key AND d.session_key = p_session_key;
        -- What is archived stays listed; what was on its way there is not any more.
        PERFORM strandline.give_up_step_v1(p_shard_key, p_session_key, 'the session was reset');
        DELETE FROM strandline.expired_life l
            WHERE l.shard_key = p_shard_key AND l.session_key = p_session_key;
        DELETE FROM strandline.watch w
            WHERE w.shard_key = p_shard_key AND w.session_key = p_session_key;
        @note_change(p_shard_key, 'pieces');
        DELETE FROM strandline.chunk c
            WHERE c.shard_key = p_shard_key AND c.session_key = p_session_key;
        DELETE FROM strandline.block_state b
            WHERE b.shard_key = p_shard_key AND b.scope_key = p_session_key;
        DELETE FROM strandline.fact_candidate c
            WHERE c.shard_key = p_shard_key AND c.session_key = p_session_key;
        DELETE FROM strandline.dead_letter d
            WHERE d.shard_key = p_shard_key AND d.session_key = p_session_key;
        SELECT array_agg(DISTINCT r.event_id) INTO stated_by FROM strandline.fact_revision r
            WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key;
        PERFORM strandline.note_former_v1(p_shard_key, NULL, stated_by, NULL, copies);
        touched := strandline.forget_facts_v1(p_shard_key, stated_by);
        PERFORM strandline.forget_traces_v1(p_shard_key, p_session_key, NULL);
        WITH receipts AS (
            DELETE FROM strandline.receipt r
                WHERE r.shard_key = p_shard_key AND r.event_id = ANY (events)
                RETURNING r.batch_id
        ), batches AS (
            DELETE FROM strandline.batch b
                WHERE b.shard_key = p_shard_key AND b.scope_key = p_session_key
                RETURNING b.batch_id
        )
        SELECT array_agg(DISTINCT batch_id) INTO gone FROM (
            SELECT batch_id FROM receipts UNION SELECT batch_id FROM batches) AS touched;
        DELETE FROM strandline.answer a WHERE a.shard_key = p_shard_key AND a.batch_id = ANY (gone);
        -- What a worker left open for the owner, with events that are gone: where nothing else is due in that lane, no
        -- later holder would close it.
        UPDATE strandline.batch b SET state = 'void', closed_at = statement_timestamp()
            WHERE b.shard_key = p_shard_key AND b.scope_key = p_shard_key AND b.state = 'open' AND b.event_ids && events;
        -- A merge sees what every session of the owner has said, so any of its answers may quote this one.
        -- Applied answers are no longer needed; an open batch calls its model once more.
        DELETE FROM strandline.answer a USING strandline.batch b
            WHERE b.shard_key = p_shard_key AND b.scope_key = p_shard_key
              AND a.shard_key = b.shard_key AND a.batch_id = b.batch_id;
        DELETE FROM strandline.superseded u
            WHERE u.shard_key = p_shard_key AND u.session_key = p_session_key;
        DELETE FROM strandline.correction c
            WHERE c.shard_key = p_shard_key AND c.session_key = p_session_key;
        -- A response that gave a popped message back is still known as given, without what was said.
        UPDATE strandline.kept_response r SET body = NULL
            WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key AND r.body IS NOT NULL;
        DELETE FROM strandline.popped p
            WHERE p.shard_key = p_shard_key AND p.session_key = p_session_key;
        DELETE FROM strandline.message m
            WHERE m.shard_key = p_shard_key AND m.session_key = p_session_key;
    END IF;
    IF p_act IS NOT NULL THEN
        PERFORM strandline.append_act_v1(
            p_shard_key, true, this_namespace, this_user, p_session_key,
            p_act || jsonb_build_object('count', messages), false);
    END IF;
    RETURN NEXT;
END
$function$;
