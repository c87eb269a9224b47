"""Another split of a recorded job: what the model makes of one, the policy makes of the other."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import retime
from retime.replay import engine, policies, run
from retime.replay.graph import Kind, build
from retime.replay.planner import fitted, model, pipeline, platform, recorded, step
from retime.replay.planner.split import Split
from retime.replay.policy import BadParam, ReplayJob

LLAMA = model.named("llama2-7b")
H100 = platform.named("H100")
STEPS = 2


def job(split: Split, *, named: bool = True, m: model.Model = LLAMA, **facts) -> ReplayJob:
    """A recorded job that takes exactly what the model says: its passes in the order of 1F1B, the
    tensor collectives of a step in one, then gradients' and the optimizer."""
    one = step.layer(m, split, H100, fitted.A100)
    took = step.times(m, split, H100, fitted.A100)
    output = step.head(m, split, H100, fitted.A100)
    p, micro = split.pp, split.microbatches
    kind, which, _ = pipeline._plain(False, p, micro)
    rows: list[tuple] = []
    edges: list[tuple[int, int]] = []

    def task(kind, op, rank, step_, dur, *after, comm=-1, collective=-1):
        rows.append((kind, op, rank, step_, round(dur), comm, collective))
        edges.extend((a, len(rows) - 1) for a in after)
        return len(rows) - 1

    layers = split.layers_by_stage(m.layers)
    group = split.dp * split.tp
    comms, collective = [], 0

    def meet(op, ranks, step_, dur, after, dim):
        nonlocal collective
        name = f"{dim}{ranks}"
        if name not in [c["comm"] for c in comms]:
            comms.append({"comm": name, "dim": dim, "size": len(ranks), "ranks": ranks})
        code = [c["comm"] for c in comms].index(name)
        arrive = [task(Kind.ARRIVE, op, r, step_, 0, after[r]) for r in ranks]
        join = task(Kind.JOIN, op, -1, step_, 0, *arrive, comm=code, collective=collective)
        for r in ranks:
            after[r] = task(Kind.TRANSFER, op, r, step_, dur, join, comm=code,
                            collective=collective)  # fmt: skip
        collective += 1

    last: dict[int, int] = {}
    for s in range(STEPS):
        done: dict[tuple, int] = {}
        at = [0] * p
        while any(a < 2 * micro for a in at):
            for stage in range(p):
                while at[stage] < 2 * micro:
                    k, b = kind[stage, at[stage]], which[stage, at[stage]]
                    need = (0, stage - 1, b) if k == 0 else (1, stage + 1, b)
                    edge = stage == 0 if k == 0 else stage == p - 1
                    if not edge and need not in done:
                        break
                    compute = one.compute_ns / 3 * (1 if k == 0 else 2) * layers[stage]
                    compute += output / 3 * (1 if k == 0 else 2) * (stage == p - 1)
                    for i in range(group):
                        r = stage * group + i
                        after = [last[r]] if r in last else []
                        after += [] if edge else [done[need] + i]
                        op = "forward-compute" if k == 0 else "backward-compute"
                        last[r] = task(Kind.COMPUTE, op, r, s, compute, *after)
                        if i == 0:
                            done[k, stage, b] = last[r]
                    at[stage] += 1
        for stage in range(p):
            base = stage * group
            if split.tp > 1:
                for d in range(split.dp):
                    ranks = [base + d * split.tp + t for t in range(split.tp)]
                    meet("all_reduce", ranks, s, took.tp_ns, last, "tp")
            if split.dp > 1:
                for t in range(split.tp):
                    ranks = [base + d * split.tp + t for d in range(split.dp)]
                    meet("all_reduce", ranks, s, took.dp_ns, last, "dp")
        for r in range(split.world):
            last[r] = task(Kind.COMPUTE, "optimizer", r, s, took.optimizer_ns, last[r])
        # The next step begins when all ranks are done.
        end = task(Kind.OTHER, "end", -1, -1, 0, *last.values())
        last = dict.fromkeys(range(split.world), end)
    op_names = tuple(sorted({r[1] for r in rows}))
    src, dst = np.array(edges).T
    n = len(rows)
    columns = {
        "kind": np.array([r[0] for r in rows]), "rank": np.array([r[2] for r in rows]),
        "step": np.array([r[3] for r in rows]), "dur_ns": np.array([r[4] for r in rows]),
        "comm": np.array([r[5] for r in rows]), "collective": np.array([r[6] for r in rows]),
        "op": np.array([op_names.index(r[1]) for r in rows]),
    }  # fmt: skip
    stage = np.where(columns["rank"] >= 0, columns["rank"] // group, -1)
    names = tuple(c["comm"] for c in comms)
    graph, _ = build(n, src, dst, order_ns=np.arange(n), op_names=op_names, comm_names=names,
                     extra={"stage": stage}, **columns)  # fmt: skip
    start, end_ns = engine.replay(graph)
    graph = graph.with_(start_ns=start, end_ns=end_ns)
    if not named:
        comms = [{**c, "dim": "unknown"} for c in comms]
    schema = {"comm": pl.String, "dim": pl.String, "size": pl.Int64, "ranks": pl.List(pl.Int64)}
    facts = {"comms": pl.DataFrame(comms, schema=schema), "measured": graph, **facts}
    return ReplayJob(graph, "made", facts)


def took_ns(of: ReplayJob) -> float:
    """The mean step of the replayed job."""
    return float(run.baseline(of).replayed_ns.mean())


def under(of: ReplayJob, text: str) -> ReplayJob:
    policy, values = policies.resolve(f"parallelism:{text}" if text else "parallelism")
    return policy.apply(of, **values)


def same(a: ReplayJob, b: ReplayJob) -> bool:
    return a.graph.dur_ns.tolist() == b.graph.dur_ns.tolist() and (
        a.graph.gap_ns.tolist() == b.graph.gap_ns.tolist()
    )


GIVEN = "model=llama2-7b,machine=H100"
DP = Split(dp=8, batch=64, micro_batch=2)
PP = Split(dp=2, pp=4, batch=32, micro_batch=1)
MIXED = Split(dp=2, tp=2, pp=2, batch=32, micro_batch=1)


@pytest.mark.parametrize(
    ("old", "text"),
    [
        (DP, ""),
        (DP, "dp=8"),
        (DP, f"tp=1,batch=64,was=dp8+mb2,{GIVEN}"),
        (PP, f"dp=2,pp=4,{GIVEN}"),
        (PP, f"stages=8+8+8+8,{GIVEN}"),
        (MIXED, f"tp=2,pp=2,recompute=none,zero=0,schedule=1f1b,micro_batch=1,{GIVEN}"),
    ],
)
def test_the_split_that_ran_changes_nothing_to_the_nanosecond(old, text):
    of = job(old)
    assert same(under(of, text), of)


@pytest.mark.parametrize(
    ("old", "text", "new"),
    [
        (DP, "tp=2,was=dp8+mb2,batch=64", DP._replace(dp=4, tp=2)),
        (DP, "tp=8,was=dp8+mb2,batch=64", DP._replace(dp=1, tp=8)),
        (DP, "pp=4,was=dp8+mb2,batch=64", DP._replace(dp=2, pp=4)),
        (DP, "micro_batch=1,was=dp8+mb2,batch=64", DP._replace(micro_batch=1)),
        (DP, "recompute=full,was=dp8+mb2,batch=64", DP._replace(recompute="full")),
        (PP, "pp=2", PP._replace(dp=4, pp=2)),
        (PP, "pp=1", PP._replace(dp=8, pp=1)),
        (PP, "pp=8,dp=1", PP._replace(dp=1, pp=8)),
        (PP, "tp=2,pp=2,dp=2", PP._replace(tp=2, pp=2)),
        (PP, "schedule=zb-h1", PP._replace(schedule="zb-h1")),
        (PP, "stages=9+9+8+6", PP._replace(stages=(9, 9, 8, 6))),
        (PP, "stages=5+9+9+9", PP._replace(stages=(5, 9, 9, 9))),
        (MIXED, "tp=1", MIXED._replace(dp=4, tp=1)),
        (MIXED, "tp=4,pp=1", MIXED._replace(dp=2, tp=4, pp=1)),
    ],
)
def test_a_job_that_is_as_the_model_says_becomes_what_it_says(old, text, new):
    # Nothing cancels better than a model without error: within 4 % (the sends between stages are
    # not in the made job, and a step's tensor collectives are one).
    of = job(old)
    measured = took_ns(of)
    before, after = (step.times(LLAMA, s, H100, fitted.A100).step_ns for s in (old, new))
    assert measured == pytest.approx(before, rel=0.02)
    assert took_ns(under(of, f"{text},{GIVEN}")) == pytest.approx(after, rel=0.04)


def test_a_model_that_is_wrong_by_a_factor_cancels():
    # The same job, twice as slow in all it does: the ratio stays.
    of = job(PP)
    slow = of.with_graph(dur_ns=2 * of.graph.dur_ns)
    slow = ReplayJob(slow.graph, "made", {**of.facts, "measured": slow.graph})
    graph = slow.graph.with_(start_ns=2 * of.graph.start_ns, end_ns=2 * of.graph.end_ns)
    slow = ReplayJob(graph, "made", {**of.facts, "measured": graph})
    for text in ("pp=2", "tp=2,pp=2,dp=2", "stages=9+9+8+6"):
        one, two = (took_ns(under(j, f"{text},{GIVEN}")) for j in (of, slow))
        assert two == pytest.approx(2 * one, rel=1e-6)


def test_degrees_come_from_the_communicators():
    assert recorded.degrees(job(MIXED)).split == Split(dp=2, tp=2, pp=2)
    assert recorded.microbatches(job(MIXED)) == 16
    assert recorded.stages(job(PP)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_best_is_the_planners_quickest():
    of = job(PP)
    new = under(of, f"best=true,{GIVEN}")
    assert took_ns(new) < took_ns(of)
    # Fixed degrees stay.
    four = under(of, f"best=true,pp=4,{GIVEN}")
    assert "pp4" in four.assumptions[0]


def test_bytes_follow_the_volumes():
    of = job(DP)
    graph = of.graph.with_(bytes=np.where(of.graph.kind == Kind.TRANSFER, 1_000_000, 0))
    of = ReplayJob(graph, "made", {**of.facts, "measured": graph})
    new = under(of, f"tp=2,was=dp8+mb2,batch=64,{GIVEN}")
    moved = new.graph.bytes[new.graph.kind == Kind.TRANSFER]
    # Half the parameters a GPU, but for the norms' and the halved ring: (3/4) / (7/8) / 2.
    assert moved == pytest.approx(1_000_000 * (3 / 4) / (7 / 8) / 2, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tp=3", "dp x tp x pp x cp = 2 x 3 x 4 x 1 = 24, not the 8 GPUs there are"),
        ("tp=2,pp=4,dp=2", "= 2 x 2 x 4 x 1 = 16, not the 8 GPUs there are: dp=1 would be"),
        ("stages=8+8+8", "3 stages are given for pp=4"),
        ("stages=10+8+8+8", "the stages hold 34 layers, the model has 32"),
        ("ep=2", "the model has no experts: ep is 1"),
        ("micro_batch=3", "no multiple of dp x micro_batch = 6: 30 or 36"),
        ("schedule=interleaved", "at least 2 chunks"),
        ("schedule=zigzag", "schedule='zigzag', expected one of"),
        ("recompute=some", "recompute='some', expected one of"),
        ("model=gpt5,pp=2", "model='gpt5': there are gpt3-1.3b"),
        ("was=dp8+xx2,pp=2", "was='xx2': words are dpN, tpN"),
        ("was=dp0,pp=2", "was='dp0': words are"),
        ("was=dp" + "9" * 5000 + ",pp=2", "words are"),
        ("pp=2,batch=7", "the split that ran: a batch of 7 is no multiple of"),
    ],
)
def test_what_cannot_be_gets_one_sentence(text, says):
    more = "" if "model" in text else f",{GIVEN}"
    with pytest.raises(BadParam) as caught:
        under(job(PP), text + more)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_the_trace_lacks_is_named_and_nothing_changes():
    of = job(PP)
    out = under(of, "pp=2")
    assert same(out, of)
    assert out.warnings == (
        "parallelism: the trace does not say the model: give model=NAME or layers, hidden, heads, "
        "sequence",
    )
    out = under(job(DP, named=False), f"tp=2,{GIVEN}")
    assert "name process groups by what they are for" in out.warnings[0]
    assert "give was=dp8+tp4" in out.warnings[0]
    graph = of.graph.with_(op_names=tuple(f"k{i}" for i in range(len(of.graph.op_names))))
    uncounted = ReplayJob(graph, "made", {**of.facts, "measured": graph})
    out = under(uncounted, f"pp=2,{GIVEN}")
    assert same(out, uncounted)
    assert "does not count sequences: give batch" in out.warnings[0]


def test_the_jobs_configuration_is_used():
    conf = {"layers": 32, "hidden": 4096, "heads": 32, "seq_len": 4096, "global_batch": 64,
            "micro_batch": 2}  # fmt: skip
    of = job(DP, tables=lambda name: pl.DataFrame([conf] if name == "configurations" else []))
    out = under(of, "tp=2,zero=1,machine=H100")
    assert out.warnings == ()
    assert not same(out, of)


def test_doubts_are_said():
    out = under(job(PP), "pp=2,model=gpt3-1.3b,machine=H100,sequence=512")
    assert any("it took" in w for w in out.warnings)
    out = under(job(DP), f"micro_batch=4,was=dp8+mb2,batch=64,{GIVEN}")
    assert any("GB are usable" in w for w in out.warnings)
    again = under(out, f"tp=2,was=dp8+mb4,batch=64,{GIVEN}")
    assert same(again, out)
    assert "split anew already" in again.warnings[-1]


def test_a_long_last_stage_is_relieved(retime_traces, tmp_path):
    # The straggler study's job ST (8 workers, 4 stages): its last stage is known to be the slow
    # one, so three layers fewer there shorten the step, and three more lengthen it.
    warehouse = retime.open(str(tmp_path))
    folder = retime_traces / "straggler" / "StragglerAnalysis"
    warehouse.ingest([str(folder / f"{n}-ST.{e}") for n, e in (("trace", "parquet"),
                     ("meta", "yaml"))], job="ST")  # fmt: skip
    sizes = "layers=32,hidden=4096,heads=32,sequence=4096"
    found = [
        warehouse.job("ST").replay([f"parallelism:stages={s},{sizes}"])["policies"][0]
        for s in ("9+9+9+5", "8+8+8+8", "7+7+7+11")
    ]
    assert found[0]["gain_pct"] > 10
    assert found[1]["gain_pct"] == 0
    assert found[2]["gain_pct"] < -10
