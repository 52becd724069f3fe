-- fits_condition_v1: whether a value of an item fits a condition of a filter.
--
-- A plain value is fitted by an equal one; a list, item by item; an object without operators, field by field, with
-- further fields next to them; an object of operators, if all of them hold.  What is absent counts as null.
-- Numbers are compared as numbers and text by its bytes; a number and a text, or anything else, have no order.
CREATE FUNCTION strandline.fits_condition_v1(p_value jsonb, p_condition jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $function$
DECLARE
    shape text := jsonb_typeof(p_condition);
    present jsonb := coalesce(p_value, 'null');
    wanted record;
    sign integer;
BEGIN
    IF shape = 'array' THEN
        IF jsonb_typeof(present) <> 'array' OR jsonb_array_length(present) <> jsonb_array_length(p_condition) THEN
            RETURN false;
        END IF;
        FOR place IN 0 .. jsonb_array_length(p_condition) - 1 LOOP
            IF NOT strandline.fits_condition_v1(present -> place, p_condition -> place) THEN
                RETURN false;
            END IF;
        END LOOP;
        RETURN true;
    ELSIF shape <> 'object' THEN
        RETURN present = p_condition;
    END IF;
    IF NOT EXISTS (SELECT FROM jsonb_object_keys(p_condition) AS k (name) WHERE starts_with(k.name, '$')) THEN
        IF jsonb_typeof(present) <> 'object' THEN
            RETURN false;
        END IF;
        FOR wanted IN SELECT e.key, e.value FROM jsonb_each(p_condition) AS e LOOP
            IF NOT strandline.fits_condition_v1(present -> wanted.key, wanted.value) THEN
                RETURN false;
            END IF;
        END LOOP;
        RETURN true;
    END IF;
    FOR wanted IN SELECT e.key, e.value FROM jsonb_each(p_condition) AS e LOOP
        IF wanted.key IN ('$eq', '$ne') THEN
            IF (present = wanted.value) <> (wanted.key = '$eq') THEN
                RETURN false;
            END IF;
            CONTINUE;
        END IF;
        sign := CASE
            WHEN jsonb_typeof(present) <> jsonb_typeof(wanted.value) THEN NULL
            WHEN jsonb_typeof(present) = 'number' THEN sign(present::numeric - wanted.value::numeric)
            WHEN jsonb_typeof(present) = 'string' AND present = wanted.value THEN 0
            WHEN jsonb_typeof(present) = 'string'
                THEN CASE WHEN (present #>> '{}') COLLATE "C" < wanted.value #>> '{}' THEN -1 ELSE 1 END
        END;
        IF (CASE wanted.key WHEN '$gt' THEN sign > 0 WHEN '$gte' THEN sign >= 0 WHEN '$lt' THEN sign < 0
                WHEN '$lte' THEN sign <= 0 END) IS NOT TRUE THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END
$function$
