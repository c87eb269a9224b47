-- What a step's time is made of, down to kernels and collectives.
-- requires: activity, clocks, sizes, sweep, waits

-- One row a piece of work in the order of its start, cut where earlier work of its class (compute,
-- comm or copy) on the rank still ran: the pieces of a class cover just the time in which any of it
-- runs, and no moment is in two. `name` is the hash of its name.
CREATE VIEW _own_time AS
WITH placed AS (
    SELECT
        _place(n.number, a.rank) AS place, a.class, a.event_id, hash(a.name) AS name,
        a.start_ns, a.end_ns,
        CASE a.class WHEN 'compute' THEN 0 WHEN 'comm' THEN 1 ELSE 2 END AS lane
    FROM _activity a JOIN _job_numbers n USING (job)
    WHERE a.end_ns > a.start_ns
), cut AS (
    SELECT
        *,
        greatest(start_ns, coalesce(_time_ns(place * 3 + lane, max(
            _axis_ns(place * 3 + lane, end_ns)
        ) OVER (
            ORDER BY place * 3 + lane, start_ns, coalesce(event_id, 9223372036854775807), end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )), start_ns)) AS from_ns
    FROM placed
)
SELECT place, class, event_id, name, start_ns AS begun_ns, from_ns AS start_ns, end_ns
FROM cut
WHERE end_ns > from_ns;

-- One row a name that work may have, by its hash: as in `_activity`, whose names these are.
CREATE VIEW _work_names AS
SELECT hash(name) AS hash, min(name) AS what
FROM (
    SELECT DISTINCT name FROM events WHERE kind IN ('kernel', 'memcpy', 'memset')
    UNION
    SELECT DISTINCT op FROM waits
    UNION
    SELECT DISTINCT e.name FROM events e ANTI JOIN _device_ranks USING (job, rank)
    WHERE e.kind = 'host_op'
)
WHERE name IS NOT NULL
GROUP BY ALL;

-- One row a rank, step, class and what its time went to, as in `step_composition`.
CREATE VIEW _computed_composition AS
WITH own AS MATERIALIZED (
    FROM _own_time
), computes AS MATERIALIZED (
    SELECT o.place, o.name, o.start_ns, o.end_ns, s.stretch, s.ordinal, s.step, s.to_ns
    FROM (FROM own WHERE class = 'compute') o
    ASOF LEFT JOIN (
        SELECT * REPLACE (coalesce(from_ns, -9223372036854775808) AS from_ns) FROM _stretches
        WHERE from_ns < to_ns OR to_ns IS NULL OR from_ns IS NULL
    ) s ON s.place = o.place AND s.from_ns <= o.start_ns
), crossing AS (
    SELECT
        c.place, c.name, s.ordinal, s.step,
        least(c.end_ns, coalesce(s.to_ns, c.end_ns)) - s.from_ns AS ns
    FROM (FROM computes WHERE end_ns > to_ns) c
    JOIN _stretches s
        ON s.place = c.place AND s.from_ns >= c.to_ns AND s.from_ns < c.end_ns
        AND s.stretch > c.stretch
), computed AS (
    SELECT place, ordinal, step, name, sum(ns) AS ns, sum(begins) AS pieces
    FROM (
        SELECT
            place, coalesce(ordinal, 0) AS ordinal, step, name,
            least(end_ns, coalesce(to_ns, end_ns)) - start_ns AS ns, 1 AS begins
        FROM computes
        UNION ALL
        SELECT place, ordinal, step, name, ns, 0 FROM crossing
    )
    GROUP BY ALL
), rest AS (
    SELECT
        _place(n.number, s.rank) AS place, s.ordinal, s.start_ns, s.end_ns,
        CASE WHEN s.comm THEN 'comm' ELSE 'copy' END AS owner,
        CASE
            WHEN s.transfer THEN 'exposed_transfer'
            WHEN s.unsplit THEN 'exposed_comm_unsplit'
            WHEN s.comm THEN 'exposed_wait'
            ELSE 'exposed_memcpy'
        END AS class
    FROM _segments s JOIN _job_numbers n USING (job)
    WHERE NOT s.compute AND (s.comm OR s.copy)
), parts AS (
    SELECT
        _place(n.number, w.rank) AS place, w.event_id,
        CASE WHEN w.event_id IS NULL THEN w.start_ns END AS start_ns,
        CASE WHEN w.event_id IS NULL THEN w.end_ns END AS end_ns,
        min(w.dim || ' ' || w.op || ' ' || size_class(w.bytes)) AS signature
    FROM waits w JOIN _job_numbers n USING (job)
    GROUP BY ALL
), exposed AS MATERIALIZED (
    SELECT
        r.place, r.ordinal, r.class, r.owner, r.end_ns - r.start_ns AS ns,
        r.start_ns = o.start_ns AS begins, o.name, o.event_id, o.begun_ns, o.end_ns
    FROM rest r
    ASOF JOIN (FROM own WHERE class <> 'compute') o
        ON o.place = r.place AND o.class = r.owner AND o.start_ns <= r.start_ns
), exposed_comm AS (
    SELECT
        place, ordinal, class, name, event_id, begun_ns, end_ns,
        sum(ns) AS ns, count(*) FILTER (begins) AS pieces
    FROM exposed WHERE owner = 'comm'
    GROUP BY ALL
), signed AS (
    SELECT
        e.place, e.ordinal, e.class, coalesce(p.signature, a.signature) AS signature, e.name,
        sum(e.ns) AS ns, sum(e.pieces) AS pieces
    FROM exposed_comm e
    LEFT JOIN parts p ON p.place = e.place AND p.event_id = e.event_id
    LEFT JOIN parts a
        ON e.event_id IS NULL AND a.event_id IS NULL
        AND a.place = e.place AND a.start_ns = e.begun_ns AND a.end_ns = e.end_ns
    GROUP BY ALL
    UNION ALL
    SELECT
        place, ordinal, class, NULL, name, sum(ns), count(*) FILTER (begins)
    FROM exposed WHERE owner = 'copy'
    GROUP BY place, ordinal, class, name
), stepped AS (
    SELECT place, ordinal, any_value(step) AS step
    FROM _stretches WHERE ordinal > 0 GROUP BY ALL
), every AS (
    SELECT place, step, 'compute' AS class, NULL AS signature, name, ns, pieces FROM computed
    UNION ALL
    -- Kernels of several names may be one kind of collective.
    SELECT
        g.place, s.step, g.class, g.signature, CASE WHEN g.signature IS NULL THEN g.name END,
        g.ns, g.pieces
    FROM signed g LEFT JOIN stepped s USING (place, ordinal)
), summed AS (
    SELECT place, step, class, signature, name, sum(ns) AS ns, sum(pieces) AS pieces
    FROM every
    GROUP BY ALL
)
SELECT
    j.job, _rank_at(e.place) AS rank, e.step, e.class, coalesce(e.signature, w.what) AS what,
    e.ns::BIGINT AS ns, e.pieces::BIGINT AS pieces
FROM summed e
JOIN _job_numbers j ON j.number = _number_at(e.place)
LEFT JOIN _work_names w ON w.hash = e.name;

-- The same rows, made once with the job.
CREATE VIEW _stored_composition AS
SELECT job, rank, step, class, what, ns, pieces FROM _made_composition;

-- Those of jobs that have them stored, computed of the others: the connection says which.
CREATE VIEW _composition AS FROM _computed_composition;

-- A rank, step and class of work, and what its time went to. The rows of a class add up to that of
-- `step_breakdown` (`compute` to both classes of compute together), to the nanosecond; idle time is
-- there and in `idle_gaps`. A moment at which several kernels run counts for the one that began
-- first; one at which compute runs counts for compute, as there. Time outside every step is in rows
-- with step null.
CREATE VIEW step_composition (
    -- job
    job,
    -- global rank
    rank,
    -- step; null for the time outside every step
    step,
    -- compute (alone or with communication), exposed_wait, exposed_transfer, exposed_comm_unsplit or
    -- exposed_memcpy, as in `step_breakdown`
    class,
    -- name of the kernel or copy; for communication its dimension, operation and size class (the
    -- kernel's name where nothing matched it)
    what,
    -- [ns] time
    ns,
    -- [pieces] pieces of work that it is of, each where it begins
    pieces
) AS
FROM _composition;
