-- Runs: which messages an agent's run brought, by the id that the caller gave it.

-- name: run_is_known
-- Whether there is a run of this id.
-- row: known boolean
SELECT EXISTS (
    SELECT FROM strandline.session_run r
    WHERE r.shard_key = %(shard_key)s AND r.session_key = %(session_key)s AND r.run_id = %(run_id)s) AS known

-- name: lock_first_run
-- Hold the first run of a session: whoever changes one takes this first, and may then lead others to new numbers.
-- row: number integer
-- repeatable
SELECT r.number FROM strandline.session_run r
WHERE r.shard_key = %(shard_key)s AND r.session_key = %(session_key)s
ORDER BY r.number LIMIT 1
FOR UPDATE

-- name: lock_run
-- A run by its id, held until the transaction ends.
-- row: number integer, seqs bigint[], digests bytea[]
-- repeatable
SELECT r.number, r.seqs, r.digests FROM strandline.session_run r
WHERE r.shard_key = %(shard_key)s AND r.session_key = %(session_key)s AND r.run_id = %(run_id)s
FOR UPDATE

-- name: add_run
-- Write a new run, behind those there are. No row: another caller has just added one with this id.
-- params: status text
-- row: number integer
-- repeatable
INSERT INTO strandline.session_run (
    shard_key, session_key, run_id, number, status, agent_id, team_id, seqs, digests)
SELECT %(shard_key)s, %(session_key)s, %(run_id)s, 1 + coalesce((
        SELECT max(r.number) FROM strandline.session_run r
        WHERE r.shard_key = %(shard_key)s AND r.session_key = %(session_key)s), 0),
    %(status)s, %(agent_id)s, %(team_id)s, %(seqs)s::bigint[], %(digests)s::bytea[]
ON CONFLICT (shard_key, session_key, run_id) DO NOTHING
RETURNING number

-- name: change_run
-- Give a run other messages and another status. If it comes again after all of its messages were taken back
-- (is_behind), it is the newest.
-- params: status text, is_behind boolean
-- repeatable
UPDATE strandline.session_run t SET status = %(status)s, agent_id = %(agent_id)s, team_id = %(team_id)s,
    seqs = %(seqs)s::bigint[], digests = %(digests)s::bytea[], changed_at = statement_timestamp(),
    number = CASE WHEN %(is_behind)s THEN 1 + (
        SELECT max(r.number) FROM strandline.session_run r
        WHERE r.shard_key = %(shard_key)s AND r.session_key = %(session_key)s) ELSE t.number END
WHERE t.shard_key = %(shard_key)s AND t.session_key = %(session_key)s AND t.run_id = %(run_id)s

-- name: log_marks
-- By which it is known that a session's log is as it was: its newest message, and how often it was corrected.
-- row: newest bigint?, corrections integer
SELECT (
        SELECT max(m.seq) FROM strandline.message m
        WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s) AS newest, s.corrections
FROM strandline.session s
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s

-- name: run_rows
-- Messages of a session by their numbers, with what tells whether two are equal, and whether another run has them too.
-- row: seq bigint, id text, role text, tokens integer, created_at timestamptz, envelope text, metadata text?, digest
--     bytea, is_shared boolean
-- opens: envelope, metadata
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text, m.digest, EXISTS (
        SELECT FROM strandline.session_run r
        WHERE r.shard_key = %(shard_key)s AND r.session_key = %(session_key)s AND r.run_id <> %(run_id)s
            AND m.seq = ANY (r.seqs)) AS is_shared
FROM strandline.message m
WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s AND m.seq = ANY (%(seqs)s::bigint[])
ORDER BY m.seq

-- name: replaced_messages
-- Messages of a session whose ids were given with other content.
-- row: message
-- opens: envelope, metadata
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM strandline.message m
WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s AND m.id = ANY (%(ids)s::text[])
    AND EXISTS (
        SELECT FROM strandline.superseded u
        WHERE u.shard_key = %(shard_key)s AND u.session_key = %(session_key)s AND u.seq = m.seq)
ORDER BY m.seq

-- name: messages_behind
-- The messages from a number on, without some, as many as are asked for.
-- params: without bigint[]
-- row: message
-- opens: envelope, metadata
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM strandline.message m
WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s AND m.seq >= %(from_seq)s
    AND m.seq <> ALL (%(without)s::bigint[])
ORDER BY m.seq LIMIT %(limit)s

-- name: renumber_runs
-- Lead runs to messages that were put again, under other numbers.
-- params: new_seqs bigint[]
-- repeatable
UPDATE strandline.session_run t SET seqs = (
        SELECT array_agg(coalesce(moved.new_seq, o.seq) ORDER BY o.place)
        FROM unnest(t.seqs) WITH ORDINALITY AS o (seq, place)
        LEFT JOIN unnest(%(seqs)s::bigint[], %(new_seqs)s::bigint[]) AS moved (seq, new_seq) ON moved.seq = o.seq)
WHERE t.shard_key = %(shard_key)s AND t.session_key = %(session_key)s AND t.seqs && %(seqs)s::bigint[]

-- name: messages_of_runs
-- The messages of the last runs that have any and are none of some statuses, in the order of the runs; or as many as
-- take page_bytes, of which the last row tells.
-- row: measured_message
-- opens: envelope, metadata
WITH retained AS MATERIALIZED (
    @retained(%(shard_key)s, %(session_key)s)
), chosen AS MATERIALIZED @chosen_runs()
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text, m.bytes_before + m.bytes AS
    bytes_taken
FROM @filled((SELECT c.number, o.place, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope, m.metadata,
        m.bytes + 200 AS bytes
    FROM chosen c CROSS JOIN LATERAL unnest(c.seqs) WITH ORDINALITY AS o (seq, place)
    CROSS JOIN LATERAL @numbered(o.seq) AS m
    WHERE @is_shown(m)), (page.number, page.place)) AS m
ORDER BY m.number, m.place

-- name: seqs_of_runs
-- The numbers of the messages of these runs, in their order, without some roles.
-- params: skip_roles text[]
-- row: seq bigint
WITH retained AS MATERIALIZED (
    @retained(%(shard_key)s, %(session_key)s)
), chosen AS MATERIALIZED @chosen_runs()
SELECT o.seq
FROM chosen c CROSS JOIN LATERAL unnest(c.seqs) WITH ORDINALITY AS o (seq, place)
CROSS JOIN LATERAL @numbered(o.seq) AS m
WHERE m.role <> ALL (%(skip_roles)s::text[]) AND @is_shown(m)
ORDER BY c.number, o.place
