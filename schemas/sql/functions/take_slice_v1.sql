-- take_slice_v1: grant a worker its next slice of a namespace's budget of today (UTC), and record its use so far.
--
-- Each worker writes its own row, and reads those of the others: the grant, while a slice lasts, and then its use.
-- Two workers that take a slice at the same moment do not see each other, so a budget may be exceeded by a slice of
-- each worker but one, and by the excess of running calls over their estimates.  A slice is a fiftieth of the budget;
-- towards its end a quarter of what is left, but enough for the call that is asked for.
-- A namespace whose budget is used up waits until the next day; one whose rest others hold, until the first of their
-- slices ends.  No worker gives it a turn in the meantime.
-- Returns the day, whether there is a budget at all, what is granted (NULL: not limited) and for how many seconds; or
-- without a grant, for how many seconds the namespace waits, and for what.
CREATE FUNCTION strandline.take_slice_v1(
    p_namespace text,
    p_worker_id uuid,
    p_day date,
    p_calls_used bigint,
    p_tokens_used bigint,
    p_usd_used double precision,
    p_tokens_wanted bigint,
    p_slice_seconds double precision
) RETURNS TABLE (
    day date, has_budget boolean, is_granted boolean, calls bigint, tokens bigint, usd double precision,
    seconds double precision, waits_for text)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    today CONSTANT date := (moment AT TIME ZONE 'UTC')::date;
    midnight CONSTANT timestamptz := (today + 1)::timestamp AT TIME ZONE 'UTC';
    wanted record;
    others record;
    own_calls bigint := CASE WHEN p_day = today THEN p_calls_used ELSE 0 END;
    own_tokens bigint := CASE WHEN p_day = today THEN p_tokens_used ELSE 0 END;
    own_usd double precision := CASE WHEN p_day = today THEN p_usd_used ELSE 0 END;
    calls_left bigint;
    tokens_left bigint;
    usd_left double precision;
    used_up text;
    until timestamptz;
BEGIN
    UPDATE strandline.budget_slice b SET calls_used = p_calls_used, tokens_used = p_tokens_used,
            usd_used = p_usd_used, calls_granted = p_calls_used, tokens_granted = p_tokens_used,
            usd_granted = p_usd_used
        WHERE b.namespace = p_namespace AND b.day = p_day AND b.worker_id = p_worker_id;
    SELECT * INTO wanted FROM strandline.namespace_limit l WHERE l.namespace = p_namespace
        AND coalesce(l.calls_per_day, l.tokens_per_day, l.usd_per_day) IS NOT NULL;
    IF NOT FOUND THEN
        RETURN QUERY SELECT today, false, true, NULL::bigint, NULL::bigint, NULL::double precision,
            p_slice_seconds, NULL::text;
        RETURN;
    END IF;
    SELECT coalesce(sum(CASE WHEN b.expires_at > moment THEN b.calls_granted ELSE b.calls_used END), 0) AS calls,
        coalesce(sum(CASE WHEN b.expires_at > moment THEN b.tokens_granted ELSE b.tokens_used END), 0) AS tokens,
        coalesce(sum(CASE WHEN b.expires_at > moment THEN b.usd_granted ELSE b.usd_used END), 0) AS usd,
        coalesce(sum(b.calls_used), 0) AS calls_used, coalesce(sum(b.tokens_used), 0) AS tokens_used,
        coalesce(sum(b.usd_used), 0) AS usd_used,
        min(b.expires_at) FILTER (WHERE b.expires_at > moment) AS first_end
    INTO others FROM strandline.budget_slice b
    WHERE b.namespace = p_namespace AND b.day = today AND b.worker_id <> p_worker_id;
    calls_left := wanted.calls_per_day - own_calls - others.calls;
    tokens_left := wanted.tokens_per_day - own_tokens - others.tokens;
    usd_left := wanted.usd_per_day - own_usd - others.usd;
    used_up := concat_ws(', ', CASE WHEN calls_left < 1 THEN 'calls' END,
        CASE WHEN tokens_left < 1 THEN 'tokens' END, CASE WHEN usd_left <= 0 THEN 'usd' END);
    IF used_up <> '' THEN
        until := CASE
            WHEN wanted.calls_per_day - own_calls - others.calls_used < 1
                OR wanted.tokens_per_day - own_tokens - others.tokens_used < 1
                OR wanted.usd_per_day - own_usd - others.usd_used <= 0 OR others.first_end IS NULL THEN midnight
            ELSE least(others.first_end, midnight) END;
        UPDATE strandline.namespace_limit l SET waits_until = until, waits_for = used_up
            WHERE l.namespace = p_namespace AND (l.waits_until IS NULL OR l.waits_until < until)
                AND (l.calls_per_day, l.tokens_per_day, l.usd_per_day, l.updated_at) IS NOT DISTINCT FROM
                    (wanted.calls_per_day, wanted.tokens_per_day, wanted.usd_per_day, wanted.updated_at);
        IF NOT FOUND AND NOT EXISTS (
            SELECT FROM strandline.namespace_limit l
            WHERE l.namespace = p_namespace
                AND (l.calls_per_day, l.tokens_per_day, l.usd_per_day, l.updated_at) IS NOT DISTINCT FROM
                    (wanted.calls_per_day, wanted.tokens_per_day, wanted.usd_per_day, wanted.updated_at))
        THEN
            -- Other limits were set in the meantime: those apply.
            RETURN QUERY SELECT * FROM strandline.take_slice_v1(p_namespace, p_worker_id, p_day, p_calls_used,
                p_tokens_used, p_usd_used, p_tokens_wanted, p_slice_seconds);
            RETURN;
        END IF;
        RETURN QUERY SELECT today, true, false, 0::bigint, 0::bigint, 0::double precision,
            extract(epoch FROM until - moment)::double precision, used_up;
        RETURN;
    END IF;
    -- NULL means no limit, and is the one value that least and greatest ignore.
    calls_left := CASE WHEN wanted.calls_per_day IS NOT NULL THEN
        least(calls_left, greatest(1, least(wanted.calls_per_day / 50, calls_left / 4))) END;
    tokens_left := CASE WHEN wanted.tokens_per_day IS NOT NULL THEN
        least(tokens_left, greatest(p_tokens_wanted, least(wanted.tokens_per_day / 50, tokens_left / 4))) END;
    usd_left := least(wanted.usd_per_day / 50, usd_left / 4);
    until := least(moment + make_interval(secs => p_slice_seconds), midnight);
    INSERT INTO strandline.budget_slice AS b (namespace, day, worker_id, calls_used, calls_granted, tokens_used,
        tokens_granted, usd_used, usd_granted, expires_at)
    VALUES (p_namespace, today, p_worker_id, own_calls, own_calls + coalesce(calls_left, 0), own_tokens,
        own_tokens + coalesce(tokens_left, 0), own_usd, own_usd + coalesce(usd_left, 0), until)
    ON CONFLICT (namespace, day, worker_id) DO UPDATE SET calls_used = excluded.calls_used,
        calls_granted = excluded.calls_granted, tokens_used = excluded.tokens_used,
        tokens_granted = excluded.tokens_granted, usd_used = excluded.usd_used,
        usd_granted = excluded.usd_granted, expires_at = excluded.expires_at;
    RETURN QUERY SELECT today, true, true, calls_left, tokens_left, usd_left,
        extract(epoch FROM until - moment)::double precision, NULL::text;
END
$function$;
