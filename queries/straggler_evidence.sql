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
-- memcpy, the classes of `idle_gaps` and garbage_collection; the time before the first kernel of
-- the first step is idle_launch_bound. While the host collects garbage or loads data, idle time
-- other than waiting for a stream is that, and so is what a rank without a GPU computes. Of idle
-- pieces also what the host did instead of launching: from `free_ns` to `launch_ns`.
CREATE VIEW _spent AS
WITH pieces AS (
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
    WHERE host_ns < device_ns
), marks AS MATERIALIZED (
    SELECT
        e.job, e.rank, is_garbage_collection(e.kind, e.name) AS garbage,
        _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns,
        _aligned_ns(e.start_ns + e.dur_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS end_ns
    FROM events e LEFT JOIN _rank_clocks k USING (job, rank)
    WHERE e.dur_ns > 0 AND e.kind IN ('annotation', 'host_op', 'python')
      AND (is_garbage_collection(e.kind, e.name) OR is_data_loading(e.kind, e.name))
), labelled AS (
    SELECT p.*, m.rank IS NOT NULL AS marked
    FROM pieces p LEFT JOIN (SELECT DISTINCT job, rank FROM marks) m USING (job, rank)
), points AS MATERIALIZED (
    SELECT job, rank, start_ns AS t, end_ns, class, free_ns, launch_ns,
        NULL AS garbage_until_ns, NULL AS loading_until_ns, marked
    FROM labelled
    UNION ALL
    SELECT job, rank, unnest([start_ns, end_ns]), NULL, NULL, NULL, NULL,
        unnest([CASE WHEN garbage THEN end_ns END, NULL]),
        unnest([CASE WHEN NOT garbage THEN end_ns END, NULL]), true
    FROM marks
), swept AS (
    SELECT
        job, rank, t,
        lead(t) OVER w AS next_ns,
        last_value(CASE WHEN end_ns IS NOT NULL THEN {
            'end_ns': end_ns, 'class': class, 'free_ns': free_ns, 'launch_ns': launch_ns
        } END IGNORE NULLS) OVER w AS piece,
        max(garbage_until_ns) OVER w AS garbage_until_ns,
        max(loading_until_ns) OVER w AS loading_until_ns
    FROM points
    WHERE marked
    WINDOW w AS (PARTITION BY job, rank ORDER BY t, end_ns NULLS FIRST
                 ROWS UNBOUNDED PRECEDING)
)
SELECT job, rank, t AS start_ns, end_ns, class, free_ns, launch_ns FROM points WHERE NOT marked
UNION ALL
SELECT
    s.job, s.rank, s.t, least(s.next_ns, s.piece.end_ns),
    CASE WHEN (s.piece.class LIKE 'idle%' AND s.piece.class <> 'idle_waiting_for_stream')
              OR (s.piece.class = 'compute' AND d.rank IS NULL)
         THEN CASE WHEN s.garbage_until_ns > s.t THEN 'garbage_collection'
                   WHEN s.loading_until_ns > s.t THEN 'idle_data_loading'
                   ELSE s.piece.class END
         ELSE s.piece.class END,
    s.piece.free_ns, s.piece.launch_ns
FROM swept s LEFT JOIN _device_ranks d USING (job, rank)
WHERE least(s.next_ns, s.piece.end_ns) > s.t;

-- The lower median of `n` values of which those missing from the list are 0.
CREATE MACRO _padded_median(present, n) AS CASE
    WHEN (n + 1) // 2 <= n - len(present) THEN 0
    ELSE list_sort(present)[(n + 1) // 2 - (n - len(present))]
END;
