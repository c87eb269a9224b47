-- How much of communication time is waiting for other ranks.
-- requires: waits, sizes

-- A job, dimension, operation and size class, with the waits of all its participations. The share
-- is that of the field's synchronization tax: sum of wait over sum of duration, of the
-- participations of which it is known (`waits.wait_known`); the others are in `unsplit_ns`.
CREATE VIEW sync_tax (
    -- job
    job,
    -- parallel dimension of the communicator
    dim,
    -- operation
    op,
    -- class of message size (macro size_class)
    size_class,
    -- [ns] waits added up over ranks; null where none is known
    wait_ns,
    -- [ns] transfers added up over ranks; null where none is known
    transfer_ns,
    -- wait over wait + transfer, 0 to 1; null where no wait is known or nothing took any time
    tau_share,
    -- the same share of each rank alone, the median over ranks: one odd rank does not move it
    median_rank_tau_share,
    -- tau_share with the clock-free proxy (waits.wait_min_proxy_ns) in place of the wait
    proxy_tau_share,
    -- [collectives] collectives counted (a participation that nothing matched counts as one)
    collectives,
    -- [ns] largest clock error that any of the waits rests on; null where one is not known
    clock_error_ns,
    -- [ns] participations of which only one rank was seen: wait and transfer, not told apart
    unsplit_ns
) AS
WITH by_rank AS (
    SELECT
        job, dim, op, size_class(bytes) AS size_class, rank,
        sum(wait_ns) FILTER (wait_known) AS wait_ns,
        sum(transfer_ns) FILTER (wait_known) AS transfer_ns,
        sum(wait_min_proxy_ns) FILTER (wait_known) AS proxy_ns,
        coalesce(sum(transfer_ns) FILTER (NOT wait_known), 0) AS unsplit_ns,
        CASE WHEN count(*) = count(clock_error_ns) THEN max(clock_error_ns) END AS clock_error_ns
    FROM waits
    GROUP BY ALL
), counted AS (
    SELECT
        job, dim, op, size_class(bytes) AS size_class,
        count(DISTINCT collective_id) + count(*) FILTER (collective_id IS NULL) AS collectives
    FROM waits
    GROUP BY ALL
)
SELECT
    r.job, r.dim, r.op, r.size_class,
    sum(wait_ns)::BIGINT AS wait_ns,
    sum(transfer_ns)::BIGINT AS transfer_ns,
    sum(wait_ns) / nullif(sum(wait_ns + transfer_ns), 0) AS tau_share,
    median(wait_ns / nullif(wait_ns + transfer_ns, 0)) AS median_rank_tau_share,
    sum(proxy_ns) / nullif(sum(wait_ns + transfer_ns), 0) AS proxy_tau_share,
    any_value(c.collectives) AS collectives,
    CASE WHEN count(*) = count(clock_error_ns) THEN max(clock_error_ns) END AS clock_error_ns,
    sum(unsplit_ns)::BIGINT AS unsplit_ns
FROM by_rank r
JOIN counted c
    ON r.job = c.job AND r.op = c.op AND r.size_class = c.size_class
    AND r.dim IS NOT DISTINCT FROM c.dim
GROUP BY r.job, r.dim, r.op, r.size_class;
