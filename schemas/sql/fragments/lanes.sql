-- Lanes, their holders and what waits in them: text that several statements and functions share (derivations.sql says
-- how it is used).

-- fragment: due_in_lane(shard_key, scope_key, generation_id, stage, limit)
-- The events that are due in a lane, in its order; was_split marks those that failed before, perhaps in company.
(WITH split AS MATERIALIZED (
        SELECT unnest(parted.event_ids) AS event_id FROM strandline.batch parted
        WHERE parted.shard_key = {shard_key} AND parted.scope_key = {scope_key}
            AND parted.generation_id = {generation_id} AND parted.stage = {stage} AND parted.state = 'split'
    )
    SELECT pending.event_id, pending.tokens,
        pending.retries > 0 OR pending.event_id IN (SELECT split.event_id FROM split) AS was_split
    FROM strandline.due pending
    WHERE pending.shard_key = {shard_key} AND pending.scope_key = {scope_key}
        AND pending.generation_id = {generation_id} AND pending.stage = {stage}
    ORDER BY CASE WHEN pending.scope_key = pending.session_key THEN pending.from_seq END, pending.created_at,
        pending.session_key, pending.from_seq
    LIMIT {limit})

-- fragment: is_ready(work, now)
-- Whether due work waits for nothing that may share its model call.  A wait from a time ahead is over: the clock has
-- stepped back.
({work}.ready_at IS NULL OR {work}.ready_at <= {now} OR {work}.created_at > {now})

-- fragment: beats(worker, now, dead_after_seconds)
-- Whether a worker counts as alive.  One whose heartbeat lies as far ahead does not: the clock has stepped back.
abs(extract(epoch FROM {now} - {worker}.heartbeat_at)) < {dead_after_seconds}

-- fragment: is_held(lane, now, dead_after_seconds)
-- Whether the holder of a lane is alive.
EXISTS (
    SELECT FROM strandline.worker holding
    WHERE holding.worker_id = {lane}.holder AND @beats(holding, {now}, {dead_after_seconds}))

-- fragment: is_taken(lane, now, dead_after_seconds)
-- Whether a lane cannot be had: it waits for its next attempt (not since a time ahead: the clock has stepped back),
-- or is held by a worker that is alive, within its deadline.
(({lane}.next_attempt_at > {now} AND {lane}.postponed_at <= {now})
    OR ({lane}.deadline_at > {now} AND @is_held({lane}, {now}, {dead_after_seconds})))

-- fragment: waits(limits, now)
-- Whether a namespace waits for its budget.  No wait is longer than a day: else the clock has stepped back.
({limits}.waits_until > {now} AND {limits}.waits_until <= {now} + interval '1 day')

-- fragment: lock_lanes(shard_key, session_key)
-- In a function: lock all lanes of a session and of its owner, in the order of all who lock several.
PERFORM FROM strandline.lane kept
    WHERE kept.shard_key = {shard_key} AND kept.scope_key IN ({session_key}, {shard_key})
    ORDER BY kept.scope_key, kept.generation_id, kept.stage FOR UPDATE

-- fragment: ends_turn(session, role, calls)
-- Whether a message ends a turn that is to be delivered at once: an answer that calls no tool.
({session}.deliver = 'turn' AND {role} = 'assistant' AND {calls} IS NULL)
