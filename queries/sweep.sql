-- One walk along each rank's time: what had begun before each piece of work, and until when it ran.
-- requires: activity, clocks

-- One number for place and time, so that one window in the order of both walks all ranks: a running
-- maximum over it is that of the present place, or of one before it. (A running maximum in each of
-- many partitions costs several times as much: DuckDB's trees of partial maxima do not begin where
-- partitions do. Eight partitions of many places each keep several threads at work.)
CREATE MACRO _axis_ns(place, ns) AS place * 18446744073709551616::HUGEINT + ns;

-- The time again; null where it is that of another place.
CREATE MACRO _time_ns(place, axis_ns)
AS try_cast(axis_ns - place * 18446744073709551616::HUGEINT AS BIGINT);

-- One row a stretch of a rank's time between two boundaries of steps: a step, or (its `ordinal` is
-- 0) what lies between two, before the first (`from_ns` is null) or after the last (`to_ns` is).
-- `stretch` numbers them in order of place and time. A rank without steps has none.
CREATE VIEW _stretches AS
WITH windows AS (
    SELECT _place(n.number, w.rank) AS place, w.*
    FROM _step_windows w JOIN _job_numbers n USING (job)
), boundaries AS (
    SELECT
        place,
        unnest([start_ns, end_ns]) AS from_ns,
        ordinal AS of_step,
        unnest([ordinal, 0]) AS ordinal,
        unnest([step, NULL]) AS step,
        unnest([false, true]) AS is_end
    FROM windows
    UNION ALL
    SELECT DISTINCT place, NULL, 0, 0, NULL, true FROM windows
)
SELECT
    place, ordinal, step, from_ns,
    lead(from_ns) OVER (
        PARTITION BY place ORDER BY from_ns NULLS FIRST, of_step, is_end
    ) AS to_ns,
    row_number() OVER (ORDER BY place, from_ns NULLS FIRST, of_step, is_end) AS stretch
FROM boundaries;

-- One row an interval of work (`tie` 0), the part of one that moves bytes (1) or a boundary between
-- stretches (2, with its time as `end_ns`; null where a rank's first stretch begins). Each has the
-- latest ends of what came before it on the rank: of compute, of comm, of compute and transfers, of
-- these and unsplit comm, of compute and all comm, of all work, and of all work and boundaries
-- (`marked_ns`). `stretch` is the one that the time before it lies in, `name` the hash of its name:
-- texts would be the most of what is sorted.
CREATE VIEW _sweep AS
WITH marks AS (
    SELECT
        place,
        CASE tie WHEN 0 THEN start_ns ELSE transfer_ns END AS start_ns,
        tie, event_id, name, correlation, end_ns,
        CASE tie WHEN 0 THEN class ELSE 'transfer' END AS class,
        unsplit AND tie = 0 AS unsplit,
        NULL AS stretch
    FROM (
        SELECT
            _place(n.number, a.rank) AS place, a.start_ns, a.transfer_ns, a.event_id,
            hash(a.name) AS name, a.correlation, a.end_ns, a.class, a.unsplit,
            unnest(CASE WHEN a.class = 'comm' AND a.transfer_ns < a.end_ns THEN [0, 1]
                        ELSE [0] END) AS tie
        FROM _activity a JOIN _job_numbers n USING (job)
    )
    UNION ALL
    SELECT
        place, coalesce(from_ns, -9223372036854775808), 2, NULL, NULL, NULL, from_ns, 'boundary',
        false, stretch
    FROM _stretches
), placed AS (
    SELECT
        *,
        _axis_ns(place, end_ns) AS until,
        -- Work comes by its id, then transfers, then boundaries: one key sorts faster than two.
        CASE tie WHEN 0 THEN coalesce(event_id, 9223372036854775805)
                 ELSE 9223372036854775805 + tie END AS turn
    FROM marks
), seen AS (
    SELECT
        * EXCLUDE (stretch, until, turn),
        max(stretch) OVER before AS stretch,
        max(until) FILTER (class = 'compute') OVER before AS compute_until,
        max(until) FILTER (class = 'comm') OVER before AS comm_until,
        max(until) FILTER (class = 'transfer') OVER before AS transfer_until,
        max(until) FILTER (unsplit) OVER before AS unsplit_until,
        max(until) FILTER (class = 'copy') OVER before AS copy_until,
        max(until) OVER before AS marked_until
    FROM placed
    WINDOW before AS (
        PARTITION BY place % 8
        ORDER BY place, start_ns, turn ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)
SELECT
    place, start_ns, tie, event_id, name, correlation, end_ns, class, unsplit, stretch,
    _time_ns(place, compute_until) AS compute_ns,
    _time_ns(place, comm_until) AS comm_ns,
    _time_ns(place, greatest(compute_until, transfer_until)) AS transfer_ns,
    _time_ns(place, greatest(compute_until, transfer_until, unsplit_until)) AS unsplit_ns,
    _time_ns(place, greatest(compute_until, comm_until)) AS all_comm_ns,
    _time_ns(place, greatest(compute_until, comm_until, copy_until)) AS work_ns,
    _time_ns(place, marked_until) AS marked_ns
FROM seen;

-- One row a stretch of a rank's time in which the same things run: whether compute, comm, comm
-- in transfer, unsplit comm and copies do, and the step it lies in (its `ordinal`; 0 outside).
-- Stretches begin and end where any interval or step does, so they add up exactly. A class runs for
-- as long as the latest end of what has begun of it.
CREATE VIEW _segments AS
WITH points AS (
    SELECT
        job, rank,
        unnest([start_ns, end_ns]) AS t,
        unnest([CASE class WHEN 'compute' THEN end_ns END, NULL]) AS compute_until_ns,
        unnest([CASE class WHEN 'comm' THEN end_ns END, NULL]) AS comm_until_ns,
        unnest([CASE class WHEN 'copy' THEN end_ns END, NULL]) AS copy_until_ns,
        NULL AS transfer_until_ns,
        unnest([CASE WHEN unsplit THEN end_ns END, NULL]) AS unsplit_until_ns,
        NULL AS step_until_ns,
        NULL AS begun
    FROM _activity
    UNION ALL
    SELECT job, rank, transfer_ns, NULL, NULL, NULL, end_ns, NULL, NULL, NULL
    FROM _activity WHERE class = 'comm'
    UNION ALL
    SELECT
        job, rank, unnest([start_ns, end_ns]), NULL, NULL, NULL, NULL, NULL,
        unnest([end_ns, NULL]), unnest([ordinal, NULL])
    FROM _step_windows
), swept AS (
    SELECT
        p.job, p.rank, p.place, p.t AS start_ns,
        lead(_axis_ns(p.place, p.t)) OVER w AS next,
        max(_axis_ns(p.place, p.compute_until_ns)) OVER w AS compute_until,
        max(_axis_ns(p.place, p.comm_until_ns)) OVER w AS comm_until,
        max(_axis_ns(p.place, p.copy_until_ns)) OVER w AS copy_until,
        max(_axis_ns(p.place, p.transfer_until_ns)) OVER w AS transfer_until,
        max(_axis_ns(p.place, p.unsplit_until_ns)) OVER w AS unsplit_until,
        max(_axis_ns(p.place, p.step_until_ns)) OVER w AS step_until,
        max(_axis_ns(p.place, p.begun)) OVER w AS begun
    FROM (
        SELECT p.*, _place(n.number, p.rank) AS place
        FROM points p JOIN _job_numbers n USING (job)
    ) p
    WINDOW w AS (PARTITION BY p.place % 8 ORDER BY p.place, p.t ROWS UNBOUNDED PRECEDING)
)
SELECT
    job, rank, start_ns,
    _time_ns(place, next) AS end_ns,
    coalesce(compute_until > _axis_ns(place, start_ns), false) AS compute,
    coalesce(comm_until > _axis_ns(place, start_ns), false) AS comm,
    coalesce(copy_until > _axis_ns(place, start_ns), false) AS copy,
    coalesce(transfer_until > _axis_ns(place, start_ns), false) AS transfer,
    coalesce(unsplit_until > _axis_ns(place, start_ns), false) AS unsplit,
    CASE WHEN step_until > _axis_ns(place, start_ns) THEN _time_ns(place, begun) ELSE 0 END
        AS ordinal
FROM swept
WHERE _time_ns(place, next) > start_ns;
