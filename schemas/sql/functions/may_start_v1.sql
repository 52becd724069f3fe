-- may_start_v1: whether a namespace may have one more lane drained now: it is not waiting for its budget, and fewer
-- lanes of it are at work than it may have, in all and in this worker.  p_leaving lanes of this worker that are at
-- work in the namespace do not count: the one that would be released for it.
CREATE FUNCTION strandline.may_start_v1(
    p_namespace text, p_worker_id uuid, p_dead_after_seconds double precision, p_leaving integer
) RETURNS boolean
LANGUAGE plpgsql AS $function$
DECLARE
    wanted record;
    at_work record;
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    SELECT l.max_lanes, l.max_lanes_per_worker, l.waits_until INTO wanted
        FROM strandline.namespace_limit l WHERE l.namespace = p_namespace;
    IF NOT FOUND THEN
        RETURN true;
    END IF;
    IF @waits(wanted, moment) THEN
        RETURN false;
    END IF;
    IF coalesce(wanted.max_lanes, wanted.max_lanes_per_worker) IS NULL THEN
        RETURN true;
    END IF;
    SELECT count(*) - p_leaving AS lanes, count(*) FILTER (WHERE l.holder = p_worker_id) - p_leaving AS of_worker
        INTO at_work
        FROM strandline.lane l JOIN strandline.worker w ON w.worker_id = l.holder
        WHERE l.holder IS NOT NULL AND l.namespace = p_namespace AND l.deadline_at > moment
            AND @beats(w, moment, p_dead_after_seconds);
    RETURN at_work.lanes < coalesce(wanted.max_lanes, at_work.lanes + 1)
        AND at_work.of_worker < coalesce(wanted.max_lanes_per_worker, at_work.of_worker + 1);
END
$function$;
