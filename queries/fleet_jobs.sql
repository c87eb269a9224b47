-- Many jobs of one warehouse beside each other: a line a job.
-- requires: step_breakdown, waits, clocks

-- One row a job: when it ran, and what on. A trace's own clock is believed where it counts from the
-- Unix epoch (its numbers then lie after 2001); else the first ingest stands for the start.
CREATE VIEW _fleet_starts AS
WITH seen AS (
    SELECT
        job,
        count(*) AS ranks,
        CASE WHEN count(host) = count(*) THEN count(DISTINCT host) END AS hosts,
        CASE WHEN min(device_name) = max(device_name) THEN min(device_name)
             WHEN count(device_name) > 0 THEN 'several' END AS device_name,
        min(start_ns) FILTER (
            coalesce(clock, 'host') IN ('host', 'recorded')
            AND start_ns BETWEEN 1000000000000000000 AND 4102444800000000000
        ) AS traced_ns
    FROM ranks
    GROUP BY job
)
SELECT
    n.job, s.ranks, s.hosts, s.device_name, j.world_size, j.clocks,
    coalesce(s.traced_ns, j.created_at_ns) AS started_ns,
    CASE WHEN s.traced_ns IS NOT NULL THEN 'trace'
         WHEN j.created_at_ns IS NOT NULL THEN 'ingest' END AS started_from
FROM _job_numbers n
LEFT JOIN seen s USING (job)
LEFT JOIN (
    SELECT
        job, max(world_size) AS world_size, min(created_at_ns) AS created_at_ns,
        max(clocks) AS clocks
    FROM jobs GROUP BY job
) j USING (job);

-- A job, in one line that stands beside those of other jobs. The shares are of the time of all its
-- ranks in steps (`scope` steps), or in the whole trace where it has no steps, and add up to 1.
CREATE VIEW fleet_jobs (
    -- job
    job,
    -- [ns] start, Unix epoch (see `started_from`)
    started_ns,
    -- trace (first event, where the trace's clock counts from the epoch) or ingest (first ingest)
    started_from,
    -- [ranks] ranks that left a trace
    ranks,
    -- [ranks] ranks the job says it had; null where no source says
    world_size,
    -- [hosts] machines of these ranks; null where that of one is not known
    hosts,
    -- model of the devices; 'several' where they differ
    device_name,
    -- [steps] steps seen
    steps,
    -- [ns] a step's time (mean over ranks), the mean over steps; null without steps
    step_ns,
    -- [ns] the same, the median over steps
    step_median_ns,
    -- what the shares are of: steps, or trace where there are none
    scope,
    -- share of the time in which compute runs, alone or with communication
    compute_share,
    -- share of exposed wait
    wait_share,
    -- share of exposed transfer
    transfer_share,
    -- share of exposed communication of which nothing says what is wait
    unsplit_share,
    -- share of exposed copies
    memcpy_share,
    -- share of idle time of all classes
    idle_share,
    -- wait over wait + transfer of all participations of which it is known, 0 to 1
    tau_share,
    -- [participations] participations of the ranks
    participations,
    -- what is known of the clocks: `jobs.clocks`
    clocks
) AS
WITH step_times AS (
    SELECT job, step, avg(end_ns - start_ns) AS ns
    FROM _step_windows
    GROUP BY job, step
), in_steps AS (
    SELECT
        job, count(*) AS steps, round(avg(ns))::BIGINT AS step_ns,
        round(median(ns))::BIGINT AS step_median_ns
    FROM step_times
    GROUP BY job
), classes AS (
    SELECT
        job, step IS NOT NULL AS inside,
        sum(ns) AS ns,
        sum(ns) FILTER (class IN ('compute', 'compute_with_comm')) AS compute_ns,
        sum(ns) FILTER (class = 'exposed_wait') AS wait_ns,
        sum(ns) FILTER (class = 'exposed_transfer') AS transfer_ns,
        sum(ns) FILTER (class = 'exposed_comm_unsplit') AS unsplit_ns,
        sum(ns) FILTER (class = 'exposed_memcpy') AS memcpy_ns,
        sum(ns) FILTER (class LIKE 'idle%') AS idle_ns
    FROM step_breakdown
    GROUP BY ALL
), chosen AS (
    FROM classes
    QUALIFY inside OR NOT bool_or(inside) OVER (PARTITION BY job)
), taxed AS (
    SELECT
        job,
        sum(wait_ns) FILTER (wait_known)
            / nullif(sum(wait_ns + transfer_ns) FILTER (wait_known), 0) AS tau_share
    FROM waits
    GROUP BY job
), counted AS (
    SELECT job, count(*) AS participations FROM collectives GROUP BY job
)
SELECT
    f.job, f.started_ns, f.started_from, coalesce(f.ranks, 0) AS ranks, f.world_size, f.hosts,
    f.device_name,
    coalesce(s.steps, 0) AS steps, s.step_ns, s.step_median_ns,
    CASE WHEN c.inside THEN 'steps' WHEN NOT c.inside THEN 'trace' END AS scope,
    coalesce(c.compute_ns, 0) / nullif(c.ns, 0) AS compute_share,
    coalesce(c.wait_ns, 0) / nullif(c.ns, 0) AS wait_share,
    coalesce(c.transfer_ns, 0) / nullif(c.ns, 0) AS transfer_share,
    coalesce(c.unsplit_ns, 0) / nullif(c.ns, 0) AS unsplit_share,
    coalesce(c.memcpy_ns, 0) / nullif(c.ns, 0) AS memcpy_share,
    coalesce(c.idle_ns, 0) / nullif(c.ns, 0) AS idle_share,
    t.tau_share,
    coalesce(n.participations, 0) AS participations,
    f.clocks
FROM _fleet_starts f
LEFT JOIN in_steps s USING (job)
LEFT JOIN chosen c USING (job)
LEFT JOIN taxed t USING (job)
LEFT JOIN counted n USING (job);
