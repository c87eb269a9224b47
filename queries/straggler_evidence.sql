-- What ranks do in the time before collectives at which one of them is late, set against each other.
-- requires: accounts, clocks, host_marks, waits

-- Where a rank's first step begins on its host and on its GPU.
CREATE VIEW _first_steps AS
SELECT
    s.job, s.rank,
    min(_aligned_ns(least(s.host_start_ns, s.start_ns), k.offset_ns, k.drift_ppm, k.anchor_ns))
        AS host_ns,
    min(_aligned_ns(s.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns)) AS device_ns
FROM steps s LEFT JOIN _rank_clocks k USING (job, rank)
GROUP BY s.job, s.rank;

-- One row an interval of a rank's work (`class` is that of `_activity`, or transfer), with what it
-- adds to each union of `_accounts`; and one row a piece of its idle time, of a class of `idle_gaps`
-- (before the first kernel of the first step it is idle_launch_bound), with what the host did
-- instead of launching: from `free_ns` to `launch_ns`.
CREATE VIEW _computed_spent AS
SELECT
    n.job, _rank_at(a.place) AS rank, a.kind = 'gap' AS idle, a.class, a.unsplit,
    a.start_ns, a.end_ns, a.free_ns, a.launch_ns,
    a.compute_ns, a.with_transfer_ns, a.with_unsplit_ns, a.with_comm_ns, a.with_copy_ns
FROM (FROM _accounts WHERE kind <> 'class') a
JOIN _job_numbers n ON n.number = _number_at(a.place)
UNION ALL
SELECT
    job, rank, true, 'idle_launch_bound', NULL, host_ns, device_ns, host_ns, device_ns,
    NULL, NULL, NULL, NULL, NULL
FROM _first_steps
WHERE host_ns < device_ns;

-- The same rows of idle time, made once with the job; of work there are none: `_covered` tells.
CREATE VIEW _stored_spent AS
SELECT
    job, rank, true AS idle, class, NULL::BOOLEAN AS unsplit,
    start_ns, start_ns + dur_ns AS end_ns, coalesce(free_ns, start_ns) AS free_ns, launch_ns,
    NULL AS compute_ns, NULL AS with_transfer_ns, NULL AS with_unsplit_ns, NULL AS with_comm_ns,
    NULL AS with_copy_ns
FROM _made_gaps
UNION ALL
SELECT
    job, rank, true, 'idle_launch_bound', NULL, host_ns, device_ns, host_ns, device_ns,
    NULL, NULL, NULL, NULL, NULL
FROM _first_steps
WHERE host_ns < device_ns;

-- Those of jobs that have them stored, computed of the others: the connection says which.
CREATE VIEW _spent AS FROM _computed_spent;

-- One row a rank and moment at which it, a step or a participation of it begins or ends, with how
-- long each union of `_accounts` ran before it; none of a job whose work is in `_spent`.
CREATE VIEW _stored_covered AS FROM _made_covered;
CREATE VIEW _computed_covered AS FROM _made_covered WHERE false;
CREATE VIEW _covered AS FROM _computed_covered;

-- One row a rank and key with what it did in the stretches of `_causes`, and one of its kernels there
-- by name; none of a job of which `_causes` works it out. `before` and `began` are moments, added up.
CREATE VIEW _stored_compared AS
SELECT
    job, key, rank, compute_ns::HUGEINT AS compute, wait_ns::HUGEINT AS wait,
    transfer_ns::HUGEINT AS transfer, comm_ns::HUGEINT AS comm, memcpy_ns::HUGEINT AS memcpy,
    garbage_collection_ns::HUGEINT AS garbage_collection,
    idle_data_loading_ns::HUGEINT AS idle_data_loading,
    idle_launch_bound_ns::HUGEINT AS idle_launch_bound,
    idle_waiting_for_host_ns::HUGEINT AS idle_waiting_for_host,
    idle_waiting_for_stream_ns::HUGEINT AS idle_waiting_for_stream,
    idle_unknown_ns::HUGEINT AS idle_unknown,
    before_high::HUGEINT * 4294967296 + before_low AS before,
    began_high::HUGEINT * 4294967296 + began_low AS began
FROM _made_compared;
CREATE VIEW _computed_compared AS FROM _stored_compared WHERE false;
CREATE VIEW _compared AS FROM _computed_compared;
CREATE VIEW _stored_compared_kernels AS
SELECT job, key, rank, name, ns::HUGEINT AS ns, n::HUGEINT AS n, blocks::HUGEINT AS blocks
FROM _made_compared_kernels;
CREATE VIEW _computed_compared_kernels AS FROM _stored_compared_kernels WHERE false;
CREATE VIEW _compared_kernels AS FROM _computed_compared_kernels;

-- Events whose work `_causes` adds up by kernel; none of a job of which that is stored: to begin
-- with a thousand files takes a while, whatever is asked of them.
CREATE VIEW _computed_work_events AS FROM events;
CREATE VIEW _stored_work_events AS FROM events WHERE false;
CREATE VIEW _work_events AS FROM _computed_work_events;

-- Participations that tell the stretches of `_causes`; none of a job that has those stored, of which
-- `_read_parts` are read where they are needed.
CREATE VIEW _computed_followed AS
SELECT
    job, collective_id, clock, comm, dim, op, bytes, rank, start_ns, end_ns, last_rank,
    n_comparable, greatest(0, least(ready_ns, end_ns) - start_ns) AS wait_ns
FROM _participations
WHERE timed AND decides;
CREATE VIEW _stored_followed AS FROM _computed_followed WHERE false;
CREATE VIEW _followed AS FROM _computed_followed;
CREATE VIEW _stored_read_parts AS
SELECT
    job, collective_id, clock, comm, dim, op, bytes, rank, start_ns, end_ns, last_rank,
    n_comparable, greatest(0, least(ready_ns, end_ns) - start_ns) AS wait_ns
FROM _stored_participations
WHERE timed AND decides;
CREATE VIEW _computed_read_parts AS FROM _stored_read_parts WHERE false;
CREATE VIEW _read_parts AS FROM _computed_read_parts;

-- One row a stretch in which a rank is late itself, and one a gap there, the eight longest of each
-- rank and class; none of a job of which `_causes` works them out.
CREATE VIEW _stored_late_stretches AS FROM _made_stretches;
CREATE VIEW _computed_late_stretches AS FROM _stored_late_stretches WHERE false;
CREATE VIEW _late_stretches AS FROM _computed_late_stretches;
CREATE VIEW _stored_longest_gaps AS FROM _made_longest_gaps;
CREATE VIEW _computed_longest_gaps AS FROM _stored_longest_gaps WHERE false;
CREATE VIEW _longest_gaps AS FROM _computed_longest_gaps;

-- One row an event of a rank's host that collects garbage (`garbage`) or loads data.
CREATE VIEW _computed_host_marks AS
SELECT
    e.job, e.rank, is_garbage_collection(e.kind, e.name) AS garbage,
    _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns,
    _aligned_ns(e.start_ns + e.dur_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS end_ns
FROM events e LEFT JOIN _rank_clocks k USING (job, rank)
WHERE e.dur_ns > 0 AND e.kind IN ('annotation', 'host_op', 'python')
  AND (is_garbage_collection(e.kind, e.name) OR is_data_loading(e.kind, e.name));
CREATE VIEW _stored_host_marks AS FROM _made_marks;
CREATE VIEW _host_marks AS FROM _computed_host_marks;

-- A number of a time's millisecond or so: intervals that overlap share one.
CREATE MACRO _bucket(ns) AS ns >> 20;

-- The lower median of `n` values of which those missing from the list are 0.
CREATE MACRO _padded_median(present, n) AS CASE
    WHEN (n + 1) // 2 <= n - len(present) THEN 0
    ELSE list_sort(present)[(n + 1) // 2 - (n - len(present))]
END;

-- Of a union, what lies before a moment, from what intervals that began before it add (null: there
-- are none) and the latest end of them.
CREATE MACRO _covered_ns(adds_ns, until_ns, t)
AS coalesce(adds_ns, 0) - greatest(0, coalesce(until_ns - t, 0));
