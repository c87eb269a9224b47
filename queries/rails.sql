-- How much each rail carried, and how evenly they shared it.
-- requires: clocks, nics, rails_derived, rails_measured

-- The window of each step, over all ranks.
CREATE VIEW _job_steps AS
SELECT job, step, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM _step_windows
WHERE step IS NOT NULL
GROUP BY job, step;

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
    SELECT e.* EXCLUDE (step), coalesce(e.step, CASE WHEN e.start_ns < s.end_ns THEN s.step END)
        AS step
    FROM every e
    ASOF LEFT JOIN _job_steps s ON s.job = e.job AND s.start_ns <= e.start_ns
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

-- A rail of a host (a NIC, or a rank's own rail where no NIC is known) in a window, by what one
-- kind of source says. Measured rows come from counters of NICs, or from what NCCL's proxy sent
-- (collectives alone); derived ones from operation, size, members and placement. The two are never
-- added: both are there to be held against each other, and `is_best` marks the one to use, the same
-- for all rails of a window. Rails that carried nothing are there with 0: of a measured window
-- those that its source watches, of a derived one those of all hosts. A job on one host has no
-- derived rows. What could not be derived is in `rail_left_out`.
CREATE VIEW rail_load (
    -- job
    job,
    -- step; null where the window is not one
    step,
    -- step, outside steps, tenth of the job (a job without steps), or job (no times)
    window_by,
    -- [ns] start of the window on the job's clock; null where it has none
    window_start_ns,
    -- [ns] length of the window; a transfer, or an interval of a counter, counts whole in the one
    -- in which it began
    window_ns,
    -- machine
    host,
    -- rank whose own rail this is; null where several share it or none has it
    rank,
    -- rail: as recorded, else the place of the NIC, or of the GPU, within its host
    rail,
    -- network interface; null where unknown
    nic,
    -- plane of the NIC
    plane,
    -- measured or derived
    source,
    -- bytes, or tokens where only the routing is known and nothing says how large a token is
    unit,
    -- [bytes] carried in both directions together; null where the unit is tokens
    bytes,
    -- [bytes] sent by the host over this rail; null where the direction is not known
    sent_bytes,
    -- [bytes] received by the host over this rail; null where the direction is not known
    received_bytes,
    -- [tokens] copies of tokens in both directions together; null where the unit is bytes
    tokens,
    -- [ns] time in which something moved: measured, the union of times on the wire (steps of the
    -- proxy where told, else whole operations or intervals of a counter); derived, the union of the
    -- transfers of the collectives that use the rail; null without times
    busy_ns,
    -- [collectives] collectives that this is of, where known
    collectives,
    -- the row to use, one source a window: measured where every rail that must have carried
    -- something is watched, else derived bytes, else tokens
    is_best,
    -- how it was measured or derived, and how the rail was found
    how
) AS
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
), merged AS (
    -- Overlapping times count once: what is new in each is what reaches beyond all before it.
    SELECT
        *,
        greatest(0, end_ns - greatest(start_ns, coalesce(max(end_ns) OVER (
            PARTITION BY job, source, unit, step, window_by, tenth, host, port
            ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), start_ns))) AS new_ns
    FROM (
        SELECT DISTINCT
            job, source, unit, step, window_by, tenth, host, port, start_ns, end_ns
        FROM (
            SELECT *, moved IS NULL AS is_wire, bool_or(moved IS NULL) OVER (
                PARTITION BY job, source, host, port) AS has_wire
            FROM traffic
            WHERE start_ns IS NOT NULL AND end_ns IS NOT NULL
        )
        WHERE is_wire = has_wire
    )
), busy AS (
    SELECT job, source, unit, step, window_by, tenth, host, port, sum(new_ns)::BIGINT AS busy_ns
    FROM merged GROUP BY ALL
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
    ON b.job = e.job AND b.source = e.source AND b.unit = e.unit
    AND b.step IS NOT DISTINCT FROM e.step AND b.window_by = e.window_by
    AND b.tenth IS NOT DISTINCT FROM e.tenth AND b.host IS NOT DISTINCT FROM e.host
    AND b.port = e.port
LEFT JOIN timed_windows t
    ON t.job = e.job AND t.source = e.source AND t.unit = e.unit
    AND t.step IS NOT DISTINCT FROM e.step AND t.window_by = e.window_by
    AND t.tenth IS NOT DISTINCT FROM e.tenth
LEFT JOIN rails r ON r.job = e.job AND r.host IS NOT DISTINCT FROM e.host AND r.port = e.port;

CREATE MACRO _max_over_mean(x) AS max(x) / nullif(avg(x), 0);

CREATE MACRO _cv(x) AS stddev_pop(x) / nullif(avg(x), 0);

-- In doubles: squares of bytes are beyond 64 bits.
CREATE MACRO _jain(x) AS
    power(sum(x::DOUBLE), 2) / nullif(count(x) * sum(power(x::DOUBLE, 2)), 0);

-- How evenly the rails of a window shared what there was, by what one kind of source says. Each
-- host's end of a rail counts by itself, and idle ones count. Of n loads x: max/mean; the
-- population standard deviation over the mean; and Jain's index (sum x)^2 / (n sum x^2), 1 where
-- all are equal and 1/n where one carries all.
CREATE VIEW rail_imbalance (
    -- job
    job,
    -- step; null where the window is not one
    step,
    -- step, outside steps, tenth of the job (a job without steps), or job (no times)
    window_by,
    -- [ns] start of the window on the job's clock; null where it has none
    window_start_ns,
    -- [ns] length of the window
    window_ns,
    -- measured or derived
    source,
    -- what is compared: bytes, or tokens (see rail_load)
    unit,
    -- [rails] rails compared, idle ones too
    n_rails,
    -- [rails] rails that carried nothing
    idle_rails,
    -- [bytes] bytes over all of them, both directions; null where the unit is tokens
    bytes,
    -- largest load over the mean; null where nothing was carried
    max_over_mean,
    -- coefficient of variation of the loads
    cv,
    -- Jain's index of the loads
    jain,
    -- largest busy time over the mean; null without times
    busy_max_over_mean,
    -- coefficient of variation of busy times
    busy_cv,
    -- Jain's index of busy times
    busy_jain,
    -- machine of the rail that carried most (the first by name of several)
    busiest_host,
    -- that rail
    busiest_rail,
    -- its network interface; null where unknown
    busiest_nic,
    -- the row to use of the window, as in rail_load
    is_best
) AS
WITH loads AS (
    SELECT *, coalesce(bytes, tokens) AS load FROM rail_load
), windows AS (
    SELECT
        job, step, window_by, window_start_ns, window_ns, source, unit, is_best,
        count(*) AS n_rails,
        count(*) FILTER (load = 0) AS idle_rails,
        TRY_CAST(sum(bytes) AS BIGINT) AS bytes,
        _max_over_mean(load) AS max_over_mean,
        _cv(load) AS cv,
        _jain(load) AS jain,
        _max_over_mean(busy_ns) AS busy_max_over_mean,
        _cv(busy_ns) AS busy_cv,
        _jain(busy_ns) AS busy_jain,
        arg_min({'host': host, 'rail': rail, 'nic': nic}, (-load, host, rail, nic)) AS busiest
    FROM loads
    GROUP BY job, step, window_by, window_start_ns, window_ns, source, unit, is_best
)
SELECT
    * EXCLUDE (busiest, is_best),
    CASE WHEN idle_rails < n_rails THEN busiest.host END AS busiest_host,
    CASE WHEN idle_rails < n_rails THEN busiest.rail END AS busiest_rail,
    CASE WHEN idle_rails < n_rails THEN busiest.nic END AS busiest_nic,
    is_best
FROM windows;

-- Operations between ranks whose bytes no rail of `rail_load` has, by the reason.
CREATE VIEW rail_left_out (
    -- job
    job,
    -- operation
    op,
    -- algorithm, where a source says
    algorithm,
    -- what is not known
    reason,
    -- [operations] collectives, or participations of operations that go straight to a peer
    operations,
    -- [bytes] their sizes added up, as far as known
    bytes
) AS
SELECT
    job, op, algorithm, why_not AS reason, count(*) AS operations,
    TRY_CAST(sum(bytes) AS BIGINT) AS bytes
FROM _crossings
WHERE why_not IS NOT NULL
GROUP BY ALL;
