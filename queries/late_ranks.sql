-- Which rank the others wait for.
-- requires: waits

-- One row a barrier-like collective (or exchange with a peer) of which several ranks were seen on
-- one clock: who started last, how far behind the last but one and behind the median start, and the
-- part of the others' wait that this caused. `paired` is true for point-to-point, where a pipeline's
-- schedule alone makes somebody last. `sure` is false where it was last by less than the clock
-- error.
CREATE VIEW _computed_lateness AS
WITH comparable AS (
    SELECT *
    FROM _matched_participations
    WHERE timed AND n_comparable > 1
      AND op NOT IN ('broadcast', 'scatter', 'reduce', 'gather')
      AND collective_id IS NOT NULL
), starts AS (
    SELECT
        job, collective_id, clock,
        coalesce(max(start_ns, 2)[2], max(start_ns)) AS second_start_ns,
        quantile_disc(start_ns, 0.5) AS median_start_ns
    FROM comparable
    GROUP BY ALL
)
SELECT
    p.job, p.collective_id, p.clock,
    min(p.comm) AS comm,
    bool_or(p.op IN ('send', 'recv', 'send_recv')) AS paired,
    any_value(p.last_rank) AS last_rank,
    any_value(p.n_comparable) AS n_comparable,
    any_value(p.last_start_ns - s.second_start_ns) AS behind_ns,
    any_value(p.last_start_ns - s.median_start_ns) AS behind_median_ns,
    any_value(s.median_start_ns) AS median_start_ns,
    any_value(p.clock_error_ns) AS clock_error_ns,
    any_value(NOT (p.last_start_ns - s.second_start_ns <= p.clock_error_ns
                   AND p.clock_error_ns > 0)) AS sure,
    sum(greatest(0, least(p.last_start_ns, p.end_ns) - greatest(p.start_ns, s.second_start_ns)))
        FILTER (p.decides AND p.rank <> p.last_rank)::BIGINT AS caused_ns
FROM comparable p JOIN starts s USING (job, collective_id, clock)
GROUP BY p.job, p.collective_id, p.clock;

-- The same rows, made once with the job.
CREATE VIEW _stored_lateness AS
SELECT
    job, collective_id, clock, comm, paired, last_rank, n_comparable::BIGINT AS n_comparable,
    behind_ns, behind_median_ns, median_start_ns, clock_error_ns, sure, caused_ns
FROM _made_lateness;

-- Those of jobs that have them stored, computed of the others: the connection says which.
CREATE VIEW _lateness AS FROM _computed_lateness;

-- One row a timed participation in a collective of `_lateness`.
CREATE VIEW _computed_arrivals AS
SELECT
    p.job, p.rank, p.host, p.step, p.collective_id, p.clock, p.decides, p.clock_error_ns,
    p.start_ns - l.median_start_ns AS behind_ns,
    greatest(0, least(p.ready_ns, p.end_ns) - p.start_ns) AS wait_ns
FROM (FROM _computed_participations WHERE timed) p
JOIN _computed_lateness l USING (job, collective_id, clock);

-- The same rows, made once with the job.
CREATE VIEW _stored_arrivals AS
SELECT
    job, rank, host, step, collective_id, clock, decides, clock_error_ns,
    start_ns - median_start_ns AS behind_ns,
    greatest(0, least(ready_ns, end_ns) - start_ns) AS wait_ns
FROM _made_participations
WHERE timed AND median_start_ns IS NOT NULL;

-- Those of jobs that have them stored, computed of the others: the connection says which.
CREATE VIEW _arrivals AS FROM _computed_arrivals;

-- The rows of `late_ranks`, but for the share.
CREATE VIEW _computed_late_ranks AS
WITH own AS (
    SELECT
        job, rank, any_value(host) AS host,
        count(*) AS collectives,
        sum(wait_ns) FILTER (decides) AS wait_ns,
        quantile_disc(behind_ns, 0.5) AS median_lateness_ns
    FROM _arrivals
    GROUP BY job, rank
), blamed AS (
    SELECT
        job, last_rank AS rank,
        count(*) AS times_last,
        sum(caused_ns) AS wait_caused_ns,
        count(*) FILTER (behind_ns <= clock_error_ns AND clock_error_ns > 0) AS times_within_error
    FROM _lateness
    GROUP BY job, last_rank
)
SELECT
    o.job, o.rank, o.host, o.collectives,
    coalesce(b.times_last, 0) AS times_last,
    coalesce(b.wait_caused_ns, 0)::BIGINT AS wait_caused_ns,
    o.wait_ns::BIGINT AS wait_ns,
    o.median_lateness_ns,
    coalesce(b.times_within_error, 0) AS times_within_error
FROM own o LEFT JOIN blamed b USING (job, rank);

-- The same rows, made once with the job.
CREATE VIEW _stored_late_ranks AS FROM _made_late_ranks;

-- Those of jobs that have them stored, computed of the others: the connection says which.
CREATE VIEW _late_ranks AS FROM _computed_late_ranks;

-- A rank, with how often it was the last to start a barrier-like collective of which another
-- rank was seen on a comparable clock, and what that cost the others: the part of their wait that
-- would have gone had it started together with the last but one. A kernel that exchanges with
-- several peers is a collective with each of them, and its wait counts once, for the last peer.
CREATE VIEW late_ranks (
    -- job
    job,
    -- global rank
    rank,
    -- machine the rank ran on
    host,
    -- [collectives] collectives in which it could be compared
    collectives,
    -- [collectives] those in which it started last (the lowest rank of several)
    times_last,
    -- times_last over collectives, 0 to 1
    last_share,
    -- [ns] wait of the others, added up, that its being last caused
    wait_caused_ns,
    -- [ns] its own waits in these collectives, added up
    wait_ns,
    -- [ns] its start behind the median start of the collective, the median over collectives
    median_lateness_ns,
    -- [collectives] times it was last by less than the clock error: nobody can tell
    times_within_error
) AS
SELECT
    job, rank, host, collectives, times_last, times_last / collectives AS last_share,
    wait_caused_ns, wait_ns, median_lateness_ns, times_within_error
FROM _late_ranks;
