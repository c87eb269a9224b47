-- Every participation split into waiting for other ranks and moving bytes.
-- requires: clocks, sizes

-- One row a participation, on the job's clock, with what its whole collective has in common.
-- Participations without a collective_id stand alone (`lone` tells them apart). A kernel that
-- exchanges with several peers has a row for each; `decides` is true for one of them, the peer that
-- started last, and for every other row, so that sums over it count a kernel's time once. Rows that
-- nothing timed (`timed` is false; a watchdog's polls are no times) count in `n_seen` alone.
CREATE VIEW _matched_participations AS
WITH aligned AS (
    SELECT
        c.* EXCLUDE (start_ns, end_ns, clock),
        c.start_ns IS NOT NULL AND c.end_ns IS NOT NULL
            AND coalesce(c.timing <> 'watchdog', true) AS timed,
        CASE WHEN c.collective_id IS NULL
             THEN hash(c.rank, c.start_ns, c.stream, c.event_id, c.op, c.seq) END AS lone,
        k.host,
        CASE WHEN timed THEN coalesce(k.clock, 'rank ' || c.rank) END AS clock,
        k.own_clock,
        k.clock_error_ns AS rank_clock_error_ns,
        m.dim,
        m.size AS comm_size,
        CASE WHEN timed THEN
            _aligned_ns(c.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) END AS start_ns,
        CASE WHEN timed THEN _aligned_ns(
            greatest(c.end_ns, c.start_ns), k.offset_ns, k.drift_ppm, k.anchor_ns
        ) END AS end_ns
    FROM collectives c
    LEFT JOIN _rank_clocks k USING (job, rank)
    LEFT JOIN (
        SELECT job, comm, any_value(dim) AS dim, any_value(size) AS size
        FROM comms GROUP BY job, comm
    ) m USING (job, comm)
), counted AS (
    SELECT
        *,
        count(*) OVER whole AS n_seen,
        count(start_ns) OVER whole AS n_timed,
        count(start_ns) OVER same_clock AS n_comparable,
        CASE WHEN op NOT IN ('send', 'recv', 'send_recv')
                 -- one rank alone of a group of unknown size: surely not the whole of it
                 THEN coalesce(max(group_size) OVER whole, comm_size,
                               nullif(count(*) OVER whole, 1))
             WHEN peer = rank THEN 1
             WHEN op <> 'send_recv' OR peer IS NOT NULL THEN 2
             -- with whom is not known: maybe with everybody, surely not with itself alone
             ELSE coalesce(max(group_size) OVER whole, comm_size, greatest(2, count(*) OVER whole))
        END AS n_ranks,
        min(end_ns - start_ns) OVER whole AS shortest_ns,
        max(start_ns) OVER same_clock AS last_start_ns,
        max(start_ns) FILTER (rank = root) OVER same_clock AS root_start_ns,
        arg_min(rank, (-start_ns, rank)) OVER same_clock AS last_rank,
        min(own_clock) OVER same_clock IS NOT DISTINCT FROM max(own_clock) OVER same_clock
            AS one_host,
        max(rank_clock_error_ns) OVER same_clock AS largest_error_ns
    FROM aligned
    WINDOW
        whole AS (PARTITION BY job, collective_id, lone),
        same_clock AS (PARTITION BY job, collective_id, lone, clock)
), timed AS (
    SELECT
        *,
        coalesced > 1 AND peer IS NOT NULL AND event_id IS NOT NULL
            AND op IN ('send', 'recv', 'send_recv') AS shares_kernel,
        max(message_bytes(op, in_bytes, out_bytes, n_ranks))
            OVER (PARTITION BY job, collective_id, lone) AS bytes,
        CASE
            WHEN n_comparable = 1 THEN 0
            WHEN one_host AND host IS NOT NULL THEN 0
            ELSE largest_error_ns
        END AS clock_error_ns,
        CASE
            WHEN op IN ('broadcast', 'scatter') THEN
                CASE WHEN root_start_ns > start_ns THEN root_start_ns ELSE start_ns END
            WHEN op IN ('reduce', 'gather') THEN
                CASE WHEN rank = root THEN last_start_ns ELSE start_ns END
            ELSE last_start_ns
        END AS ready_ns,
        CASE
            WHEN op IN ('broadcast', 'scatter') THEN root_start_ns IS NOT NULL
            WHEN op IN ('reduce', 'gather') AND rank <> root THEN true
            WHEN op IN ('reduce', 'gather') AND root IS NULL THEN false
            ELSE coalesce(n_comparable >= n_ranks, false)
        END AS pair_known
    FROM counted
)
SELECT
    job, step, collective_id, comm, dim, op, bytes, rank, host, clock, start_ns, end_ns, ready_ns,
    root_start_ns, shortest_ns, clock_error_ns, last_rank, n_ranks, n_seen, n_timed, n_comparable,
    match, event_id, timed, last_start_ns,
    NOT coalesce(shares_kernel, false) OR row_number() OVER (
        PARTITION BY job, rank, event_id, shares_kernel, timed
        ORDER BY ready_ns DESC, n_comparable DESC, peer, collective_id
    ) = 1 AS decides,
    CASE WHEN shares_kernel
         THEN bool_and(pair_known) OVER (PARTITION BY job, rank, event_id, shares_kernel)
         ELSE pair_known END AS ready_known,
    _wait_is_known(ready_known, collective_id, n_timed, coalesce(group_size, comm_size))
        AS wait_known
FROM timed;

-- The same rows, without what only lateness needs.
CREATE VIEW _computed_participations AS
SELECT * EXCLUDE (last_start_ns) FROM _matched_participations;

-- The same rows, made once with the job.
CREATE VIEW _stored_participations AS
SELECT
    job, step, collective_id, comm, dim, op, bytes, rank, host, clock, start_ns, end_ns, ready_ns,
    root_start_ns, shortest_ns, clock_error_ns, last_rank, n_ranks::BIGINT AS n_ranks,
    n_seen::BIGINT AS n_seen, n_timed::BIGINT AS n_timed, n_comparable::BIGINT AS n_comparable,
    match, event_id, timed, decides, ready_known, wait_known
FROM _made_participations;

-- Those of jobs that have them stored, computed of the others: the connection says which.
CREATE VIEW _participations AS FROM _computed_participations;

-- A participation: one rank's part in a collective, split at the moment from which it could have
-- finished had bandwidth been infinite. Barrier-like operations (all_reduce, all_gather,
-- reduce_scatter, all_to_all, barrier, unknown, send_recv with nobody knows whom) wait for the last
-- rank to start; broadcast and scatter for the root; the root of reduce and gather for everybody,
-- the others for nobody; send, recv and send_recv for their peer. A kernel that exchanges with
-- several peers is one row: that of the peer that started last, `ready_known` only if every peer
-- was seen. wait_ns + transfer_ns = end_ns - start_ns, always. Only ranks on a comparable clock are
-- compared: without that, or where ranks left no trace, the wait is a lower bound and `ready_known`
-- is false. Where nobody could be compared (`wait_known` is false) the wait is given as 0 and all of
-- the duration as transfer, though it may be either. A participation that no source timed has no
-- row here.
CREATE VIEW waits (
    -- job
    job,
    -- step that launched it; null outside steps
    step,
    -- the same on all ranks of one collective; null where nothing matched it
    collective_id,
    -- communicator; null where nothing names it
    comm,
    -- parallel dimension of the communicator
    dim,
    -- operation
    op,
    -- [bytes] message size of the collective (see macro message_bytes; the largest over its ranks)
    bytes,
    -- global rank
    rank,
    -- [ns] start on the job's clock
    start_ns,
    -- [ns] end on the job's clock
    end_ns,
    -- [ns] part before ready: waiting for other ranks
    wait_ns,
    -- [ns] part after ready: moving bytes
    transfer_ns,
    -- [ns] duration less the shortest over the collective's ranks: a wait that needs no clocks
    wait_min_proxy_ns,
    -- true for the rank that started last (the lowest of several); null where clocks differ
    is_last,
    -- true where every rank that decides `ready` was seen, on a comparable clock
    ready_known,
    -- false where only one of its ranks was seen: nothing says what part of it is wait
    wait_known,
    -- [ns] error of the clocks that the wait rests on: 0 within a host
    clock_error_ns,
    -- how the collective was matched: exact, order or partial
    match,
    -- [ranks] members of the communicator (2 for point-to-point)
    n_ranks,
    -- [ranks] members that were seen
    n_seen,
    -- row of `events` that carries it
    event_id
) AS
SELECT
    job, step, collective_id, comm, dim, op, bytes, rank, start_ns, end_ns,
    greatest(0, least(ready_ns, end_ns) - start_ns) AS wait_ns,
    (end_ns - start_ns) - greatest(0, least(ready_ns, end_ns) - start_ns) AS transfer_ns,
    (end_ns - start_ns) - shortest_ns AS wait_min_proxy_ns,
    CASE WHEN n_comparable >= n_timed THEN rank = last_rank END AS is_last,
    ready_known, wait_known,
    clock_error_ns, match, n_ranks, n_seen, event_id
FROM _participations
WHERE decides AND timed;
