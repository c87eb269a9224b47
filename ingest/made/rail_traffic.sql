-- What each rail carried in each window, as each kind of source says: all that the views of rails
-- tell. It is asked once when a job is derived (`rails.py`), or by a view where that did not.
-- requires: clocks, nics, rails_derived, rails_measured

-- The window of each step, over all ranks.
CREATE VIEW _job_steps AS
SELECT job, step, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM _step_windows
WHERE step IS NOT NULL
GROUP BY job, step;

-- What the time of a job's steps is cut into, so that a moment finds its step by its slot.
CREATE VIEW _step_slots AS
SELECT
    job,
    greatest(1, (max(end_ns)::HUGEINT - min(start_ns)) // 4096)::BIGINT AS width_ns
FROM _job_steps
GROUP BY job;

-- The part of a step's window until the next one begins, once for each slot that it touches.
CREATE VIEW _step_pieces AS
SELECT
    w.job, s.step, s.start_ns, s.until_ns,
    unnest(range(s.start_ns // w.width_ns, (s.until_ns - 1) // w.width_ns + 1)) AS slot
FROM (
    SELECT
        job, step, start_ns,
        least(end_ns, coalesce(lead(start_ns) OVER (PARTITION BY job ORDER BY start_ns, step),
                               end_ns)) AS until_ns
    FROM _job_steps
) s
JOIN _step_slots w ON w.job = s.job
WHERE s.until_ns > s.start_ns;

-- Traffic of all sources, each row in its window: that of its step (a collective's own, else the
-- one in which it began), else, in a job without steps, one of ten equal ones between the first and
-- the last traffic of the job, else the job as a whole.
CREATE VIEW _rail_traffic AS
WITH every AS MATERIALIZED (
    SELECT job, step, collective_id, host, port, start_ns, end_ns, sent_bytes AS sent,
           received_bytes AS received, sent_bytes + received_bytes AS moved, how,
           'derived' AS source, 'bytes' AS unit
    FROM _derived_traffic
    UNION ALL BY NAME
    SELECT job, step, NULL::BIGINT AS collective_id, host, port, sent, received,
           sent + received AS moved, how, 'derived' AS source, 'tokens' AS unit
    FROM _routed_traffic
    UNION ALL BY NAME
    SELECT job, step, collective_id, host, port, start_ns, end_ns, sent, received, moved, how,
           'measured' AS source, 'bytes' AS unit
    FROM _measured_traffic
), steps_known AS (
    SELECT e.* EXCLUDE (step), coalesce(e.step, s.step) AS step
    FROM every e
    LEFT JOIN _step_slots w ON w.job = e.job
    LEFT JOIN _step_pieces s
        ON s.job = e.job AND s.slot = e.start_ns // w.width_ns
        AND e.start_ns >= s.start_ns AND e.start_ns < s.until_ns
), spans AS (
    SELECT job, min(start_ns) AS first_ns, greatest(1, max(end_ns) - min(start_ns)) AS span_ns
    FROM every
    WHERE start_ns IS NOT NULL
    GROUP BY job
), stepped AS (
    SELECT DISTINCT job FROM _job_steps
)
SELECT
    k.*,
    CASE WHEN k.step IS NOT NULL THEN 'step'
         WHEN k.start_ns IS NULL THEN 'job'
         WHEN t.job IS NOT NULL THEN 'outside steps'
         ELSE 'tenth of the job' END AS window_by,
    CASE window_by WHEN 'tenth of the job'
         THEN least(9, (k.start_ns - p.first_ns) * 10 // p.span_ns) END AS tenth,
    CASE window_by WHEN 'step' THEN w.start_ns
         WHEN 'tenth of the job' THEN p.first_ns + p.span_ns * tenth // 10 END AS window_start_ns,
    CASE window_by WHEN 'step' THEN w.end_ns - w.start_ns
         WHEN 'tenth of the job'
         THEN p.first_ns + p.span_ns * (tenth + 1) // 10 - window_start_ns END AS window_ns
FROM steps_known k
LEFT JOIN spans p ON p.job = k.job
LEFT JOIN stepped t ON t.job = k.job
LEFT JOIN _job_steps w ON w.job = k.job AND w.step = k.step;

-- The rows of `rail_load`.
CREATE VIEW _computed_rail_load AS
WITH traffic AS MATERIALIZED (
    FROM _rail_traffic
), rails AS MATERIALIZED (
    FROM _rails
), windows AS (
    SELECT DISTINCT job, source, unit, step, window_by, tenth, window_start_ns, window_ns
    FROM traffic
), watched AS (
    SELECT job, 'derived' AS source, host, port FROM rails WHERE host IS NOT NULL
    UNION ALL
    (
        SELECT job, 'measured', host, port FROM _watched_rails
        UNION
        SELECT DISTINCT job, source, host, port FROM traffic WHERE source = 'measured'
    )
), ports AS MATERIALIZED (
    -- Numbers for rails: what overlaps is found by sorting, and numbers sort faster.
    SELECT *, row_number() OVER () AS place FROM (SELECT DISTINCT job, host, port FROM traffic)
), timed AS MATERIALIZED (
    SELECT
        p.place, t.source = 'measured' AS measured, t.unit = 'bytes' AS in_bytes,
        t.step, t.tenth, t.start_ns, t.end_ns, t.moved IS NULL AS is_wire
    FROM traffic t
    JOIN ports p ON p.job = t.job AND p.host IS NOT DISTINCT FROM t.host AND p.port = t.port
    WHERE t.start_ns IS NOT NULL AND t.end_ns IS NOT NULL
), wires AS (
    SELECT DISTINCT place, measured FROM timed WHERE is_wire
), merged AS (
    -- Overlapping times count once: what is new in each is what reaches beyond all before it.
    SELECT
        t.place, t.measured, t.in_bytes, t.step, t.tenth,
        greatest(0, t.end_ns - greatest(t.start_ns, coalesce(max(t.end_ns) OVER (
            PARTITION BY t.place, t.measured, t.in_bytes, t.step, t.tenth
            ORDER BY t.start_ns, t.end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), t.start_ns))) AS new_ns
    FROM timed t
    LEFT JOIN wires w ON w.place = t.place AND w.measured = t.measured
    WHERE t.is_wire = (w.place IS NOT NULL)
), busy AS (
    SELECT
        p.job, p.host, p.port, m.measured, m.in_bytes, m.step, m.tenth,
        sum(m.new_ns)::BIGINT AS busy_ns
    FROM merged m JOIN ports p USING (place)
    GROUP BY ALL
), carried AS MATERIALIZED (
    SELECT
        job, source, unit, step, window_by, tenth, host, port,
        sum(moved) AS moved,
        CASE WHEN count(moved) = count(sent) THEN coalesce(sum(sent), 0) END AS sent,
        CASE WHEN count(moved) = count(received) THEN coalesce(sum(received), 0) END
            AS received,
        nullif(count(DISTINCT collective_id), 0) AS collectives,
        count(start_ns) > 0 AS timed,
        string_agg(DISTINCT how, ' / ' ORDER BY how) AS how
    FROM traffic
    GROUP BY ALL
), timed_windows AS (
    SELECT job, source, unit, step, window_by, tenth, bool_or(timed) AS timed
    FROM carried GROUP BY ALL
), unseen AS (
    -- Windows in which something went over rails that no measured source watches.
    SELECT DISTINCT job, step, window_by, tenth
    FROM carried c
    WHERE source = 'derived' AND moved > 0 AND NOT EXISTS (
        FROM watched w
        WHERE w.source = 'measured' AND w.job = c.job AND w.host = c.host AND w.port = c.port
    )
), ranked AS (
    SELECT
        w.*,
        row_number() OVER (
            PARTITION BY w.job, w.step, w.window_by, w.tenth
            ORDER BY w.source = 'measured' AND u.job IS NOT NULL, w.source DESC, w.unit
        ) = 1 AS is_best
    FROM windows w
    LEFT JOIN unseen u
        ON u.job = w.job AND u.step IS NOT DISTINCT FROM w.step AND u.window_by = w.window_by
        AND u.tenth IS NOT DISTINCT FROM w.tenth
), every AS (
    SELECT w.*, r.host, r.port
    FROM ranked w
    JOIN watched r ON r.job = w.job AND r.source = w.source
)
SELECT
    e.job, e.step, e.window_by, e.window_start_ns, e.window_ns,
    e.host, r.rank, r.rail, r.nic, r.plane,
    e.source, e.unit,
    CASE e.unit WHEN 'bytes' THEN TRY_CAST(round(coalesce(c.moved, 0)) AS BIGINT) END AS bytes,
    CASE WHEN e.unit <> 'bytes' THEN NULL WHEN c.port IS NULL THEN 0
         ELSE TRY_CAST(round(c.sent) AS BIGINT) END AS sent_bytes,
    CASE WHEN e.unit <> 'bytes' THEN NULL WHEN c.port IS NULL THEN 0
         ELSE TRY_CAST(round(c.received) AS BIGINT) END AS received_bytes,
    CASE e.unit WHEN 'tokens' THEN TRY_CAST(coalesce(c.moved, 0) AS BIGINT) END AS tokens,
    CASE WHEN t.timed THEN coalesce(b.busy_ns, CASE WHEN coalesce(c.timed, true) THEN 0 END) END
        AS busy_ns,
    CASE WHEN c.port IS NULL THEN 0 ELSE c.collectives END AS collectives,
    e.is_best,
    coalesce(c.how, 'idle') AS how
FROM every e
LEFT JOIN carried c
    ON c.job = e.job AND c.source = e.source AND c.unit = e.unit
    AND c.step IS NOT DISTINCT FROM e.step AND c.window_by = e.window_by
    AND c.tenth IS NOT DISTINCT FROM e.tenth AND c.host IS NOT DISTINCT FROM e.host
    AND c.port = e.port
LEFT JOIN busy b
    -- What has a time is in a window of one kind, which step and tenth tell.
    ON e.window_by <> 'job' AND b.job = e.job AND b.measured = (e.source = 'measured')
    AND b.in_bytes = (e.unit = 'bytes') AND b.step IS NOT DISTINCT FROM e.step
    AND b.tenth IS NOT DISTINCT FROM e.tenth AND b.host IS NOT DISTINCT FROM e.host
    AND b.port = e.port
LEFT JOIN timed_windows t
    ON t.job = e.job AND t.source = e.source AND t.unit = e.unit
    AND t.step IS NOT DISTINCT FROM e.step AND t.window_by = e.window_by
    AND t.tenth IS NOT DISTINCT FROM e.tenth
LEFT JOIN rails r ON r.job = e.job AND r.host IS NOT DISTINCT FROM e.host AND r.port = e.port;

-- The rows of `rail_left_out`.
CREATE VIEW _computed_rail_left_out AS
SELECT
    job, op, algorithm, why_not AS reason, count(*) AS operations,
    TRY_CAST(sum(bytes) AS BIGINT) AS bytes
FROM _crossings
WHERE why_not IS NOT NULL
GROUP BY ALL;
