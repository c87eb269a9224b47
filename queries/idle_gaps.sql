-- When nothing runs on a rank, and what it was waiting for.
-- requires: accounts, activity, clocks, sweep

-- Names by their hash, as `_accounts` carries them.
CREATE VIEW _names AS
SELECT hash(name) AS hash, min(name) AS name
FROM (
    SELECT name FROM events WHERE kind IN ('kernel', 'memcpy', 'memset', 'host_op')
    UNION
    SELECT op FROM collectives
)
GROUP BY ALL;

-- One row a gap, as in `idle_gaps`.
CREATE VIEW _computed_gaps AS
WITH ended AS (
    SELECT
        _place(n.number, a.rank) AS place, a.end_ns,
        arg_min(hash(a.name), _axis_ns(a.start_ns, coalesce(a.event_id, 9223372036854775807)))
            AS hash
    FROM _activity a JOIN _job_numbers n USING (job)
    GROUP BY ALL
)
SELECT
    n.job, _rank_at(i.place) AS rank, i.step,
    row_number() OVER (PARTITION BY i.place ORDER BY i.start_ns) - 1 AS gap,
    i.start_ns, i.ns AS dur_ns, i.class,
    b.name AS before, a.name AS after, i.launch_ns
FROM (FROM _accounts WHERE kind = 'gap') i
JOIN _job_numbers n ON n.number = _number_at(i.place)
LEFT JOIN ended e ON e.place = i.place AND e.end_ns = i.free_ns
LEFT JOIN _names b ON b.hash = e.hash
LEFT JOIN _names a ON a.hash = i.after_hash;

-- The same rows, made once with the job.
CREATE VIEW _stored_gaps AS
SELECT
    job, rank, step, gap::BIGINT AS gap, start_ns, dur_ns, class, before, after, launch_ns
FROM _made_gaps;

-- Those of jobs that have them stored, computed of the others: the connection says which.
CREATE VIEW _gaps AS FROM _computed_gaps;

-- A gap: a stretch in which no kernel and no copy runs on a rank's GPU (on a rank without one: no
-- host operation or participation), between its first work or step and its last. A gap that
-- crosses the boundary of a step is cut there, so a step's gaps add up to its idle time.
CREATE VIEW idle_gaps (
    -- job
    job,
    -- global rank
    rank,
    -- step that it lies in; null outside steps
    step,
    -- number of the gap on the rank, from 0, in order of time
    gap,
    -- [ns] start on the job's clock
    start_ns,
    -- [ns] duration
    dur_ns,
    -- idle_launch_bound (the next launch came after the gap began), idle_waiting_for_host (so too,
    -- and the launching thread had sat in a blocking synchronisation), idle_data_loading (so too,
    -- and it spent at least half of the time in the data loader), idle_waiting_for_stream (launched
    -- before the gap began: held back by its queue or by an event), idle_unknown (no launch known)
    class,
    -- name of the work whose end began it; null where none came before
    before,
    -- name of the work whose start ended it; null where none came after
    after,
    -- [ns] start of the call that launched that work; null where not known
    launch_ns
) AS
FROM _gaps;
