-- bring_rings_forward_v1: ring now for work whose time lies later than any wait is long: the clock has stepped back.
-- And for work whose namespace has waited for its budget long enough (ring_due_v1).
-- Returns for how much.
CREATE FUNCTION strandline.bring_rings_forward_v1(p_stages text[], p_limit bigint) RETURNS integer
LANGUAGE plpgsql AS $function$
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    late record;
    brought integer := 0;
BEGIN
    FOR late IN
        WITH ahead AS (
            SELECT d.* FROM strandline.due d
            WHERE d.stage = ANY (p_stages) AND d.ring_at > moment + interval '10 seconds' AND d.ring_at < '5000-01-01'
                AND @is_ready(d, moment)
            LIMIT p_limit FOR UPDATE SKIP LOCKED
        ), waited AS (
            SELECT d.* FROM strandline.due d
            WHERE d.stage = ANY (p_stages) AND d.ring_at >= '5000-01-01' AND d.ring_at <= moment + interval '5000 years'
            LIMIT p_limit FOR UPDATE SKIP LOCKED
        )
        SELECT * FROM ahead UNION ALL SELECT * FROM waited
    LOOP
        UPDATE strandline.due d SET ring_at = moment
            WHERE d.shard_key = late.shard_key AND d.session_key = late.session_key
              AND d.generation_id = late.generation_id AND d.stage = late.stage AND d.from_seq = late.from_seq;
        brought := brought + 1;
    END LOOP;
    RETURN brought;
END
$function$;
