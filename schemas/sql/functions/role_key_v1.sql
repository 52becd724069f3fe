-- role_key_v1: a session and a role as one number, by which an index leads to a session's messages of that role.
--
-- Two pairs may meet in one number, so a look-up compares keys and role as well.  An index depends on this function:
-- another function needs another name.  (An index that begins with the keys themselves, as the primary key does, would
-- be taken instead of the primary key by statements that ask for numbers.)
CREATE FUNCTION strandline.role_key_v1(p_session_key uuid, p_role text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $function$
SELECT hashtextextended(p_role COLLATE "C", uuid_hash_extended(p_session_key, 0))
$function$
