-- Which derivation serves whom, and what it lacks: text that several statements and functions share.
--
-- The loader (schemas/postgres/statements.py) puts it in the place of @name(arguments), and each argument in the
-- place of {its name}.  The aliases are long, so that none hides an alias that an argument names.
-- Text, and not functions: an engine that spreads the tables over nodes would run such a function on one node, where
-- it finds no rows and raises no error (docs/architecture/sql-rules.md).

-- fragment: serving(shard_key, pipelines)
-- Which derivation of each pipeline serves an owner (pipelines NULL: of all pipelines).  The default one, unless the
-- owner has a row in scope_generation, which exists only while a replay switches owner by owner.
(SELECT served.generation_id, served.pipeline, served.version, served.entry_scope, served.config
    FROM strandline.generation served
    LEFT JOIN strandline.scope_generation own ON own.shard_key = {shard_key} AND own.pipeline = served.pipeline
    WHERE ({pipelines}::text[] IS NULL OR served.pipeline = ANY ({pipelines}::text[]))
        AND CASE WHEN own.generation_id IS NULL THEN served.state = 'serving'
            ELSE served.generation_id = own.generation_id END)

-- fragment: fed(shard_key, session_key, from_seq)
-- The pipelines that an event of a session was fed to, as the session's policy was when it was flushed.
(SELECT coalesce((
        SELECT ARRAY(SELECT jsonb_array_elements_text(changed.before -> 'pipelines'))
        FROM strandline.policy_change changed
        WHERE changed.shard_key = {shard_key} AND changed.session_key = {session_key}
            AND changed.flushed_through >= {from_seq}
        ORDER BY changed.number LIMIT 1), feeding.pipelines)
    FROM strandline.session feeding
    WHERE feeding.shard_key = {shard_key} AND feeding.session_key = {session_key})::text[]

-- fragment: owners_zone(shard_key)
-- The time zone of the newest session of an owner that has one: in it the owner's next session begins, and searches ask.
(SELECT zoned.time_zone FROM strandline.session zoned
    WHERE zoned.shard_key = {shard_key} AND zoned.time_zone IS NOT NULL ORDER BY zoned.created_at DESC LIMIT 1)

-- fragment: zone_of(shard_key, session_key, seq)
-- The time zone of a message that names no offset of its own, as the session's policy was when it was flushed; NULL: UTC.
(SELECT CASE WHEN changed.before IS NULL THEN zoned.time_zone ELSE changed.before ->> 'time_zone' END
    FROM strandline.session zoned LEFT JOIN LATERAL (
        SELECT past.before FROM strandline.policy_change past
        WHERE past.shard_key = {shard_key} AND past.session_key = {session_key} AND past.flushed_through >= {seq}
        ORDER BY past.number LIMIT 1) AS changed ON true
    WHERE zoned.shard_key = {shard_key} AND zoned.session_key = {session_key})

-- fragment: ever_fed(shard_key, session_key)
-- All pipelines that any event of a session was ever fed to, or is fed to now.
(SELECT ARRAY(
        SELECT unnest(feeding.pipelines) UNION
        SELECT jsonb_array_elements_text(policies.policy -> 'pipelines') FROM strandline.policy_change changed
        CROSS JOIN LATERAL (VALUES (changed.before), (changed.after)) AS policies (policy)
        WHERE changed.shard_key = {shard_key} AND changed.session_key = {session_key})
    FROM strandline.session feeding
    WHERE feeding.shard_key = {shard_key} AND feeding.session_key = {session_key})::text[]

-- fragment: is_memory(shard_key, event_id, pipeline, last_stage)
-- Whether the derivation of a pipeline that serves an owner knows an event: it has applied it to the end, or had, and
-- is deriving it again.
(EXISTS (
        SELECT FROM @serving({shard_key}, ARRAY[{pipeline}]) serves
        JOIN strandline.receipt known ON known.shard_key = {shard_key} AND known.event_id = {event_id}
            AND known.generation_id = serves.generation_id AND known.stage = {last_stage}
            AND known.outcome = 'applied')
    OR EXISTS (
        SELECT FROM @serving({shard_key}, ARRAY[{pipeline}]) serves
        JOIN strandline.flush_event flushed ON flushed.shard_key = {shard_key} AND flushed.event_id = {event_id}
        JOIN strandline.due again ON again.shard_key = {shard_key} AND again.session_key = flushed.session_key
            AND again.generation_id = serves.generation_id AND again.from_seq = flushed.from_seq
            AND again.was_applied))

-- fragment: missing(shard_key, generation_id, last_stage)
-- The flush events of an owner that a derivation has neither done nor due, among those it was fed, or is fed now.
--
-- is_known: it is to be derived.  Else it is of the time before a reset, or retention has removed its messages, and the
-- derivation that serves does not know it either: it is void, as was_void says that it is already.  is_memory: the one
-- that serves knows it, so a reset that comes now leaves it.  stage: the one that has not done it, of several the one
-- whose work a reset made void; scope_key is whose lane it belongs to.
(SELECT event.session_key, event.from_seq, event.through_seq, event.event_id, event.tokens, event.created_at,
        coalesce(voided.stage, derived.entry_stage) AS stage,
        CASE WHEN derived.entry_scope = 'owner' OR voided.stage <> derived.entry_stage THEN event.shard_key
            ELSE event.session_key END AS scope_key,
        said.incarnation, said.namespace, said.session_id, said.user_id,
        voided.event_id IS NOT NULL AS was_void, memory.is_so AS is_memory,
        memory.is_so OR event.incarnation = said.incarnation AND NOT gone.is_so AS is_known
    FROM strandline.generation derived
    JOIN strandline.flush_event event ON event.shard_key = {shard_key}
    JOIN strandline.session said ON said.shard_key = {shard_key} AND said.session_key = event.session_key
        AND (derived.pipeline = ANY (said.pipelines)
            OR derived.pipeline = ANY (@fed({shard_key}, event.session_key, event.from_seq)))
    LEFT JOIN strandline.receipt received ON received.shard_key = {shard_key}
        AND received.event_id = event.event_id AND received.generation_id = derived.generation_id
        AND received.stage = derived.entry_stage
    LEFT JOIN strandline.receipt voided ON voided.shard_key = {shard_key}
        AND voided.event_id = event.event_id AND voided.generation_id = derived.generation_id
        AND voided.outcome = 'void'
    CROSS JOIN LATERAL (
        SELECT @is_memory({shard_key}, event.event_id, derived.pipeline, {last_stage}) AS is_so) AS memory
    CROSS JOIN LATERAL (
        -- Of what retention removed nothing can be derived, unless it is there from the archive.
        SELECT @is_event_removed(event, {shard_key}) AND NOT EXISTS (
            SELECT FROM strandline.archived_input given
            WHERE given.shard_key = {shard_key} AND given.session_key = event.session_key
                AND given.generation_id = derived.generation_id
                AND given.seq BETWEEN event.from_seq AND event.through_seq) AS is_so) AS gone
    WHERE derived.generation_id = {generation_id} AND (received.event_id IS NULL OR voided.event_id IS NOT NULL)
        AND NOT EXISTS (
            SELECT FROM strandline.due pending
            WHERE pending.shard_key = {shard_key} AND pending.session_key = event.session_key
                AND pending.generation_id = derived.generation_id
                AND pending.stage = coalesce(voided.stage, derived.entry_stage)
                AND pending.from_seq = event.from_seq)
        -- What the one that serves keeps of it is carried (carry_base_v1); later stages read no messages.
        AND NOT (gone.is_so AND memory.is_so AND coalesce(voided.stage, derived.entry_stage) = derived.entry_stage))

-- fragment: work_tokens(stage, tokens, shard_key, generation_id, event_id)
-- The size of an event's work in a stage: a merge reads candidates, all others read messages.
CASE WHEN {stage} <> 'merge' THEN {tokens} ELSE coalesce((
        SELECT greatest(1, sum(length(candidate.text)) / 4) FROM strandline.fact_candidate candidate
        WHERE candidate.shard_key = {shard_key} AND candidate.generation_id = {generation_id}
            AND candidate.event_id = {event_id}), 1) END

-- fragment: uncovered(shard_key, generation_id, last_stage)
-- The events that the derivation which serves the owner has applied to the end, and this one has not: they keep it
-- from taking over the owner.  An event whose dead letter was dropped does not.  One that is derived again there keeps
-- it too if it is neither applied nor due here.
(SELECT known.event_id
    FROM strandline.generation derived
    CROSS JOIN LATERAL @serving({shard_key}, ARRAY[derived.pipeline]) serves
    JOIN strandline.receipt known ON known.shard_key = {shard_key} AND known.generation_id = serves.generation_id
        AND known.stage = {last_stage} AND known.outcome = 'applied'
    WHERE derived.generation_id = {generation_id} AND serves.generation_id <> {generation_id}
        AND NOT EXISTS (
            SELECT FROM strandline.receipt received
            WHERE received.shard_key = {shard_key} AND received.event_id = known.event_id
                AND received.generation_id = {generation_id} AND received.stage = {last_stage}
                AND received.outcome = 'applied')
        AND NOT EXISTS (
            SELECT FROM strandline.dead_letter dead
            WHERE dead.shard_key = {shard_key} AND dead.generation_id = {generation_id}
                AND dead.event_id = known.event_id AND dead.dropped_at IS NOT NULL)
    UNION
    SELECT again.event_id
    FROM strandline.generation derived
    CROSS JOIN LATERAL @serving({shard_key}, ARRAY[derived.pipeline]) serves
    JOIN strandline.due again ON again.shard_key = {shard_key} AND again.generation_id = serves.generation_id
        AND again.was_applied
    WHERE derived.generation_id = {generation_id} AND serves.generation_id <> {generation_id}
        AND NOT EXISTS (
            SELECT FROM strandline.receipt received
            WHERE received.shard_key = {shard_key} AND received.event_id = again.event_id
                AND received.generation_id = {generation_id} AND received.outcome = 'applied')
        AND NOT EXISTS (
            SELECT FROM strandline.due pending
            WHERE pending.shard_key = {shard_key} AND pending.session_key = again.session_key
                AND pending.generation_id = {generation_id} AND pending.from_seq = again.from_seq)
        AND NOT EXISTS (
            SELECT FROM strandline.dead_letter dead
            WHERE dead.shard_key = {shard_key} AND dead.generation_id = {generation_id}
                AND dead.event_id = again.event_id AND dead.dropped_at IS NOT NULL))

-- fragment: fits(session, event)
-- Whether a replay was begun for an event.
((%(namespace)s::text IS NULL OR {session}.namespace = %(namespace)s)
        AND (%(session_id)s::text IS NULL OR {session}.session_id = %(session_id)s)
        AND (%(user_id)s::text IS NULL OR {session}.user_id = %(user_id)s)
        AND (%(since)s::timestamptz IS NULL OR {event}.created_at >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR {event}.created_at < %(until)s))

-- fragment: is_kept(generation_id)
-- Whether a generation is not retired, or unknown.
{generation_id} <> ALL (ARRAY(SELECT gone.generation_id FROM strandline.generation gone WHERE gone.state = 'retired'))
