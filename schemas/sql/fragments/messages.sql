-- Messages of the log: text that several statements share (derivations.sql says how it is used).

-- fragment: is_logged(message, shard_key, session_key)
-- Whether a message belongs to the log as it is now: a reset begins it anew behind the messages there were.
-- (Not as a join: where the planner expects one message, it would look the session up for each.)
({message}.seq >= (
        SELECT logging.log_start_seq FROM strandline.session logging
        WHERE logging.shard_key = {shard_key} AND logging.session_key = {session_key})
    AND {message}.seq < (
        SELECT logging.next_seq FROM strandline.session logging
        WHERE logging.shard_key = {shard_key} AND logging.session_key = {session_key}))

-- fragment: session_number(session_key)
-- The last 64 bits of a session's key, which each label of its messages holds.
('x' || translate(right({session_key}::text, 17), '-', ''))::bit(64)::bigint
