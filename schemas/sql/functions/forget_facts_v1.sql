-- forget_facts_v1: take what one session said out of its owner's facts; what others said stays.
--
-- A merge words facts beside all that is known of the owner, so what it made of another session's messages may
-- quote this one.  Such a wording goes, and in its place stand the words that the other session's candidate had
-- by itself (own_text): extract saw no other session.  A wording quotes if it has a lexeme that is in none of
-- the words it was made of and that stay; where this session had a part in the fact, any such lexeme counts,
-- elsewhere those that this session said.
-- Called by reset_v1, which holds the owner's lanes.
-- Returns the facts that have other words now, or are live again, in any generation.  Some may be what a person
-- took away meanwhile; the caller takes these away again.
CREATE FUNCTION strandline.forget_facts_v1(p_shard_key uuid, p_session_key uuid) RETURNS uuid[]
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    said text[];
    since timestamptz;
    touched uuid[];
    apart uuid[];
    lost uuid[];
    quoting record;
    fallen record;
    kept uuid;
    last_revision integer;
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    SELECT min(r.created_at), array_agg(DISTINCT r.fact_id) INTO since, touched
        FROM strandline.fact_revision r
        WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key;
    IF since IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT array_agg(DISTINCT l.lexeme) INTO said
        FROM strandline.fact_revision r CROSS JOIN LATERAL unnest(r.lexemes || r.own_lexemes) AS l (lexeme)
        WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key
          AND r.operation NOT IN ('invalidate', 'condense');
    -- Of one batch, all candidates are shown beside each other.
    SELECT least(since, min(b.created_at)) INTO since FROM strandline.batch b
        WHERE b.shard_key = p_shard_key AND b.batch_id IN (
            SELECT r.merge_batch_id FROM strandline.fact_revision r
            WHERE r.shard_key = p_shard_key AND r.session_key = p_session_key);

    -- Condensed facts that hold something of this session, or quote it, and those that hold these, are taken
    -- apart: their parts stand again, or ended as they did.
    WITH RECURSIVE gone AS (
        SELECT c.fact_id FROM strandline.fact_revision c
        WHERE c.shard_key = p_shard_key AND c.operation = 'condense' AND (
            c.session_key = p_session_key OR c.created_at > since AND EXISTS (
                SELECT FROM unnest(c.lexemes) AS l (lexeme) WHERE l.lexeme = ANY (said) AND NOT EXISTS (
                    SELECT FROM strandline.fact f JOIN strandline.fact_revision r ON r.shard_key = p_shard_key
                        AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id
                    WHERE f.shard_key = p_shard_key AND f.condensed_into = c.fact_id
                      AND r.operation <> 'invalidate' AND r.session_key IS DISTINCT FROM p_session_key
                      AND l.lexeme = ANY (coalesce(r.own_lexemes, r.lexemes)))))
        UNION
        SELECT f.condensed_into FROM gone JOIN strandline.fact f
            ON f.shard_key = p_shard_key AND f.fact_id = gone.fact_id AND f.condensed_into IS NOT NULL
    )
    SELECT array_agg(g.fact_id) INTO apart FROM gone g;
    touched := touched || strandline.take_apart_v1(p_shard_key, apart, p_session_key);

    -- What quotes this session gets its own words.  An addition to a fact that stays stands alone then, as it
    -- does where a merge may not reword a fact; it ended as that fact did.
    FOR quoting IN
        WITH ended AS MATERIALIZED (
            SELECT f.generation_id, f.fact_id, f.invalidated_by FROM strandline.fact f
            WHERE f.shard_key = p_shard_key AND f.invalidated_by IS NOT NULL
        )
        SELECT v.generation_id, v.fact_id, v.revision,
            v.operation = 'update' AND EXISTS (
                SELECT FROM strandline.fact_revision e WHERE e.shard_key = p_shard_key
                  AND e.generation_id = v.generation_id AND e.fact_id = v.fact_id AND e.revision < v.revision
                  AND e.session_key IS DISTINCT FROM p_session_key
                  AND e.operation NOT IN ('invalidate', 'duplicate')) AS stands_alone
        FROM strandline.fact_revision v
        CROSS JOIN LATERAL (
            SELECT bool_or(o.session_key = p_session_key) AS shared,
                array_agg(l.lexeme) FILTER (WHERE o.session_key IS DISTINCT FROM p_session_key) AS words
            FROM (
                SELECT e.* FROM strandline.fact_revision e WHERE e.shard_key = p_shard_key
                  AND e.generation_id = v.generation_id AND e.fact_id = v.fact_id AND e.revision < v.revision
                UNION ALL
                SELECT e.* FROM ended d JOIN strandline.fact_revision e ON e.shard_key = p_shard_key
                  AND e.generation_id = d.generation_id AND e.fact_id = d.fact_id
                WHERE d.generation_id = v.generation_id AND d.invalidated_by = v.fact_id
            ) AS o
            CROSS JOIN LATERAL unnest(coalesce(o.own_lexemes, o.lexemes)) AS l (lexeme)
            WHERE o.operation <> 'invalidate'
        ) AS made_of
        WHERE v.shard_key = p_shard_key AND v.session_key <> p_session_key AND v.own_text IS NOT NULL
          AND v.created_at > since AND EXISTS (
            SELECT FROM unnest(v.lexemes) AS l (lexeme)
            WHERE l.lexeme <> ALL (v.own_lexemes || coalesce(made_of.words, '{}'))
              AND (made_of.shared OR l.lexeme = ANY (said)))
        ORDER BY v.generation_id, v.fact_id, v.revision
    LOOP
        kept := quoting.fact_id;
        IF quoting.stands_alone THEN
            kept := strandline.stand_alone_v1(
                p_shard_key, quoting.generation_id, quoting.fact_id, quoting.revision);
        ELSE
            UPDATE strandline.fact_revision r SET text = r.own_text, fingerprint = r.own_fingerprint,
                    lexemes = r.own_lexemes, own_text = NULL, own_fingerprint = NULL, own_lexemes = NULL,
                    operation = CASE r.operation WHEN 'update' THEN 'add' ELSE r.operation END
                WHERE r.shard_key = p_shard_key AND r.generation_id = quoting.generation_id
                  AND r.fact_id = quoting.fact_id AND r.revision = quoting.revision;
        END IF;
        touched := touched || quoting.fact_id || kept;
    END LOOP;

    -- Facts that nobody else said are gone; what such a fact had ended is ended by what ended it.
    SELECT array_agg(f.fact_id) INTO lost FROM strandline.fact f
        WHERE f.shard_key = p_shard_key AND f.fact_id = ANY (touched || apart) AND NOT EXISTS (
            SELECT FROM strandline.fact_revision r WHERE r.shard_key = p_shard_key
              AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id
              AND r.operation <> 'invalidate' AND r.session_key IS DISTINCT FROM p_session_key);
    LOOP
        UPDATE strandline.fact f SET invalidated_by = g.invalidated_by,
                valid_until = greatest(f.valid_from, g.valid_until)
            FROM strandline.fact g
            WHERE f.shard_key = p_shard_key AND g.shard_key = p_shard_key AND g.fact_id = ANY (lost)
              AND g.generation_id = f.generation_id AND g.fact_id = f.invalidated_by
              AND g.invalidated_at IS NOT NULL;
        EXIT WHEN NOT FOUND;
    END LOOP;
    DELETE FROM strandline.fact_revision r WHERE r.shard_key = p_shard_key
        AND (r.session_key = p_session_key OR r.fact_id = ANY (lost));
    DELETE FROM strandline.fact f WHERE f.shard_key = p_shard_key AND f.fact_id = ANY (lost);

    -- The others go back to what is left of their history; where another fact says that, it gets their sources.
    FOR fallen IN
        SELECT f.generation_id, f.fact_id, f.live, r.text, r.fingerprint, r.lexemes
        FROM strandline.fact f CROSS JOIN LATERAL (
            SELECT v.text, v.fingerprint, v.lexemes FROM strandline.fact_revision v
            WHERE v.shard_key = p_shard_key AND v.generation_id = f.generation_id AND v.fact_id = f.fact_id
              AND v.operation <> 'invalidate'
            ORDER BY v.operation = 'duplicate', v.revision DESC LIMIT 1) AS r
        WHERE f.shard_key = p_shard_key AND f.fact_id = ANY (touched) AND r.text <> f.text
        ORDER BY f.generation_id, f.created_at, f.fact_id
    LOOP
        SELECT o.fact_id, (SELECT max(r.revision) FROM strandline.fact_revision r
                WHERE r.shard_key = p_shard_key AND r.generation_id = o.generation_id AND r.fact_id = o.fact_id)
            INTO kept, last_revision FROM strandline.fact o
            WHERE fallen.live AND o.shard_key = p_shard_key AND o.generation_id = fallen.generation_id
              AND o.live AND o.fingerprint = fallen.fingerprint AND o.fact_id <> fallen.fact_id;
        IF NOT FOUND THEN
            UPDATE strandline.fact f SET text = fallen.text, fingerprint = fallen.fingerprint,
                    lexemes = fallen.lexemes, updated_at = moment
                WHERE f.shard_key = p_shard_key AND f.generation_id = fallen.generation_id
                  AND f.fact_id = fallen.fact_id;
            CONTINUE;
        END IF;
        UPDATE strandline.fact_revision r SET fact_id = kept, revision = last_revision + r.revision,
                operation = CASE r.operation WHEN 'invalidate' THEN r.operation ELSE 'duplicate' END
            WHERE r.shard_key = p_shard_key AND r.generation_id = fallen.generation_id
              AND r.fact_id = fallen.fact_id;
        UPDATE strandline.fact f SET invalidated_by = kept
            WHERE f.shard_key = p_shard_key AND f.generation_id = fallen.generation_id
              AND f.invalidated_by = fallen.fact_id AND f.fact_id <> kept;
        DELETE FROM strandline.fact f WHERE f.shard_key = p_shard_key
            AND f.generation_id = fallen.generation_id AND f.fact_id = fallen.fact_id;
        touched := touched || kept;
    END LOOP;
    UPDATE strandline.fact_revision r SET text = f.text, fingerprint = f.fingerprint, lexemes = f.lexemes
        FROM strandline.fact f
        WHERE r.shard_key = p_shard_key AND r.fact_id = ANY (touched) AND r.operation = 'invalidate'
          AND f.shard_key = p_shard_key AND f.generation_id = r.generation_id AND f.fact_id = r.fact_id;

    -- Topics, day, speaker and times are those of the candidates, and of the people, that are left.
    UPDATE strandline.fact f SET topics = coalesce(s.topics, '{}'), said_by = s.said_by,
            about_date = s.about_date, said_at = s.said_at, valid_from = s.valid_from
        FROM (
            SELECT r.generation_id, r.fact_id, array_agg(DISTINCT t.topic) FILTER (WHERE t.topic IS NOT NULL) AS topics,
                (array_agg(c.said_by ORDER BY r.revision))[1] AS said_by,
                (array_agg(coalesce(c.about_date, (e.payload->>'about_date')::date) ORDER BY r.revision DESC)
                    FILTER (WHERE c.about_date IS NOT NULL OR e.payload->>'about_date' IS NOT NULL))[1]
                    AS about_date,
                max(coalesce(c.said_at, e.created_at)) AS said_at,
                min(coalesce(c.said_at, (e.payload->>'valid_from')::timestamptz, e.created_at)) AS valid_from
            FROM strandline.fact_revision r
            LEFT JOIN strandline.fact_candidate c ON c.shard_key = p_shard_key
                AND c.generation_id = r.generation_id AND c.event_id = r.event_id
                AND c.batch_id = r.extract_batch_id AND c.seqs = r.seqs AND c.text = coalesce(r.own_text, r.text)
            LEFT JOIN strandline.fact_event e ON e.shard_key = p_shard_key AND e.number = r.fact_event
            LEFT JOIN LATERAL (
                SELECT unnest(c.topics)
                UNION ALL SELECT json_array_elements_text(e.payload->'topics')) AS t (topic) ON true
            WHERE r.shard_key = p_shard_key AND r.fact_id = ANY (touched)
              AND r.operation NOT IN ('invalidate', 'condense')
            GROUP BY r.generation_id, r.fact_id
        ) AS s
        WHERE f.shard_key = p_shard_key AND f.generation_id = s.generation_id AND f.fact_id = s.fact_id
          AND s.said_at IS NOT NULL;

    touched := touched || strandline.give_back_v1(p_shard_key);
    RETURN array_remove(touched, NULL);
END
$function$;
