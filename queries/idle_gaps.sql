-- When nothing runs on a rank, and what it was waiting for.
-- requires: activity, clocks

-- Runtime calls that hold their thread until the device has done what it was given.
CREATE MACRO _is_blocking_call(name) AS name IN (
    'cudaDeviceSynchronize', 'cudaStreamSynchronize', 'cudaEventSynchronize',
    'cuCtxSynchronize', 'cuStreamSynchronize', 'cuEventSynchronize',
    'cudaMemcpy', 'cudaMemcpy2D', 'cudaMemcpyFromSymbol', 'cudaMemcpyToSymbol',
    'hipDeviceSynchronize', 'hipStreamSynchronize', 'hipEventSynchronize',
    'hipMemcpy', 'hipMemcpyWithStream'
);

-- One row a piece of a gap: from the end of all work begun so far to the next work, cut at the
-- boundaries of steps. `free_ns` is where the whole gap began, `after_*` the work that ended it.
CREATE VIEW _gaps AS
WITH marks AS (
    SELECT
        job, rank, start_ns, end_ns, end_ns AS work_end_ns, false AS boundary,
        event_id, name, correlation, NULL AS step_until_ns, NULL AS begun
    FROM _activity
    UNION ALL
    SELECT
        job, rank, unnest([start_ns, end_ns]), unnest([start_ns, end_ns]), NULL, true,
        NULL, NULL, NULL, unnest([end_ns, NULL]), unnest([ordinal, NULL])
    FROM _step_windows
), seen AS (
    SELECT
        *,
        max(end_ns) OVER before AS busy_until_ns,
        max(work_end_ns) OVER before AS free_ns,
        max(step_until_ns) OVER before AS last_step_until_ns,
        max(begun) OVER before AS last_begun
    FROM marks
    WINDOW before AS (
        PARTITION BY job, rank ORDER BY start_ns, boundary, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
), pieces AS (
    SELECT
        job, rank, boundary,
        CASE WHEN last_step_until_ns > busy_until_ns THEN last_begun ELSE 0 END AS ordinal,
        busy_until_ns AS start_ns,
        start_ns AS end_ns,
        coalesce(free_ns, busy_until_ns) AS free_ns,
        event_id, name, correlation
    FROM seen
    WHERE start_ns > busy_until_ns
)
SELECT
    job, rank, ordinal, start_ns, end_ns, free_ns,
    event_id AS after_event_id, name AS after_name, correlation AS after_correlation
FROM pieces
WHERE NOT boundary
UNION ALL
-- A piece that a step cut off is ended by what ends the whole gap.
SELECT
    p.job, p.rank, p.ordinal, p.start_ns, p.end_ns, p.free_ns,
    n.event_id, n.name, n.correlation
FROM (FROM pieces WHERE boundary) p
LEFT JOIN (FROM pieces WHERE NOT boundary) n USING (job, rank, free_ns);

-- The same pieces with their class. The launch of the work that ended the gap decides: begun
-- before the gap, the work waited for its stream; begun in it, the host was late, because it
-- spent at least half of the time until the launch in the data loader, or sat in a blocking call
-- when or after the gap began, or else because it was simply still launching.
CREATE VIEW _idle AS
WITH runtime AS (
    SELECT
        e.job, e.rank, e.thread, e.name, e.correlation,
        _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns,
        _aligned_ns(
            e.start_ns + greatest(e.dur_ns, 0), k.offset_ns, k.drift_ppm, k.anchor_ns
        ) AS end_ns
    FROM events e LEFT JOIN _rank_clocks k USING (job, rank)
    WHERE e.kind = 'runtime'
), loading AS (
    SELECT
        e.job, e.rank, e.thread,
        _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns,
        _aligned_ns(
            e.start_ns + greatest(e.dur_ns, 0), k.offset_ns, k.drift_ppm, k.anchor_ns
        ) AS end_ns
    FROM events e LEFT JOIN _rank_clocks k USING (job, rank)
    WHERE e.kind IN ('annotation', 'host_op') AND e.name LIKE 'enumerate(DataLoader)%'
), launches AS (
    SELECT job, rank, correlation, min(start_ns) AS launch_ns, arg_min(thread, start_ns) AS thread
    FROM runtime
    WHERE correlation IS NOT NULL
    GROUP BY job, rank, correlation
), launched AS (
    SELECT g.*, l.launch_ns, l.thread
    FROM _gaps g
    LEFT JOIN launches l
        ON l.job = g.job AND l.rank = g.rank AND l.correlation = g.after_correlation
), late AS (
    SELECT
        l.*,
        b.end_ns AS blocked_until_ns,
        -- least and greatest pass over nulls, and there may be no loading at all
        CASE WHEN d.end_ns IS NULL THEN 0
             ELSE least(d.end_ns, l.launch_ns) - greatest(d.start_ns, l.free_ns)
        END AS loading_ns
    FROM (FROM launched WHERE launch_ns >= free_ns) l
    ASOF LEFT JOIN (SELECT * FROM runtime WHERE _is_blocking_call(name)) b
        ON l.job = b.job AND l.rank = b.rank AND l.thread = b.thread
        AND l.launch_ns > b.start_ns
    ASOF LEFT JOIN loading d
        ON l.job = d.job AND l.rank = d.rank AND l.thread = d.thread
        AND l.launch_ns > d.start_ns
)
SELECT
    job, rank, ordinal, start_ns, end_ns, free_ns, after_event_id, after_name, launch_ns,
    CASE
        WHEN loading_ns > 0 AND 2 * loading_ns >= launch_ns - free_ns THEN 'idle_data_loading'
        WHEN blocked_until_ns > free_ns THEN 'idle_waiting_for_host'
        ELSE 'idle_launch_bound'
    END AS class
FROM late
UNION ALL
SELECT
    job, rank, ordinal, start_ns, end_ns, free_ns, after_event_id, after_name, launch_ns,
    CASE WHEN launch_ns IS NULL THEN 'idle_unknown' ELSE 'idle_waiting_for_stream' END
FROM launched
WHERE launch_ns IS NULL OR launch_ns < free_ns;

-- A gap: a stretch in which no kernel and no copy runs on a rank's GPU (on a rank without one: no
-- host operation or participation), between its first work or step and its last. A gap that
-- crosses the boundary of a step is cut there, so a step's gaps add up to its idle time.
CREATE VIEW idle_gaps (
    -- job
    job,
    -- global rank
    rank,
    -- step that it lies in; null outside steps
    step,
    -- number of the gap on the rank, from 0, in order of time
    gap,
    -- [ns] start on the job's clock
    start_ns,
    -- [ns] duration
    dur_ns,
    -- idle_launch_bound (the next launch came after the gap began), idle_waiting_for_host (so too,
    -- and the launching thread had sat in a blocking synchronisation), idle_data_loading (so too,
    -- and it spent at least half of the time in the data loader), idle_waiting_for_stream (launched
    -- before the gap began: held back by its queue or by an event), idle_unknown (no launch known)
    class,
    -- name of the work whose end began it; null where none came before
    before,
    -- name of the work whose start ended it; null where none came after
    after,
    -- [ns] start of the call that launched that work; null where not known
    launch_ns
) AS
WITH ended AS (
    SELECT job, rank, end_ns, arg_min(name, (start_ns, event_id)) AS name
    FROM _activity
    GROUP BY job, rank, end_ns
)
SELECT
    i.job, i.rank, s.step,
    row_number() OVER (PARTITION BY i.job, i.rank ORDER BY i.start_ns) - 1 AS gap,
    i.start_ns, i.end_ns - i.start_ns AS dur_ns, i.class,
    b.name AS before, i.after_name AS after, i.launch_ns
FROM _idle i
LEFT JOIN _step_windows s USING (job, rank, ordinal)
LEFT JOIN ended b ON b.job = i.job AND b.rank = i.rank AND b.end_ns = i.free_ns;
