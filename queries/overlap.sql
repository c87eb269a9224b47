-- How much of communication runs under compute.
-- requires: accounts, clocks

-- A rank and step: the time in which communication runs (the union of its intervals), compute
-- runs, and both do. Time outside every step is a row with step null, so that a rank's rows add
-- up to its whole trace. On a rank with a GPU these are kernels; on one without, participations
-- and host operations.
CREATE VIEW overlap (
    -- job
    job,
    -- global rank
    rank,
    -- step; null for the time outside every step
    step,
    -- [ns] time in which at least one communication kernel runs
    comm_ns,
    -- [ns] time in which at least one compute kernel runs
    compute_ns,
    -- [ns] time in which both do
    overlap_ns,
    -- [ns] communication time during which no compute kernel runs: comm_ns - overlap_ns
    exposed_ns,
    -- overlap_ns over comm_ns, 0 to 1; null without communication
    overlap_ratio
) AS
WITH measured AS (
    SELECT
        job, rank, step,
        sum(ns) FILTER (class NOT IN ('compute', 'exposed_memcpy'))::BIGINT AS comm_ns,
        sum(ns) FILTER (class IN ('compute', 'compute_with_comm'))::BIGINT AS compute_ns,
        sum(ns) FILTER (class = 'compute_with_comm')::BIGINT AS overlap_ns
    FROM _class_times
    WHERE kind = 'class'
    GROUP BY job, rank, ordinal, step
)
SELECT
    job, rank, step, comm_ns, compute_ns, overlap_ns,
    comm_ns - overlap_ns AS exposed_ns,
    overlap_ns / nullif(comm_ns, 0) AS overlap_ratio
FROM measured;

-- A rank, over its whole trace: `overlap` added up.
CREATE VIEW overlap_by_rank (
    -- job
    job,
    -- global rank
    rank,
    -- [ns] time in which at least one communication kernel runs
    comm_ns,
    -- [ns] time in which at least one compute kernel runs
    compute_ns,
    -- [ns] time in which both do
    overlap_ns,
    -- [ns] communication time during which no compute kernel runs
    exposed_ns,
    -- overlap_ns over comm_ns, 0 to 1; null without communication
    overlap_ratio
) AS
SELECT
    job, rank,
    sum(comm_ns)::BIGINT AS comm_ns,
    sum(compute_ns)::BIGINT AS compute_ns,
    sum(overlap_ns)::BIGINT AS overlap_ns,
    sum(exposed_ns)::BIGINT AS exposed_ns,
    sum(overlap_ns) / nullif(sum(comm_ns), 0) AS overlap_ratio
FROM overlap
GROUP BY job, rank;
