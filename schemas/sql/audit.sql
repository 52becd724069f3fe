-- The audit trail: acts appended, and the level of each namespace.

-- name: append_act
-- Append an act to the trail, in this transaction, if the namespace's level has it recorded (append_act_v1).
-- params: shard_key uuid, has_owner boolean, namespace text, user_id text?, session_key uuid?, act jsonb, lazily boolean
-- row: done text
SELECT strandline.append_act_v1(%(shard_key)s, %(has_owner)s, %(namespace)s, %(user_id)s, %(session_key)s,
    %(act)s::jsonb, %(lazily)s)::text AS done
