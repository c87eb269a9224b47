-- What communication kernels hold of the device while compute runs, and what that costs it.
-- requires: clocks

-- One row a communication kernel of a device: in the order in which they start on the rank, until
-- when those begun so far run, and how long any had run before this one began.
CREATE VIEW _comm_kernels AS
WITH named AS (
    SELECT job, event_id, any_value(comm) AS comm, max(channels) AS channels
    FROM collectives
    WHERE event_id IS NOT NULL
    GROUP BY job, event_id
), ordered AS (
    SELECT
        e.job, e.rank, e.device, e.event_id, e.name, n.comm,
        coalesce(e.grid_blocks, n.channels) AS blocks,
        e.grid_blocks IS NULL AND n.channels IS NOT NULL AS by_channels,
        e.start_ns, e.start_ns + greatest(e.dur_ns, 0) AS end_ns,
        max(e.start_ns + greatest(e.dur_ns, 0)) OVER (
            PARTITION BY e.job, e.rank, e.device ORDER BY e.start_ns RANGE UNBOUNDED PRECEDING
        ) AS until_ns,
        lead(e.start_ns) OVER w AS next_ns
    FROM events e
    LEFT JOIN named n ON n.job = e.job AND n.event_id = e.event_id
    WHERE e.kind = 'kernel' AND e.category = 'comm'
    WINDOW w AS (PARTITION BY e.job, e.rank, e.device ORDER BY e.start_ns, e.event_id)
)
SELECT
    * EXCLUDE (next_ns),
    next_ns IS DISTINCT FROM start_ns AS is_latest,
    coalesce(sum(greatest(0, least(coalesce(next_ns, until_ns), until_ns) - start_ns)) OVER (
        PARTITION BY job, rank, device ORDER BY start_ns, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), 0) AS before_ns
FROM ordered;

-- One row a compute kernel: how long any communication kernel of its device ran beside it, and which:
-- of the last to begin before it and the last to begin before its end, the one beside it longer; the
-- latter where none began before it.
CREATE VIEW _beside_comm AS
WITH computes AS (
    SELECT
        e.job, e.rank, e.device, e.name, e.grid_blocks, e.block_threads, e.start_ns,
        e.start_ns + greatest(e.dur_ns, 0) AS end_ns
    FROM events e
    WHERE e.kind = 'kernel' AND e.category IS DISTINCT FROM 'comm' AND e.dur_ns > 0
), latest AS (
    SELECT * FROM _comm_kernels WHERE is_latest
)
SELECT
    k.job, k.rank, k.device, k.name, k.grid_blocks, k.block_threads, k.start_ns, k.end_ns,
    coalesce(b.before_ns + greatest(0, least(k.end_ns, b.until_ns) - b.start_ns), 0)
        - coalesce(a.before_ns + greatest(0, least(k.start_ns, a.until_ns) - a.start_ns), 0)
        AS overlap_ns,
    coalesce(least(k.end_ns, a.end_ns) - k.start_ns, 0) AS with_first_ns,
    coalesce(least(k.end_ns, b.end_ns) - greatest(k.start_ns, b.start_ns), 0) AS with_last_ns,
    a.start_ns IS NOT NULL AND with_first_ns >= with_last_ns AS with_first,
    CASE WHEN with_first THEN a.name ELSE b.name END AS comm_name,
    CASE WHEN with_first THEN a.comm ELSE b.comm END AS comm
FROM computes k
ASOF LEFT JOIN latest a
    ON a.job = k.job AND a.rank = k.rank AND a.device IS NOT DISTINCT FROM k.device
    AND a.start_ns <= k.start_ns
ASOF LEFT JOIN latest b
    ON b.job = k.job AND b.rank = k.rank AND b.device IS NOT DISTINCT FROM k.device
    AND b.start_ns < k.end_ns;

-- What `sm_budget` adds up over ranks. Of a communication kernel (`beside` false): kernels of one name,
-- communicator and number of blocks on a rank, their time, and part of it beside compute. Of compute
-- kernels of one name and shape on a device, beside one communication kernel: those that were under
-- communication for at least half of their time (`kernels` of them, `ns`, their median), and how
-- many ran without any, with their median.
CREATE VIEW _computed_sm_parts AS
WITH computes AS MATERIALIZED (
    FROM _beside_comm
), beside AS (
    FROM computes WHERE overlap_ns > 0
), groups AS (
    SELECT
        job, rank, device, name, grid_blocks, block_threads, comm_name, comm,
        median(end_ns - start_ns) FILTER (2 * overlap_ns >= end_ns - start_ns) AS median_ns,
        count(*) FILTER (2 * overlap_ns >= end_ns - start_ns) AS n,
        sum(end_ns - start_ns) FILTER (2 * overlap_ns >= end_ns - start_ns) AS ns
    FROM beside
    GROUP BY ALL
), alone AS (
    SELECT
        job, rank, device, name, grid_blocks, block_threads,
        median(end_ns - start_ns) AS median_ns, count(*) AS n
    FROM computes
    WHERE overlap_ns = 0
    GROUP BY ALL
), computing AS (
    -- Compute of a device as disjoint stretches, with the sum of those before.
    SELECT
        job, rank, device, start_ns,
        max(end_ns) OVER w AS until_ns,
        lead(start_ns) OVER w AS next_ns
    FROM (SELECT job, rank, device, start_ns, max(end_ns) AS end_ns FROM beside GROUP BY ALL)
    WINDOW w AS (PARTITION BY job, rank, device ORDER BY start_ns ROWS UNBOUNDED PRECEDING)
), summed AS (
    SELECT
        job, rank, device, start_ns, until_ns,
        coalesce(sum(least(coalesce(next_ns, until_ns), until_ns) - start_ns) OVER (
            PARTITION BY job, rank, device ORDER BY start_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS before_ns
    FROM computing
), covered AS (
    SELECT
        c.job, c.rank, c.name, c.comm, c.blocks, c.by_channels, c.end_ns - c.start_ns AS dur_ns,
        coalesce(b.before_ns + greatest(0, least(c.end_ns, b.until_ns) - b.start_ns), 0)
            - coalesce(a.before_ns + greatest(0, least(c.start_ns, a.until_ns) - a.start_ns), 0)
            AS overlap_ns
    FROM _comm_kernels c
    ASOF LEFT JOIN summed a
        ON a.job = c.job AND a.rank = c.rank AND a.device IS NOT DISTINCT FROM c.device
        AND a.start_ns <= c.start_ns
    ASOF LEFT JOIN summed b
        ON b.job = c.job AND b.rank = c.rank AND b.device IS NOT DISTINCT FROM c.device
        AND b.start_ns <= c.end_ns
)
SELECT
    job, rank, false AS beside, name, comm, blocks, by_channels, count(*) AS kernels,
    sum(dur_ns)::BIGINT AS ns, sum(overlap_ns)::BIGINT AS overlapped_ns,
    NULL::DOUBLE AS median_ns, NULL::BIGINT AS alone_kernels, NULL::DOUBLE AS alone_median_ns
FROM covered
GROUP BY ALL
UNION ALL
SELECT
    g.job, g.rank, true, g.comm_name, g.comm, NULL, NULL, g.n, g.ns::BIGINT, NULL, g.median_ns,
    a.n, a.median_ns
FROM groups g
LEFT JOIN alone a
    ON a.job = g.job AND a.rank = g.rank AND a.device IS NOT DISTINCT FROM g.device
    AND a.name = g.name AND a.grid_blocks IS NOT DISTINCT FROM g.grid_blocks
    AND a.block_threads IS NOT DISTINCT FROM g.block_threads
WHERE g.n > 0;

-- The same rows, made once with the job.
CREATE VIEW _stored_sm_parts AS FROM _made_sm_parts;

-- Those of jobs that have them stored, computed of the others: the connection says which.
CREATE VIEW _sm_parts AS FROM _computed_sm_parts;

-- A communication kernel by name and communicator: the thread blocks it runs with, and what goes on
-- beside it. NCCL's kernels keep their blocks for as long as they run, one on an SM, so blocks are
-- SMs that compute cannot have, up to all that the device has. The slowdown compares kernels of one
-- name, grid and block size on the same rank: the median duration of those under communication for
-- at least half of their time, over that of those without any, where there are three of each; over
-- such groups the mean, weighted by the time under communication. It is what was seen beside that
-- communication, whatever the reason (SMs, memory bandwidth, clocks).
CREATE VIEW sm_budget (
    -- job
    job,
    -- name of the communication kernel
    name,
    -- communicator; null where nothing names it
    comm,
    -- [kernels] kernels of this name on this communicator, all ranks
    kernels,
    -- [blocks] thread blocks, the median; null where no source says
    blocks,
    -- [SMs] blocks, but no more than the device has SMs
    active_sms,
    -- active_sms over the SMs of the device, 0 to 1; null where these are not known
    sm_share,
    -- grid (the kernel's own), or channels (of the collective: a block each)
    blocks_source,
    -- [ns] time of these kernels, added up
    total_ns,
    -- [ns] part of it with a compute kernel running on the device
    overlapped_ns,
    -- [ns] time of the compute kernels that were under communication for at least half of their time,
    -- beside this kernel longer than beside others
    compute_ns,
    -- factor by which they were slower than without communication; null where nothing compares
    compute_slowdown,
    -- [kernels] compute kernels beside this kernel that the slowdown rests on
    compared
) AS
WITH parts AS MATERIALIZED (
    FROM _sm_parts
), slower AS (
    SELECT
        job, name, comm, sum(ns) AS compute_ns,
        sum(ns * median_ns / alone_median_ns) FILTER (kernels >= 3 AND alone_kernels >= 3)
            / nullif(sum(ns) FILTER (kernels >= 3 AND alone_kernels >= 3), 0) AS compute_slowdown,
        sum(kernels) FILTER (kernels >= 3 AND alone_kernels >= 3) AS compared
    FROM parts
    WHERE beside
    GROUP BY job, name, comm
), devices AS (
    SELECT job, rank, max(n_sms) AS n_sms FROM ranks GROUP BY job, rank
), alike AS (
    -- Ranks are alike: few rows, each of many kernels.
    SELECT p.job, p.name, p.comm, p.blocks, d.n_sms, sum(p.kernels)::BIGINT AS kernels
    FROM parts p LEFT JOIN devices d ON d.job = p.job AND d.rank = p.rank
    WHERE NOT p.beside
    GROUP BY ALL
), middle AS (
    SELECT
        job, name, comm,
        median(blocks) AS blocks,
        median(least(blocks, coalesce(n_sms, blocks))) AS active_sms,
        median(least(blocks, n_sms) / nullif(n_sms, 0)) AS sm_share
    FROM (SELECT *, unnest(range(kernels)) FROM alike)
    GROUP BY job, name, comm
), held AS (
    SELECT
        job, name, comm,
        sum(kernels)::BIGINT AS kernels,
        CASE WHEN count(blocks) = 0 THEN NULL WHEN bool_or(by_channels) THEN 'channels'
             ELSE 'grid' END AS blocks_source,
        sum(ns)::BIGINT AS total_ns,
        sum(overlapped_ns)::BIGINT AS overlapped_ns
    FROM parts
    WHERE NOT beside
    GROUP BY job, name, comm
)
SELECT
    h.job, h.name, h.comm, h.kernels, m.blocks, m.active_sms, m.sm_share, h.blocks_source,
    h.total_ns, h.overlapped_ns, coalesce(s.compute_ns, 0)::BIGINT AS compute_ns,
    s.compute_slowdown, coalesce(s.compared, 0)::BIGINT AS compared
FROM held h
JOIN middle m
    ON m.job = h.job AND m.name IS NOT DISTINCT FROM h.name AND m.comm IS NOT DISTINCT FROM h.comm
LEFT JOIN slower s
    ON s.job = h.job AND s.name = h.name AND s.comm IS NOT DISTINCT FROM h.comm;
