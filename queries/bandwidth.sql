-- What bandwidth collectives reached.
-- requires: collective_instances, sizes

-- A communicator, operation and size class. Bandwidths are those of `collective_instances`
-- (nccl-tests' definitions, GB/s of 10^9 bytes a second): medians, so that one slow collective
-- does not move them. Bus bandwidth is not the line rate of a NIC. Collectives that no source timed
-- do not count.
CREATE VIEW bandwidth (
    -- job
    job,
    -- communicator; null where nothing names it
    comm,
    -- parallel dimension of the communicator
    dim,
    -- operation
    op,
    -- class of message size (macro size_class)
    size_class,
    -- [ranks] members of the communicator
    n_ranks,
    -- [collectives] collectives counted
    collectives,
    -- [bytes] their message sizes, added up
    bytes,
    -- [GB/s] median over the whole of each collective, first start to end
    algbw_gbps,
    -- [GB/s] the same, as bus bandwidth
    busbw_gbps,
    -- [GB/s] median over transfer alone; null where only one rank of each was seen
    algbw_transfer_gbps,
    -- [GB/s] the same, as bus bandwidth
    busbw_transfer_gbps,
    -- [GB/s] largest bus bandwidth over transfer of one collective
    busbw_transfer_max_gbps,
    -- [bytes] bytes that NICs sent for them: measured `transfers` over the network (via NET, or
    -- Ascend's RDMA) whose direction is send or not said; of each rank's part in a collective one
    -- source counts (profiler, else inspector, else nsys, else another); null where no source says
    nic_bytes
) AS
WITH sent AS (
    SELECT job, collective_id, rank, source, sum(bytes) AS bytes
    FROM transfers
    WHERE collective_id IS NOT NULL AND bytes IS NOT NULL AND measured
      AND coalesce(direction, 'send') = 'send'
      -- Links within a host (NVLink, PCIe, HCCS, shared memory) are no NICs.
      AND regexp_matches(via, '^(NET|RDMA)(/|$)')
    GROUP BY ALL
), carried AS (
    -- Several sources tell the same bytes.
    SELECT job, collective_id, sum(bytes) AS nic_bytes
    FROM (
        FROM sent
        QUALIFY row_number() OVER (
            PARTITION BY job, collective_id, rank
            ORDER BY coalesce(list_position(['profiler', 'inspector', 'nsys'], source), 9), source
        ) = 1
    )
    GROUP BY job, collective_id
)
SELECT
    i.job, i.comm, i.dim, i.op, size_class(i.bytes) AS size_class, i.n_ranks,
    count(*) AS collectives,
    TRY_CAST(sum(i.bytes) AS BIGINT) AS bytes,
    median(i.algbw_gbps) AS algbw_gbps,
    median(i.busbw_gbps) AS busbw_gbps,
    median(i.bytes / nullif(i.transfer_ns, 0)) AS algbw_transfer_gbps,
    median(i.busbw_transfer_gbps) AS busbw_transfer_gbps,
    max(i.busbw_transfer_gbps) AS busbw_transfer_max_gbps,
    TRY_CAST(sum(c.nic_bytes) AS BIGINT) AS nic_bytes
FROM collective_instances i
LEFT JOIN carried c USING (job, collective_id)
WHERE i.first_start_ns IS NOT NULL
GROUP BY ALL;
