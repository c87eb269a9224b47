-- Which fabric is slower this week, over many jobs.
-- requires: fleet_jobs, collective_instances, sizes

-- A day or week of one kind of collective on one kind of device, and its bus bandwidth against that
-- of all earlier jobs. Bandwidth is over transfer alone, so that late ranks do not look like a slow
-- fabric; only collectives of which every rank was seen on a comparable clock count. Each job
-- counts once, by the median over its collectives, however many these are.
CREATE VIEW fleet_fabric (
    -- day or week: how long a bucket is
    per,
    -- first day of the bucket, UTC (a week's Monday), by `fleet_jobs.started_ns`
    bucket,
    -- model of the devices; 'several' where those of a job differ
    device_name,
    -- parallel dimension of the communicator
    dim,
    -- operation
    op,
    -- class of message size (macro size_class)
    size_class,
    -- [ranks] members of the communicator
    n_ranks,
    -- [hosts] machines that its members ran on; null where that of one is not known
    n_hosts,
    -- [jobs] jobs in the bucket
    jobs,
    -- [collectives] their collectives
    collectives,
    -- [GB/s] bus bandwidth over transfer: the median over jobs of each one's median
    busbw_transfer_gbps,
    -- [GB/s] that of the slowest job
    lowest_gbps,
    -- [GB/s] that of the fastest
    highest_gbps,
    -- [jobs] jobs in all earlier buckets
    earlier_jobs,
    -- [GB/s] the median over them; null for the first bucket
    earlier_gbps,
    -- [GB/s] the slowest of them: a bucket below it is no usual spread
    earlier_lowest_gbps,
    -- busbw_transfer_gbps over earlier_gbps, less 1: -0.2 is 20 % slower than before
    change
) AS
WITH placed AS (
    SELECT
        c.job, c.comm,
        CASE WHEN count(r.host) = count(*) THEN count(DISTINCT r.host) END AS n_hosts
    FROM (SELECT DISTINCT job, comm, unnest(ranks) AS rank FROM comms) c
    LEFT JOIN ranks r USING (job, rank)
    GROUP BY c.job, c.comm
), by_job AS (
    SELECT
        i.job, i.dim, i.op, size_class(i.bytes) AS size_class, i.n_ranks, p.n_hosts,
        count(*) AS collectives,
        median(i.busbw_transfer_gbps) AS gbps
    FROM collective_instances i LEFT JOIN placed p USING (job, comm)
    WHERE i.busbw_transfer_gbps IS NOT NULL AND i.n_seen >= i.n_ranks
    GROUP BY ALL
), dated AS (
    SELECT b.*, s.device_name, make_timestamp(s.started_ns // 1000) AS began
    FROM by_job b JOIN _fleet_starts s USING (job)
    WHERE s.started_ns IS NOT NULL
), buckets AS (
    SELECT *, 'day' AS per, date_trunc('day', began)::DATE AS bucket FROM dated
    UNION ALL
    SELECT *, 'week', date_trunc('week', began)::DATE FROM dated
), compared AS (
    SELECT
        *,
        count(*) OVER before AS earlier_jobs,
        median(gbps) OVER before AS earlier_gbps,
        min(gbps) OVER before AS earlier_lowest_gbps
    FROM (SELECT *, bucket - DATE '1970-01-01' AS day FROM buckets)
    WINDOW before AS (
        PARTITION BY per, device_name, dim, op, size_class, n_ranks, n_hosts
        ORDER BY day RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)
SELECT
    per, bucket, device_name, dim, op, size_class, n_ranks, n_hosts,
    count(*) AS jobs,
    sum(collectives)::BIGINT AS collectives,
    median(gbps) AS busbw_transfer_gbps,
    min(gbps) AS lowest_gbps,
    max(gbps) AS highest_gbps,
    any_value(earlier_jobs) AS earlier_jobs,
    any_value(earlier_gbps) AS earlier_gbps,
    any_value(earlier_lowest_gbps) AS earlier_lowest_gbps,
    median(gbps) / nullif(any_value(earlier_gbps), 0) - 1 AS change
FROM compared
GROUP BY per, bucket, device_name, dim, op, size_class, n_ranks, n_hosts;
