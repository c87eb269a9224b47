-- What ran when: the intervals that overlap, breakdown and gaps are all measured on.
-- requires: clocks, waits

-- One row a rank that has GPU work. The others are measured on their host.
CREATE VIEW _device_ranks AS
SELECT DISTINCT job, rank FROM events WHERE kind = 'kernel';

-- One row an interval of work, on the job's clock, of class comm, compute or copy.
-- On a rank with a GPU: its kernels (comm by category, else compute) and its copies; annotations'
-- twins on the device (kind gpu_annotation) and sync rows are no work. A participation that no
-- event carries counts by its own times. On a rank without a GPU: its participations, and as
-- compute its host operations, but for those of the communication library and those on the
-- library's own threads. `transfer_ns` is the moment from which a comm interval moves bytes: of
-- the operations that share a kernel, the first. Communication of which nothing says what part is
-- wait (`waits.wait_known`, or no participation at all) is `unsplit`: it never moves bytes.
CREATE VIEW _activity AS
WITH ready AS (
    SELECT job, event_id, min(start_ns + wait_ns) FILTER (wait_known) AS transfer_ns
    FROM waits
    WHERE event_id IS NOT NULL
    GROUP BY job, event_id
), of_device AS (
    SELECT
        e.job, e.rank, e.event_id, e.name, e.correlation,
        _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns,
        _aligned_ns(
            e.start_ns + greatest(e.dur_ns, 0), k.offset_ns, k.drift_ppm, k.anchor_ns
        ) AS end_ns,
        CASE WHEN e.kind <> 'kernel' THEN 'copy'
             WHEN e.category = 'comm' THEN 'comm'
             ELSE 'compute' END AS class
    FROM events e LEFT JOIN _rank_clocks k USING (job, rank)
    WHERE e.kind IN ('kernel', 'memcpy', 'memset')
), host_ranks AS (
    SELECT * FROM _rank_clocks
    ANTI JOIN _device_ranks USING (job, rank)
), library_threads AS (
    SELECT DISTINCT e.job, e.rank, e.thread
    FROM events e SEMI JOIN ready r ON e.job = r.job AND e.event_id = r.event_id
    WHERE e.thread IS NOT NULL AND e.kind = 'annotation'
), of_host AS (
    SELECT
        e.job, e.rank, e.event_id, e.name,
        _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns,
        _aligned_ns(
            e.start_ns + greatest(e.dur_ns, 0), k.offset_ns, k.drift_ppm, k.anchor_ns
        ) AS end_ns
    FROM events e
    JOIN host_ranks k USING (job, rank)
    ANTI JOIN library_threads t ON e.job = t.job AND e.rank = t.rank AND e.thread = t.thread
    ANTI JOIN ready r ON e.job = r.job AND e.event_id = r.event_id
    WHERE e.kind = 'host_op'
      AND coalesce(e.category, '') <> 'comm'
      AND NOT regexp_matches(e.name, '^(c10d::|gloo:|nccl:|mpi:|ucc:|record_param_comms)')
)
SELECT
    job, rank, event_id, name, correlation, start_ns, end_ns, class, start_ns AS transfer_ns,
    false AS unsplit
FROM of_device
WHERE class <> 'comm'
UNION ALL
SELECT
    e.job, e.rank, e.event_id, e.name, e.correlation, e.start_ns, e.end_ns, e.class,
    greatest(e.start_ns, least(e.end_ns, coalesce(r.transfer_ns, e.end_ns))),
    r.transfer_ns IS NULL
FROM of_device e LEFT JOIN ready r USING (job, event_id)
WHERE e.class = 'comm'
UNION ALL
SELECT
    w.job, w.rank, w.event_id, w.op, NULL, w.start_ns, w.end_ns, 'comm',
    CASE WHEN w.wait_known THEN w.start_ns + w.wait_ns ELSE w.end_ns END, NOT w.wait_known
FROM waits w LEFT JOIN _device_ranks d USING (job, rank)
WHERE w.event_id IS NULL OR d.rank IS NULL
UNION ALL
SELECT job, rank, event_id, name, NULL, start_ns, end_ns, 'compute', start_ns, false
FROM of_host;

-- One row a stretch of a rank's time in which the same things run: whether compute, comm, comm
-- in transfer, unsplit comm and copies do, and the step it lies in (its `ordinal`; 0 outside). Stretches begin
-- and end where any interval or step does, so they add up exactly. A class runs for as long as
-- the latest end of what has begun of it: a running maximum, cheaper by far than counting.
CREATE VIEW _segments AS
WITH points AS (
    SELECT
        job, rank,
        unnest([start_ns, end_ns]) AS t,
        unnest([CASE class WHEN 'compute' THEN end_ns END, NULL]) AS compute_until_ns,
        unnest([CASE class WHEN 'comm' THEN end_ns END, NULL]) AS comm_until_ns,
        unnest([CASE class WHEN 'copy' THEN end_ns END, NULL]) AS copy_until_ns,
        NULL AS transfer_until_ns,
        unnest([CASE WHEN unsplit THEN end_ns END, NULL]) AS unsplit_until_ns,
        NULL AS step_until_ns,
        NULL AS begun
    FROM _activity
    UNION ALL
    SELECT job, rank, transfer_ns, NULL, NULL, NULL, end_ns, NULL, NULL, NULL
    FROM _activity WHERE class = 'comm'
    UNION ALL
    SELECT
        job, rank, unnest([start_ns, end_ns]), NULL, NULL, NULL, NULL, NULL,
        unnest([end_ns, NULL]), unnest([ordinal, NULL])
    FROM _step_windows
), swept AS (
    SELECT
        job, rank,
        t AS start_ns,
        lead(t) OVER w AS end_ns,
        max(compute_until_ns) OVER w AS compute_until_ns,
        max(comm_until_ns) OVER w AS comm_until_ns,
        max(copy_until_ns) OVER w AS copy_until_ns,
        max(transfer_until_ns) OVER w AS transfer_until_ns,
        max(unsplit_until_ns) OVER w AS unsplit_until_ns,
        max(step_until_ns) OVER w AS step_until_ns,
        max(begun) OVER w AS begun
    FROM points
    WINDOW w AS (PARTITION BY job, rank ORDER BY t ROWS UNBOUNDED PRECEDING)
)
SELECT
    job, rank, start_ns, end_ns,
    coalesce(compute_until_ns > start_ns, false) AS compute,
    coalesce(comm_until_ns > start_ns, false) AS comm,
    coalesce(copy_until_ns > start_ns, false) AS copy,
    coalesce(transfer_until_ns > start_ns, false) AS transfer,
    coalesce(unsplit_until_ns > start_ns, false) AS unsplit,
    CASE WHEN step_until_ns > start_ns THEN begun ELSE 0 END AS ordinal
FROM swept
WHERE end_ns > start_ns;
