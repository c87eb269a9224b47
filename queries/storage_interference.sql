-- What storage costs a step: stalls of the data loader, and collectives beside its traffic.
-- requires: clocks, step_breakdown, waits

-- One row a stretch of storage traffic of a host, on the job's clock, in the order of starts: until
-- when what has begun so far lasts, and how long any had lasted before.
CREATE VIEW _storage_traffic AS
WITH clocks AS (
    SELECT job, host, min(rank) AS rank FROM _rank_clocks WHERE host IS NOT NULL GROUP BY job, host
), placed AS (
    SELECT
        t.job, coalesce(t.host, k.host, o.host) AS host, t.bytes, t.measured,
        _aligned_ns(t.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns,
        _aligned_ns(t.end_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS end_ns
    FROM transfers t
    LEFT JOIN clocks c ON c.job = t.job AND c.host = t.host AND t.rank IS NULL
    LEFT JOIN _rank_clocks k ON k.job = t.job AND k.rank = coalesce(t.rank, c.rank)
    LEFT JOIN _rank_clocks o ON o.job = t.job AND o.rank = t.rank
    WHERE t.traffic_class = 'storage' AND t.end_ns >= t.start_ns
), ordered AS (
    SELECT
        *,
        max(end_ns) OVER (
            PARTITION BY job, host ORDER BY start_ns RANGE UNBOUNDED PRECEDING
        ) AS until_ns,
        lead(start_ns) OVER (PARTITION BY job, host ORDER BY start_ns, end_ns) AS next_ns
    FROM placed
)
SELECT
    job, host, bytes, measured, start_ns, end_ns, until_ns,
    next_ns IS DISTINCT FROM start_ns AS is_latest,
    coalesce(sum(least(coalesce(next_ns, until_ns), until_ns) - start_ns) OVER (
        PARTITION BY job, host ORDER BY start_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), 0) AS before_ns
FROM ordered;

-- One row a collective of a job that has storage traffic: its transfer time (the longest of its
-- ranks') and for how long of it storage moved on a host of one of its ranks, the worst of them.
CREATE VIEW _beside_storage AS
WITH parts AS (
    SELECT
        w.job, w.step, w.collective_id, w.comm, w.op, w.bytes, k.host,
        w.start_ns + w.wait_ns AS ready_ns, w.end_ns, w.transfer_ns
    FROM waits w
    SEMI JOIN _storage_traffic s ON s.job = w.job
    JOIN _rank_clocks k ON k.job = w.job AND k.rank = w.rank
    WHERE w.wait_known AND w.transfer_ns > 0 AND w.collective_id IS NOT NULL
), latest AS (
    SELECT * FROM _storage_traffic WHERE is_latest
)
SELECT
    p.job, min(p.step) AS step, p.collective_id, min(p.comm) AS comm, min(p.op) AS op,
    max(p.bytes) AS bytes, max(p.transfer_ns) AS transfer_ns,
    max(coalesce(b.before_ns + greatest(0, least(p.end_ns, b.until_ns) - b.start_ns), 0)
        - coalesce(a.before_ns + greatest(0, least(p.ready_ns, a.until_ns) - a.start_ns), 0)
    ) AS beside_ns
FROM parts p
ASOF LEFT JOIN latest a
    ON a.job = p.job AND a.host = p.host AND a.start_ns <= p.ready_ns
ASOF LEFT JOIN latest b
    ON b.job = p.job AND b.host = p.host AND b.start_ns <= p.end_ns
GROUP BY p.job, p.collective_id;

-- A step, with the two ways in which storage costs it: ranks that sit without work until data is
-- loaded, and collectives that share the network with storage. A collective counts as beside storage
-- when storage moves on a host of its ranks for half of its transfer at least; it is held against
-- those of the same communicator, operation and size in the job that had none beside them, where
-- there are three. Waits are no part of it. A slowdown is what was seen together, not a proof.
CREATE VIEW storage_interference (
    -- job
    job,
    -- step
    step,
    -- [ns] idle time that loading data explains (class idle_data_loading), all ranks together
    stall_ns,
    -- [ns] that of the rank with most
    stall_max_ns,
    -- [ranks] ranks that had any
    stalled_ranks,
    -- stall_max_ns over the mean of all ranks of the step: a heavy tail where it is large
    stall_max_over_mean,
    -- [bytes] storage traffic that began in the step, all hosts; null where no source tells of any
    storage_bytes,
    -- [ns] time with storage traffic in it, added up over hosts
    storage_ns,
    -- [collectives] collectives of the step beside storage traffic
    collectives_beside,
    -- [collectives] those of them slower than 95 % of their like without; null where none compares
    collectives_slowed,
    -- their transfer times over the median of their like without, added up before dividing
    slowdown,
    -- measured or derived: what the storage traffic is known by; null without any
    source
) AS
WITH stalls AS (
    SELECT
        job, step, rank, coalesce(sum(ns) FILTER (class = 'idle_data_loading'), 0) AS stall_ns
    FROM step_breakdown
    WHERE step IS NOT NULL
    GROUP BY job, step, rank
), stalled AS (
    SELECT
        job, step,
        sum(stall_ns)::BIGINT AS stall_ns,
        max(stall_ns)::BIGINT AS stall_max_ns,
        count(*) FILTER (stall_ns > 0) AS stalled_ranks,
        max(stall_ns) / nullif(avg(stall_ns), 0) AS stall_max_over_mean
    FROM stalls
    GROUP BY job, step
), windows AS (
    SELECT job, step, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM _step_windows WHERE step IS NOT NULL GROUP BY job, step
), moved AS (
    SELECT
        t.job, CASE WHEN t.start_ns < w.end_ns THEN w.step END AS step,
        TRY_CAST(sum(t.bytes) AS BIGINT) AS bytes,
        -- What each adds to the union of those of its host.
        sum(least(t.until_ns, coalesce(t.next_ns, t.until_ns)) - t.start_ns)::BIGINT AS ns,
        CASE WHEN bool_and(coalesce(t.measured, false)) THEN 'measured' ELSE 'derived' END AS source
    FROM (
        SELECT *, lead(start_ns) OVER (PARTITION BY job, host ORDER BY start_ns, end_ns) AS next_ns
        FROM _storage_traffic
    ) t
    ASOF LEFT JOIN windows w ON w.job = t.job AND w.start_ns <= t.start_ns
    GROUP BY ALL
), told AS (
    SELECT DISTINCT job FROM _storage_traffic
), beside AS (
    FROM _beside_storage
), alike AS (
    SELECT
        job, comm, op, bytes, count(*) AS n,
        median(transfer_ns) AS median_ns, quantile_cont(transfer_ns, 0.95) AS high_ns
    FROM beside
    WHERE beside_ns = 0
    GROUP BY ALL
), slowed AS (
    SELECT
        b.job, b.step,
        count(*) AS collectives_beside,
        count(*) FILTER (b.transfer_ns > a.high_ns) AS slower,
        sum(b.transfer_ns) FILTER (a.median_ns > 0) / nullif(sum(a.median_ns), 0) AS slowdown
    FROM beside b
    LEFT JOIN alike a
        ON a.job = b.job AND a.comm IS NOT DISTINCT FROM b.comm AND a.op = b.op
        AND a.bytes IS NOT DISTINCT FROM b.bytes AND a.n >= 3
    WHERE 2 * b.beside_ns >= b.transfer_ns
    GROUP BY b.job, b.step
)
SELECT
    s.job, s.step, s.stall_ns, s.stall_max_ns, s.stalled_ranks, s.stall_max_over_mean,
    CASE WHEN t.job IS NOT NULL THEN coalesce(m.bytes, 0) END AS storage_bytes,
    CASE WHEN t.job IS NOT NULL THEN coalesce(m.ns, 0) END AS storage_ns,
    CASE WHEN t.job IS NOT NULL THEN coalesce(l.collectives_beside, 0) END AS collectives_beside,
    CASE WHEN l.slowdown IS NOT NULL THEN l.slower END AS collectives_slowed,
    l.slowdown, m.source
FROM stalled s
LEFT JOIN told t ON t.job = s.job
LEFT JOIN moved m ON m.job = s.job AND m.step = s.step
LEFT JOIN slowed l ON l.job = s.job AND l.step = s.step;
