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
    # Rails and experts

    Do the rails of the fabric carry the same, do the experts of each layer get the same, and does the
    one explain the other? Rails are *measured* where NICs or NCCL's profiler left figures, else
    *derived* from operations, placement and routing; each figure says which.
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

    # These views are asked more than once: their rows are kept.
    job = begin(WAREHOUSE, JOB, "rail_load", "rail_imbalance", "expert_load", "expert_imbalance")
    con = job.con
    say(f"Job `{job.id}` of {words.place(job.warehouse.url)}")
    return (alt, begin, con, drawn, job, pl, say, verdicts, words)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## What does each rail carry?

    *How to read it:* rails of one host should be level. *Caveat:* derived bytes assume an algorithm and
    NCCL's way of placing channels (`how`); they say what *should* go over a rail.
    """)
    return


@app.cell
def _(con, mo):
    loads = mo.sql(
        f"""
        SELECT host, coalesce(rail::VARCHAR, nic) AS rail, source, unit,
            round(sum(bytes) / 1e9, 4) AS gb, round(sum(tokens) / 1e6, 4) AS mtokens,
            round(sum(busy_ns) / 1e6, 3) AS busy_ms, any_value(how) AS how
        FROM rail_load
        WHERE is_best
        GROUP BY host, coalesce(rail::VARCHAR, nic), source, unit
        ORDER BY host, rail, source, unit
        """,
        engine=con
    )
    return (loads,)


@app.cell
def _(alt, drawn, loads, pl):
    _in = "gb" if loads["gb"].sum() else "mtokens"
    drawn(
        alt.Chart(loads.with_columns(pl.col("host").fill_null("all hosts")).head(512))
        .mark_bar()
        .encode(
            x=alt.X("rail:N", title="rail or NIC"),
            y=alt.Y(f"{_in}:Q", title="GB" if _in == "gb" else "millions of tokens"),
            color=alt.Color("source:N", title=None, scale=alt.Scale(range=["#0072B2", "#E69F00"])),
            row=alt.Row("host:N", title=None) if loads["host"].n_unique() < 9 else alt.Row(),
            tooltip=["host:N", "rail:N", "source:N", "gb:Q", "mtokens:Q", "busy_ms:Q"],
        )
        .properties(height=120),
        "Nothing is known of rails: all ranks on one host, or no topology, NIC counters or transfers. "
        "NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET gives the placement of channels, "
        "Nsight Systems (--nic-metrics=true) and NCCL's profiler plugins the bytes.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## How uneven are they, step by step?

    *How to read it:* max/mean is how much longer the busiest rail takes than level ones would; Jain's
    index is 1 for level rails and 1/n for a single busy one.
    """)
    return


@app.cell
def _(con, mo):
    uneven = mo.sql(
        f"""
        SELECT step, source, unit, n_rails, idle_rails, round(max_over_mean, 4) AS max_over_mean,
            round(cv, 4) AS cv, round(jain, 4) AS jain, round(busy_max_over_mean, 4) AS busy_max_over_mean,
            busiest_host, coalesce(busiest_rail::VARCHAR, busiest_nic) AS busiest
        FROM rail_imbalance
        WHERE is_best
        ORDER BY step, window_start_ns, source, unit
        """,
        engine=con
    )
    return (uneven,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## What could not be placed on a rail?

    *How to read it:* operations listed here are missing above. *Caveat:* on one host nothing crosses a
    rail, and the sizes do not matter.
    """)
    return


@app.cell
def _(con, mo):
    left_out = mo.sql(
        f"""
        SELECT op, algorithm, reason, operations, round(bytes / 1e9, 4) AS gb
        FROM rail_left_out
        ORDER BY operations DESC, op, algorithm, reason
        """,
        engine=con
    )
    return (left_out,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Which experts get the tokens?

    *How to read it:* dark cells are experts that many tokens chose. *Caveat:* two sources may tell of
    the same tokens; each stands for itself. `expert_rank` derived as "contiguous" is an assumption.
    """)
    return


@app.cell
def _(con, mo):
    chosen = mo.sql(
        f"""
        SELECT source, layer, expert, any_value(expert_rank) AS expert_rank,
            any_value(placement) AS placement, sum(tokens)::BIGINT AS tokens
        FROM expert_load
        GROUP BY source, layer, expert
        ORDER BY source, layer, expert
        """,
        engine=con
    )
    return (chosen,)


@app.cell
def _(alt, chosen, drawn, pl):
    _of = chosen.filter(pl.col("source") == chosen["source"].first()) if chosen.height else chosen
    _relative = _of.with_columns(
        (pl.col("tokens") / pl.col("tokens").mean().over("layer")).alias("over_mean")
    )
    drawn(
        alt.Chart(_relative.head(5000))
        .mark_rect()
        .encode(
            x=alt.X("expert:O", title="expert", axis=alt.Axis(labelOverlap=True)),
            y=alt.Y("layer:O", title="layer"),
            color=alt.Color(
                "over_mean:Q", title="tokens over mean", scale=alt.Scale(scheme="viridis", reverse=True)
            ),
            tooltip=["layer:O", "expert:O", "tokens:Q", "over_mean:Q", "expert_rank:O"],
        ),
        "No routing in this job. Megatron-LM (--moe-routing-trace-path DIR), SGLang's expert "
        "distribution recorder, vLLM (--enable-eplb with log_balancedness) or a plain CSV "
        "(step, layer, expert, tokens: docs/routing.md) give it; ingest it into the same job.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Which layers are uneven?

    *How to read it:* by rank, max/mean is how much longer the busiest rank of experts computes than it
    would with level ones; by expert it is what replication and placement have to work with.
    """)
    return


@app.cell
def _(con, mo):
    layers = mo.sql(
        f"""
        SELECT source, layer, count(*) AS steps, sum(tokens)::BIGINT AS tokens,
            round(median(max_over_mean_by_expert), 3) AS by_expert,
            round(median(max_over_mean_by_rank), 3) AS by_rank, mode(busiest_expert) AS busiest_expert,
            mode(busiest_rank) AS busiest_rank, any_value(placement) AS placement
        FROM expert_imbalance
        GROUP BY source, layer
        ORDER BY source, layer
        """,
        engine=con
    )
    return (layers,)


@app.cell
def _(alt, drawn, layers):
    _both = layers.unpivot(
        ["by_expert", "by_rank"], index=["source", "layer"], variable_name="over", value_name="ratio"
    ).drop_nulls("ratio")
    drawn(
        alt.Chart(_both)
        .mark_line(point=True)
        .encode(
            x=alt.X("layer:O", title="layer", axis=alt.Axis(labelOverlap=True)),
            y=alt.Y("ratio:Q", title="largest load over the mean"),
            color=alt.Color("over:N", title=None, scale=alt.Scale(range=["#D55E00", "#0072B2"])),
            strokeDash=alt.StrokeDash("source:N", title="source"),
            tooltip=["source:N", "layer:O", "over:N", "ratio:Q"],
        ),
        "No routing in this job: see above for what writes it.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Do uneven experts make uneven rails?

    *How to read it:* an r2 near 1 says that the rails follow the experts. *Caveat:* where the rails are
    derived from the routing itself that is no finding about the fabric (`rail_source`).
    """)
    return


@app.cell
def _(con, mo):
    explains = mo.sql(
        f"""
        SELECT source, layer, regressor, round(r2, 3) AS r2, round(slope, 4) AS slope,
            round(slope_error, 4) AS slope_error, n AS steps, rail_source, unit
        FROM expert_rail_regression
        ORDER BY r2 DESC NULLS LAST, source, layer
        LIMIT 20
        """,
        engine=con
    )
    return (explains,)


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Verdict
    """)
    return


@app.cell
def _(explains, job, layers, left_out, uneven, verdicts):
    verdicts.rails_and_experts(job, uneven, left_out, layers, explains)
    return


if __name__ == "__main__":
    app.run()
