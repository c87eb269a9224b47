-- What kernels do, by class, and which of them no pattern knows.
-- requires: kernel_stats

-- The class of a kernel's category: gemm, attention, elementwise, reduction, normalisation,
-- embedding, optimizer, communication, copy, other (known, but none of these: sort, moe, rng, ...);
-- `unknown` where no pattern fits the name.
CREATE MACRO kernel_class(
    -- `events.category`, in which a class has finer kinds (conv, softmax, index, ...)
    category
) AS coalesce(_class_of_category()[category], 'unknown');

-- Device work by kind and category, before anything is shared out.
CREATE VIEW _by_category AS
SELECT
    job, rank,
    CASE WHEN kind IN ('memcpy', 'memset') THEN 'copy' ELSE kernel_class(category) END AS class,
    sum(kernels)::BIGINT AS kernels,
    sum(total_ns)::BIGINT AS total_ns
FROM (
    SELECT job, rank, kind, category, "count" AS kernels, total_ns FROM _kernels
)
GROUP BY ALL;

-- A class of work on the device of a rank; copies and sets of memory are of class copy.
CREATE VIEW kernel_classes (
    -- job
    job,
    -- global rank
    rank,
    -- what it does (macro `kernel_class`); `unknown` for names that no pattern fits
    class,
    -- [events] kernels, copies and sets of memory
    kernels,
    -- [ns] their durations added up (those that overlap count each)
    total_ns,
    -- [0-1] part of the rank's durations of all classes; null where these are 0
    share
) AS
SELECT
    job, rank, class, kernels, total_ns,
    total_ns / nullif(sum(total_ns) OVER (PARTITION BY job, rank), 0) AS share
FROM _by_category;

-- A kernel's name that no pattern fits, over all ranks: its category is `unknown`, not a guess.
CREATE VIEW unknown_kernels (
    -- job
    job,
    -- name in the trace
    name,
    -- [events] times it ran
    count,
    -- [ns] its durations added up
    total_ns,
    -- [0-1] part of the durations of all kernels, copies and sets of memory of the job
    share,
    -- [ranks] that ran it
    ranks
) AS
WITH unknown AS (
    SELECT job, name, sum("count")::BIGINT AS count, sum(total_ns)::BIGINT AS total_ns,
        count(DISTINCT rank) AS ranks
    FROM _kernels
    WHERE kind = 'kernel' AND coalesce(category, 'unknown') = 'unknown'
    GROUP BY job, name
),
everything AS (
    SELECT job, sum(total_ns) AS total_ns FROM _by_category GROUP BY job
)
SELECT job, name, count, u.total_ns, u.total_ns / nullif(e.total_ns, 0) AS share, ranks
FROM unknown AS u JOIN everything AS e USING (job);
