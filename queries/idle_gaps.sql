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
        event_id, name, correlation, 0 AS begun, 0 AS inside
    FROM _activity
    UNION ALL
    SELECT
        job, rank, unnest([start_ns, end_ns]), unnest([start_ns, end_ns]), NULL, true,
        NULL, NULL, NULL, unnest([1, 0]), unnest([1, -1])
    FROM _step_windows
), seen AS (
    SELECT
        *,
        max(end_ns) OVER before AS busy_until_ns,
        max(work_end_ns) OVER before AS free_ns,
        CASE WHEN sum(inside) OVER before > 0 THEN sum(begun) OVER before ELSE 0 END AS ordinal
    FROM marks
    WINDOW before AS (
        PARTITION BY job, rank ORDER BY start_ns, boundary, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)
SELECT
    job, rank, ordinal,
    busy_until_ns AS start_ns,
    start_ns AS end_ns,
    coalesce(free_ns, busy_until_ns) AS free_ns,
    last_value(event_id) OVER whole AS after_event_id,
    last_value(name) OVER whole AS after_name,
    last_value(correlation) OVER whole AS after_correlation
FROM seen
WHERE start_ns > busy_until_ns
WINDOW whole AS (
    PARTITION BY job, rank, free_ns ORDER BY start_ns
    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
);

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
), launched AS (
    SELECT
        g.job, g.rank, g.ordinal, g.start_ns, g.end_ns, g.free_ns,
        any_value(g.after_event_id) AS after_event_id,
        any_value(g.after_name) AS after_name,
        min(r.start_ns) AS launch_ns,
        arg_min(r.thread, r.start_ns) AS thread
    FROM _gaps g
    LEFT JOIN runtime r
        ON r.job = g.job AND r.rank = g.rank AND r.correlation = g.after_correlation
    GROUP BY g.job, g.rank, g.ordinal, g.start_ns, g.end_ns, g.free_ns
), blocked AS (
    SELECT l.*, b.end_ns AS blocked_until_ns
    FROM launched l
    ASOF LEFT JOIN (SELECT * FROM runtime WHERE _is_blocking_call(name)) b
        ON l.job = b.job AND l.rank = b.rank AND l.thread = b.thread
        AND l.launch_ns > b.start_ns
), loaded AS (
    SELECT
        b.*,
        -- least and greatest pass over nulls, and there may be no loading at all
        CASE WHEN d.end_ns IS NULL THEN 0
             ELSE least(d.end_ns, b.launch_ns) - greatest(d.start_ns, b.free_ns)
        END AS loading_ns
    FROM blocked b
    ASOF LEFT JOIN loading d
        ON b.job = d.job AND b.rank = d.rank AND b.thread = d.thread
        AND b.launch_ns > d.start_ns
)
SELECT
    job, rank, ordinal, start_ns, end_ns, free_ns, after_event_id, after_name, launch_ns,
    CASE
        WHEN launch_ns IS NULL THEN 'idle_unknown'
        WHEN launch_ns < free_ns THEN 'idle_waiting_for_stream'
        WHEN loading_ns > 0 AND 2 * loading_ns >= launch_ns - free_ns THEN 'idle_data_loading'
        WHEN blocked_until_ns > free_ns THEN 'idle_waiting_for_host'
        ELSE 'idle_launch_bound'
    END AS class
FROM loaded;

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
