-- What extraction sees before a batch: text that several statements and functions share (derivations.sql says how it
-- is used).

-- fragment: lines_before(shard_key, generation_id, stage, event_id)
-- The newest lines before an event, as many as the context_tokens of the derivation's recipe hold, if the stage is the
-- one that reads the messages: of people and assistants, of the same life of the session.  The oldest line may reach
-- beyond the tokens; it is cut when it is shown.  None of the pinned head: that is of neither role.
(SELECT newest.session_key, newest.seq, newest.created_at
    FROM (
        SELECT spoken.session_key, spoken.seq, spoken.created_at,
            (derived.config ->> 'context_tokens')::bigint AS budget,
            sum(spoken.tokens) OVER (ORDER BY spoken.seq DESC) - spoken.tokens AS newer_tokens
        FROM strandline.generation derived
        JOIN strandline.flush_event event ON event.shard_key = {shard_key} AND event.event_id = {event_id}
        JOIN strandline.message spoken ON spoken.shard_key = {shard_key}
            AND spoken.session_key = event.session_key AND spoken.incarnation = event.incarnation
            AND spoken.seq BETWEEN event.from_seq - 200 AND event.from_seq - 1
            AND spoken.role IN ('user', 'assistant')
        WHERE derived.generation_id = {generation_id} AND derived.entry_stage = {stage}
            AND (derived.config ->> 'context_tokens')::bigint > 0
    ) AS newest
    WHERE newest.newer_tokens < newest.budget)

-- fragment: is_taken_back(shard_key, line)
-- Whether a person deleted or corrected a fact that came from a line (of lines_before), or cleared all facts after it.
EXISTS (
    SELECT FROM strandline.fact_event edit
    WHERE edit.shard_key = {shard_key} AND CASE edit.kind
        WHEN 'clear' THEN {line}.created_at <= edit.created_at OR EXISTS (
            SELECT FROM strandline.flush_event delivered
            WHERE delivered.shard_key = {shard_key} AND delivered.session_key = {line}.session_key
                AND {line}.seq BETWEEN delivered.from_seq AND delivered.through_seq
                AND delivered.created_at <= edit.created_at)
        WHEN 'delete' THEN edit.traces @> @trace_of({line})
        WHEN 'replace' THEN edit.traces @> @trace_of({line})
        ELSE false END)

-- fragment: is_by_assistants(shard_key, session_key, seqs)
-- Whether all lines cited are assistants', as the log or what a derivation has from an archive says; one that is in
-- neither may have been a user's.
(NOT EXISTS (
    SELECT FROM unnest({seqs}) AS cited (seq)
    LEFT JOIN strandline.message line ON line.shard_key = {shard_key} AND line.session_key = {session_key}
        AND line.seq = cited.seq
    WHERE coalesce(line.role, (
        SELECT given.role FROM strandline.archived_input given WHERE given.shard_key = {shard_key}
            AND given.session_key = {session_key} AND given.seq = cited.seq LIMIT 1)) IS DISTINCT FROM 'assistant'))

-- fragment: is_assistants_fact(fact, shard_key)
-- Whether a fact rests on assistants' lines alone: neither a person nor a user's line worded or confirmed it.
(NOT EXISTS (
    SELECT FROM strandline.fact_revision said
    WHERE said.shard_key = {shard_key} AND said.generation_id = {fact}.generation_id
        AND said.fact_id = {fact}.fact_id AND (said.fact_event IS NOT NULL OR said.operation <> 'invalidate'
            AND NOT @is_by_assistants({shard_key}, said.session_key, said.seqs))))

-- fragment: is_asked_for(fact)
-- Whether a fact has one of the topics that a statement asks for, and is of its agent and team.
(%(topics)s::text[] IS NULL OR {fact}.topics && %(topics)s::text[])
    AND (%(agent_id)s::text IS NULL OR {fact}.agent_id = %(agent_id)s::text)
    AND (%(team_id)s::text IS NULL OR {fact}.team_id = %(team_id)s::text)

-- fragment: is_doubtful(fact, shard_key)
-- Whether a fact may contradict another one, while both are live.
({fact}.live AND {fact}.doubt_fact_id IS NOT NULL AND EXISTS (
    SELECT FROM strandline.fact doubted WHERE doubted.shard_key = {shard_key}
        AND doubted.generation_id = {fact}.generation_id AND doubted.fact_id = {fact}.doubt_fact_id AND doubted.live))

-- fragment: newest_revisions(shard_key, generation_id, fact_id)
-- The part of a fact's history that is shown.
@newest((SELECT revised.* FROM strandline.fact_revision revised WHERE revised.shard_key = {shard_key}
    AND revised.generation_id = {generation_id} AND revised.fact_id = {fact_id}), revision)

-- fragment: trace_of(line)
-- What the traces of a person's event hold if the fact came from this line, among others.
jsonb_build_array(jsonb_build_object('session_key', {line}.session_key, 'seqs', jsonb_build_array({line}.seq)))

-- fragment: capture_number(namespace, owner_key, at)
-- The newest act on capturing that applied to an owner at a moment; NULL if there was none.
greatest((
    SELECT max(common.number) FROM strandline.capture_act common
    WHERE common.namespace = {namespace} AND common.owner_key IS NULL AND common.created_at <= {at}), (
    SELECT max(own.number) FROM strandline.capture_act own
    WHERE own.namespace = {namespace} AND own.owner_key = {owner_key} AND own.created_at <= {at}))

-- fragment: common_capture(namespace, number)
-- The choice of a namespace at an act of this number, as JSON text; NULL if it had said nothing.
(SELECT common.capture::text FROM strandline.capture_act common
    WHERE common.namespace = {namespace} AND common.owner_key IS NULL AND common.number <= {number}
    ORDER BY common.number DESC LIMIT 1)

-- fragment: own_capture(namespace, owner_key, number)
-- The same of one owner.
(SELECT own.capture::text FROM strandline.capture_act own
    WHERE own.namespace = {namespace} AND own.owner_key = {owner_key} AND own.number <= {number}
    ORDER BY own.number DESC LIMIT 1)

-- fragment: capture_hash(namespace, owner_key, number)
-- A digest of both, which a batch records next to the number; NULL without a number.
CASE WHEN {number} IS NOT NULL THEN left(encode(sha256(convert_to(concat(
    @common_capture({namespace}, {number}), chr(10), @own_capture({namespace}, {owner_key}, {number})),
    'UTF8')), 'hex'), 16) END
