-- Puts what every rank measured on the job's one clock.

-- The time on the job's clock of a time on a rank's own: with its offset, which holds at the
-- anchor, and less what its clock has gained since. Integer nanoseconds in and out.
CREATE MACRO _aligned_ns(
    -- [ns] time on the clock of the rank's host
    host_ns,
    -- [ns] ranks.clock_offset_ns
    offset_ns,
    -- [ppm] ranks.clock_drift_ppm
    drift_ppm,
    -- [ns] moment at which the offset holds
    anchor_ns
) AS host_ns + coalesce(offset_ns, 0)
    - CASE WHEN coalesce(drift_ppm, 0) = 0 THEN 0
           ELSE round((host_ns - anchor_ns) * drift_ppm / 1e6)::BIGINT END;

-- One row a rank: what moves its times to the job's clock, and which clock that is. Ranks with
-- the same `clock` can be compared: those that something ties to the job's clock, and otherwise
-- those of one host. `own_clock` is that of its host (since it started is another than its time of
-- day), or its own where its times count from a zero of its own. An offset holds in the middle of what the host's ranks recorded.
CREATE VIEW _rank_clocks AS
WITH hosts AS (
    SELECT
        *,
        CASE WHEN host IS NULL OR coalesce(clock = 'process', false) THEN 'rank ' || rank
             WHEN coalesce(clock, 'host') NOT IN ('host', 'recorded', 'none')
             THEN clock || ' of host ' || host
             ELSE 'host ' || host END AS own_clock
    FROM ranks
)
SELECT
    job,
    rank,
    host,
    clock_offset_ns AS offset_ns,
    clock_drift_ppm AS drift_ppm,
    min(start_ns) OVER w + (max(end_ns) OVER w - min(start_ns) OVER w) // 2 AS anchor_ns,
    clock_error_ns,
    own_clock,
    CASE WHEN clock_error_ns IS NOT NULL THEN 'job' ELSE own_clock END AS clock
FROM hosts
WINDOW w AS (PARTITION BY job, own_clock);

-- One row a step of a rank, on the job's clock. A step ends no later than the next begins, so
-- that no moment of a rank is in two.
CREATE VIEW _step_windows AS
WITH aligned AS (
    SELECT
        s.job,
        s.rank,
        s.step,
        _aligned_ns(s.start_ns, c.offset_ns, c.drift_ppm, c.anchor_ns) AS start_ns,
        _aligned_ns(s.end_ns, c.offset_ns, c.drift_ppm, c.anchor_ns) AS end_ns
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

-- One number for a rank of a job (`number` is the job's in `_job_numbers`).
CREATE MACRO _place(number, rank) AS number * 4294967296 + coalesce(rank, 4294967295);

-- The rank again.
CREATE MACRO _rank_at(place) AS nullif(place % 4294967296, 4294967295)::INTEGER;

-- The number of the job again.
CREATE MACRO _number_at(place) AS place // 4294967296;
