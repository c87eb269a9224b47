-- How late each rank comes, step by step, and whether it comes later and later.
-- requires: late_ranks, waits, sizes

-- The slope of a series by Theil's incomplete method: of points in order of x, each of the first
-- half is paired with the one half the series later, and the median of the slopes of these pairs
-- is the slope. One odd step moves it little, and pairs share no point, so that the median absolute
-- deviation of the slopes gives its error: 1.2533 * 1.4826 * MAD / sqrt(pairs), as for the median
-- of normal values; null with one pair. Takes lists of equal length in order of x.
CREATE MACRO _paired_slopes(xs, ys) AS list_transform(
    range(1, len(xs) // 2 + 1),
    lambda i: (ys[i + (len(xs) + 1) // 2] - ys[i])
        / (xs[i + (len(xs) + 1) // 2] - xs[i])::DOUBLE
);
CREATE MACRO _slope_error(slopes) AS CASE WHEN len(slopes) > 1 THEN
    1.2533 * 1.4826 * list_median(list_transform(
        slopes, lambda s: abs(s - list_median(slopes))
    )) / sqrt(len(slopes))
END;

-- A rank and step: how far behind the median start it came, in the mean over the collectives of the
-- step in which it could be compared (barrier-like ones and exchanges with a peer, as in
-- `late_ranks`), beside the bus bandwidth that its collectives had. A rank that comes later and later
-- while bandwidth holds is slowing down by itself (heat, a filling memory, a leak); where bandwidth
-- falls as well, look at the network. Slopes are over all steps of the rank by Theil's incomplete
-- method: the median slope of steps paired with those half the series later.
CREATE VIEW lateness_trend (
    -- job
    job,
    -- global rank
    rank,
    -- step
    step,
    -- [ns] its start behind the median start of the collective (negative: before it), mean over the
    -- collectives of the step
    lateness_ns,
    -- [ns] the median over them
    median_lateness_ns,
    -- [collectives] collectives of the step in which it could be compared
    collectives,
    -- [ns/step] by how much lateness_ns grows from step to step, the same for all steps of the rank;
    -- null with one step
    slope_ns_per_step,
    -- [ns/step] standard error of the slope, from how the slopes of its pairs scatter; null with
    -- fewer than two pairs (four steps)
    slope_error_ns_per_step,
    -- [GB/s] bus bandwidth of its collectives of the step over transfer alone (bytes times
    -- busbw_factor over transfer time, both added up); null where no size or wait is known
    busbw_transfer_gbps,
    -- [GB/s/step] slope of that, found the same way
    busbw_slope_gbps_per_step,
    -- [ns] largest clock error that the lateness rests on: a drift of clocks looks like a trend
    clock_error_ns
) AS
WITH arrivals AS (
    SELECT job, rank, step, behind_ns, clock_error_ns
    FROM _arrivals
    WHERE decides AND step IS NOT NULL
), moved AS (
    SELECT
        job, rank, step,
        sum(bytes * busbw_factor(op, n_ranks)) / nullif(sum(transfer_ns), 0) AS gbps
    FROM waits
    WHERE wait_known AND step IS NOT NULL AND bytes * busbw_factor(op, n_ranks) > 0
    GROUP BY job, rank, step
), by_step AS (
    SELECT
        a.job, a.rank, a.step,
        avg(a.behind_ns) AS lateness_ns,
        quantile_disc(a.behind_ns, 0.5) AS median_lateness_ns,
        count(*) AS collectives,
        max(a.clock_error_ns) AS clock_error_ns,
        any_value(m.gbps) AS gbps
    FROM arrivals a LEFT JOIN moved m USING (job, rank, step)
    GROUP BY a.job, a.rank, a.step
), slopes AS (
    SELECT
        job, rank,
        _paired_slopes(list(step ORDER BY step), list(lateness_ns ORDER BY step)) AS late,
        _paired_slopes(
            list(step ORDER BY step) FILTER (gbps IS NOT NULL),
            list(gbps ORDER BY step) FILTER (gbps IS NOT NULL)
        ) AS gbps
    FROM by_step
    GROUP BY job, rank
)
SELECT
    b.job, b.rank, b.step,
    round(b.lateness_ns)::BIGINT AS lateness_ns,
    b.median_lateness_ns, b.collectives,
    list_median(s.late) AS slope_ns_per_step,
    _slope_error(s.late) AS slope_error_ns_per_step,
    b.gbps AS busbw_transfer_gbps,
    list_median(s.gbps) AS busbw_slope_gbps_per_step,
    b.clock_error_ns
FROM by_step b JOIN slopes s USING (job, rank);
