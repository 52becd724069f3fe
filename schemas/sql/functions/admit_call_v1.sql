-- admit_call_v1: count a model call that a producer is about to make against a namespace's budget of today (UTC).
--
-- Producers take no slices: they ask models rarely, and for a caller who waits.  All of them count in one row, under
-- the nil uuid where workers have their own, so a call is counted at once, and by all workers.  They come one after
-- the other, and exceed a budget by no more than their running calls cost above the estimate.
-- Returns no row if the namespace has no budget; else the day that the call counts for, or what is used up, and for how
-- many seconds.
CREATE FUNCTION strandline.admit_call_v1(p_namespace text, p_tokens bigint)
RETURNS TABLE (day date, waits_for text, seconds double precision)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    today CONSTANT date := (moment AT TIME ZONE 'UTC')::date;
    midnight CONSTANT timestamptz := (today + 1)::timestamp AT TIME ZONE 'UTC';
    producers CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    budget record;
    spent record;
    used_up text;
BEGIN
    SELECT * INTO budget FROM strandline.namespace_limit l WHERE l.namespace = p_namespace
        AND coalesce(l.calls_per_day, l.tokens_per_day, l.usd_per_day) IS NOT NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- Locked before the sum is read, so that it has what other producers have just counted.
    INSERT INTO strandline.budget_slice AS b (namespace, day, worker_id, expires_at)
        VALUES (p_namespace, today, producers, moment)
        ON CONFLICT (namespace, day, worker_id) DO UPDATE SET expires_at = excluded.expires_at;
    SELECT coalesce(sum(CASE WHEN b.expires_at > moment THEN b.calls_granted ELSE b.calls_used END), 0) AS calls,
        coalesce(sum(CASE WHEN b.expires_at > moment THEN b.tokens_granted ELSE b.tokens_used END), 0) AS tokens,
        coalesce(sum(CASE WHEN b.expires_at > moment THEN b.usd_granted ELSE b.usd_used END), 0) AS usd,
        coalesce(sum(b.calls_used), 0) AS calls_used, coalesce(sum(b.tokens_used), 0) AS tokens_used,
        coalesce(sum(b.usd_used), 0) AS usd_used,
        min(b.expires_at) FILTER (WHERE b.expires_at > moment) AS first_end
    INTO spent FROM strandline.budget_slice b WHERE b.namespace = p_namespace AND b.day = today;
    used_up := concat_ws(', ', CASE WHEN budget.calls_per_day - spent.calls < 1 THEN 'calls' END,
        CASE WHEN budget.tokens_per_day - spent.tokens < 1 THEN 'tokens' END,
        CASE WHEN budget.usd_per_day - spent.usd <= 0 THEN 'usd' END);
    IF used_up <> '' THEN
        -- What workers hold and do not use they return when their slices end.
        RETURN QUERY SELECT NULL::date, used_up, extract(epoch FROM CASE
            WHEN budget.calls_per_day - spent.calls_used < 1 OR budget.tokens_per_day - spent.tokens_used < 1
                OR budget.usd_per_day - spent.usd_used <= 0 OR spent.first_end IS NULL THEN midnight
            ELSE least(spent.first_end, midnight) END - moment)::double precision;
        RETURN;
    END IF;
    UPDATE strandline.budget_slice b SET calls_used = b.calls_used + 1, calls_granted = b.calls_used + 1,
            tokens_used = b.tokens_used + p_tokens, tokens_granted = b.tokens_used + p_tokens
        WHERE b.namespace = p_namespace AND b.day = today AND b.worker_id = producers;
    RETURN QUERY SELECT today, NULL::text, 0::double precision;
END
$function$;
