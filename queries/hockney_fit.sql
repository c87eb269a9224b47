-- What a message costs and what a byte costs: Hockney's line through what collectives took.
-- requires: clocks, sizes, waits, collective_instances

-- Messages in a row of an operation on n ranks: how often alpha is paid. With _hockney_volume this
-- is the table of replay/models.py (a test holds the two together, but for the bytes of a tree)
-- and, beyond it, what NCCL does for the operations that have no row there: broadcast and reduce
-- pass chunks round a ring, all_to_all, gather and scatter send to one peer after another. Null
-- where there is no form.
CREATE MACRO _hockney_messages(op, algorithm, n) AS CASE
    WHEN n < 2 THEN NULL
    WHEN op = 'all_reduce' AND algorithm = 'ring' THEN 2.0 * (n - 1)
    WHEN op = 'all_reduce' AND algorithm = 'tree' THEN 2.0 * ceil(log2(n))
    WHEN op IN ('all_gather', 'reduce_scatter', 'broadcast', 'reduce') AND algorithm = 'ring'
        THEN 1.0 * (n - 1)
    WHEN op IN ('all_to_all', 'gather', 'scatter') AND algorithm = 'pairwise' THEN 1.0 * (n - 1)
    WHEN op IN ('send', 'recv', 'send_recv') AND algorithm = 'direct' THEN 1.0
END;

-- What a rank sends over its link, in sizes of the operation. Outside trees that is macro
-- busbw_factor: the bandwidth of the fit is the bus bandwidth that ever larger messages approach.
-- A recorded tree is NCCL's, which is cut into chunks that follow each other: its levels work at
-- once, so depth costs messages and no bytes. Of its two trees each takes half the data, and a rank
-- within one is a leaf of the other: it sends 3/2 and 1/2 of the size. NCCL's own cost model has
-- the same 2 (of its bandwidth a tree gives half). The textbook tree of replay/models.py sends the
-- whole vector on at each level: 2 ceil(log2 n).
CREATE MACRO _hockney_volume(op, algorithm, n) AS CASE
    WHEN _hockney_messages(op, algorithm, n) IS NULL THEN NULL
    WHEN algorithm = 'tree' THEN 2.0
    ELSE busbw_factor(op, n)
END;

-- The algorithm that an operation is taken to run where no source says.
CREATE MACRO _usual_algorithm(op) AS CASE
    WHEN op IN ('all_to_all', 'gather', 'scatter') THEN 'pairwise'
    WHEN op IN ('send', 'recv', 'send_recv') THEN 'direct'
    ELSE 'ring'
END;

-- Sums over points (size x, time t; those without a time do not count) that the line below needs.
-- Each point has the weight 1/t^2: errors count by their share of the time, so that small messages
-- fix alpha and large ones the bandwidth.
CREATE MACRO _line_sums(x, t) AS {
    'k': count(t),
    'w': sum(1.0 / (t * t)),
    'x': sum(1.0 * x / (t * t)),
    'xx': sum((1.0 * x / t) * (1.0 * x / t)),
    'y': sum(1.0 / t),
    'xy': sum(1.0 * x / t),
    'low': min(CASE WHEN t IS NOT NULL THEN x END),
    'high': max(CASE WHEN t IS NOT NULL THEN x END)
};

CREATE MACRO _determinant(s) AS nullif(s.w * s.xx - s.x * s.x, 0);

-- Least squares of t = a + b x; `left` is the weighted sum of squares that remains.
CREATE MACRO _line(s) AS {
    'a': (s.xx * s.y - s.x * s.xy) / _determinant(s),
    'b': (s.w * s.xy - s.x * s.y) / _determinant(s)
};

CREATE MACRO _left_over(s, a, b) AS greatest(0.0, s.k - a * s.y - b * s.xy);

-- Standard errors of both, and R^2, which is of the same weighted squares.
CREATE MACRO _line_errors(s, l) AS {
    'a': sqrt(_left_over(s, l.a, l.b) / nullif(s.k - 2, 0) * s.xx / _determinant(s)),
    'b': sqrt(_left_over(s, l.a, l.b) / nullif(s.k - 2, 0) * s.w / _determinant(s)),
    'r2': 1 - _left_over(s, l.a, l.b) / nullif(greatest(0.0, s.k - s.y * s.y / s.w), 0)
};

-- Why a line cannot be read as alpha and bandwidth; null where it can.
CREATE MACRO _line_caveat(s, l, e, n_ranks, messages) AS CASE
    WHEN s.k = 0 THEN 'no size whose transfer is known'
    WHEN s.k < 3 THEN 'fewer than 3 sizes'
    WHEN s.high < 4 * s.low THEN 'sizes span less than a factor of 4'
    WHEN n_ranks IS NULL THEN 'number of ranks unknown'
    WHEN messages IS NULL THEN 'no closed form of this operation under this algorithm'
    WHEN l.b <= 0 OR e.b > l.b
        THEN 'larger messages took no longer: nothing tells what a byte costs'
    WHEN l.a < -2 * e.a THEN 'time grows faster than size: no line through a cost of messages'
END;

-- Alpha and bandwidth of a line that has no caveat. An intercept below zero by less than two
-- standard errors is taken for 0, and the slope is then that of the line through the origin.
CREATE MACRO _line_read(s, l, e, p, q) AS CASE WHEN l.a >= 0 THEN {
    'alpha_ns': round(l.a / p, 3),
    'alpha_error_ns': round(e.a / p, 3),
    'bandwidth': round(1e9 * q / l.b),
    'bandwidth_error': round(1e9 * q * e.b / (l.b * l.b))
} ELSE {
    'alpha_ns': 0.0,
    'alpha_error_ns': round(e.a / p, 3),
    'bandwidth': round(1e9 * q * s.xx / s.xy),
    'bandwidth_error': round(1e9 * q * s.xx / (s.xy * s.xy) * sqrt(
        _left_over(s, 0.0, s.xy / s.xx) / (s.k - 1) * s.xx))
} END;

-- What is told of every line: of a benchmark's as of a job's.
CREATE MACRO _line_told(s, l, e, n_ranks, p, q) AS {
    'alpha_ns': CASE WHEN _line_caveat(s, l, e, n_ranks, p) IS NULL
        THEN _line_read(s, l, e, p, q).alpha_ns END,
    'alpha_error_ns': CASE WHEN _line_caveat(s, l, e, n_ranks, p) IS NULL
        THEN _line_read(s, l, e, p, q).alpha_error_ns END,
    'bandwidth_bytes_per_s': CASE WHEN _line_caveat(s, l, e, n_ranks, p) IS NULL
        THEN _line_read(s, l, e, p, q).bandwidth::BIGINT END,
    'bandwidth_error_bytes_per_s': CASE WHEN _line_caveat(s, l, e, n_ranks, p) IS NULL
        THEN _line_read(s, l, e, p, q).bandwidth_error::BIGINT END,
    'r2': CASE WHEN s.k >= 3 THEN e.r2 END,
    'fixed_ns': CASE WHEN s.k >= 3 THEN round(l.a, 3) END,
    'ns_per_byte': CASE WHEN s.k >= 3 THEN l.b END,
    'caveat': _line_caveat(s, l, e, n_ranks, p)
};

-- An operation of a communicator under one algorithm, fitted as T = p alpha + q S/B + tau: T is
-- what the median rank spends in a collective of size S (macro message_bytes), tau its wait, the
-- rest transfer. p and q follow from operation, algorithm and ranks: for a ring all-reduce 2(n-1)
-- and 2(n-1)/n, for a tree 2 ceil(log2 n) and 2. The line is fitted to transfer alone, so that
-- waits do not bend it: the median transfer at each size is one point, and the sum of squared
-- relative errors is least. Collectives count whose ranks were all seen, on comparable
-- clocks, and that share no kernel with others. Where alpha and bandwidth are null, `caveat` says
-- why; tau needs no sizes and stands also then.
CREATE VIEW hockney_fit (
    -- job
    job,
    -- communicator; null where nothing names it
    comm,
    -- parallel dimension of the communicator
    dim,
    -- operation
    op,
    -- [ranks] members of the communicator
    n_ranks,
    -- algorithm that p and q are of: ring, tree, pairwise, direct, or a recorded one without a form
    algorithm,
    -- recorded (a source says the algorithm) or assumed (none does)
    how,
    -- [ns] alpha: cost of a message
    alpha_ns,
    -- [ns] standard error of alpha
    alpha_error_ns,
    -- [bytes/s] B: bandwidth of a link, one direction
    bandwidth_bytes_per_s,
    -- [bytes/s] standard error of the bandwidth
    bandwidth_error_bytes_per_s,
    -- [ns] tau: the wait of the median rank (ready less its start), median over collectives
    tau_ns,
    -- [ns] spread of tau: upper less lower quartile over collectives
    tau_spread_ns,
    -- [collectives] collectives that the line is fitted to
    n,
    -- [sizes] points of the line: different sizes among them
    n_sizes,
    -- [bytes] smallest size among them
    min_bytes,
    -- [bytes] largest size among them
    max_bytes,
    -- share of the (weighted) variation of times that the line explains
    r2,
    -- [ns] intercept of the line, p alpha, whatever the algorithm; null below 3 sizes
    fixed_ns,
    -- [ns/byte] slope of the line, q/B, whatever the algorithm; null below 3 sizes
    ns_per_byte,
    -- why alpha and bandwidth are null; null where they are not
    caveat
) AS
WITH parts AS (
    SELECT
        i.job, i.comm, i.dim, i.op, i.n_ranks, i.collective_id, i.bytes,
        c.algo, c.coalesced, i.transfer_ns, i.n_seen,
        greatest(0, i.ready_ns - _aligned_ns(c.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns))
            AS wait_ns
    FROM collective_instances i
    JOIN collectives c USING (job, collective_id)
    LEFT JOIN _rank_clocks k USING (job, rank)
    WHERE i.first_start_ns IS NOT NULL AND i.op NOT IN ('barrier', 'unknown')
), instances AS (
    SELECT
        job, comm, dim, op, n_ranks, collective_id, bytes,
        lower(min(algo)) AS recorded,
        median(wait_ns) AS tau_ns,
        CASE WHEN bytes > 0 AND transfer_ns > 0 AND n_seen >= n_ranks
                  AND coalesce(max(coalesced), 1) <= 1
             THEN transfer_ns END AS transfer_ns
    FROM parts
    GROUP BY job, comm, dim, op, n_ranks, collective_id, bytes, transfer_ns, n_seen
), points AS (
    SELECT
        job, comm, dim, op, n_ranks, recorded, bytes,
        median(transfer_ns) AS took_ns,
        count(transfer_ns) AS n
    FROM instances
    GROUP BY ALL
), lines AS (
    SELECT
        job, comm, dim, op, n_ranks, recorded,
        coalesce(recorded, _usual_algorithm(op)) AS algorithm,
        _line_sums(bytes, took_ns) AS s,
        _line(s) AS l,
        _line_errors(s, l) AS e,
        sum(n)::BIGINT AS n
    FROM points
    GROUP BY job, comm, dim, op, n_ranks, recorded
), taus AS (
    SELECT
        job, comm, op, n_ranks, recorded,
        round(median(tau_ns))::BIGINT AS tau_ns,
        round(quantile_cont(tau_ns, 0.75) - quantile_cont(tau_ns, 0.25))::BIGINT AS tau_spread_ns
    FROM instances
    GROUP BY ALL
), judged AS (
    SELECT
        *,
        _hockney_messages(op, algorithm, n_ranks) AS p,
        _hockney_volume(op, algorithm, n_ranks) AS q,
        _line_told(s, l, e, n_ranks, p, q) AS told
    FROM lines
)
SELECT
    j.job, j.comm, j.dim, j.op, j.n_ranks, j.algorithm,
    CASE WHEN j.recorded IS NULL THEN 'assumed' ELSE 'recorded' END AS how,
    j.told.alpha_ns, j.told.alpha_error_ns,
    j.told.bandwidth_bytes_per_s, j.told.bandwidth_error_bytes_per_s,
    t.tau_ns, t.tau_spread_ns,
    j.n, j.s.k AS n_sizes, j.s.low AS min_bytes, j.s.high AS max_bytes,
    j.told.r2, j.told.fixed_ns, j.told.ns_per_byte, j.told.caveat
FROM judged j
JOIN taus t
    ON t.job = j.job AND t.comm IS NOT DISTINCT FROM j.comm AND t.op = j.op
    AND t.n_ranks IS NOT DISTINCT FROM j.n_ranks AND t.recorded IS NOT DISTINCT FROM j.recorded;

-- A benchmark's curve (table `cost_curves`: nccl-tests and the like), fitted as `hockney_fit` fits
-- a job's own collectives: what the same operation costs when nobody is late. No tau: a benchmark
-- repeats an operation without work between.
CREATE VIEW cost_curve_fit (
    -- job
    job,
    -- operation
    op,
    -- [ranks] ranks that took part; null where the run does not say: then alpha is null too
    n_ranks,
    -- [hosts] machines that took part
    n_hosts,
    -- element type
    dtype,
    -- reduction
    redop,
    -- input and output share a buffer
    in_place,
    -- algorithm that p and q are of
    algorithm,
    -- protocol, where the run says
    proto,
    -- channels, where the run says
    channels,
    -- recorded (the run says the algorithm) or assumed
    how,
    -- [ns] alpha: cost of a message
    alpha_ns,
    -- [ns] standard error of alpha
    alpha_error_ns,
    -- [bytes/s] B: bandwidth of a link, one direction
    bandwidth_bytes_per_s,
    -- [bytes/s] standard error of the bandwidth
    bandwidth_error_bytes_per_s,
    -- [rows] rows of the benchmark
    n,
    -- [sizes] points of the line: different sizes
    n_sizes,
    -- [bytes] smallest size
    min_bytes,
    -- [bytes] largest size
    max_bytes,
    -- share of the (weighted) variation of times that the line explains
    r2,
    -- [ns] intercept of the line, p alpha; null below 3 sizes
    fixed_ns,
    -- [ns/byte] slope of the line, q/B; null below 3 sizes
    ns_per_byte,
    -- library and version, where the run says
    library,
    -- model of the device, where the run says
    device_name,
    -- nccl-tests, rccl-tests, ...
    tool,
    -- why alpha and bandwidth are null; null where they are not
    caveat
) AS
WITH points AS (
    SELECT
        job, op, n_ranks, n_hosts, dtype, redop, in_place, lower(algo) AS recorded, proto, channels,
        library, device_name, tool, bytes,
        median(time_ns) AS took_ns,
        count(*) AS n
    FROM cost_curves
    WHERE bytes > 0 AND time_ns > 0
    GROUP BY ALL
), lines AS (
    SELECT
        * EXCLUDE (bytes, took_ns, n),
        coalesce(recorded, _usual_algorithm(op)) AS algorithm,
        _line_sums(bytes, took_ns) AS s,
        _line(s) AS l,
        _line_errors(s, l) AS e,
        sum(n)::BIGINT AS n
    FROM points
    GROUP BY job, op, n_ranks, n_hosts, dtype, redop, in_place, recorded, proto, channels,
             library, device_name, tool
), judged AS (
    SELECT
        *,
        _hockney_messages(op, algorithm, n_ranks) AS p,
        _hockney_volume(op, algorithm, n_ranks) AS q,
        _line_told(s, l, e, n_ranks, p, q) AS told
    FROM lines
)
SELECT
    job, op, n_ranks, n_hosts, dtype, redop, in_place, algorithm, proto, channels,
    CASE WHEN recorded IS NULL THEN 'assumed' ELSE 'recorded' END AS how,
    told.alpha_ns, told.alpha_error_ns,
    told.bandwidth_bytes_per_s, told.bandwidth_error_bytes_per_s,
    n, s.k AS n_sizes, s.low AS min_bytes, s.high AS max_bytes,
    told.r2, told.fixed_ns, told.ns_per_byte,
    library, device_name, tool, told.caveat
FROM judged;
