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

-- What an interval adds to a union that it is of: what nothing of what ran `until_ns` had covered.
-- 0 to one that it is not of: null would make nothing of differences.
CREATE MACRO _adds_ns(is_of, start_ns, end_ns, until_ns)
AS CASE WHEN is_of THEN greatest(0, end_ns - greatest(start_ns, until_ns)) ELSE 0 END;

-- Of which unions an interval of a class is: compute and transfers; these and unsplit
-- communication; compute and all communication; all work.
CREATE MACRO _of_transfer(class) AS class IN ('compute', 'transfer');
CREATE MACRO _of_unsplit(class, unsplit) AS class IN ('compute', 'transfer') OR unsplit;
CREATE MACRO _of_comm(class) AS class IN ('compute', 'comm');
CREATE MACRO _of_work(class) AS class <> 'transfer';

-- Three kinds of rows of one walk along the ranks' time.
-- `class`: a rank, step (`ordinal`, 0 outside) and class of work, with its time (0 where there is
-- none). Times of classes are measures of unions: of compute alone, then with one more class at a
-- time, and what each adds is that class's own. An interval adds to a union what of it lies after
-- the latest end before it; where it crosses boundaries of steps, to each stretch its part.
-- `gap`: a piece of a gap: from the end of all work begun so far to the next, cut at the boundaries
-- of steps. `free_ns` is where the whole gap began, `after_hash` the name of the work that ended it.
-- `work`: an interval, or (class `transfer`) the part of one that moves bytes, with its name as
-- `after_hash` and what it adds to each union, not cut.
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
        sum(_adds_ns(class = 'compute', start_ns, end_ns, compute_ns)) AS compute,
        sum(_adds_ns(class = 'comm', start_ns, end_ns, comm_ns)) AS comm,
        sum(_adds_ns(_of_transfer(class), start_ns, end_ns, transfer_ns)) AS with_transfer,
        sum(_adds_ns(_of_unsplit(class, unsplit), start_ns, end_ns, unsplit_ns)) AS with_unsplit,
        sum(_adds_ns(_of_comm(class), start_ns, end_ns, all_comm_ns)) AS with_comm,
        sum(_adds_ns(_of_work(class), start_ns, end_ns, work_ns)) AS with_copy
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
)
SELECT
    'class' AS kind, place, ordinal, step,
    part['class'] AS class, coalesce(part['ns'], 0)::BIGINT AS ns,
    NULL AS start_ns, NULL AS end_ns, NULL AS free_ns,
    NULL AS after_event_id, NULL AS after_hash, NULL AS launch_ns, NULL AS unsplit,
    NULL AS compute_ns, NULL AS with_transfer_ns, NULL AS with_unsplit_ns, NULL AS with_comm_ns,
    NULL AS with_copy_ns
FROM busy
UNION ALL
SELECT
    'gap', g.place, coalesce(s.ordinal, 0), s.step,
    CASE WHEN g.launch_ns IS NULL THEN 'idle_unknown'
         WHEN g.launch_ns < g.free_ns THEN 'idle_waiting_for_stream'
         ELSE l.class END,
    g.end_ns - g.start_ns, g.start_ns, g.end_ns, g.free_ns,
    g.event_id, g.name, g.launch_ns,
    NULL, NULL, NULL, NULL, NULL, NULL
FROM launched g
LEFT JOIN stretches s ON s.place = g.place AND s.stretch = g.stretch
LEFT JOIN causes l ON l.place = g.place AND l.start_ns = g.start_ns
UNION ALL
SELECT
    'work', place, NULL, NULL, class, end_ns - start_ns, start_ns, end_ns, NULL,
    event_id, name, NULL, unsplit,
    _adds_ns(class = 'compute', start_ns, end_ns, compute_ns),
    _adds_ns(_of_transfer(class), start_ns, end_ns, transfer_ns),
    _adds_ns(_of_unsplit(class, unsplit), start_ns, end_ns, unsplit_ns),
    _adds_ns(_of_comm(class), start_ns, end_ns, all_comm_ns),
    _adds_ns(_of_work(class), start_ns, end_ns, work_ns)
FROM swept
WHERE tie < 2;

-- One row a rank, step (`ordinal`, 0 outside) and class: time of work (`kind` class, 0 where there
-- is none) or of gaps (`kind` gap).
CREATE VIEW _computed_class_times AS
SELECT
    n.job, _rank_at(t.place) AS rank, t.ordinal, t.step, t.kind, t.class, t.ns
FROM (
    SELECT place, ordinal, step, kind, class, sum(ns)::BIGINT AS ns
    FROM _accounts
    WHERE kind <> 'work'
    GROUP BY place, ordinal, step, kind, class
) t
JOIN _job_numbers n ON n.number = _number_at(t.place);

-- The same rows, made once with the job.
CREATE VIEW _stored_class_times AS
SELECT
    job, rank, ordinal::BIGINT AS ordinal, step,
    CASE WHEN starts_with(class, 'idle') THEN 'gap' ELSE 'class' END AS kind, class, ns
FROM _made_breakdown;

-- Those of jobs that have them stored, computed of the others: the connection says which.
CREATE VIEW _class_times AS FROM _computed_class_times;
