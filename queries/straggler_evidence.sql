-- What ranks do in the time before collectives at which one of them is late, set against each other.
-- requires: clocks, waits, late_ranks, activity, idle_gaps, host_marks

-- Where a rank's first step begins on its host and on its GPU.
CREATE VIEW _first_steps AS
SELECT
    s.job, s.rank,
    min(_aligned_ns(least(s.host_start_ns, s.start_ns), k.offset_ns, k.drift_ppm, k.anchor_ns))
        AS host_ns,
    min(_aligned_ns(s.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns)) AS device_ns
FROM steps s LEFT JOIN _rank_clocks k USING (job, rank)
GROUP BY s.job, s.rank;

-- One row a piece of a rank's time in one class: compute, wait, transfer, comm (not told apart),
-- memcpy and the classes of `idle_gaps`; the time before the first kernel of the first step is
-- idle_launch_bound. Of idle pieces also what the host did instead of launching: from `free_ns` to
-- `launch_ns`.
CREATE VIEW _spent AS
SELECT
    job, rank, start_ns, end_ns,
    CASE WHEN compute THEN 'compute'
         WHEN transfer THEN 'transfer'
         WHEN unsplit THEN 'comm'
         WHEN comm THEN 'wait'
         ELSE 'memcpy' END AS class,
    NULL AS free_ns, NULL AS launch_ns
FROM _segments
WHERE compute OR comm OR copy
UNION ALL
SELECT job, rank, start_ns, end_ns, class, free_ns, launch_ns FROM _idle
UNION ALL
SELECT job, rank, host_ns, device_ns, 'idle_launch_bound', host_ns, device_ns
FROM _first_steps
WHERE host_ns < device_ns;

-- One row a stretch of a rank's time in which its host collects garbage or, else, loads data; they
-- never overlap.
CREATE VIEW _host_marks AS
WITH marks AS (
    SELECT
        e.job, e.rank, is_garbage_collection(e.kind, e.name) AS garbage,
        _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns,
        _aligned_ns(e.start_ns + e.dur_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS end_ns
    FROM events e LEFT JOIN _rank_clocks k USING (job, rank)
    WHERE e.dur_ns > 0 AND e.kind IN ('annotation', 'host_op', 'python')
      AND (is_garbage_collection(e.kind, e.name) OR is_data_loading(e.kind, e.name))
), points AS (
    SELECT
        job, rank,
        unnest([start_ns, end_ns]) AS t,
        unnest([CASE WHEN garbage THEN end_ns END, NULL]) AS garbage_until_ns,
        unnest([end_ns, NULL]) AS until_ns
    FROM marks
), swept AS (
    SELECT
        job, rank, t AS start_ns,
        lead(t) OVER w AS end_ns,
        max(garbage_until_ns) OVER w AS garbage_until_ns,
        max(until_ns) OVER w AS until_ns
    FROM points
    WINDOW w AS (PARTITION BY job, rank ORDER BY t ROWS UNBOUNDED PRECEDING)
)
SELECT
    job, rank, start_ns, end_ns,
    CASE WHEN garbage_until_ns > start_ns THEN 'garbage_collection'
         ELSE 'idle_data_loading' END AS class
FROM swept
WHERE end_ns > start_ns AND until_ns > start_ns;

-- A number of a time's millisecond or so: intervals that overlap share one.
CREATE MACRO _bucket(ns) AS ns >> 20;

-- The lower median of `n` values of which those missing from the list are 0.
CREATE MACRO _padded_median(present, n) AS CASE
    WHEN (n + 1) // 2 <= n - len(present) THEN 0
    ELSE list_sort(present)[(n + 1) // 2 - (n - len(present))]
END;
