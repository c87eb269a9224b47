-- On which hosts the same kernels are slower, over many jobs.
-- requires: fleet_hosts

-- A kernel's name on a host (of a recorded name), compared in each job with the other hosts of that
-- job, where the same name most likely does the same work. Communication does not count: its time
-- holds waits. A name that has other shapes on other ranks (stages of a pipeline) compares work,
-- not hosts; over many jobs that evens out where hosts change their part. The probability is that
-- of `fleet_hosts`.
CREATE VIEW fleet_kernels (
    -- machine, by its recorded name
    host,
    -- name of the kernel
    name,
    -- what it does (`events.category`)
    category,
    -- [jobs] jobs in which it ran on this host and on another
    jobs,
    -- [events] times it ran on this host in them
    launches,
    -- [ns] its median duration on this host, the median over jobs
    median_ns,
    -- [ns] the median of the other hosts' medians, the median over jobs
    others_median_ns,
    -- the first over the second, the median over jobs: 1.1 is 10 % slower than elsewhere
    ratio,
    -- [jobs] jobs in which it was slower here than on every other host
    jobs_slowest,
    -- probability of at least so many by chance, were all hosts equal, 0 to 1
    p_value,
    -- [ns] its launches times what each took longer than elsewhere by the medians, over the jobs
    excess_ns
) AS
WITH by_host AS (
    SELECT
        e.job, r.host, e.name, e.category,
        count(*) AS launches,
        quantile_disc(e.dur_ns, 0.5) AS own_ns
    FROM events e
    JOIN (FROM ranks WHERE host_source = 'recorded' AND host IS NOT NULL) r USING (job, rank)
    WHERE e.kind = 'kernel' AND e.category IS DISTINCT FROM 'comm' AND e.dur_ns IS NOT NULL
    GROUP BY ALL
), compared AS (
    SELECT
        *,
        count(*) OVER same AS hosts,
        median(own_ns) OVER others AS others_ns,
        max(own_ns) OVER others AS others_most_ns
    FROM by_host
    WINDOW
        same AS (PARTITION BY job, name, category),
        others AS (PARTITION BY job, name, category
                   ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)
), totals AS (
    SELECT
        host, name, category,
        count(*) AS jobs,
        sum(launches)::BIGINT AS launches,
        median(own_ns) AS median_ns,
        median(others_ns) AS others_median_ns,
        median(own_ns / nullif(others_ns, 0)) AS ratio,
        count(*) FILTER (own_ns > others_most_ns) AS jobs_slowest,
        avg(1 / hosts) AS chance,
        sum(launches * (own_ns - others_ns)) AS excess_ns
    FROM compared
    WHERE hosts > 1
    GROUP BY host, name, category
)
SELECT
    host, name, category, jobs, launches, median_ns, others_median_ns, ratio, jobs_slowest,
    _at_least(jobs_slowest, jobs, chance) AS p_value,
    round(excess_ns)::BIGINT AS excess_ns
FROM totals;
