"""`replay`: the object it returns, what it promises about itself, and the bundled job."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest
from retime.ingest.errors import UnusableInput, UsageError
from retime.ingest.schema import TABLES
from retime.replay import load, run
from retime.replay.policy import BadParam, Policy, Stage
from retime.replay.traced import build as kineto

US = 1_000


def job_of(tables, n_steps=4, late_us=100):
    """Two ranks; each step rank 1 computes `late_us` more, then 50 of all-reduce, 20 of work."""
    at = 0.0
    for step in range(n_steps):
        late = late_us * (1 + step % 2)
        done = at + 200 + late + 50
        for rank in (0, 1):
            ready = at + 200 + rank * late
            tables.kernel(rank, "forward", at, ready, step=step)
            tables.part(rank, "all_reduce", ready, done, instance=step, stream=7, step=step)
            tables.kernel(rank, "update", done, done + 20, step=step)
            tables.step(rank, step, at, done + 20)
        at = done + 20
    return kineto.build(tables.frames(), "small")


def halved(job, **_):
    """Kernels in half their time."""
    graph = job.graph
    work = graph.ops("forward")
    return job.with_graph(dur_ns=np.where(work, graph.dur_ns // 2, graph.dur_ns))


HALVED = Policy("halved", "kernels in half their time", "a test", (), ("half",), halved)
NEUTRAL = Policy("neutral", "nothing", "a test", (), (), lambda job: job)


def test_the_object(tables):
    result = run.replay(job_of(tables), [HALVED])
    assert set(result) == {
        "job", "steps", "measured_ns", "replayed_ns", "fidelity_pct", "critical_path", "floors",
        "warnings", "policies",
    }  # fmt: skip
    # Steps of 370, 470, 370, 470.
    assert result["steps"] == [0, 1, 2, 3]
    assert (result["measured_ns"], result["replayed_ns"]) == (420 * US, 420 * US)
    assert result["fidelity_pct"] == 0
    (entry,) = result["policies"]
    assert set(entry) == {
        "name", "params", "step_ns", "low_ns", "high_ns", "gain_pct", "recovered", "floors",
        "assumptions", "warnings",
    }  # fmt: skip
    # forward: 300 or 400 on rank 1 becomes 150 or 200; 220 and 270 a step.
    assert entry["name"] == "halved"
    assert entry["step_ns"] == 245 * US
    assert entry["gain_pct"] == pytest.approx(100 * 175 / 420)
    # Rank 0 waited 100 or 200, now 50 or 100: the mean over two ranks falls from 75 to 37.5.
    assert entry["recovered"] == {
        "wait_ns": 37_500, "transfer_ns": 0, "exposed_ns": 37_500,
    }  # fmt: skip
    # Every resample lies between all short steps and all long ones; and beside these the halved
    # work may be off by a tenth (15 or 20 us a step), runs by a hundredth.
    of_steps = 245 - 420 * 270 / 470, 420 * 220 / 370 - 245
    assert 17.5 <= (245 * US - entry["low_ns"]) / US <= math.hypot(of_steps[0], 17.5, 2.45) + 0.001
    assert 17.5 <= (entry["high_ns"] - 245 * US) / US <= math.hypot(of_steps[1], 17.5, 2.45) + 0.001
    assert [a[:12] for a in entry["assumptions"]] == ["half", "the interval"]
    json.dumps(result, allow_nan=False)


def test_a_policy_that_changes_nothing_changes_nothing(tables):
    job = job_of(tables)
    for spec in (NEUTRAL, "align-arrivals:factor=1"):
        (entry,) = run.replay(job, [spec])["policies"]
        assert entry["step_ns"] == entry["low_ns"] == entry["high_ns"] == 420 * US
        assert entry["gain_pct"] == 0
        assert entry["recovered"] == {"wait_ns": 0, "transfer_ns": 0, "exposed_ns": 0}


def test_the_same_call_gives_the_same_interval(tables):
    job = job_of(tables)
    assert run.replay(job, [HALVED]) == run.replay(job, [HALVED])


def test_aligned_arrivals_are_the_even_job(tables):
    (entry,) = run.replay(job_of(tables), ["align-arrivals"])["policies"]
    # Two ranks meet half-way by the median: nobody can be earlier than the earliest arrival.
    assert 270 * US <= entry["step_ns"] < 420 * US
    assert entry["recovered"]["wait_ns"] > 0


def test_several_policies_are_tried_alone_then_together(tables):
    result = run.replay(job_of(tables), [HALVED, "align-arrivals:ranks=1", HALVED])
    names = [p["name"] for p in result["policies"]]
    # Together by their stages: when ranks come is changed last.
    assert names == ["halved", "align-arrivals", "halved", "halved + halved + align-arrivals"]
    assert result["policies"][-1]["params"]["align-arrivals.ranks"] == [1]
    alone, together = result["policies"][0], result["policies"][-1]
    assert together["step_ns"] < alone["step_ns"]


def test_together_they_apply_by_their_stages(tables):
    applied = []

    def noting(name, stage):
        def apply(job, **_):
            applied.append(name)
            return job

        return Policy(name, "says when", "a test", (), ("none",), apply, stage)

    last = noting("links", Stage.LINKS)
    given = [noting("b", Stage.SCHEDULE), noting("a", Stage.SCHEDULE), noting("v", Stage.VOLUME)]
    tries = run.plan([*given, last])
    assert [p.name for p, _ in tries[-1]] == ["v", "links", "b", "a"]
    applied.clear()
    entry = run.estimate(run.baseline(job_of(tables)), tries[-1])
    assert applied == ["v", "links", "b", "a"]
    assert entry["name"] == "v + links + b + a"
    assert entry["assumptions"][0] == "applied in the order of their stages: v + links + b + a"


def test_a_sweep_gives_an_entry_a_point(tables):
    result = run.replay(job_of(tables), ["align-arrivals"], sweep={"factor": ["0", "0.5", "1"]})
    factors = [p["params"]["factor"] for p in result["policies"]]
    assert factors == [0.0, 0.5, 1.0]
    steps = [p["step_ns"] for p in result["policies"]]
    assert steps == sorted(steps)
    assert steps[-1] == 420 * US


def test_a_sweep_says_how_many_points_are_done(tables):
    told = []
    run.replay(job_of(tables), ["align-arrivals"], sweep={"factor": ["0", "0.5", "1"]},
               progress=lambda *n: told.append(n))  # fmt: skip
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_sweep_of_two_parameters_is_their_product():
    plan = run.plan(["algorithm"], {"algo": ["ring", "tree"], "alpha": ["1us", "2us"]})
    points = [(s[-1][1]["algo"], s[-1][1]["alpha"]) for s in plan]
    assert points == [("ring", 1e3), ("ring", 2e3), ("tree", 1e3), ("tree", 2e3)]


def test_sweeps_that_cannot_be():
    with pytest.raises(UsageError, match="needs a policy"):
        run.plan([], {"factor": ["1"]})
    with pytest.raises(BadParam, match="no parameter 'speed'"):
        run.plan(["algorithm"], {"speed": ["1"]})
    with pytest.raises(BadParam, match="several values"):
        run.plan(["algorithm"], {"algo": "ring"})


def test_one_step(tables):
    job = job_of(tables)
    result = run.replay(job, [HALVED], step=1)
    assert (result["steps"], result["measured_ns"]) == ([1], 470 * US)
    (entry,) = result["policies"]
    # Of 400 us of work 200 are gone: a tenth of that, and a hundredth of the step between runs.
    off = math.hypot(20, 2.7)
    assert entry["step_ns"] == 270 * US
    assert (entry["low_ns"], entry["high_ns"]) == (
        pytest.approx((270 - off) * US, abs=1), pytest.approx((270 + off) * US, abs=1)
    )  # fmt: skip
    assert "one step: the interval has nothing of what steps differ by" in entry["warnings"]
    assert any("10 % of the times that changed" in a for a in entry["assumptions"])
    with pytest.raises(UsageError, match="has no step 9; it has steps 0 to 3"):
        run.replay(job, step=9)


def test_two_steps_give_their_two_values(tables):
    (entry,) = run.replay(job_of(tables, n_steps=2), [HALVED])["policies"]
    low, high = 245 - 420 * 270 / 470, 420 * 220 / 370 - 245
    assert entry["low_ns"] == pytest.approx((245 - math.hypot(low, 17.5, 2.45)) * US, abs=1)
    assert entry["high_ns"] == pytest.approx((245 + math.hypot(high, 17.5, 2.45)) * US, abs=1)


def test_what_changes_nothing_is_in_no_doubt(tables):
    (entry,) = run.replay(job_of(tables), [NEUTRAL])["policies"]
    assert entry["step_ns"] == entry["low_ns"] == entry["high_ns"] == 420 * US
    assert not any("interval" in a for a in entry["assumptions"])


def test_unknown_policies_are_refused_before_anything_is_read():
    with pytest.raises(UsageError, match="no policy 'nope'"):
        run.replay(None, ["nope"])


def test_a_replay_far_off_is_flagged(tables):
    # A graph whose own gap was lost: 100 of 370 or 470 ns.
    job = job_of(tables)
    dur = np.where(job.graph.ops("forward"), job.graph.dur_ns - 100 * US, job.graph.dur_ns)
    result = run.replay(job.with_graph(dur_ns=dur), [NEUTRAL])
    assert result["fidelity_pct"] == pytest.approx(100 * (100 / 370 + 100 / 470) / 2)
    assert result["policies"][0]["warnings"][0] == (
        "estimates are doubtful: the unchanged replay is 24.2 % off the measured steps"
    )
    with pytest.raises(run.NotFaithful, match=r"24.2 % off .* more than the 5 % that --strict"):
        run.replay(job.with_graph(dur_ns=dur), [NEUTRAL], strict=True)
    assert run.NotFaithful.exit_code == 3
    assert run.replay(job, [NEUTRAL], strict=True)["policies"]


def test_the_calibration_is_given_where_asked_for(tables):
    job = job_of(tables)
    assert "calibration" not in run.replay(job)
    (row,) = run.replay(job, calibration=True)["calibration"]
    assert (row["op"], row["n"], row["collectives"]) == ("all_reduce", 2, 4)
    json.dumps(row, allow_nan=False)


def test_timelines_of_before_and_after(tables):
    base = run.baseline(job_of(tables))
    lines = run.timelines(base, run.plan([HALVED])[0])
    work = lines.before.graph.ops("forward")
    np.testing.assert_array_equal(
        (lines.after_end_ns - lines.after_start_ns)[work],
        (lines.before_end_ns - lines.before_start_ns)[work] // 2,
    )
    np.testing.assert_array_equal(lines.before_start_ns, base.start_ns)


def test_many_scenarios_at_once_are_each_alone(tables):
    base = run.baseline(job_of(tables))
    tries = run.plan(["align-arrivals"], {"factor": [k / 40 for k in range(41)]})
    assert run.estimates(base, tries) == [run.estimate(base, one) for one in tries]


class Snapshot:
    """What `load` needs of a warehouse's snapshot."""

    def __init__(self, files, job="files"):
        self.files, self.job = files, job


def test_load_reads_the_files_of_a_snapshot(tables, tmp_path):
    built = job_of(tables)
    files = {}
    for name, frame in tables.frames().items():
        rows = frame.partition_by("rank", as_dict=False) if "rank" in frame.columns else [frame]
        files[name] = []
        for i, part in enumerate(rows):
            path = tmp_path / f"{name}-{i}.parquet"
            part.to_arrow().cast(TABLES[name].schema)
            part.write_parquet(path)
            files[name].append(path)
    job = load.load(Snapshot(files))
    assert job.job == "files"
    np.testing.assert_array_equal(job.graph.dur_ns, built.graph.dur_ns)
    np.testing.assert_array_equal(job.graph.pred, built.graph.pred)


def test_a_job_with_nothing_in_it():
    with pytest.raises(UnusableInput, match="nothing to replay"):
        load.load(Snapshot({}, "empty"))


@pytest.fixture(scope="module")
def demo_snapshot(demo_job, tmp_path_factory):
    """The bundled job in a warehouse."""
    from retime.ingest.run import ingest
    from retime.ingest.warehouse import Warehouse

    where = str(tmp_path_factory.mktemp("demo") / "warehouse")
    ingest(where, [str(demo_job)], job="demo")
    return Warehouse(where).snapshot("demo")


def test_bundled_job_replays_within_one_percent(demo_snapshot):
    result = run.replay(demo_snapshot, ["align-arrivals", "algorithm"])
    assert result["steps"] == [10, 11, 12, 13]
    assert abs(result["fidelity_pct"]) < 1
    assert result["replayed_ns"] == pytest.approx(result["measured_ns"], rel=0.01)
    # The measured step is the mean of the windows in `steps`, nothing else.
    windows = pl.read_parquet(demo_snapshot.files["steps"], hive_partitioning=False)
    mean = (windows["end_ns"] - windows["start_ns"]).mean()
    assert result["measured_ns"] == pytest.approx(mean, abs=1)
    aligned, algorithm, both = result["policies"]
    assert 0 < aligned["gain_pct"] < 30
    assert aligned["low_ns"] <= aligned["step_ns"] <= aligned["high_ns"]
    assert aligned["recovered"]["wait_ns"] > 0
    # It has no all-reduce, and says so.
    assert algorithm["gain_pct"] == 0
    assert any("no all_reduce" in w for w in algorithm["warnings"])
    assert both["step_ns"] == aligned["step_ns"]


def test_less_lateness_never_lengthens_a_step_looked_at_alone(demo_snapshot):
    for step in (10, 11, 12, 13):
        swept = run.replay(
            demo_snapshot, ["align-arrivals:ranks=1"], sweep={"factor": [1, 0.5, 0]}, step=step
        )
        times = [point["step_ns"] for point in swept["policies"]]
        assert times[0] == pytest.approx(swept["measured_ns"], rel=1e-4)
        assert times == sorted(times, reverse=True)


def test_what_runs_side_by_side_is_what_runs_alone(demo_snapshot):
    base = run.baseline(load.load(demo_snapshot))
    tries = run.plan(["align-arrivals"], {"ranks": ["0", "1", "2", "3"], "factor": [0, 0.5]})
    assert run.estimates(base, tries) == [run.estimate(base, one) for one in tries]


def test_bundled_jobs_gaps_are_explained(demo_snapshot):
    graph = load.load(demo_snapshot).graph
    inside = graph.step >= 0
    # What neither stream, launch nor wait explains is a small part of the work.
    assert graph.gap_ns[inside].sum() < 0.1 * graph.dur_ns[inside].sum()


def test_steps_of_no_time_are_refused(tables):
    """Marks that lie on each other leave nothing to divide by."""
    tables.kernel(0, "work", 0, 10, step=0)
    tables.step(0, 0, 5, 5)
    with pytest.raises(UnusableInput, match="no time"):
        run.replay(kineto.build(tables.frames(), "instant"), [])


def test_a_policy_that_finds_nothing_says_so(tables):
    """An estimate of no gain is not the same as nothing to estimate."""
    tables.kernel(0, "work", 0, 10, step=0)
    tables.step(0, 0, 0, 10)
    job = kineto.build(tables.frames(), "alone")
    slower = Policy(
        "slower", "", "a test", (), (), lambda job: job.with_graph(dur_ns=2 * job.graph.dur_ns)
    )
    nothing, something = run.replay(job, [NEUTRAL, slower])["policies"][:2]
    assert any("neutral changed nothing" in w for w in nothing["warnings"])
    assert not any("changed nothing" in w for w in something["warnings"])
