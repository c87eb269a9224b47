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
    # Who is late, and why?

    A collective cannot end before its last rank has come, so one late rank costs all others. This
    notebook finds the rank that they wait for, looks at what it does meanwhile, and says how sure that is.
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
    from retime.analysis.notebooks.session import CLASSES, GREY, begin, drawn, say

    job = begin(WAREHOUSE, JOB)
    con = job.con
    say(f"Job `{job.id}` of {words.place(job.warehouse.url)}")
    return (CLASSES, GREY, alt, begin, con, drawn, job, pl, say, verdicts, words)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Who comes last?

    *How to read it:* being last often is no harm, being last by much is: go by `wait_caused_ms`, the
    wait of the others, added up, that would have gone had this rank come with the last but one.
    *Caveat:* `within_error` counts the times when it was last by less than the clock error: nobody can
    tell whether it was.
    """)
    return


@app.cell
def _(con, mo):
    latest = mo.sql(
        f"""
        SELECT rank, host, times_last, collectives, round(wait_caused_ns / 1e6, 3) AS wait_caused_ms,
            round(100 * wait_caused_ns / nullif((SELECT sum(wait_ns) FROM waits), 0), 1) AS percent_of_wait,
            round(wait_ns / 1e6, 3) AS own_wait_ms, times_within_error AS within_error
        FROM late_ranks
        ORDER BY wait_caused_ms DESC NULLS LAST, times_last DESC, rank
        """,
        engine=con
    )
    return (latest,)


@app.cell
def _(alt, drawn, latest, pl):
    drawn(
        alt.Chart(latest.filter(pl.col("times_last") > 0).head(32))
        .mark_bar(color="#D55E00")
        .encode(
            y=alt.Y("rank:O", sort=None, title="rank"),
            x=alt.X("wait_caused_ms:Q", title="ms of others' wait that it caused, whole trace"),
            tooltip=["rank:O", "host:N", "times_last:Q", "wait_caused_ms:Q", "percent_of_wait:Q"],
        ),
        "Nobody can be compared: no collective was seen on two ranks with comparable clocks.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Is it getting worse?

    How far each rank comes behind the median rank, by step. *How to read it:* a slope well above its
    error is a rank that drifts later (heat, a leak, growing batches); one that is late from the start
    is slow or has more to do. *Caveat:* with few steps the slope's error is as large as the slope.
    """)
    return


@app.cell
def _(con, mo):
    trend = mo.sql(
        f"""
        SELECT rank, step, round(lateness_ns / 1e6, 4) AS lateness_ms,
            round(slope_ns_per_step / 1e6, 4) AS slope_ms_per_step,
            round(slope_error_ns_per_step / 1e6, 4) AS slope_error_ms
        FROM lateness_trend
        WHERE step IS NOT NULL
        ORDER BY rank, step
        """,
        engine=con
    )
    return (trend,)


@app.cell
def _(alt, drawn, pl, trend):
    _worst = (
        trend.group_by("rank")
        .agg(pl.col("lateness_ms").abs().max())
        .sort("lateness_ms", "rank", descending=[True, False], nulls_last=True)["rank"]
        .head(6)
    )
    drawn(
        alt.Chart(trend.filter(pl.col("rank").is_in(_worst.to_list())))
        .mark_line(point=True)
        .encode(
            x=alt.X("step:O", title="step"),
            y=alt.Y("lateness_ms:Q", title="ms behind the median rank"),
            color=alt.Color("rank:N", title="rank"),
            strokeDash=alt.StrokeDash("rank:N", title="rank"),
            tooltip=["rank:N", "step:O", "lateness_ms:Q", "slope_ms_per_step:Q", "slope_error_ms:Q"],
        ),
        "No steps in which arrivals could be compared.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Where do the others wait?

    *How to read it:* waits at collectives of one dimension point to that dimension's neighbours; waits
    at sends and receives are mostly a pipeline's schedule, and no fault. *Caveat:* `unsplit_ms` is
    communication of which only one rank was seen: it may be either.
    """)
    return


@app.cell
def _(con, mo):
    places = mo.sql(
        f"""
        SELECT dim, op, count(*) AS participations,
            round(sum(wait_ns) FILTER (wait_known) / 1e6, 3) AS wait_ms,
            round(sum(transfer_ns) FILTER (wait_known) / 1e6, 3) AS transfer_ms,
            round(coalesce(sum(transfer_ns) FILTER (NOT wait_known), 0) / 1e6, 3) AS unsplit_ms
        FROM waits
        GROUP BY dim, op
        ORDER BY wait_ms DESC NULLS LAST, dim, op
        """,
        engine=con
    )
    return (places,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## The worst collectives

    *How to read it:* look these up in the timeline (`retime export`): what does `last_rank` do before?
    *Caveat:* a `partial` match has not seen every member, and an unseen one may have been later still.
    """)
    return


@app.cell
def _(con, mo):
    worst = mo.sql(
        f"""
        SELECT step, op, dim, n_ranks, n_seen, match, last_rank, round(skew_ns / 1e6, 3) AS skew_ms,
            round(wait_ns / 1e6, 3) AS wait_ms, round(clock_error_ns / 1e6, 4) AS clock_error_ms
        FROM collective_instances
        WHERE wait_ns > 0
        ORDER BY wait_ns DESC, collective_id
        LIMIT 12
        """,
        engine=con
    )
    return (worst,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## What is it doing when it should come?

    `stragglers` looks at the time before the collectives that a rank was last in, beside the same
    stretches of the other ranks. *How to read it:* `detail` is the cause in words, `explained` the part
    of its lateness that it covers. *Caveat:* a cause is named only where it explains a quarter or more;
    otherwise it is `unknown`.
    """)
    return


@app.cell
def _(con, mo):
    causes = mo.sql(
        f"""
        SELECT rank, cause, round(cause_ns / 1e6, 3) AS cause_ms, round(late_ns / 1e6, 3) AS late_ms,
            round(explained_share, 2) AS explained, kernel, host_op, comm, peer,
            round(score_ns / 1e6, 3) AS gain_ms, round(score_low_ns / 1e6, 3) AS gain_low_ms,
            round(score_high_ns / 1e6, 3) AS gain_high_ms, detail
        FROM stragglers
        WHERE wait_caused_ns > 0
        ORDER BY wait_caused_ns DESC, rank
        LIMIT 12
        """,
        engine=con
    )
    return (causes,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Is its time different from the others'?

    *How to read it:* idle time on the late rank alone means a host that launches late; more compute on
    it means slower kernels or more work.
    """)
    return


@app.cell
def _(con, mo):
    by_class = mo.sql(
        f"""
        WITH chosen AS (
            FROM step_breakdown
            WHERE step IS NOT NULL OR NOT EXISTS (FROM step_breakdown WHERE step IS NOT NULL)
        ), windows AS (
            SELECT rank, count(DISTINCT coalesce(step, -1)) AS n FROM chosen GROUP BY rank
        )
        SELECT rank, class, round(sum(ns) / any_value(n) / 1e6, 4) AS ms
        FROM chosen JOIN windows USING (rank)
        GROUP BY rank, class
        ORDER BY rank, class
        """,
        engine=con
    )
    return (by_class,)


@app.cell
def _(CLASSES, alt, by_class, drawn, latest, pl):
    _ranks = pl.concat([latest["rank"].head(8), by_class["rank"].unique().sort().head(8)]).unique()
    _excess = by_class.filter(pl.col("rank").is_in(_ranks.to_list())).join(
        by_class.group_by("class").agg(pl.col("ms").median().alias("median_ms")), on="class"
    )
    drawn(
        alt.Chart(_excess.with_columns((pl.col("ms") - pl.col("median_ms")).alias("excess_ms")))
        .mark_bar()
        .encode(
            y=alt.Y("rank:O", title="rank"),
            x=alt.X(
                "excess_ms:Q", title="ms of a step more (right) or less (left) than the median rank"
            ),
            color=alt.Color("class:N", scale=CLASSES, title=None),
            tooltip=["rank:O", "class:N", "ms:Q", "median_ms:Q", "excess_ms:Q"],
        ),
        "No device work with times.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## A check that needs no clocks

    *How to read it:* `proxy_ms` is each duration less the shortest over the ranks, which no clock error
    moves. Where it tells the same story as `wait_ms`, the clocks are good enough. *Caveat:* it is too
    small where nobody arrives without any wait.
    """)
    return


@app.cell
def _(con, mo):
    proxies = mo.sql(
        f"""
        SELECT rank, round(sum(wait_ns) FILTER (wait_known) / 1e6, 3) AS wait_ms,
            round(sum(wait_min_proxy_ns) FILTER (wait_known) / 1e6, 3) AS proxy_ms,
            round(max(clock_error_ns) / 1e6, 4) AS clock_error_ms
        FROM waits
        GROUP BY rank
        ORDER BY rank
        """,
        engine=con
    )
    return (proxies,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Verdict
    """)
    return


@app.cell
def _(causes, job, proxies, trend, verdicts):
    verdicts.late(job, trend, causes, proxies)
    return


if __name__ == "__main__":
    app.run()
