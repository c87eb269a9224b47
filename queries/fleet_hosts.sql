-- Which hosts are late again and again, over many jobs.
-- requires: fleet_jobs, late_ranks, waits

-- The probability of at least k of n, each of probability p (binomial); null without any.
CREATE MACRO _at_least(k, n, p) AS CASE
    WHEN n = 0 OR p IS NULL THEN NULL
    WHEN k <= 0 OR p >= 1 THEN 1.0
    ELSE least(1.0, list_sum(list_transform(range(k, n + 1), lambda i: exp(
        lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1)
        + i * ln(greatest(p, 1e-300)) + (n - i) * ln(greatest(1 - p, 1e-300))
    ))))
END;

-- A job and host (of the name that its trace recorded: names that were inferred mean nothing in
-- another job), with what the lateness of its ranks cost. Sends and receives do not count: in a
-- pipeline the schedule alone makes somebody last. Nor does a wait caused by less than the clock
-- error. A host's chance is what it would have of being the job's latest if all ranks were equal.
CREATE VIEW fleet_host_jobs (
    -- job
    job,
    -- machine
    host,
    -- [ns] start of the job, Unix epoch (`fleet_jobs.started_ns`)
    started_ns,
    -- [ranks] ranks that ran on it
    ranks,
    -- [ranks] those that could be compared with another rank
    ranks_compared,
    -- true where it held the lowest rank of the job, which may have more to do
    has_first_rank,
    -- [participations] participations of its ranks that could be compared
    participations,
    -- [collectives] collectives in which one of its ranks started last
    times_last,
    -- [collectives] those in which it was last by less than the clock error: nobody can tell
    times_within_error,
    -- [ns] wait of the others, added up, that its ranks' being last surely caused (as in
    -- `late_ranks`)
    wait_caused_ns,
    -- [ns] wait of all ranks of the job in these collectives, whoever caused it
    job_wait_ns,
    -- [ns] start behind the median start of the collective: the median of each rank, and of these
    -- the median over its ranks (the lower of two)
    median_lateness_ns,
    -- true for the host that caused the most wait in the job; null where nobody surely caused any,
    -- or where ranks of fewer than two hosts could be compared
    is_latest,
    -- ranks_compared over those of all hosts, 0 to 1; null where is_latest is
    chance
) AS
WITH together AS (
    FROM _lateness WHERE NOT paired
), own AS (
    SELECT
        p.job, p.rank,
        count(*) AS participations,
        sum(greatest(0, least(p.ready_ns, p.end_ns) - p.start_ns)) AS wait_ns,
        quantile_disc(p.start_ns - l.median_start_ns, 0.5) AS lateness_ns
    FROM (FROM _participations WHERE timed) p JOIN together l USING (job, collective_id, clock)
    GROUP BY p.job, p.rank
), blamed AS (
    SELECT
        job, last_rank AS rank,
        count(*) AS times_last,
        count(*) FILTER (NOT sure) AS times_within_error,
        sum(caused_ns) FILTER (sure) AS caused_ns
    FROM together
    GROUP BY job, last_rank
), hosts AS (
    SELECT
        r.job,
        CASE WHEN r.host_source = 'recorded' THEN r.host END AS host,
        count(*) AS ranks,
        count(o.rank) AS ranks_compared,
        min(r.rank) AS first_rank,
        sum(o.participations)::BIGINT AS participations,
        coalesce(sum(b.times_last), 0)::BIGINT AS times_last,
        coalesce(sum(b.times_within_error), 0)::BIGINT AS times_within_error,
        coalesce(sum(b.caused_ns), 0)::BIGINT AS wait_caused_ns,
        sum(o.wait_ns) AS wait_ns,
        quantile_disc(o.lateness_ns, 0.5) AS median_lateness_ns
    FROM ranks r
    LEFT JOIN own o USING (job, rank)
    LEFT JOIN blamed b USING (job, rank)
    GROUP BY ALL
), ordered AS (
    SELECT
        *,
        min(first_rank) OVER of_job = first_rank AS has_first_rank,
        sum(wait_ns) OVER of_job AS job_wait_ns,
        sum(ranks_compared) OVER of_job AS all_compared,
        -- Where a compared rank's host has no name of its own, nobody knows which is the latest.
        count(*) FILTER (ranks_compared > 0) OVER of_job > 1
            AND sum(wait_caused_ns) OVER of_job > 0
            AND coalesce(max(ranks_compared) FILTER (host IS NULL) OVER of_job, 0) = 0
            AND ranks_compared > 0 AS decided,
        row_number() OVER (PARTITION BY job ORDER BY wait_caused_ns DESC, host) AS place
    FROM hosts
    WINDOW of_job AS (PARTITION BY job)
)
SELECT
    o.job, o.host, s.started_ns, o.ranks, o.ranks_compared, o.has_first_rank,
    coalesce(o.participations, 0) AS participations,
    o.times_last, o.times_within_error, o.wait_caused_ns,
    o.job_wait_ns::BIGINT AS job_wait_ns,
    o.median_lateness_ns,
    CASE WHEN o.decided THEN o.place = 1 END AS is_latest,
    CASE WHEN o.decided THEN o.ranks_compared / o.all_compared END AS chance
FROM ordered o JOIN _fleet_starts s USING (job)
WHERE o.host IS NOT NULL;

-- A host over all jobs: whether it is the latest more often than chance would have it. The
-- probability is binomial, with the mean chance over its jobs: for as many as one more than
-- expected that is at least the exact one of unequal chances (Hoeffding 1956, "On the distribution
-- of the number of successes in independent trials"). It takes jobs for independent and ranks for
-- equal: a host that always holds the first rank may be late by its part in the job, not by itself.
CREATE VIEW fleet_hosts (
    -- machine, by its recorded name
    host,
    -- [jobs] jobs in which a rank ran on it
    jobs,
    -- [jobs] those in which it could be compared with other hosts and somebody was late
    jobs_compared,
    -- [jobs] those in which it caused the most wait
    jobs_latest,
    -- [jobs] how many of them equal ranks would give: its chances, added up
    jobs_latest_expected,
    -- probability of at least so many by chance, 0 to 1; null where it was never compared
    p_value,
    -- the same for any one of all hosts that were compared (times their number, at most 1): with
    -- hundreds of hosts one of them is odd by chance
    p_value_any,
    -- [jobs] jobs in which it held the first rank
    jobs_first_rank,
    -- [jobs] those of them in which it caused the most wait
    jobs_latest_first_rank,
    -- [ns] wait of others that its ranks' being last surely caused
    wait_caused_ns,
    -- that over the wait of all ranks in its jobs, 0 to 1
    wait_share,
    -- [ns] its lateness behind the median start, the median over jobs (the lower of two)
    median_lateness_ns,
    -- [collectives] collectives in which one of its ranks started last
    times_last,
    -- [collectives] those in which it was last by less than the clock error: nobody can tell
    times_within_error,
    -- [ns] start of the first job seen on it, Unix epoch
    first_seen_ns,
    -- [ns] start of the last one
    last_seen_ns
) AS
WITH totals AS (
    SELECT
        host,
        count(*) AS jobs,
        count(is_latest) AS jobs_compared,
        count(*) FILTER (is_latest) AS jobs_latest,
        coalesce(sum(chance), 0) AS expected,
        count(*) FILTER (has_first_rank) AS jobs_first_rank,
        count(*) FILTER (is_latest AND has_first_rank) AS jobs_latest_first_rank,
        sum(wait_caused_ns)::BIGINT AS wait_caused_ns,
        sum(wait_caused_ns) / nullif(sum(job_wait_ns), 0) AS wait_share,
        quantile_disc(median_lateness_ns, 0.5) AS median_lateness_ns,
        sum(times_last)::BIGINT AS times_last,
        sum(times_within_error)::BIGINT AS times_within_error,
        min(started_ns) AS first_seen_ns,
        max(started_ns) AS last_seen_ns
    FROM fleet_host_jobs
    GROUP BY host
), judged AS (
    SELECT
        *,
        _at_least(jobs_latest, jobs_compared, expected / nullif(jobs_compared, 0)) AS p_value,
        count(*) FILTER (jobs_compared > 0) OVER () AS hosts_compared
    FROM totals
)
SELECT
    host, jobs, jobs_compared, jobs_latest, expected AS jobs_latest_expected, p_value,
    CASE WHEN p_value IS NOT NULL THEN least(1.0, p_value * hosts_compared) END AS p_value_any,
    jobs_first_rank, jobs_latest_first_rank, wait_caused_ns, wait_share, median_lateness_ns,
    times_last, times_within_error, first_seen_ns, last_seen_ns
FROM judged;
