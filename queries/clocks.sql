-- Puts what every rank measured on the job's one clock.

-- The time on the job's clock of a time on a rank's own: its offset, plus the drift since the
-- rank's first event. Integer nanoseconds in, integer nanoseconds out.
CREATE MACRO _aligned_ns(
    -- [ns] time on the clock of the rank's host
    host_ns,
    -- [ns] ranks.clock_offset_ns
    offset_ns,
    -- [ppm] ranks.clock_drift_ppm
    drift_ppm,
    -- [ns] ranks.start_ns
    origin_ns
) AS host_ns + coalesce(offset_ns, 0)
    + CASE WHEN coalesce(drift_ppm, 0) = 0 THEN 0
           ELSE round((host_ns - coalesce(origin_ns, 0)) * drift_ppm / 1e6)::BIGINT END;

-- One row a rank: what moves its times to the job's clock, and which clock that is. Ranks with
-- the same `clock` can be compared: those that something ties to the job's clock, and otherwise
-- those of one host.
CREATE VIEW _rank_clocks AS
SELECT
    job,
    rank,
    host,
    clock_offset_ns AS offset_ns,
    clock_drift_ppm AS drift_ppm,
    start_ns AS origin_ns,
    clock_error_ns,
    CASE WHEN clock_error_ns IS NOT NULL THEN 'job'
         ELSE coalesce('host ' || host, 'rank ' || rank) END AS clock
FROM ranks;

-- One row a step of a rank, on the job's clock. A step ends no later than the next begins, so
-- that no moment of a rank is in two.
CREATE VIEW _step_windows AS
WITH aligned AS (
    SELECT
        s.job,
        s.rank,
        s.step,
        _aligned_ns(s.start_ns, c.offset_ns, c.drift_ppm, c.origin_ns) AS start_ns,
        _aligned_ns(s.end_ns, c.offset_ns, c.drift_ppm, c.origin_ns) AS end_ns
    FROM steps s LEFT JOIN _rank_clocks c USING (job, rank)
)
SELECT
    job,
    rank,
    step,
    start_ns,
    greatest(start_ns, least(end_ns, coalesce(lead(start_ns) OVER w, end_ns))) AS end_ns,
    row_number() OVER w AS ordinal
FROM aligned
WINDOW w AS (PARTITION BY job, rank ORDER BY start_ns, step);
