-- Collectives, each one row for all its ranks.
-- requires: waits

-- One row a matched collective: what its participations come to, whatever their clocks.
CREATE VIEW _computed_instances AS
SELECT
    job, collective_id,
    min(step) AS step,
    min(comm) AS comm,
    arg_min_null(dim, comm) AS dim,
    -- The two ends of a point-to-point operation carry different names.
    CASE WHEN min(op) = max(op) THEN min(op)
         WHEN min(op) = 'recv' AND max(op) = 'send' THEN 'send_recv'
         ELSE min(op) END AS op,
    max(bytes) AS bytes,
    max(n_ranks) AS n_ranks,
    max(n_seen) AS n_seen,
    max(match) AS match,
    min(start_ns) AS first_start_ns,
    CASE WHEN min(op) IN ('broadcast', 'scatter')
         THEN coalesce(max(root_start_ns), max(start_ns))
         ELSE max(start_ns) END AS ready_ns,
    max(end_ns) AS end_ns,
    sum(greatest(0, least(ready_ns, end_ns) - start_ns))::BIGINT AS wait_ns,
    -- Those of one clock add up to 1; counting distinct texts takes longer than all the rest.
    coalesce(round(sum(1 / n_comparable) FILTER (timed)), 0)::BIGINT AS n_clocks,
    max(last_rank) FILTER (timed) AS last_rank,
    max(start_ns) - min(start_ns) AS skew_ns,
    max(clock_error_ns) AS clock_error_ns,
    bool_or(wait_known) FILTER (timed) AS wait_known
FROM _participations
WHERE collective_id IS NOT NULL
GROUP BY job, collective_id;

-- The same rows, made once with the job.
CREATE VIEW _stored_instances AS
SELECT
    job, collective_id, step, comm, dim, op, bytes, n_ranks::BIGINT AS n_ranks,
    n_seen::BIGINT AS n_seen, match, first_start_ns, ready_ns, end_ns, wait_ns,
    n_clocks::BIGINT AS n_clocks, last_rank, skew_ns, clock_error_ns, wait_known
FROM _made_instances;

-- Those of jobs that have them stored, computed of the others: the connection says which.
CREATE VIEW _instances AS FROM _computed_instances;

-- A matched collective. Where its ranks' clocks cannot be compared (`n_clocks` above 1) nothing
-- that compares them is given: ready, transfer, skew, bandwidth and last rank are null (ready, wait
-- and transfer also where only one of its ranks was seen, see `waits.wait_known`), and
-- wait_ns holds only the waits between ranks that share a clock. A kernel that exchanges with
-- several peers is in one instance with each, with its whole times: sums over instances then count
-- it more than once (sums over `waits` do not). Participations that no source timed count in
-- `n_seen` alone; where none has times, all times and what follows from them are null.
CREATE VIEW collective_instances (
    -- job
    job,
    -- step that launched it (the first, where ranks differ); null outside steps
    step,
    -- the same on all ranks of one collective
    collective_id,
    -- communicator; null where nothing names it
    comm,
    -- parallel dimension of the communicator
    dim,
    -- operation
    op,
    -- [bytes] message size as nccl-tests counts it (macro message_bytes), the largest over ranks
    bytes,
    -- [ranks] members of the communicator (2 for point-to-point)
    n_ranks,
    -- [ranks] members that were seen
    n_seen,
    -- how it was matched: exact, order or partial
    match,
    -- [ns] first start, on the job's clock
    first_start_ns,
    -- [ns] moment from which it could have finished had bandwidth been infinite
    ready_ns,
    -- [ns] last end, on the job's clock
    end_ns,
    -- [ns] waits of all its ranks, added up
    wait_ns,
    -- [ns] end less ready
    transfer_ns,
    -- [GB/s] bytes over the time from first start to end (10^9 bytes a second)
    algbw_gbps,
    -- [GB/s] algbw times macro busbw_factor: not the line rate of a NIC
    busbw_gbps,
    -- [GB/s] the same over transfer_ns alone
    busbw_transfer_gbps,
    -- global rank that started last (the lowest of several)
    last_rank,
    -- [ns] last start less first start
    skew_ns,
    -- [ns] error of the clocks that all this rests on: 0 within a host, null where nothing ties them
    clock_error_ns,
    -- [clocks] sets of ranks whose clocks cannot be compared with each other; 0 where untimed
    n_clocks
) AS
WITH honest AS (
    SELECT
        * RENAME (ready_ns AS any_ready_ns, last_rank AS any_last_rank, skew_ns AS any_skew_ns,
                  clock_error_ns AS any_error_ns),
        CASE WHEN n_clocks = 1 AND wait_known THEN any_ready_ns END AS ready_ns,
        CASE WHEN n_clocks = 1 AND wait_known
             THEN greatest(0, end_ns - any_ready_ns) END AS transfer_ns,
        CASE WHEN n_clocks = 1 THEN nullif(end_ns - first_start_ns, 0) END AS whole_ns
    FROM _instances
)
SELECT
    job, step, collective_id, comm, dim, op, bytes, n_ranks, n_seen, match, first_start_ns,
    ready_ns, end_ns, CASE WHEN wait_known THEN wait_ns END AS wait_ns, transfer_ns,
    bytes / whole_ns AS algbw_gbps,
    bytes / whole_ns * busbw_factor(op, n_ranks) AS busbw_gbps,
    bytes / nullif(transfer_ns, 0) * busbw_factor(op, n_ranks) AS busbw_transfer_gbps,
    CASE WHEN n_clocks = 1 THEN any_last_rank END AS last_rank,
    CASE WHEN n_clocks = 1 THEN any_skew_ns END AS skew_ns,
    CASE WHEN n_clocks = 1 THEN any_error_ns END AS clock_error_ns,
    n_clocks
FROM honest;
