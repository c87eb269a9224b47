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
    # Why is this step slow?

    Every nanosecond of a step on a GPU is in one class: compute, waiting for other ranks, moving bytes,
    copies, or idle of one kind or another. This notebook goes from the whole step down to the kernel or
    rank that takes the time, and ends with a verdict in words.
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
    ## How long is a step?

    The mean over ranks, and the quickest and the slowest rank. *How to read it:* ranks that differ
    have work of their own; a step that differs from the others (the first is often one) belongs out of
    a mean. *Caveat:* where a job marks no steps they are inferred; `steps.found_by` says so. A row
    without a step is time outside of steps.
    """)
    return


@app.cell
def _(con, mo):
    by_step = mo.sql(
        f"""
        WITH each AS (
            SELECT step, rank, sum(ns) / 1e6 AS ms FROM step_breakdown GROUP BY step, rank
        )
        SELECT step, count(*) AS ranks, round(avg(ms), 3) AS mean_ms,
            round(min(ms), 3) AS quickest_ms, round(max(ms), 3) AS slowest_ms
        FROM each
        WHERE step IS NOT NULL OR NOT EXISTS (FROM each WHERE step IS NOT NULL)
        GROUP BY step
        ORDER BY step
        """,
        engine=con
    )
    return (by_step,)


@app.cell
def _(GREY, alt, by_step, drawn):
    _steps = alt.Chart(by_step).encode(x=alt.X("step:O", title="step"))
    drawn(
        _steps.mark_rule(color=GREY).encode(
            y=alt.Y("quickest_ms:Q", title="ms of a step", scale=alt.Scale(zero=False)),
            y2="slowest_ms:Q",
        )
        + _steps.mark_point(filled=True, size=70, color="#0072B2").encode(
            y="mean_ms:Q", tooltip=["step:O", "mean_ms:Q", "quickest_ms:Q", "slowest_ms:Q"]
        ),
        "No device work with times: there is nothing to split.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Where does each rank's time go?

    *How to read it:* the orange parts are waiting (nobody's bandwidth shortens it) and transfer (all
    that bandwidth could touch); grey is a GPU with nothing to do. A rank with much idle time and little
    wait is the one that the others wait for. *Caveat:* waits need ranks on one clock: where they are
    not known, communication is "not split".
    """)
    return


@app.cell
def _(con, mo):
    by_rank = mo.sql(
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
    return (by_rank,)


@app.cell
def _(CLASSES, alt, by_rank, drawn, pl):
    _longest = by_rank.group_by("rank").agg(pl.col("ms").sum()).sort("ms", "rank")["rank"].tail(64)
    _shown = by_rank.filter(pl.col("rank").is_in(_longest.to_list()))
    drawn(
        alt.Chart(_shown)
        .mark_bar()
        .encode(
            y=alt.Y("rank:O", title="rank"),
            x=alt.X("ms:Q", title="ms of a step"),
            color=alt.Color("class:N", scale=CLASSES, title=None),
            tooltip=["rank:O", "class:N", "ms:Q"],
        ),
        "No device work with times: there is nothing to split.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## What exactly takes it?

    Down to the kernel, the collective or the kind of gap; time on the mean rank. *How to read it:* the
    first lines outside of compute are what to ask about next. *Caveat:* where kernels overlap, each
    nanosecond is counted once, so this is less than the sum of a kernel's durations.
    """)
    return


@app.cell
def _(con, mo):
    by_part = mo.sql(
        f"""
        WITH chosen AS (
            FROM step_composition
            WHERE step IS NOT NULL OR NOT EXISTS (FROM step_composition WHERE step IS NOT NULL)
        ), windows AS (
            SELECT count(*) AS n FROM (SELECT DISTINCT rank, step FROM chosen)
        )
        SELECT class, what, round(sum(ns) / (SELECT n FROM windows) / 1e6, 4) AS ms,
            round(100 * sum(ns) / (SELECT sum(ns) FROM chosen), 2) AS percent,
            round(sum(pieces) / (SELECT n FROM windows), 1) AS pieces
        FROM chosen
        GROUP BY class, what
        ORDER BY ms DESC, class, what
        LIMIT 25
        """,
        engine=con
    )
    return (by_part,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## What is the GPU waiting for when it does nothing?

    *How to read it:* a launch-bound gap ends with a kernel that its host launched too late;
    "waiting for stream" ends with one that was launched in time and had to wait for another stream.
    *Caveat:* without host events nothing says why, and the class is `idle_unknown`.
    """)
    return


@app.cell
def _(con, mo):
    by_gap = mo.sql(
        f"""
        SELECT class, after AS ends_with, count(*) AS gaps, count(DISTINCT rank) AS ranks,
            round(sum(dur_ns) / 1e6, 3) AS ms, round(max(dur_ns) / 1e6, 3) AS longest_ms
        FROM idle_gaps
        WHERE step IS NOT NULL OR NOT EXISTS (FROM idle_gaps WHERE step IS NOT NULL)
        GROUP BY class, after
        ORDER BY ms DESC, class, ends_with
        LIMIT 15
        """,
        engine=con
    )
    return (by_gap,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Which tasks set the length of the step?

    The critical path: the chain of tasks, across ranks, of which none could be later without the step
    being later. *How to read it:* only what is on it can shorten the step. *Caveat:* it follows the
    dependencies that were recorded; "unexplained" is time that none of them explains.
    """)
    return


@app.cell
def _(con, mo):
    by_path = mo.sql(
        f"""
        SELECT rank, class, round(sum(dur_ns) / count(DISTINCT step) / 1e6, 3) AS ms,
            round(100 * sum(dur_ns) / sum(sum(dur_ns)) OVER (), 1) AS percent
        FROM critical_path
        GROUP BY rank, class
        ORDER BY ms DESC, rank, class
        """,
        engine=con
    )
    return (by_path,)


@app.cell
def _(GREY, alt, by_path, drawn):
    drawn(
        alt.Chart(by_path.head(24))
        .mark_bar()
        .encode(
            y=alt.Y("rank:O", title="rank"),
            x=alt.X("ms:Q", title="ms of the critical path, a step"),
            color=alt.Color(
                "class:N",
                title=None,
                scale=alt.Scale(
                    domain=["work", "host", "transfer", "unexplained"],
                    range=["#0072B2", "#CC79A7", "#E69F00", GREY],
                ),
            ),
            tooltip=["rank:O", "class:N", "ms:Q", "percent:Q"],
        ),
        "No critical path: it needs steps, and ranks on one clock.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Who holds the others up, and by what?

    *How to read it:* `wait_caused_ms` adds up over all the ranks that waited; `gain_ms` is how much
    earlier a step would end with this rank at the median, and the interval beside it says how sure
    that is. *Caveat:* a rank that is nearly as slow takes the place of the slowest, so that one rank's
    gain is often small.
    """)
    return


@app.cell
def _(con, mo):
    suspects = mo.sql(
        f"""
        SELECT rank, host, times_last, collectives, round(wait_caused_ns / 1e6, 2) AS wait_caused_ms,
            cause, round(cause_ns / 1e6, 3) AS cause_ms, round(score_ns / 1e6, 3) AS gain_ms,
            round(score_low_ns / 1e6, 3) AS gain_low_ms, round(score_high_ns / 1e6, 3) AS gain_high_ms,
            detail
        FROM stragglers
        WHERE wait_caused_ns > 0
        ORDER BY wait_caused_ms DESC, rank
        LIMIT 12
        """,
        engine=con
    )
    return (suspects,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## What was odd in the input?

    *How to read it:* lost input comes first, and makes every figure above a figure of what is left.
    """)
    return


@app.cell
def _(con, mo):
    oddities = mo.sql(
        f"""
        SELECT severity, code, sum("count")::BIGINT AS times, any_value(message) AS example
        FROM problems
        GROUP BY severity, code
        ORDER BY severity = 'lost' DESC, severity = 'warning' DESC, times DESC, code
        LIMIT 12
        """,
        engine=con
    )
    return (oddities,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Verdict
    """)
    return


@app.cell
def _(by_path, job, suspects, verdicts):
    verdicts.slow(job, by_path, suspects)
    return


if __name__ == "__main__":
    app.run()
