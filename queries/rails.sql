-- How much each rail carried, and how evenly they shared it.
-- requires: rail_traffic

-- The rows of `rail_load`, made once with the job.
CREATE VIEW _stored_rail_load AS FROM _made_rail_load;

-- Those of jobs that have them stored, computed of the others: the connection says which.
CREATE VIEW _rail_load AS FROM _computed_rail_load;

-- The rows of `rail_left_out`, made once with the job, and the same.
CREATE VIEW _stored_rail_left_out AS FROM _made_rail_left_out;
CREATE VIEW _rail_left_out AS FROM _computed_rail_left_out;

-- A rail of a host (a NIC, or a rank's own rail where no NIC is known) in a window, by what one
-- kind of source says. Measured rows come from counters of NICs, or from what NCCL's proxy sent
-- (collectives alone); derived ones from operation, size, members and placement. The two are never
-- added: both are there to be held against each other, and `is_best` marks the one to use, the same
-- for all rails of a window. Rails that carried nothing are there with 0: of a measured window
-- those that its source watches, of a derived one those of all hosts. A job on one host has no
-- derived rows. What could not be derived is in `rail_left_out`.
CREATE VIEW rail_load (
    -- job
    job,
    -- step; null where the window is not one
    step,
    -- step, outside steps, tenth of the job (a job without steps), or job (no times)
    window_by,
    -- [ns] start of the window on the job's clock; null where it has none
    window_start_ns,
    -- [ns] length of the window; a transfer, or an interval of a counter, counts whole in the one
    -- in which it began
    window_ns,
    -- machine
    host,
    -- rank whose own rail this is; null where several share it or none has it
    rank,
    -- rail: as recorded, else the place of the NIC, or of the GPU, within its host
    rail,
    -- network interface; null where unknown
    nic,
    -- plane of the NIC
    plane,
    -- measured or derived
    source,
    -- bytes, or tokens where only the routing is known and nothing says how large a token is
    unit,
    -- [bytes] carried in both directions together; null where the unit is tokens
    bytes,
    -- [bytes] sent by the host over this rail; null where the direction is not known
    sent_bytes,
    -- [bytes] received by the host over this rail; null where the direction is not known
    received_bytes,
    -- [tokens] copies of tokens in both directions together; null where the unit is bytes
    tokens,
    -- [ns] time in which something moved: measured, the union of times on the wire (steps of the
    -- proxy where told, else whole operations or intervals of a counter); derived, the union of the
    -- transfers of the collectives that use the rail; null without times
    busy_ns,
    -- [collectives] collectives that this is of, where known
    collectives,
    -- the row to use, one source a window: measured where every rail that must have carried
    -- something is watched, else derived bytes, else tokens
    is_best,
    -- how it was measured or derived, and how the rail was found
    how
) AS
SELECT
    job, step, window_by, window_start_ns, window_ns, host, rank, rail, nic, plane, source, unit,
    bytes, sent_bytes, received_bytes, tokens, busy_ns, collectives, is_best, how
FROM _rail_load;

CREATE MACRO _max_over_mean(x) AS max(x) / nullif(avg(x), 0);

CREATE MACRO _cv(x) AS stddev_pop(x) / nullif(avg(x), 0);

-- In doubles: squares of bytes are beyond 64 bits.
CREATE MACRO _jain(x) AS
    power(sum(x::DOUBLE), 2) / nullif(count(x) * sum(power(x::DOUBLE, 2)), 0);

-- How evenly the rails of a window shared what there was, by what one kind of source says. Each
-- host's end of a rail counts by itself, and idle ones count. Of n loads x: max/mean; the
-- population standard deviation over the mean; and Jain's index (sum x)^2 / (n sum x^2), 1 where
-- all are equal and 1/n where one carries all.
CREATE VIEW rail_imbalance (
    -- job
    job,
    -- step; null where the window is not one
    step,
    -- step, outside steps, tenth of the job (a job without steps), or job (no times)
    window_by,
    -- [ns] start of the window on the job's clock; null where it has none
    window_start_ns,
    -- [ns] length of the window
    window_ns,
    -- measured or derived
    source,
    -- what is compared: bytes, or tokens (see rail_load)
    unit,
    -- [rails] rails compared, idle ones too
    n_rails,
    -- [rails] rails that carried nothing
    idle_rails,
    -- [bytes] bytes over all of them, both directions; null where the unit is tokens
    bytes,
    -- largest load over the mean; null where nothing was carried
    max_over_mean,
    -- coefficient of variation of the loads
    cv,
    -- Jain's index of the loads
    jain,
    -- largest busy time over the mean; null without times
    busy_max_over_mean,
    -- coefficient of variation of busy times
    busy_cv,
    -- Jain's index of busy times
    busy_jain,
    -- machine of the rail that carried most (the first by name of several)
    busiest_host,
    -- that rail
    busiest_rail,
    -- its network interface; null where unknown
    busiest_nic,
    -- the row to use of the window, as in rail_load
    is_best
) AS
WITH loads AS (
    SELECT *, coalesce(bytes, tokens) AS load FROM rail_load
), windows AS (
    SELECT
        job, step, window_by, window_start_ns, window_ns, source, unit, is_best,
        count(*) AS n_rails,
        count(*) FILTER (load = 0) AS idle_rails,
        TRY_CAST(sum(bytes) AS BIGINT) AS bytes,
        _max_over_mean(load) AS max_over_mean,
        _cv(load) AS cv,
        _jain(load) AS jain,
        _max_over_mean(busy_ns) AS busy_max_over_mean,
        _cv(busy_ns) AS busy_cv,
        _jain(busy_ns) AS busy_jain,
        arg_min({'host': host, 'rail': rail, 'nic': nic}, (-load, host, rail, nic)) AS busiest
    FROM loads
    GROUP BY job, step, window_by, window_start_ns, window_ns, source, unit, is_best
)
SELECT
    * EXCLUDE (busiest, is_best),
    CASE WHEN idle_rails < n_rails THEN busiest.host END AS busiest_host,
    CASE WHEN idle_rails < n_rails THEN busiest.rail END AS busiest_rail,
    CASE WHEN idle_rails < n_rails THEN busiest.nic END AS busiest_nic,
    is_best
FROM windows;

-- Operations between ranks whose bytes no rail of `rail_load` has, by the reason.
CREATE VIEW rail_left_out (
    -- job
    job,
    -- operation
    op,
    -- algorithm, where a source says
    algorithm,
    -- what is not known
    reason,
    -- [operations] collectives, or participations of operations that go straight to a peer
    operations,
    -- [bytes] their sizes added up, as far as known
    bytes
) AS
SELECT job, op, algorithm, reason, operations, bytes FROM _rail_left_out;
