-- What ran when: the intervals that overlap, breakdown and gaps are all measured on.
-- requires: clocks, waits

-- One row a rank that has GPU work. The others are measured on their host.
CREATE VIEW _computed_device_ranks AS
SELECT DISTINCT job, rank FROM events WHERE kind = 'kernel';
CREATE VIEW _stored_device_ranks AS
SELECT DISTINCT job, rank FROM _made_kernels WHERE kind = 'kernel';
CREATE VIEW _device_ranks AS FROM _computed_device_ranks;

-- One row an interval of work, on the job's clock, of class comm, compute or copy.
-- On a rank with a GPU: its kernels (comm by category, else compute) and its copies; annotations'
-- twins on the device (kind gpu_annotation) and sync rows are no work. A participation that no
-- event carries counts by its own times. On a rank without a GPU: its participations, and as
-- compute its host operations, but for those of the communication library and those on the
-- library's own threads. `transfer_ns` is the moment from which a comm interval moves bytes: of
-- the operations that share a kernel, the first. Communication of which nothing says what part is
-- wait (`waits.wait_known`, or no participation at all) is `unsplit`: it never moves bytes.
CREATE VIEW _activity AS
WITH parts AS MATERIALIZED (
    FROM waits
), ready AS (
    SELECT job, event_id, min(start_ns + wait_ns) FILTER (wait_known) AS transfer_ns
    FROM parts
    WHERE event_id IS NOT NULL
    GROUP BY job, event_id
), comm AS (
    SELECT e.*, r.transfer_ns
    FROM events e LEFT JOIN ready r USING (job, event_id)
    WHERE e.kind = 'kernel' AND e.category = 'comm'
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
    e.job, e.rank, e.event_id, e.name, e.correlation,
    _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns,
    _aligned_ns(
        e.start_ns + greatest(e.dur_ns, 0), k.offset_ns, k.drift_ppm, k.anchor_ns
    ) AS end_ns,
    CASE e.kind WHEN 'kernel' THEN 'compute' ELSE 'copy' END AS class,
    _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS transfer_ns,
    false AS unsplit
FROM events e LEFT JOIN _rank_clocks k USING (job, rank)
WHERE e.kind IN ('memcpy', 'memset')
   OR (e.kind = 'kernel' AND coalesce(e.category, '') <> 'comm')
UNION ALL
SELECT
    e.job, e.rank, e.event_id, e.name, e.correlation,
    _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS begin_ns,
    _aligned_ns(
        e.start_ns + greatest(e.dur_ns, 0), k.offset_ns, k.drift_ppm, k.anchor_ns
    ) AS finish_ns,
    'comm',
    greatest(begin_ns, least(finish_ns, coalesce(e.transfer_ns, finish_ns))),
    e.transfer_ns IS NULL
FROM comm e LEFT JOIN _rank_clocks k USING (job, rank)
UNION ALL
SELECT
    w.job, w.rank, w.event_id, w.op, NULL, w.start_ns, w.end_ns, 'comm',
    CASE WHEN w.wait_known THEN w.start_ns + w.wait_ns ELSE w.end_ns END, NOT w.wait_known
FROM parts w LEFT JOIN _device_ranks d USING (job, rank)
WHERE w.event_id IS NULL OR d.rank IS NULL
UNION ALL
SELECT job, rank, event_id, name, NULL, start_ns, end_ns, 'compute', start_ns, false
FROM of_host;
