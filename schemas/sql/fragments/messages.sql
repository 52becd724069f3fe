-- Messages of the log: text that several statements share (derivations.sql says how it is used).

-- fragment: is_logged(message)
-- Whether a message belongs to the log as it is now, and may be shown, in a statement with the CTE ``retained``: a reset
-- begins the log anew behind the messages there were.
-- (Not as a join: where the planner expects one message, it would look the session up for each.)
({message}.seq >= (SELECT logging.log_from FROM retained logging)
    AND {message}.seq < (SELECT logging.next_seq FROM retained logging) AND @is_shown({message}))

-- fragment: session_number(session_key)
-- The last 64 bits of a session's key, which each label of its messages holds.
('x' || translate(right({session_key}::uuid::text, 17), '-', ''))::bit(64)::bigint
