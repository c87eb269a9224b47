-- Where the time of a step went.
-- requires: accounts, clocks

-- A rank, step and class of time. Every nanosecond of a step is in exactly one class, so the
-- classes of a rank and step add up to its end less its start. While a compute kernel runs it is
-- compute; else while communication runs, transfer as soon as any of it is past ready, unsplit
-- where nothing says what part of it is wait (`waits.wait_known`), else wait; else a copy; else
-- idle. Classes that take no time have no row. Time outside every step is in rows with step null.
CREATE VIEW step_breakdown (
    -- job
    job,
    -- global rank
    rank,
    -- step; null for the time outside every step
    step,
    -- compute, compute_with_comm, exposed_wait, exposed_transfer, exposed_comm_unsplit,
    -- exposed_memcpy (copies and sets), and the classes of `idle_gaps`: idle_launch_bound,
    -- idle_waiting_for_host, idle_waiting_for_stream, idle_data_loading, idle_unknown
    class,
    -- [ns] time
    ns
) AS
SELECT job, rank, step, class, ns FROM _class_times WHERE ns > 0;
