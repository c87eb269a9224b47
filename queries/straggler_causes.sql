-- Why a rank is late: its class of time, kernel, collective and host operation that stand out.
-- requires: clocks, waits, late_ranks, activity, accounts, straggler_evidence

-- One row a rank that holds others up (see `blamed` below), with the class of time by which it
-- exceeds the median rank most in the stretches that are looked at; the median is the lower one of
-- an even number. Times are sums over the stretches. One query in many steps: what it reads costs
-- too much to be read twice.
CREATE VIEW _causes AS
WITH parts AS MATERIALIZED (
    FROM _followed
), lateness AS MATERIALIZED (
    FROM _lateness WHERE caused_ns > 0 AND sure
), in_steps AS (
    SELECT job, rank, sum(end_ns - start_ns) AS ns, count(DISTINCT step) AS steps
    FROM _step_windows
    GROUP BY job, rank
), costs AS (
    SELECT job, last_rank AS rank, CASE WHEN NOT paired THEN comm END AS comm,
        sum(caused_ns) AS caused_ns
    FROM lateness
    GROUP BY ALL
), costliest AS (
    SELECT
        job, rank,
        sum(caused_ns) AS caused_ns,
        coalesce(sum(caused_ns) FILTER (comm IS NULL), 0) AS paired_ns,
        arg_max(comm, (caused_ns, comm)) FILTER (comm IS NOT NULL) AS comm
    FROM costs
    GROUP BY job, rank
), blamed AS MATERIALIZED (
    -- A rank holds others up if the wait that its being last caused (by more than the clock error)
    -- comes to a hundredth of its own time in steps. It is looked at on the communicator on which
    -- it cost most, and `key` is the rank; where most of what it cost was at sends and receives,
    -- in whole steps (of the trace, without steps), and `key` is -1: the same for all such ranks.
    SELECT
        b.job, b.rank,
        CASE WHEN 2 * b.paired_ns <= b.caused_ns THEN b.comm END AS comm,
        CASE WHEN 2 * b.paired_ns <= b.caused_ns THEN b.rank ELSE -1 END AS key,
        coalesce(s.steps, 0) AS steps
    FROM costliest b
    LEFT JOIN in_steps s USING (job, rank)
    LEFT JOIN ranks r USING (job, rank)
    WHERE 100 * b.caused_ns >= coalesce(s.ns, r.end_ns - r.start_ns, 0)
), followed AS (
    SELECT
        p.job, p.comm, p.collective_id, p.clock, p.rank,
        lag(p.collective_id) OVER w AS before_id,
        -- least passes over nulls
        CASE WHEN max(p.end_ns) OVER before IS NOT NULL
             THEN least(max(p.end_ns) OVER before, p.start_ns)
             WHEN f.host_ns <= p.start_ns THEN f.host_ns END AS from_ns,
        p.start_ns AS until_ns
    FROM (
        FROM parts
        SEMI JOIN blamed USING (job, comm)
        WHERE collective_id IS NOT NULL
    ) p
    LEFT JOIN _first_steps f USING (job, rank)
    WINDOW
        w AS (PARTITION BY p.job, p.comm, p.rank
              ORDER BY p.start_ns, p.end_ns, p.collective_id),
        before AS (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), compared AS (
    SELECT
        f.*, l.last_rank AS key, l.behind_median_ns AS late_ns,
        count(*) OVER same AS n,
        count(f.from_ns) OVER same AS n_known,
        count(f.before_id) OVER same AS n_before,
        min(f.before_id) OVER same AS lowest_id,
        max(f.before_id) OVER same AS highest_id
    FROM followed f
    JOIN lateness l USING (job, collective_id, clock)
    JOIN blamed b ON b.job = f.job AND b.rank = l.last_rank AND b.comm = f.comm
    WINDOW same AS (PARTITION BY f.job, f.collective_id, f.clock)
), windows AS (
    SELECT job, rank, start_ns, end_ns FROM _step_windows
    UNION ALL
    SELECT
        r.job, r.rank,
        _aligned_ns(r.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns),
        _aligned_ns(r.end_ns, k.offset_ns, k.drift_ppm, k.anchor_ns)
    FROM ranks r JOIN _rank_clocks k USING (job, rank)
    WHERE r.start_ns IS NOT NULL AND r.end_ns IS NOT NULL
      AND r.job NOT IN (SELECT job FROM steps)
), told AS MATERIALIZED (
    SELECT DISTINCT job FROM _late_stretches
), stretches AS MATERIALIZED (
    -- A stretch of a rank for a key: before a collective at which rank `key` was last, from the
    -- moment when the rank left its participation before that on the same communicator (or its
    -- first step began: `first`) to its start. Only collectives that all of the compared ranks
    -- came to from the same one count. The stretches of a key on a rank never overlap.
    SELECT job, key, rank, from_ns, until_ns, late_ns, n_before = 0 AS first
    FROM compared
    WHERE n_known = n AND n_before IN (0, n) AND lowest_id IS NOT DISTINCT FROM highest_id
    UNION ALL
    SELECT w.job, -1, w.rank, w.start_ns, w.end_ns, NULL, false
    FROM windows w
    SEMI JOIN (FROM blamed WHERE key = -1) b USING (job)
    ANTI JOIN told USING (job)
    UNION ALL
    -- Of others than the rank that is late only what `_compared` has is asked for then.
    SELECT job, key, rank, from_ns, until_ns, late_ns, false FROM _late_stretches
), stored AS MATERIALIZED (
    -- What ranks do in their stretches was worked out when these jobs were derived.
    SELECT DISTINCT job FROM _compared
), unknown AS MATERIALIZED (
    FROM stretches ANTI JOIN stored USING (job)
), moments AS MATERIALIZED (
    -- And one before all: what begins before the first may run beyond it.
    SELECT DISTINCT job, rank, unnest([from_ns, until_ns, -9223372036854775808]) AS t
    FROM unknown
), watched AS MATERIALIZED (
    -- Nothing of other ranks is looked at: in a large job most are on no such communicator.
    SELECT DISTINCT job, rank FROM unknown
    UNION
    SELECT job, rank FROM blamed SEMI JOIN stored USING (job) ANTI JOIN told USING (job)
), on_device AS MATERIALIZED (
    FROM _device_ranks SEMI JOIN watched USING (job, rank)
), spent AS MATERIALIZED (
    FROM _spent SEMI JOIN watched USING (job, rank)
), mark_points AS (
    SELECT
        job, rank,
        unnest([start_ns, end_ns]) AS t,
        unnest([CASE WHEN garbage THEN end_ns END, NULL]) AS garbage_until_ns,
        unnest([end_ns, NULL]) AS until_ns
    FROM _host_marks SEMI JOIN watched USING (job, rank)
), mark_pieces AS (
    SELECT
        job, rank, t AS start_ns,
        lead(t) OVER w AS end_ns,
        max(garbage_until_ns) OVER w AS garbage_until_ns,
        max(until_ns) OVER w AS until_ns
    FROM mark_points
    WINDOW w AS (PARTITION BY job, rank ORDER BY t ROWS UNBOUNDED PRECEDING)
), marks AS (
    -- One row a stretch of a rank's time in which its host collects garbage or, else, loads data;
    -- they never overlap.
    SELECT
        job, rank, start_ns, end_ns,
        CASE WHEN garbage_until_ns > start_ns THEN 'garbage_collection'
             ELSE 'idle_data_loading' END AS class
    FROM mark_pieces
    WHERE end_ns > start_ns AND until_ns > start_ns
), marked AS MATERIALIZED (
    -- While the host collects garbage or loads data, idle time other than waiting for a stream is
    -- that, and so is what a rank without a GPU computes.
    SELECT
        s.job, s.rank, s.idle, s.class AS before_class, m.class,
        greatest(s.start_ns, m.start_ns) AS from_ns, least(s.end_ns, m.end_ns) AS until_ns,
        s.start_ns, s.end_ns, s.free_ns, s.launch_ns
    FROM (
        SELECT *, unnest(range(_bucket(start_ns), _bucket(end_ns - 1) + 1)) AS bucket
        FROM (
            SELECT job, rank, idle, class, start_ns, end_ns, free_ns, launch_ns
            FROM spent
            WHERE idle AND class <> 'idle_waiting_for_stream'
            UNION ALL
            -- What of it is new: these never overlap.
            SELECT s.job, s.rank, false, s.class, s.end_ns - s.compute_ns, s.end_ns, NULL, NULL
            FROM (FROM spent WHERE NOT idle AND compute_ns > 0) s
            ANTI JOIN on_device d USING (job, rank)
        )
    ) s
    JOIN (
        SELECT *, unnest(range(_bucket(start_ns), _bucket(end_ns - 1) + 1)) AS bucket
        FROM marks
    ) m USING (job, rank, bucket)
    WHERE s.start_ns < m.end_ns AND m.start_ns < s.end_ns
      AND bucket = _bucket(greatest(s.start_ns, m.start_ns))
), moved AS (
    SELECT DISTINCT job, rank, _bucket(t) AS bucket FROM moments
), worked AS (
    -- Of work what it adds to unions, and until when it runs. First by the millisecond, but for
    -- those in which a moment lies: few rows are left to place.
    SELECT
        p.job, p.rank,
        CASE WHEN b.rank IS NULL THEN _bucket(p.start_ns) * 1048576 ELSE p.start_ns END AS at_ns,
        sum(compute_ns) AS compute_ns, sum(with_transfer_ns) AS with_transfer_ns,
        sum(with_unsplit_ns) AS with_unsplit_ns, sum(with_comm_ns) AS with_comm_ns,
        sum(with_copy_ns) AS with_copy_ns,
        max(CASE WHEN class = 'compute' THEN end_ns END) AS compute_until,
        max(CASE WHEN _of_transfer(class) THEN end_ns END) AS transfer_until,
        max(CASE WHEN _of_unsplit(class, unsplit) THEN end_ns END) AS unsplit_until,
        max(CASE WHEN _of_comm(class) THEN end_ns END) AS comm_until,
        max(CASE WHEN _of_work(class) THEN end_ns END) AS copy_until
    FROM (FROM spent WHERE NOT idle) p
    LEFT JOIN moved b
        ON b.job = p.job AND b.rank = p.rank AND b.bucket = _bucket(p.start_ns)
    GROUP BY ALL
), work_slots AS (
    -- Between two moments.
    SELECT
        m.job, m.rank, m.t,
        sum(compute_ns) AS compute_ns, sum(with_transfer_ns) AS with_transfer_ns,
        sum(with_unsplit_ns) AS with_unsplit_ns, sum(with_comm_ns) AS with_comm_ns,
        sum(with_copy_ns) AS with_copy_ns,
        max(compute_until) AS compute_until, max(transfer_until) AS transfer_until,
        max(unsplit_until) AS unsplit_until, max(comm_until) AS comm_until,
        max(copy_until) AS copy_until
    FROM worked p
    ASOF JOIN moments m ON p.job = m.job AND p.rank = m.rank AND p.at_ns >= m.t
    GROUP BY m.job, m.rank, m.t
), unions AS (
    -- Of a union up to a moment: all that what has begun adds, less what of it lies beyond; or what
    -- was stored of it.
    SELECT
        m.job, m.rank, m.t,
        _covered_ns(sum(compute_ns) OVER w, max(compute_until) OVER w, m.t) AS compute,
        _covered_ns(sum(with_transfer_ns) OVER w, max(transfer_until) OVER w, m.t) AS with_transfer,
        _covered_ns(sum(with_unsplit_ns) OVER w, max(unsplit_until) OVER w, m.t) AS with_unsplit,
        _covered_ns(sum(with_comm_ns) OVER w, max(comm_until) OVER w, m.t) AS with_comm,
        _covered_ns(sum(with_copy_ns) OVER w, max(copy_until) OVER w, m.t) AS with_copy
    FROM moments m
    LEFT JOIN work_slots s USING (job, rank, t)
    WHERE m.job NOT IN (SELECT DISTINCT job FROM _covered)
    WINDOW w AS (
        PARTITION BY m.job, m.rank ORDER BY m.t
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
    UNION ALL
    SELECT
        job, rank, at_ns, compute_ns, with_transfer_ns, with_unsplit_ns, with_comm_ns, with_copy_ns
    FROM _covered SEMI JOIN (SELECT DISTINCT job, rank FROM unknown) USING (job, rank)
), idled AS (
    -- What never overlaps counts where it begins: gaps begin and end where participations do.
    SELECT
        p.job, p.rank,
        CASE WHEN b.rank IS NULL THEN _bucket(p.at_ns) * 1048576 ELSE p.at_ns END AS at_ns,
        p.class, sum(p.ns) AS ns
    FROM (
        SELECT job, rank, start_ns AS at_ns, class, end_ns - start_ns AS ns FROM spent WHERE idle
        UNION ALL
        SELECT
            job, rank, from_ns, unnest([class, before_class]),
            unnest([until_ns - from_ns, from_ns - until_ns])
        FROM marked
    ) p
    LEFT JOIN moved b ON b.job = p.job AND b.rank = p.rank AND b.bucket = _bucket(p.at_ns)
    GROUP BY ALL
), idle_slots AS (
    SELECT
        m.job, m.rank, m.t,
        sum(ns) FILTER (class = 'compute') AS compute_marked,
        sum(ns) FILTER (class = 'garbage_collection') AS garbage_collection,
        sum(ns) FILTER (class = 'idle_data_loading') AS idle_data_loading,
        sum(ns) FILTER (class = 'idle_launch_bound') AS idle_launch_bound,
        sum(ns) FILTER (class = 'idle_waiting_for_host') AS idle_waiting_for_host,
        sum(ns) FILTER (class = 'idle_waiting_for_stream') AS idle_waiting_for_stream,
        sum(ns) FILTER (class = 'idle_unknown') AS idle_unknown
    FROM idled p
    ASOF JOIN moments m ON p.job = m.job AND p.rank = m.rank AND p.at_ns >= m.t
    GROUP BY m.job, m.rank, m.t
), idle_so_far AS (
    SELECT
        m.job, m.rank, m.t,
        sum(compute_marked) OVER w AS compute_marked,
        sum(garbage_collection) OVER w AS garbage_collection,
        sum(idle_data_loading) OVER w AS idle_data_loading,
        sum(idle_launch_bound) OVER w AS idle_launch_bound,
        sum(idle_waiting_for_host) OVER w AS idle_waiting_for_host,
        sum(idle_waiting_for_stream) OVER w AS idle_waiting_for_stream,
        sum(idle_unknown) OVER w AS idle_unknown
    FROM moments m
    LEFT JOIN idle_slots s USING (job, rank, t)
    WINDOW w AS (
        PARTITION BY m.job, m.rank ORDER BY m.t
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
), so_far AS (
    SELECT
        i.* EXCLUDE (compute_marked),
        u.compute + coalesce(i.compute_marked, 0) AS compute,
        u.with_transfer - u.compute AS transfer,
        u.with_unsplit - u.with_transfer AS comm,
        u.with_comm - u.with_unsplit AS wait,
        u.with_copy - u.with_comm AS memcpy
    FROM idle_so_far i LEFT JOIN unions u USING (job, rank, t)
), ends AS (
    -- Signed, so that one sum over both ends of each stretch is the difference of the two.
    SELECT job, key, rank, from_ns AS t, -1 AS sign, first FROM unknown
    UNION ALL
    SELECT job, key, rank, until_ns, 1, first FROM unknown
), wide AS (
    SELECT
        e.job, e.key, e.rank,
        coalesce(sum(sign * compute), 0) AS compute,
        coalesce(sum(sign * wait), 0) AS wait,
        coalesce(sum(sign * transfer), 0) AS transfer,
        coalesce(sum(sign * comm), 0) AS comm,
        coalesce(sum(sign * memcpy), 0) AS memcpy,
        coalesce(sum(sign * garbage_collection), 0) AS garbage_collection,
        coalesce(sum(sign * idle_data_loading), 0) AS idle_data_loading,
        coalesce(sum(sign * idle_launch_bound), 0) AS idle_launch_bound,
        coalesce(sum(sign * idle_waiting_for_host), 0) AS idle_waiting_for_host,
        coalesce(sum(sign * idle_waiting_for_stream), 0) AS idle_waiting_for_stream,
        coalesce(sum(sign * idle_unknown), 0) AS idle_unknown,
        -- Moments, only to be compared: left the participation before, began the first step.
        coalesce(sum(t) FILTER (sign < 0 AND NOT first AND e.key >= 0), 0) AS before,
        coalesce(sum(t) FILTER (sign < 0 AND first AND e.key >= 0), 0) AS began
    FROM ends e LEFT JOIN so_far s USING (job, rank, t)
    GROUP BY e.job, e.key, e.rank
    UNION ALL BY NAME
    FROM _compared
), sums AS MATERIALIZED (
    SELECT job, key, rank, class, ns::HUGEINT AS ns
    FROM wide UNPIVOT (ns FOR class IN (
        compute, wait, transfer, comm, memcpy, garbage_collection, idle_data_loading,
        idle_launch_bound, idle_waiting_for_host, idle_waiting_for_stream, idle_unknown,
        before, began
    ))
), medians AS (
    SELECT job, key, class, quantile_disc(ns, 0.5) AS median_ns, count(*) AS ranks
    FROM sums
    GROUP BY job, key, class
), needed AS (
    -- What an excess must come to: a quarter of how far the rank was behind the median start,
    -- added up, or a hundredth of its steps.
    SELECT
        job, key, rank,
        CASE WHEN key < 0 THEN sum(until_ns - from_ns) / 100 ELSE sum(late_ns) / 4 END AS least_ns,
        sum(late_ns) AS late_ns,
        count(*) AS stretches
    FROM stretches
    GROUP BY job, key, rank
), excess AS MATERIALIZED (
    SELECT
        b.job, b.rank, b.key, b.comm AS late_on, b.steps,
        n.late_ns, n.least_ns, n.stretches, m.ranks, s.class, s.ns AS own_ns, m.median_ns,
        s.ns - m.median_ns AS excess_ns,
        coalesce(s.ns - m.median_ns >= n.least_ns AND s.ns > m.median_ns, false) AS explains
    FROM blamed b
    LEFT JOIN sums s ON s.job = b.job AND s.key = b.key AND s.rank = b.rank
    LEFT JOIN medians m ON m.job = b.job AND m.key = b.key AND m.class = s.class
    LEFT JOIN needed n ON n.job = b.job AND n.key = b.key AND n.rank = b.rank
    QUALIFY row_number() OVER (
        PARTITION BY b.job, b.rank ORDER BY s.ns - m.median_ns DESC, s.class
    ) = 1
), computing AS MATERIALIZED (
    FROM excess WHERE class = 'compute' AND explains
), working AS MATERIALIZED (
    SELECT DISTINCT job, rank, key FROM unknown SEMI JOIN computing USING (job, key)
), members AS (
    -- Which slots of a rank lie in the stretches of which key. One without length may begin where
    -- the next does.
    SELECT c.job, c.key, c.rank, c.t
    FROM (SELECT k.key, m.* FROM moments m JOIN working k USING (job, rank)) c
    ASOF JOIN (FROM unknown WHERE from_ns < until_ns) s
        ON s.job = c.job AND s.key = c.key AND s.rank = c.rank AND c.t >= s.from_ns
    WHERE c.t < s.until_ns
), work AS (
    SELECT
        e.job, e.rank, e.name, e.grid_blocks AS blocks, e.dur_ns,
        _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns
    FROM (
        FROM _work_events
        SEMI JOIN (FROM working SEMI JOIN on_device USING (job, rank)) USING (job, rank)
        WHERE kind = 'kernel'
        UNION ALL
        FROM _work_events
        SEMI JOIN (FROM working ANTI JOIN on_device USING (job, rank)) USING (job, rank)
        WHERE kind = 'host_op'
    ) e
    LEFT JOIN _rank_clocks k USING (job, rank)
    WHERE coalesce(e.category, '') <> 'comm' AND e.dur_ns >= 0
), by_slot AS (
    SELECT
        m.job, m.rank, m.t, w.name,
        sum(w.dur_ns) AS ns, count(*) AS n, sum(w.blocks) AS blocks, count(w.blocks) AS n_blocks
    FROM work w
    ASOF JOIN moments m ON w.job = m.job AND w.rank = m.rank AND w.start_ns >= m.t
    GROUP BY m.job, m.rank, m.t, w.name
), by_kernel AS MATERIALIZED (
    SELECT
        m.job, m.key, m.rank, b.name,
        sum(b.ns) AS ns, sum(b.n) AS n,
        CASE WHEN sum(b.n) = sum(b.n_blocks) THEN sum(b.blocks) END AS blocks
    FROM members m JOIN by_slot b USING (job, rank, t)
    GROUP BY m.job, m.key, m.rank, b.name
    UNION ALL BY NAME
    FROM _compared_kernels SEMI JOIN computing USING (job, key)
), launches AS (
    SELECT job, key, rank, sum(n) AS n FROM by_kernel GROUP BY job, key, rank
), median_launches AS (
    SELECT job, key, quantile_disc(n, 0.5) AS n FROM launches GROUP BY job, key
), median_kernels AS (
    -- Ranks that never ran a kernel count as 0.
    SELECT
        b.job, b.key, b.name,
        _padded_median(list(b.ns), any_value(l.ranks)) AS ns,
        _padded_median(list(b.n), any_value(l.ranks)) AS n,
        CASE WHEN count(b.blocks) = count(*)
             THEN _padded_median(list(b.blocks), any_value(l.ranks)) END AS blocks
    FROM by_kernel b JOIN (SELECT DISTINCT job, key, ranks FROM computing) l USING (job, key)
    GROUP BY b.job, b.key, b.name
), kernels AS (
    SELECT
        l.job, l.rank, o.name AS kernel,
        o.ns AS kernel_ns, m.ns AS kernel_median_ns, o.n AS kernel_n, m.n AS kernel_median_n,
        -- Thread blocks tell a larger launch from a slower one, where all ranks' are known.
        CASE WHEN o.blocks IS NULL OR m.blocks IS NULL THEN o.n ELSE o.blocks END AS units,
        CASE WHEN o.blocks IS NULL OR m.blocks IS NULL THEN m.n ELSE m.blocks END AS median_units,
        a.n AS launches, t.n AS median_launches
    FROM computing l
    JOIN by_kernel o ON o.job = l.job AND o.key = l.key AND o.rank = l.rank
    JOIN median_kernels m ON m.job = l.job AND m.key = l.key AND m.name = o.name
    JOIN launches a ON a.job = l.job AND a.key = l.key AND a.rank = l.rank
    JOIN median_launches t ON t.job = l.job AND t.key = l.key
    QUALIFY row_number() OVER (PARTITION BY l.job, l.rank ORDER BY o.ns - m.ns DESC, o.name) = 1
), communicating AS MATERIALIZED (
    FROM excess WHERE class IN ('wait', 'comm', 'transfer') AND explains
), placed AS MATERIALIZED (
    -- Places are sorted by much sooner than names of jobs.
    SELECT l.*, _place(n.number, l.rank) AS place
    FROM communicating l JOIN _job_numbers n USING (job)
), inside AS MATERIALIZED (
    -- Participations of such a rank that begin in its stretches.
    SELECT p.* EXCLUDE (place)
    FROM (
        SELECT a.*, l.class, l.place
        FROM (FROM parts UNION ALL FROM _read_parts) a JOIN placed l USING (job, rank)
        WHERE l.late_on IS NULL OR a.comm IS DISTINCT FROM l.late_on
    ) p
    ASOF JOIN (
        SELECT l.place, s.from_ns, s.until_ns
        FROM stretches s JOIN placed l USING (job, key, rank)
        WHERE s.from_ns < s.until_ns
    ) o ON o.place = p.place AND p.start_ns >= o.from_ns
    WHERE p.start_ns < o.until_ns
), alike AS MATERIALIZED (
    SELECT
        job, rank, comm, dim, op, bytes,
        sum(end_ns - start_ns - wait_ns) AS transfer_ns, count(*) AS n
    FROM inside
    WHERE class = 'transfer'
    GROUP BY ALL
), typical AS (
    SELECT
        p.job, p.dim, p.op, p.bytes, p.comm,
        avg(p.end_ns - p.start_ns - p.wait_ns) AS transfer_ns
    FROM (FROM parts UNION ALL FROM _read_parts) p
    SEMI JOIN alike a
        ON a.job = p.job AND a.op = p.op
        AND a.dim IS NOT DISTINCT FROM p.dim AND a.bytes IS NOT DISTINCT FROM p.bytes
    WHERE p.comm IS NOT NULL AND p.n_comparable > 1
    GROUP BY ALL
), elsewhere AS (
    -- What the median of the other communicators takes: the same for all ranks of one.
    SELECT a.job, a.comm, a.dim, a.op, a.bytes, median(t.transfer_ns) AS transfer_ns
    FROM (SELECT DISTINCT job, comm, dim, op, bytes FROM alike) a
    JOIN typical t
        ON t.job = a.job AND t.op = a.op AND t.comm <> a.comm
        AND t.dim IS NOT DISTINCT FROM a.dim AND t.bytes IS NOT DISTINCT FROM a.bytes
    GROUP BY ALL
), beyond AS (
    SELECT a.job, a.rank, a.comm, sum(a.transfer_ns - a.n * t.transfer_ns) AS beyond_ns
    FROM alike a JOIN elsewhere t
        ON t.job = a.job AND t.op = a.op AND t.comm = a.comm
        AND t.dim IS NOT DISTINCT FROM a.dim AND t.bytes IS NOT DISTINCT FROM a.bytes
    GROUP BY ALL
), by_comm AS (
    SELECT
        job, rank, class, comm,
        sum(wait_ns) AS wait_ns, sum(end_ns - start_ns - wait_ns) AS transfer_ns
    FROM inside
    GROUP BY ALL
), comms_there AS (
    FROM by_comm LEFT JOIN beyond USING (job, rank, comm)
    QUALIFY row_number() OVER (
        PARTITION BY job, rank
        ORDER BY
            CASE class WHEN 'transfer' THEN coalesce(beyond_ns, 0)
                       WHEN 'wait' THEN wait_ns ELSE wait_ns + transfer_ns END DESC,
            transfer_ns DESC, comm
    ) = 1
), last_there AS (
    SELECT job, rank, comm, last_rank AS peer
    FROM inside
    WHERE last_rank <> rank AND n_comparable > 1
    GROUP BY job, rank, comm, last_rank
    QUALIFY row_number() OVER (
        PARTITION BY job, rank, comm ORDER BY sum(wait_ns) DESC, last_rank
    ) = 1
), idling AS MATERIALIZED (
    FROM excess WHERE (class LIKE 'idle%' OR class = 'garbage_collection') AND explains
), gaps AS MATERIALIZED (
    -- The eight longest gaps of a rank whose excess is time without work.
    SELECT
        l.job, l.rank, s.start_ns AS gap_ns,
        CASE WHEN s.launch_ns > s.free_ns THEN s.free_ns ELSE s.start_ns END AS start_ns,
        CASE WHEN s.launch_ns > s.free_ns THEN s.launch_ns ELSE s.end_ns END AS end_ns
    FROM idling l
    JOIN (
        SELECT job, rank, class, start_ns, end_ns, end_ns - start_ns AS ns, free_ns, launch_ns
        FROM spent WHERE idle
        UNION ALL
        SELECT
            job, rank, class, start_ns, end_ns, until_ns - from_ns AS ns, free_ns, launch_ns
        FROM marked
    ) s ON s.job = l.job AND s.rank = l.rank AND s.class = l.class
    ASOF JOIN (FROM stretches WHERE from_ns < until_ns) o
        ON o.job = s.job AND o.key = l.key AND o.rank = s.rank AND s.start_ns >= o.from_ns
    WHERE s.start_ns < o.until_ns
    QUALIFY row_number() OVER (
        PARTITION BY l.job, l.rank ORDER BY s.ns DESC, s.start_ns
    ) <= 8
    UNION ALL
    SELECT job, rank, g.gap_ns, g.start_ns, g.end_ns
    FROM idling JOIN _longest_gaps g USING (job, rank, class)
), host AS (
    SELECT
        e.job, e.rank, e.name, e.event_id,
        _aligned_ns(e.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns,
        _aligned_ns(e.start_ns + e.dur_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS end_ns
    FROM events e
    LEFT JOIN _rank_clocks k USING (job, rank)
    SEMI JOIN gaps g ON g.job = e.job AND g.rank = e.rank
    WHERE e.kind IN ('host_op', 'python', 'annotation', 'runtime') AND e.dur_ns > 0
      AND NOT starts_with(e.name, 'ProfilerStep')
), under_way AS (
    -- Of the events that cover at least half of a gap the shortest tells most.
    SELECT
        g.job, g.rank, h.name,
        least(h.end_ns, g.end_ns) - greatest(h.start_ns, g.start_ns) AS ns
    FROM gaps g JOIN host h
        ON h.job = g.job AND h.rank = g.rank
        AND h.start_ns < g.end_ns AND h.end_ns > g.start_ns
    WHERE 2 * (least(h.end_ns, g.end_ns) - greatest(h.start_ns, g.start_ns))
        >= g.end_ns - g.start_ns
    QUALIFY row_number() OVER (
        PARTITION BY g.job, g.rank, g.gap_ns ORDER BY h.end_ns - h.start_ns, h.event_id
    ) = 1
), host_ops AS (
    SELECT job, rank, name AS host_op, sum(ns) AS host_ns
    FROM under_way
    GROUP BY job, rank, name
    QUALIFY row_number() OVER (PARTITION BY job, rank ORDER BY sum(ns) DESC, name) = 1
), longest AS (
    SELECT job, rank, sum(end_ns - start_ns) AS gaps_ns FROM gaps GROUP BY job, rank
)
SELECT
    x.*,
    k.* EXCLUDE (job, rank),
    c.comm, c.beyond_ns, t.peer, h.host_op, h.host_ns, g.gaps_ns
FROM excess x
LEFT JOIN kernels k USING (job, rank)
LEFT JOIN comms_there c USING (job, rank)
LEFT JOIN last_there t
    ON t.job = c.job AND t.rank = c.rank AND t.comm IS NOT DISTINCT FROM c.comm
LEFT JOIN host_ops h USING (job, rank)
LEFT JOIN longest g USING (job, rank);
