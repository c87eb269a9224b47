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
    # Which hosts are late again and again, which fabric is slower this week?

    The same questions over all jobs of a warehouse. One late host in one job is an accident; the same
    host in most of its jobs is a machine to take out.
    """)
    return


@app.cell
def _():
    WAREHOUSE = None  # a folder or an address; None: $RETIME_WAREHOUSE, else ./warehouse
    return (WAREHOUSE,)


@app.cell
def _(WAREHOUSE):
    import altair as alt
    import polars as pl

    from retime.analysis.notebooks import verdicts, words
    from retime.analysis.notebooks.session import GREY, begin_fleet, drawn, say

    warehouse, con = begin_fleet(WAREHOUSE)
    say(f"{len(warehouse.job_ids())} jobs in {words.place(warehouse.url)}")
    return (GREY, alt, begin_fleet, con, drawn, pl, say, verdicts, warehouse, words)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## The jobs, one line each

    *How to read it:* `wait` is the share of a step that ranks wait for each other, `transfer` what a
    faster network could gain at most. *Caveat:* shares of jobs whose `scope` is `trace` are of the
    whole trace, with what lies between steps.
    """)
    return


@app.cell
def _(con, mo):
    lines = mo.sql(
        f"""
        SELECT job, make_timestamp(started_ns // 1000) AS started_utc, ranks, hosts, device_name, steps,
            round(step_median_ns / 1e6, 3) AS step_ms, scope, round(compute_share, 3) AS compute,
            round(wait_share, 3) AS wait, round(transfer_share, 3) AS transfer, round(idle_share, 3) AS idle,
            round(tau_share, 3) AS waiting
        FROM fleet_jobs
        ORDER BY started_ns, job
        """,
        engine=con
    )
    return (lines,)


@app.cell
def _(GREY, alt, drawn, lines):
    _shares = lines.tail(60).unpivot(
        ["compute", "wait", "transfer", "idle"], index="job", variable_name="part", value_name="share"
    )
    drawn(
        alt.Chart(_shares.drop_nulls("share"))
        .mark_bar()
        .encode(
            y=alt.Y("job:N", sort=None, title=None, axis=alt.Axis(labelLimit=240)),
            x=alt.X("share:Q", title="share of the time", axis=alt.Axis(format="%")),
            color=alt.Color(
                "part:N",
                title=None,
                sort=["compute", "wait", "transfer", "idle"],
                scale=alt.Scale(
                    domain=["compute", "wait", "transfer", "idle"],
                    range=["#0072B2", "#D55E00", "#E69F00", GREY],
                ),
            ),
            tooltip=["job:N", "part:N", alt.Tooltip("share:Q", format=".1%")],
        ),
        "No job has work with times.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Which hosts are late again and again?

    *How to read it:* `latest` of `compared` jobs is what happened, `expected` what equal hosts would
    give; `p_any` is the probability that chance alone does this to any one of the hosts. *Caveat:* a
    host that always holds rank 0 may be late by its part in the job, not by itself
    (`latest_with_rank_0`). Hosts whose names were only inferred are not compared over jobs.
    """)
    return


@app.cell
def _(con, mo):
    hosts = mo.sql(
        f"""
        SELECT host, jobs, jobs_compared AS compared, jobs_latest AS latest,
            round(jobs_latest_expected, 2) AS expected, p_value_any AS p_any,
            jobs_latest_first_rank AS latest_with_rank_0, round(wait_caused_ns / 1e6, 2) AS wait_caused_ms,
            round(100 * wait_share, 2) AS percent_of_wait,
            round(median_lateness_ns / 1e6, 4) AS lateness_ms, times_within_error AS within_error
        FROM fleet_hosts
        ORDER BY p_value NULLS LAST, wait_caused_ms DESC NULLS LAST, host
        """,
        engine=con
    )
    return (hosts,)


@app.cell
def _(GREY, alt, drawn, hosts, pl):
    _worst = hosts.filter(pl.col("compared") > 0).head(30)
    _hosts = alt.Chart(_worst).encode(y=alt.Y("host:N", sort=None, title=None))
    drawn(
        _hosts.mark_bar(color="#D55E00").encode(
            x=alt.X("latest:Q", title="jobs in which it was the latest (line: expected by chance)"),
            tooltip=["host:N", "compared:Q", "latest:Q", "expected:Q", "p_any:Q"],
        )
        + _hosts.mark_tick(color=GREY, thickness=3).encode(x="expected:Q"),
        "No two hosts could be compared in any job: it needs jobs of several hosts with recorded "
        "names, whose clocks collectives tie together.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## When was it late?

    *How to read it:* a host that became late and stays so broke; one that is late here and there shares
    something (a switch, a storage server, a neighbour).
    """)
    return


@app.cell
def _(con, mo):
    history = mo.sql(
        f"""
        SELECT host, job, make_timestamp(started_ns // 1000) AS started_utc, ranks, is_latest,
            has_first_rank, round(wait_caused_ns / 1e6, 3) AS wait_caused_ms,
            round(median_lateness_ns / 1e6, 4) AS lateness_ms
        FROM fleet_host_jobs
        ORDER BY host, started_ns, job
        """,
        engine=con
    )
    return (history,)


@app.cell
def _(alt, drawn, history, hosts, pl):
    _late = hosts.filter(pl.col("compared") > 0)["host"].head(8)
    drawn(
        alt.Chart(history.filter(pl.col("host").is_in(_late.to_list())))
        .mark_circle(opacity=0.8)
        .encode(
            x=alt.X("started_utc:T", title="start of the job (UTC)"),
            y=alt.Y("host:N", title=None),
            size=alt.Size("wait_caused_ms:Q", title="ms of others' wait that it caused"),
            color=alt.Color(
                "is_latest:N",
                title="latest of its job",
                scale=alt.Scale(domain=[False, True], range=["#56B4E9", "#D55E00"]),
            ),
            tooltip=["host:N", "job:N", "wait_caused_ms:Q", "lateness_ms:Q", "has_first_rank:N"],
        ),
        "No two hosts could be compared in any job.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Which fabric is slower this week?

    Bus bandwidth over transfer alone (late ranks do not look like a slow fabric), like with like, by
    week. *How to read it:* `change` is against the median of all earlier jobs; below `earlier_lowest`
    it is no usual spread. *Caveat:* one job a week is one placement on the fabric.
    """)
    return


@app.cell
def _(con, mo):
    weeks = mo.sql(
        f"""
        SELECT bucket AS week, device_name, dim, op, size_class, n_ranks, n_hosts, jobs, collectives,
            round(busbw_transfer_gbps, 3) AS gbps, earlier_jobs, round(earlier_gbps, 3) AS earlier,
            round(earlier_lowest_gbps, 3) AS earlier_lowest, round(100 * change, 1) AS change_percent
        FROM fleet_fabric
        WHERE per = 'week'
        ORDER BY week DESC, change_percent NULLS LAST, device_name, dim, op, size_class, n_ranks, n_hosts
        """,
        engine=con
    )
    return (weeks,)


@app.cell
def _(alt, drawn, pl, weeks):
    _series = weeks.with_columns(
        pl.concat_str("op", "size_class", "n_ranks", separator=" ", ignore_nulls=True).alias("what")
    )
    _most = _series.group_by("what").agg(pl.col("collectives").sum()).sort("collectives", "what")
    drawn(
        alt.Chart(_series.filter(pl.col("what").is_in(_most["what"].tail(6).to_list())))
        .mark_line(point=True)
        .encode(
            x=alt.X("week:T", title="week"),
            y=alt.Y("gbps:Q", title="bus bandwidth over transfer (GB/s)", scale=alt.Scale(type="log")),
            color=alt.Color("what:N", title="operation, size, ranks"),
            tooltip=["week:T", "what:N", "device_name:N", "jobs:Q", "gbps:Q", "change_percent:Q"],
        ),
        "No collective with a size, whose ranks were all seen on one clock.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Which hosts run the same kernels slower?

    *How to read it:* the same kernel, in the same job, 10 % slower on one host again and again is a
    clock, a power limit or heat. *Caveat:* a name that has other shapes on other ranks compares work,
    not hosts.
    """)
    return


@app.cell
def _(con, mo):
    kernels = mo.sql(
        f"""
        SELECT host, name, category, jobs, launches, round(ratio, 3) AS ratio, jobs_slowest, p_value,
            round(excess_ns / 1e6, 3) AS excess_ms
        FROM fleet_kernels
        WHERE ratio > 1
        ORDER BY excess_ms DESC, host, name
        LIMIT 20
        """,
        engine=con
    )
    return (kernels,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Verdict
    """)
    return


@app.cell
def _(hosts, kernels, verdicts, weeks):
    verdicts.fleet(hosts, weeks, kernels)
    return


if __name__ == "__main__":
    app.run()
