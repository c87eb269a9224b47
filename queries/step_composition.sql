-- What a step's time is made of, down to kernels and collectives.
-- requires: activity, clocks, idle_gaps, sizes, waits

-- One row a piece of work in the order of its start, cut where earlier work of its class (compute,
-- comm or copy) on the rank still ran: the pieces of a class cover just the time in which any of it
-- runs, and no moment is in two.
CREATE VIEW _own_time AS
WITH parts AS (
    SELECT
        job, rank, event_id, class,
        min(dim || ' ' || op || ' ' || size_class(bytes)) AS signature,
        min(start_ns) AS start_ns, min(end_ns) AS end_ns
    FROM (SELECT *, 'comm' AS class FROM waits)
    WHERE event_id IS NOT NULL
    GROUP BY job, rank, event_id, class
), alone AS (
    SELECT
        job, rank, start_ns, end_ns, op,
        min(dim || ' ' || op || ' ' || size_class(bytes)) AS signature
    FROM waits
    WHERE event_id IS NULL
    GROUP BY job, rank, start_ns, end_ns, op
), cut AS (
    SELECT
        job, rank, event_id, name, class, start_ns AS begun_ns, end_ns,
        greatest(start_ns, coalesce(max(end_ns) OVER (
            PARTITION BY job, rank, class ORDER BY start_ns, event_id, end_ns, name
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), start_ns)) AS start_ns
    FROM _activity
)
SELECT
    c.job, c.rank, c.class, c.start_ns, c.end_ns,
    coalesce(p.signature, a.signature, c.name) AS what
FROM (FROM cut WHERE end_ns > start_ns) c
LEFT JOIN parts p
    ON p.job = c.job AND p.rank = c.rank AND p.event_id = c.event_id AND p.class = c.class
LEFT JOIN alone a
    ON a.job = c.job AND a.rank = c.rank AND c.class = 'comm' AND c.event_id IS NULL
    AND a.start_ns = c.begun_ns AND a.end_ns = c.end_ns AND a.op = c.name;

-- A rank, step, class of time and what it went to. The rows of a class add up to that of
-- `step_breakdown`, so all rows of a rank and step add up to the step, to the nanosecond. A moment
-- at which several kernels run counts for the one that began first; one at which compute runs counts
-- for compute, as there. Time outside every step is in rows with step null.
CREATE VIEW step_composition (
    -- job
    job,
    -- global rank
    rank,
    -- step; null for the time outside every step
    step,
    -- as in `step_breakdown`
    class,
    -- name of the kernel or copy; for communication its dimension, operation and size class (the
    -- kernel's name where nothing matched it); for idle time the class
    what,
    -- [ns] time
    ns,
    -- [pieces] pieces of work that it is of (a kernel that another one interrupts counts for each)
    pieces
) AS
WITH busy AS (
    SELECT
        job, rank, ordinal, start_ns, end_ns,
        CASE WHEN compute THEN 'compute' WHEN comm THEN 'comm' ELSE 'copy' END AS owner,
        CASE
            WHEN compute AND comm THEN 'compute_with_comm'
            WHEN compute THEN 'compute'
            WHEN transfer THEN 'exposed_transfer'
            WHEN unsplit THEN 'exposed_comm_unsplit'
            WHEN comm THEN 'exposed_wait'
            ELSE 'exposed_memcpy'
        END AS class
    FROM _segments
    WHERE compute OR comm OR copy
), owned AS (
    SELECT
        b.job, b.rank, b.ordinal, b.class, o.what,
        sum(b.end_ns - b.start_ns)::BIGINT AS ns,
        count(DISTINCT o.start_ns) AS pieces
    FROM busy b
    ASOF JOIN _own_time o
        ON o.job = b.job AND o.rank = b.rank AND o.class = b.owner AND o.start_ns <= b.start_ns
    GROUP BY ALL
), idle AS (
    SELECT
        job, rank, ordinal, class, class AS what,
        sum(end_ns - start_ns)::BIGINT AS ns, count(*) AS pieces
    FROM _idle
    GROUP BY ALL
)
SELECT c.job, c.rank, s.step, c.class, c.what, c.ns, c.pieces
FROM (FROM owned UNION ALL FROM idle) c
LEFT JOIN _step_windows s USING (job, rank, ordinal);
