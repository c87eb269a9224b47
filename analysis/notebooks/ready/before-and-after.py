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
    # Before and after

    What changed between two jobs, or between the first and the second half of one job's steps: which
    part of the step got slower or faster, whether that is more than chance, and whether a replay would
    have foreseen it.
    """)
    return


@app.cell
def _():
    WAREHOUSE = None  # a folder or an address; None: $RETIME_WAREHOUSE, else ./warehouse
    BASELINE = None  # the job before; None: $RETIME_BASELINE, else the first half of JOB's steps
    JOB = None  # the job after; None: $RETIME_JOB, else the only job that there is
    return (BASELINE, JOB, WAREHOUSE)


@app.cell
def _(BASELINE, JOB, WAREHOUSE):
    import altair as alt
    import polars as pl

    from retime.analysis.notebooks import verdicts
    from retime.analysis.notebooks.session import GREY, drawn, pair, say

    POLICY = "align-arrivals"  # what was done between the two, as `retime replay --policy` takes it

    sides = pair(WAREHOUSE, BASELINE, JOB)
    con = sides.con
    say(sides.words)
    return (GREY, POLICY, alt, con, drawn, pair, pl, say, sides, verdicts)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    `sides` is a small table of this notebook: which job and step is before, which after.

    ## Did the step change?

    *How to read it:* look at the spread within a side before the difference between them. *Caveat:* the
    first steps of a job often differ from all others; with two halves of a job that is the finding.
    """)
    return


@app.cell
def _(con, mo):
    by_step = mo.sql(
        f"""
        WITH each AS (
            SELECT job, step, sum(ns) / count(DISTINCT rank) / 1e6 AS ms
            FROM step_breakdown GROUP BY job, step
        )
        SELECT side, e.job, e.step, round(ms, 4) AS ms
        FROM each e
        JOIN sides s ON s.job = e.job AND s.step IS NOT DISTINCT FROM e.step
        ORDER BY side DESC, e.job, e.step
        """,
        engine=con
    )
    return (by_step,)


@app.cell
def _(alt, by_step, drawn):
    drawn(
        alt.Chart(by_step)
        .mark_point(filled=True, size=70)
        .encode(
            x=alt.X("ms:Q", title="ms of a step, mean over ranks", scale=alt.Scale(zero=False)),
            y=alt.Y("side:N", title=None, sort=["before", "after"]),
            color=alt.Color(
                "side:N",
                legend=None,
                scale=alt.Scale(domain=["before", "after"], range=["#0072B2", "#D55E00"]),
            ),
            tooltip=["side:N", "step:O", "ms:Q"],
        )
        .properties(height=100),
        "No device work with times on either side.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Which part of it?

    Each part of the mean step, matched by kernel name, collective and kind of idle time; the changes
    add up to the whole. *How to read it:* bars to the right take longer now; where the rule crosses
    zero the change is no more than chance. *Caveat:* with fewer than three steps a side nothing can be
    said of chance, and there are no rules.
    """)
    return


@app.cell
def _(pl, sides):
    change, why_not = sides.diff()
    by_group = pl.DataFrame(
        [
            {
                "group": r["group"],
                **{k[:-3] + "_ms": (r[k] or 0) / 1e6 for k in ("a_ns", "b_ns")},
                "change_ms": r["change_ns"] / 1e6,
                "significant": r["significant"],
                "low_ms": None if r["low_ns"] is None else r["low_ns"] / 1e6,
                "high_ms": None if r["high_ns"] is None else r["high_ns"] / 1e6,
            }
            for r in (change["groups"] if change else [])
        ],
        schema={
            "group": pl.String,
            "a_ms": pl.Float64,
            "b_ms": pl.Float64,
            "change_ms": pl.Float64,
            "significant": pl.Boolean,
            "low_ms": pl.Float64,
            "high_ms": pl.Float64,
        },
    )
    by_group
    return (by_group, change, why_not)


@app.cell
def _(GREY, alt, by_group, drawn, why_not):
    _groups = alt.Chart(by_group).encode(y=alt.Y("group:N", sort=None, title=None))
    drawn(
        _groups.mark_bar(color="#56B4E9").encode(
            x=alt.X("change_ms:Q", title="ms of a step more (right) or less (left)"),
            tooltip=["group:N", "a_ms:Q", "b_ms:Q", "change_ms:Q", "significant:N"],
        )
        + _groups.mark_rule(color=GREY, strokeWidth=2).encode(x="low_ms:Q", x2="high_ms:Q"),
        f"There is nothing to compare: {why_not}",
    )
    return


@app.cell
def _(change, pl):
    by_part = pl.DataFrame(
        [
            {
                "group": r["group"],
                "what": r["what"],
                "before_ms": r["a_ns"] / 1e6,
                "after_ms": r["b_ns"] / 1e6,
                "change_ms": r["change_ns"] / 1e6,
                "more_ms": r["more_ns"] and r["more_ns"] / 1e6,
                "slower_ms": r["slower_ns"] and r["slower_ns"] / 1e6,
                "significant": r["significant"],
            }
            for r in (change["parts"][:20] if change else [])
        ],
        schema={
            "group": pl.String,
            "what": pl.String,
            "before_ms": pl.Float64,
            "after_ms": pl.Float64,
            "change_ms": pl.Float64,
            "more_ms": pl.Float64,
            "slower_ms": pl.Float64,
            "significant": pl.Boolean,
        },
    )
    by_part
    return (by_part,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Does every rank change alike?

    *How to read it:* a change on one rank alone is that rank (or its host), on all ranks the job.
    """)
    return


@app.cell
def _(con, mo):
    by_rank = mo.sql(
        f"""
        WITH each AS (
            SELECT side, b.job, rank, count(DISTINCT coalesce(b.step, -1)) AS windows, sum(ns) AS ns,
                coalesce(sum(ns) FILTER (class LIKE 'compute%'), 0) AS compute_ns,
                coalesce(sum(ns) FILTER (class = 'exposed_wait'), 0) AS wait_ns,
                coalesce(sum(ns) FILTER (class LIKE 'idle%'), 0) AS idle_ns
            FROM step_breakdown b
            JOIN sides s ON s.job = b.job AND s.step IS NOT DISTINCT FROM b.step
            GROUP BY side, b.job, rank
        )
        SELECT rank, side, round(ns / windows / 1e6, 3) AS ms,
            round(compute_ns / windows / 1e6, 3) AS compute_ms,
            round(wait_ns / windows / 1e6, 3) AS wait_ms, round(idle_ns / windows / 1e6, 3) AS idle_ms
        FROM each
        ORDER BY rank, side DESC
        """,
        engine=con
    )
    return (by_rank,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Who is late, before and after?

    *How to read it:* a rank that moves up in this list became later, and the others wait for it.
    *Caveat:* it needs ranks on one clock.
    """)
    return


@app.cell
def _(con, mo):
    lateness = mo.sql(
        f"""
        SELECT rank, side, round(sum(lateness_ns * collectives) / nullif(sum(collectives), 0) / 1e6, 4)
            AS lateness_ms, sum(collectives)::BIGINT AS collectives
        FROM lateness_trend t
        JOIN sides s ON s.job = t.job AND s.step IS NOT DISTINCT FROM t.step
        GROUP BY rank, side
        ORDER BY rank, side DESC
        """,
        engine=con
    )
    return (lateness,)


@app.cell
def _(alt, drawn, lateness, pl):
    drawn(
        alt.Chart(lateness.filter(pl.col("rank") < 64))
        .mark_bar()
        .encode(
            x=alt.X("rank:O", title="rank"),
            xOffset=alt.XOffset("side:N", sort=["before", "after"]),
            y=alt.Y("lateness_ms:Q", title="ms behind the median rank"),
            color=alt.Color(
                "side:N",
                title=None,
                sort=["before", "after"],
                scale=alt.Scale(domain=["before", "after"], range=["#0072B2", "#D55E00"]),
            ),
            tooltip=["rank:O", "side:N", "lateness_ms:Q", "collectives:Q"],
        ),
        "No arrivals that could be compared within steps.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Did the network change?

    *How to read it:* bandwidth over transfer alone, which late ranks do not move. *Caveat:* medians of
    few collectives wander.
    """)
    return


@app.cell
def _(con, mo):
    speeds = mo.sql(
        f"""
        SELECT op, size_class(bytes) AS size_class, n_ranks, side, count(*) AS collectives,
            round(median(busbw_transfer_gbps), 3) AS busbw_transfer,
            round(median(busbw_gbps), 3) AS busbw
        FROM collective_instances c
        JOIN sides s ON s.job = c.job AND s.step IS NOT DISTINCT FROM c.step
        WHERE busbw_transfer_gbps IS NOT NULL
        GROUP BY op, size_class(bytes), n_ranks, side
        ORDER BY op, size_class, n_ranks, side DESC
        """,
        engine=con
    )
    return (speeds,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## What would a replay have said?

    The job before, re-timed under POLICY, beside what was measured after. *How to read it:* if the
    change was made to do what the policy does, the measured step should lie in the interval. *Caveat:*
    the interval is over steps and does not cover the model's own error; with two halves of one job
    nothing was changed, and the estimate is what there was to gain.
    """)
    return


@app.cell
def _(POLICY, sides):
    foreseen, why_not_foreseen = sides.foreseen(POLICY)
    foreseen
    return (foreseen, why_not_foreseen)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Verdict
    """)
    return


@app.cell
def _(POLICY, change, foreseen, sides, verdicts, why_not, why_not_foreseen):
    verdicts.changed(sides, change, foreseen, POLICY, why_not, why_not_foreseen)
    return


if __name__ == "__main__":
    app.run()
