"""What holds for every policy, on random jobs: neutral is neutral, less never lasts longer."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from retime.replay import engine, load, policies, run
from retime.replay.graph import Kind
from retime.replay.policy import Policy
from retime.replay.retiming import transfers

from .random_jobs import jobs

QUIET = settings(
    deadline=None, max_examples=8, suppress_health_check=list(HealthCheck), derandomize=True
)


def neutral(name):
    """The neutral parameters of a policy; text: why it has none."""
    module = import_module(policies.REGISTRY[name].apply.__module__)
    return getattr(module, "NEUTRAL", None)


NEUTRAL = {name: neutral(name) for name in sorted(policies.REGISTRY)}


def test_every_policy_says_what_is_neutral_or_why_nothing_is():
    """`NEUTRAL` of a policy's module: a dict of parameters, or the sentence why there are none."""
    missing = [n for n, v in NEUTRAL.items() if not (isinstance(v, dict) or v)]
    assert not missing, f"these policies say neither NEUTRAL = {{...}} nor a reason: {missing}"


@pytest.mark.parametrize("name", [n for n, v in NEUTRAL.items() if isinstance(v, dict)])
@QUIET
@given(job=jobs())
def test_neutral_parameters_change_nothing_to_the_nanosecond(name, job):
    unchanged(job, name)


@pytest.mark.parametrize("name", [n for n, v in NEUTRAL.items() if isinstance(v, dict)])
def test_neutral_parameters_change_nothing_of_the_bundled_job(name, bundled):
    unchanged(bundled, name)


def unchanged(job, name):
    base = run.baseline(job)
    (tries,) = run.plan([(name, NEUTRAL[name])])
    lines = run.timelines(base, tries)
    np.testing.assert_array_equal(lines.after_start_ns, lines.before_start_ns)
    np.testing.assert_array_equal(lines.after_end_ns, lines.before_end_ns)
    entry = run.estimate(base, tries)
    assert entry["step_ns"] == round(float(base.measured_ns.mean()))
    assert entry["gain_pct"] == 0
    assert entry["recovered"] == {"wait_ns": 0, "transfer_ns": 0, "exposed_ns": 0}


@pytest.fixture(scope="module")
def bundled(demo_job, tmp_path_factory):
    from retime.ingest.run import ingest
    from retime.ingest.warehouse import Warehouse

    where = str(tmp_path_factory.mktemp("neutral") / "warehouse")
    ingest(where, [str(demo_job)], job="demo")
    return load.load(Warehouse(where).snapshot("demo"))


@QUIET
@given(jobs(), st.integers(0, 2**32 - 1))
def test_nothing_ends_later_where_things_take_less(job, seed):
    """Faster links, fewer bytes, earlier arrivals: durations and gaps that fall, anywhere."""
    graph = job.graph
    rng = np.random.default_rng(seed)
    some = rng.random(graph.n) < 0.5
    less = np.where(some, (graph.dur_ns * rng.random(graph.n)).astype(np.int64), graph.dur_ns)
    gap = np.where(some, graph.gap_ns // 2, graph.gap_ns)
    _, before = engine.replay(graph)
    _, after = engine.replay(graph.with_(dur_ns=less, gap_ns=gap))
    assert (after <= before).all()


@QUIET
@given(jobs(), st.floats(0.0, 1.0), st.booleans())
def test_more_bandwidth_or_fewer_bytes_never_lengthen_a_step(job, by, bytes_too):
    def apply(job):
        job, rows = transfers.chosen(job)
        ratio = np.full(len(rows), by)
        if bytes_too or not by:
            return transfers.scaled(job, rows, ratio, bytes_ratio=ratio)
        return transfers.scaled(job, rows, ratio, bandwidth_ratio=1 / ratio)

    entry = one(job, Policy("faster", "", "a test", (), ("none",), apply))
    assert entry["step_ns"] <= round(float(run.baseline(job).measured_ns.mean()))
    assert entry["gain_pct"] >= 0


@QUIET
@given(jobs(), st.sampled_from([0.75, 0.5, 0.0]))
def test_earlier_arrivals_never_lengthen_a_step(job, factor):
    entry = one(job, ("align-arrivals", {"factor": factor}))
    assert entry["gain_pct"] >= 0


def one(job, policy):
    base = run.baseline(job)
    (tries,) = run.plan([policy])
    return run.estimate(base, tries)


@QUIET
@given(jobs(shuffled=True))
def test_results_do_not_depend_on_the_order_of_tasks(pair):
    one, other = pair
    given = ["align-arrivals", "algorithm:algo=tree", ("align-arrivals", {"factor": 0.5})]
    first, second = run.replay(one, given), run.replay(other, given)
    assert first.pop("warnings") == second.pop("warnings")
    for a, b in zip(first.pop("policies"), second.pop("policies"), strict=True):
        assert a["step_ns"] == pytest.approx(b["step_ns"], abs=1)
        assert a["recovered"] == pytest.approx(b["recovered"], abs=1)
        assert a["floors"] == b["floors"]
        assert a["assumptions"] == b["assumptions"]
    assert first["measured_ns"] == second["measured_ns"]
    assert first["floors"] == second["floors"]


@QUIET
@given(jobs(), st.integers(0, 2**32 - 1))
def test_an_estimate_is_never_under_its_floors(job, seed):
    rng = np.random.default_rng(seed)

    def apply(job):
        graph = job.graph
        by = np.where(graph.kind == Kind.TRANSFER, rng.random(graph.n) ** 3, 1.0)
        return job.with_graph(dur_ns=np.rint(graph.dur_ns * by).astype(np.int64))

    entry = one(job, Policy("anything", "", "a test", (), ("none",), apply))
    floors = entry["floors"]
    highest = max(floors["free_communication_ns"], floors["busiest_link_ns"])
    # The interval is of steps that were drawn; the floors are of all of them.
    assert min(entry["step_ns"], entry["high_ns"]) >= highest - 1


@QUIET
@given(jobs())
def test_without_a_policy_a_fabric_changes_nothing(job):
    from retime.replay.fabric.description import Fabric, LinkClass, Network, Nic, ScaleUp

    n = int(job.graph.rank.max()) + 1
    fabric = Fabric(
        "small", hosts=4, gpus_per_host=8, scale_up=ScaleUp(LinkClass("nvlink", 100e9), 8),
        nic=Nic(LinkClass("nic", 10e9), count=8, serves=tuple(range(8)), at=(0,) * 8),
        network=Network("rail", hosts_per_leaf=4, uplinks=8),
    )  # fmt: skip
    assert n <= fabric.gpus
    wired = replace(job, facts={**job.facts, "fabric": fabric})
    nothing = Policy("nothing", "", "a test", (), ("none",), lambda job: job)
    base = run.baseline(wired)
    lines = run.timelines(base, ((nothing, {}),))
    np.testing.assert_array_equal(lines.after_end_ns, base.end_ns)
    assert run.estimate(base, ((nothing, {}),))["gain_pct"] == 0
