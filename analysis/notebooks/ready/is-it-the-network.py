import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", sql_output="polars")


@app.cell
def _():
    import marimo as mo
    return (mo,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # Is it the network?

    The time in a collective is wait plus transfer. Waiting ends when the last rank comes; only the
    transfer is the network's. This notebook splits the two, holds bandwidths against message sizes and
    benchmarks, and says how much a faster network could gain at the very most.
    """)
    return


@app.cell
def _():
    WAREHOUSE = None  # a folder or an address; None: $RETIME_WAREHOUSE, else ./warehouse
    JOB = None  # a job's id; None: $RETIME_JOB, else the only job that there is
    return (JOB, WAREHOUSE)


@app.cell
def _(JOB, WAREHOUSE):
    import altair as alt
    import polars as pl

    from retime.analysis.notebooks import verdicts, words
    from retime.analysis.notebooks.session import begin, drawn, say

    job = begin(WAREHOUSE, JOB)
    con = job.con
    say(f"Job `{job.id}` of {words.place(job.warehouse.url)}")
    return (alt, begin, con, drawn, job, pl, say, verdicts, words)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## How much of the communication is waiting?

    *How to read it:* `waiting` near 1 is a late rank (who-is-late), near 0 the network or the algorithm.
    `proxy_waiting` is the same without clocks. *Caveat:* `unsplit_ms` is communication of which only
    one rank was seen: it may be either.
    """)
    return


@app.cell
def _(con, mo):
    tax = mo.sql(
        f"""
        SELECT dim, op, size_class, collectives, round(wait_ns / 1e6, 3) AS wait_ms,
            round(transfer_ns / 1e6, 3) AS transfer_ms, round(tau_share, 3) AS waiting,
            round(proxy_tau_share, 3) AS proxy_waiting, round(unsplit_ns / 1e6, 3) AS unsplit_ms,
            round(clock_error_ns / 1e6, 4) AS clock_error_ms
        FROM sync_tax
        ORDER BY coalesce(wait_ns, 0) + coalesce(transfer_ns, 0) + coalesce(unsplit_ns, 0) DESC,
            dim, op, size_class
        """,
        engine=con
    )
    return (tax,)


@app.cell
def _(alt, drawn, pl, tax):
    _parts = (
        tax.with_columns(
            pl.concat_str("dim", "op", "size_class", separator=" ", ignore_nulls=True).alias("what")
        )
        .head(16)
        .unpivot(["wait_ms", "transfer_ms"], index="what", variable_name="part", value_name="ms")
        .with_columns(pl.col("part").str.strip_suffix("_ms"))
    )
    drawn(
        alt.Chart(_parts)
        .mark_bar()
        .encode(
            y=alt.Y("what:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)),
            x=alt.X("ms:Q", title="ms in collectives, all ranks, whole trace"),
            color=alt.Color(
                "part:N",
                title=None,
                scale=alt.Scale(domain=["wait", "transfer"], range=["#D55E00", "#E69F00"]),
            ),
            order=alt.Order("part:N", sort="descending"),
            tooltip=["what:N", "part:N", "ms:Q"],
        ),
        "No timed collectives: retime ingest a timeline, or NCCL Inspector's log.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## How much of it is not under compute?

    *How to read it:* only exposed time lengthens a step. `most_percent` is the exposed transfer as a
    share of the step: what a network of infinite speed could gain, and not more. *Caveat:* where waits
    are not known, all of the exposed time is the upper bound.
    """)
    return


@app.cell
def _(con, mo):
    exposed = mo.sql(
        f"""
        WITH chosen AS (
            FROM step_breakdown
            WHERE step IS NOT NULL OR NOT EXISTS (FROM step_breakdown WHERE step IS NOT NULL)
        ), by_rank AS (
            SELECT rank, sum(ns) AS ns, count(DISTINCT coalesce(step, -1)) AS windows,
                coalesce(sum(ns) FILTER (class = 'exposed_wait'), 0) AS wait_ns,
                coalesce(sum(ns) FILTER (class IN ('exposed_transfer', 'exposed_comm_unsplit')), 0)
                    AS transfer_ns,
                coalesce(sum(ns) FILTER (class = 'compute_with_comm'), 0) AS hidden_ns
            FROM chosen GROUP BY rank
        )
        SELECT rank, round(hidden_ns / windows / 1e6, 3) AS under_compute_ms,
            round(wait_ns / windows / 1e6, 3) AS exposed_wait_ms,
            round(transfer_ns / windows / 1e6, 3) AS exposed_transfer_ms,
            round(100 * transfer_ns / nullif(ns, 0), 2) AS most_percent
        FROM by_rank
        ORDER BY rank
        """,
        engine=con
    )
    return (exposed,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## How fast are the transfers?

    *How to read it:* compare `busbw` (what the job saw) with `busbw_transfer` (once everybody was
    there): the gap between them is waiting. *Caveat:* bus bandwidth is nccl-tests' figure and no NIC's
    line rate; what NICs carried is in `nic_gb`, where a source says.
    """)
    return


@app.cell
def _(con, mo):
    speeds = mo.sql(
        f"""
        SELECT dim, op, size_class, n_ranks, collectives, round(busbw_gbps, 3) AS busbw,
            round(busbw_transfer_gbps, 3) AS busbw_transfer,
            round(busbw_transfer_max_gbps, 3) AS best, round(nic_bytes / 1e9, 3) AS nic_gb
        FROM bandwidth
        ORDER BY bytes DESC NULLS LAST, dim, op, size_class, n_ranks, comm
        """,
        engine=con
    )
    return (speeds,)


@app.cell
def _(con, mo):
    points = mo.sql(
        f"""
        SELECT bytes, op, dim, round(busbw_gbps, 4) AS whole,
            round(busbw_transfer_gbps, 4) AS transfer
        FROM collective_instances
        WHERE bytes > 0 AND busbw_transfer_gbps IS NOT NULL AND match <> 'partial'
        ORDER BY bytes, op, whole, transfer
        LIMIT 3000
        """,
        engine=con
    )
    return (points,)


@app.cell
def _(alt, drawn, pl, points):
    _both = points.unpivot(
        ["whole", "transfer"], index=["bytes", "op"], variable_name="over", value_name="gbps"
    )
    drawn(
        alt.Chart(_both.filter(pl.col("gbps") > 0))
        .mark_point(filled=True, opacity=0.6)
        .encode(
            x=alt.X("bytes:Q", scale=alt.Scale(type="log"), title="message size (bytes)"),
            y=alt.Y("gbps:Q", scale=alt.Scale(type="log"), title="bus bandwidth (GB/s)"),
            color=alt.Color(
                "over:N",
                title="over the",
                scale=alt.Scale(domain=["whole", "transfer"], range=["#D55E00", "#0072B2"]),
            ),
            shape=alt.Shape("op:N", title=None),
            tooltip=["op:N", "bytes:Q", "over:N", "gbps:Q"],
        ),
        "No collective with a size, whose ranks were all seen on one clock.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## What do small and large messages cost?

    The line through transfer times (Hockney): a fixed cost, and bytes over a bandwidth. *How to read
    it:* `tau_us` is the typical wait beside it; a benchmark (`kind` = benchmark) on the same machines
    is what the fabric can do. *Caveat:* an r2 far below 1 is no line: contention, or several algorithms
    in one; `caveat` says why a fit is missing.
    """)
    return


@app.cell
def _(con, mo):
    fits = mo.sql(
        f"""
        SELECT 'job' AS kind, op, n_ranks, algorithm, round(alpha_ns / 1e3, 2) AS alpha_us,
            round(bandwidth_bytes_per_s / 1e9, 2) AS gbps, round(tau_ns / 1e3, 2) AS tau_us, n, n_sizes,
            round(r2, 3) AS r2, caveat
        FROM hockney_fit
        UNION ALL
        SELECT 'benchmark', op, n_ranks, algorithm, round(alpha_ns / 1e3, 2),
            round(bandwidth_bytes_per_s / 1e9, 2), NULL, n, n_sizes, round(r2, 3), caveat
        FROM cost_curve_fit
        ORDER BY ALL
        """,
        engine=con
    )
    return (fits,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Are some transfers much slower than others like them?

    *How to read it:* a few slow ones on one communicator point to a link or rail; slow ones everywhere
    at the same steps to contention. *Caveat:* they are compared by operation, size class and number of
    ranks only.
    """)
    return


@app.cell
def _(con, mo):
    slow_ones = mo.sql(
        f"""
        WITH alike AS (
            SELECT op, size_class(bytes) AS size_class, n_ranks, comm, step, transfer_ns,
                median(transfer_ns) OVER (PARTITION BY op, size_class(bytes), n_ranks) AS usual_ns
            FROM collective_instances
            WHERE transfer_ns > 0 AND bytes IS NOT NULL AND match <> 'partial'
        )
        SELECT comm, op, size_class, count(*) AS collectives,
            count(*) FILTER (transfer_ns > 2 * usual_ns) AS slow,
            round(sum(greatest(0, transfer_ns - usual_ns)) / 1e6, 3) AS lost_ms,
            string_agg(DISTINCT step::VARCHAR, ' ' ORDER BY step::VARCHAR)
                FILTER (transfer_ns > 2 * usual_ns) AS slow_in_steps
        FROM alike
        GROUP BY comm, op, size_class
        ORDER BY slow DESC, lost_ms DESC, comm, op, size_class
        LIMIT 20
        """,
        engine=con
    )
    return (slow_ones,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Is something else in the way?

    Compute slows down beside communication that holds SMs, and storage traffic shares the fabric.
    *How to read it:* a `compute_slowdown` of 1.3 is compute that takes 30 % longer beside this kernel
    than alone. *Caveat:* it compares kernels of the same name, which may have worked on other shapes.
    """)
    return


@app.cell
def _(con, mo):
    contention = mo.sql(
        f"""
        SELECT 'SMs: ' || name AS beside, round(overlapped_ns / 1e6, 3) AS overlapped_ms,
            round(compute_slowdown, 3) AS compute_slowdown, NULL::DOUBLE AS storage_gb
        FROM sm_budget
        WHERE overlapped_ns > 0
        UNION ALL
        SELECT 'storage, step ' || step, round(storage_ns / 1e6, 3), round(slowdown, 3),
            round(storage_bytes / 1e9, 3)
        FROM storage_interference
        WHERE storage_bytes > 0 OR stall_ns > 0
        ORDER BY overlapped_ms DESC NULLS LAST, beside
        LIMIT 15
        """,
        engine=con
    )
    return (contention,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Verdict
    """)
    return


@app.cell
def _(fits, job, slow_ones, speeds, tax, verdicts):
    verdicts.network(job, tax, speeds, fits, slow_ones)
    return


if __name__ == "__main__":
    app.run()
