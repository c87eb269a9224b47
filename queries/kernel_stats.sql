-- What the GPU's time was spent on, by name.

-- One row a rank and name, as in `kernel_stats`.
CREATE VIEW _computed_kernels AS
SELECT
    job, rank, name, kind, category,
    count(*) AS count,
    sum(dur_ns)::BIGINT AS total_ns,
    quantile_disc(dur_ns, 0.5) AS median_ns,
    quantile_disc(dur_ns, 0.99) AS p99_ns
FROM events
WHERE kind IN ('kernel', 'memcpy', 'memset')
GROUP BY ALL;

-- The same rows, made once with the job.
CREATE VIEW _stored_kernels AS
SELECT job, rank, name, kind, category, "count", total_ns, median_ns, p99_ns FROM _made_kernels;

-- Those of jobs that have them stored, computed of the others: the connection says which.
CREATE VIEW _kernels AS FROM _computed_kernels;

-- A rank and name of a kernel, copy or set of memory.
CREATE VIEW kernel_stats (
    -- job
    job,
    -- global rank
    rank,
    -- name in the trace
    name,
    -- kernel, memcpy or memset
    kind,
    -- gemm, attention, elementwise, comm, copy, ... (`events.category`)
    category,
    -- [events] times it ran
    count,
    -- [ns] its durations added up (kernels that overlap count each)
    total_ns,
    -- [ns] median duration (the lower of two)
    median_ns,
    -- [ns] 99th percentile of its durations (one that occurred)
    p99_ns
) AS
FROM _kernels;
