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
-- the operations that share a kernel, the first. Unmatched communication moves bytes throughout.
CREATE VIEW _activity AS
WITH ready AS (
    SELECT job, event_id, min(start_ns + wait_ns) AS transfer_ns
    FROM waits
    WHERE event_id IS NOT NULL
    GROUP BY job, event_id
), of_events AS (
    SELECT
        e.job, e.rank, e.event_id, e.name, e.kind, e.category, e.correlation, e.thread,
        _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns,
        _aligned_ns(
            e.start_ns + greatest(e.dur_ns, 0), k.offset_ns, k.drift_ppm, k.anchor_ns
        ) AS end_ns
    FROM events e LEFT JOIN _rank_clocks k USING (job, rank)
    WHERE e.kind IN ('kernel', 'memcpy', 'memset', 'host_op')
), library_threads AS (
    SELECT DISTINCT e.job, e.rank, e.thread
    FROM events e SEMI JOIN ready r ON e.job = r.job AND e.event_id = r.event_id
    WHERE e.thread IS NOT NULL AND e.kind = 'annotation'
)
SELECT
    e.job, e.rank, e.event_id, e.name, e.correlation, e.start_ns, e.end_ns,
    CASE WHEN e.kind <> 'kernel' THEN 'copy'
         WHEN e.category = 'comm' THEN 'comm'
         ELSE 'compute' END AS class,
    greatest(e.start_ns, least(e.end_ns, coalesce(r.transfer_ns, e.start_ns))) AS transfer_ns
FROM of_events e LEFT JOIN ready r USING (job, event_id)
WHERE e.kind <> 'host_op'
UNION ALL
SELECT
    w.job, w.rank, w.event_id, w.op AS name, NULL, w.start_ns, w.end_ns, 'comm',
    w.start_ns + w.wait_ns
FROM waits w LEFT JOIN _device_ranks d USING (job, rank)
WHERE w.event_id IS NULL OR d.rank IS NULL
UNION ALL
SELECT e.job, e.rank, e.event_id, e.name, NULL, e.start_ns, e.end_ns, 'compute', e.start_ns
FROM of_events e
ANTI JOIN _device_ranks d ON e.job = d.job AND e.rank = d.rank
ANTI JOIN library_threads t ON e.job = t.job AND e.rank = t.rank AND e.thread = t.thread
ANTI JOIN ready r ON e.job = r.job AND e.event_id = r.event_id
WHERE e.kind = 'host_op'
  AND coalesce(e.category, '') <> 'comm'
  AND NOT regexp_matches(e.name, '^(c10d::|gloo:|nccl:|mpi:|ucc:|record_param_comms)');

-- One row a stretch of a rank's time in which the same things run: how many intervals of each
-- class, how many of comm in transfer, and the step it lies in (its `ordinal`; 0 outside).
-- Stretches begin and end where any interval or step does, so they add up exactly.
CREATE VIEW _segments AS
WITH points AS (
    SELECT
        job, rank,
        unnest(CASE class WHEN 'comm' THEN [start_ns, transfer_ns, end_ns]
                          ELSE [start_ns, end_ns] END) AS t,
        unnest(CASE class WHEN 'comm' THEN [1, 0, -1] ELSE [0, 0] END) AS comm,
        unnest(CASE class WHEN 'comm' THEN [0, 1, -1] ELSE [0, 0] END) AS transfer,
        unnest(CASE class WHEN 'compute' THEN [1, -1] WHEN 'copy' THEN [0, 0]
                          ELSE [0, 0, 0] END) AS compute,
        unnest(CASE class WHEN 'copy' THEN [1, -1] WHEN 'compute' THEN [0, 0]
                          ELSE [0, 0, 0] END) AS copy,
        0 AS begun, 0 AS inside
    FROM _activity
    UNION ALL
    SELECT
        job, rank, unnest([start_ns, end_ns]), 0, 0, 0, 0, unnest([1, 0]), unnest([1, -1])
    FROM _step_windows
), swept AS (
    SELECT
        job, rank,
        t AS start_ns,
        lead(t) OVER w AS end_ns,
        sum(comm) OVER w AS comm,
        sum(transfer) OVER w AS transfer,
        sum(compute) OVER w AS compute,
        sum(copy) OVER w AS copy,
        CASE WHEN sum(inside) OVER w > 0 THEN sum(begun) OVER w ELSE 0 END AS ordinal
    FROM points
    WINDOW w AS (PARTITION BY job, rank ORDER BY t ROWS UNBOUNDED PRECEDING)
)
SELECT * FROM swept WHERE end_ns > start_ns;
