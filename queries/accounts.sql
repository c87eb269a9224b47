-- Where each nanosecond of a rank went: work by class, and gaps by what they waited for.
-- requires: sweep, clocks, host_marks

-- Runtime calls that hold their thread until the device has done what it was given.
CREATE MACRO _is_blocking_call(name) AS name IN (
    'cudaDeviceSynchronize', 'cudaStreamSynchronize', 'cudaEventSynchronize',
    'cuCtxSynchronize', 'cuStreamSynchronize', 'cuEventSynchronize',
    'cudaMemcpy', 'cudaMemcpy2D', 'cudaMemcpyFromSymbol', 'cudaMemcpyToSymbol',
    'hipDeviceSynchronize', 'hipStreamSynchronize', 'hipEventSynchronize',
    'hipMemcpy', 'hipMemcpyWithStream'
);

-- The part of an interval that nothing of what ran `until_ns` had covered.
CREATE MACRO _more_ns(start_ns, end_ns, until_ns)
AS greatest(0, end_ns - greatest(start_ns, until_ns));

-- One row a rank, step (`ordinal`, 0 outside) and class of work with its time in it (`idle` is
-- false; 0 where there is none), and one row a piece of a gap: from the end of all work begun so
-- far to the next, cut at the boundaries of steps. `free_ns` is where the whole gap began,
-- `before_hash` the name of the work whose end began it, `after_hash` of that which ended it.
-- Times of classes are measures of unions: of compute alone, then with one more class at a time,
-- and what each adds is that class's own. An interval adds to a union what of it lies after the
-- latest end before it; where it crosses boundaries of steps, to each stretch its part.
-- The launch of the work that ended a gap decides its class: begun before the gap, the work waited
-- for its stream; begun in it, the host was late, because it spent at least half of the time until
-- the launch in the data loader, or sat in a blocking call when or after the gap began, or else
-- because it was simply still launching.
CREATE VIEW _accounts AS
WITH swept AS MATERIALIZED (
    FROM _sweep
), stretches AS MATERIALIZED (
    FROM _stretches
), clocks AS MATERIALIZED (
    FROM _rank_clocks
), work AS NOT MATERIALIZED (
    SELECT w.*, coalesce(s.ordinal, 0) AS ordinal, s.step, s.to_ns
    FROM swept w LEFT JOIN stretches s USING (place, stretch)
    WHERE w.tie < 2 AND w.end_ns > w.start_ns
), crossing AS (
    SELECT w.*, unnest(range(w.stretch + 1, l.stretch + 1)) AS later
    FROM (FROM work WHERE end_ns > to_ns) w
    ASOF JOIN (FROM stretches WHERE from_ns < to_ns OR to_ns IS NULL) l
        ON w.place = l.place AND w.end_ns > l.from_ns
), cut AS (
    SELECT
        place, ordinal, step, start_ns, least(end_ns, to_ns) AS end_ns, class, unsplit,
        compute_ns, comm_ns, transfer_ns, unsplit_ns, all_comm_ns, work_ns
    FROM work
    UNION ALL
    SELECT
        c.place, s.ordinal, s.step, s.from_ns, least(c.end_ns, s.to_ns), c.class, c.unsplit,
        c.compute_ns, c.comm_ns, c.transfer_ns, c.unsplit_ns, c.all_comm_ns, c.work_ns
    FROM crossing c JOIN stretches s ON s.stretch = c.later
), unions AS (
    SELECT
        place, ordinal, step,
        -- No row of a class adds nothing: null would make nothing of the differences.
        sum(CASE WHEN class = 'compute' THEN _more_ns(start_ns, end_ns, compute_ns) ELSE 0 END)
            AS compute,
        sum(CASE WHEN class = 'comm' THEN _more_ns(start_ns, end_ns, comm_ns) ELSE 0 END) AS comm,
        sum(CASE WHEN class IN ('compute', 'transfer')
                 THEN _more_ns(start_ns, end_ns, transfer_ns) ELSE 0 END) AS with_transfer,
        sum(CASE WHEN class IN ('compute', 'transfer') OR unsplit
                 THEN _more_ns(start_ns, end_ns, unsplit_ns) ELSE 0 END) AS with_unsplit,
        sum(CASE WHEN class IN ('compute', 'comm')
                 THEN _more_ns(start_ns, end_ns, all_comm_ns) ELSE 0 END) AS with_comm,
        sum(CASE WHEN class <> 'transfer'
                 THEN _more_ns(start_ns, end_ns, work_ns) ELSE 0 END) AS with_copy
    FROM cut
    GROUP BY place, ordinal, step
), seen AS (
    SELECT DISTINCT place, coalesce(s.ordinal, 0) AS ordinal, s.step
    FROM (
        SELECT place, min(start_ns) AS first_ns, max(end_ns) AS last_ns
        FROM swept WHERE end_ns IS NOT NULL GROUP BY place
    ) e LEFT JOIN stretches s USING (place)
    WHERE greatest(s.from_ns, e.first_ns) < least(s.to_ns, e.last_ns)
), busy AS (
    SELECT
        s.place, s.ordinal, s.step,
        unnest([
            {'class': 'compute', 'ns': u.with_comm - u.comm},
            {'class': 'compute_with_comm', 'ns': u.compute + u.comm - u.with_comm},
            {'class': 'exposed_transfer', 'ns': u.with_transfer - u.compute},
            {'class': 'exposed_comm_unsplit', 'ns': u.with_unsplit - u.with_transfer},
            {'class': 'exposed_wait', 'ns': u.with_comm - u.with_unsplit},
            {'class': 'exposed_memcpy', 'ns': u.with_copy - u.with_comm}
        ]) AS part
    FROM seen s LEFT JOIN unions u ON s.place = u.place AND s.ordinal = u.ordinal
), pieces AS NOT MATERIALIZED (
    SELECT
        place, stretch, tie = 2 AS boundary,
        marked_ns AS start_ns, start_ns AS end_ns, coalesce(work_ns, marked_ns) AS free_ns,
        event_id, name, correlation
    FROM swept
    WHERE start_ns > marked_ns
), gaps AS (
    FROM pieces WHERE NOT boundary
    UNION ALL
    -- A piece that a step cut off is ended by what ends the whole gap.
    SELECT p.* EXCLUDE (event_id, name, correlation), n.event_id, n.name, n.correlation
    FROM (FROM pieces WHERE boundary) p
    LEFT JOIN (FROM pieces WHERE NOT boundary) n USING (place, free_ns)
), host AS NOT MATERIALIZED (
    SELECT
        _place(n.number, e.rank) AS place, e.kind, e.thread, e.name, e.correlation,
        _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns,
        _aligned_ns(
            e.start_ns + greatest(e.dur_ns, 0), k.offset_ns, k.drift_ppm, k.anchor_ns
        ) AS end_ns
    FROM events e JOIN _job_numbers n USING (job) LEFT JOIN clocks k USING (job, rank)
), launches AS (
    SELECT place, correlation, min(start_ns) AS launch_ns
    FROM host
    WHERE kind = 'runtime' AND correlation IS NOT NULL
    GROUP BY place, correlation
), launched AS MATERIALIZED (
    SELECT g.*, l.launch_ns
    FROM gaps g LEFT JOIN launches l USING (place, correlation)
), late AS (
    SELECT l.place, l.start_ns, l.free_ns, l.launch_ns, min(h.thread) AS thread
    FROM (FROM launched WHERE launch_ns >= free_ns) l
    JOIN (FROM host WHERE kind = 'runtime') h
        ON l.place = h.place AND l.correlation = h.correlation AND l.launch_ns = h.start_ns
    GROUP BY l.place, l.start_ns, l.free_ns, l.launch_ns
), loading AS (
    -- The data loader's ranges of a thread as disjoint stretches, each with the length of those
    -- before it on the thread.
    SELECT
        place, thread, start_ns, end_ns,
        sum(end_ns - start_ns) OVER (
            PARTITION BY place, thread ORDER BY start_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before_ns
    FROM (
        SELECT
            place, thread, end_ns,
            greatest(start_ns, coalesce(max(end_ns) OVER (
                PARTITION BY place, thread ORDER BY start_ns, end_ns
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), start_ns)) AS start_ns
        FROM host
        WHERE kind IN ('annotation', 'host_op', 'python') AND is_data_loading(kind, name)
    )
    WHERE end_ns > start_ns
), causes AS (
    SELECT
        l.place, l.start_ns,
        -- How long the thread had loaded until the launch, less until the gap began; least and
        -- greatest pass over nulls, and there may be no loading at all.
        coalesce(d.before_ns, 0)
            + CASE WHEN d.end_ns IS NULL THEN 0 ELSE least(d.end_ns, l.launch_ns) - d.start_ns END
            - coalesce(f.before_ns, 0)
            - CASE WHEN f.end_ns IS NULL THEN 0 ELSE least(f.end_ns, l.free_ns) - f.start_ns END
            AS loading_ns,
        CASE WHEN loading_ns > 0 AND 2 * loading_ns >= l.launch_ns - l.free_ns
             THEN 'idle_data_loading'
             WHEN b.end_ns > l.free_ns THEN 'idle_waiting_for_host'
             ELSE 'idle_launch_bound' END AS class
    FROM late l
    ASOF LEFT JOIN (FROM host WHERE kind = 'runtime' AND _is_blocking_call(name)) b
        ON l.place = b.place AND l.thread = b.thread AND l.launch_ns > b.start_ns
    ASOF LEFT JOIN loading d
        ON l.place = d.place AND l.thread = d.thread AND l.launch_ns > d.start_ns
    ASOF LEFT JOIN loading f
        ON l.place = f.place AND l.thread = f.thread AND l.free_ns > f.start_ns
), ended AS NOT MATERIALIZED (
    SELECT
        place, end_ns,
        arg_min(name, _axis_ns(start_ns, coalesce(event_id, 9223372036854775807))) AS name
    FROM swept
    WHERE tie = 0
    GROUP BY place, end_ns
)
SELECT
    place, ordinal, step,
    part['class'] AS class, coalesce(part['ns'], 0)::BIGINT AS ns, false AS idle,
    NULL AS start_ns, NULL AS end_ns, NULL AS free_ns,
    NULL AS after_event_id, NULL AS after_hash, NULL AS before_hash, NULL AS launch_ns
FROM busy
UNION ALL
SELECT
    g.place, coalesce(s.ordinal, 0), s.step,
    CASE WHEN g.launch_ns IS NULL THEN 'idle_unknown'
         WHEN g.launch_ns < g.free_ns THEN 'idle_waiting_for_stream'
         ELSE l.class END,
    g.end_ns - g.start_ns, true, g.start_ns, g.end_ns, g.free_ns,
    g.event_id, g.name, b.name, g.launch_ns
FROM launched g
LEFT JOIN ended b ON b.place = g.place AND b.end_ns = g.free_ns
LEFT JOIN stretches s ON s.place = g.place AND s.stretch = g.stretch
LEFT JOIN causes l ON l.place = g.place AND l.start_ns = g.start_ns;
