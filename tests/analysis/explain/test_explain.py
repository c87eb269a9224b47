"""What an explanation says, held to the replays that it draws and to figures worked out by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from retime.analysis.explain import chosen, drawing, explain, moved, pairs, sides
from retime.analysis.explain.page import page
from retime.analysis.report.stretches import CLASSES
from retime.ingest.errors import UsageError
from retime.replay import edges, engine, graph
from retime.replay.graph import NULL, Kind

from ...replay import random_jobs
from .conftest import doing, explained


def unpacked(picture, side: int, rank: int) -> list[tuple[str, int, int]]:
    """The stretches of a lane as the page's script sees them, in ns."""
    lane = picture["sides"][side]["lanes"][rank]
    at, out = lane["from"], []
    for value in lane["run"]:
        begin, at = at, at + (value >> 3)
        ns = (round(begin * picture["tick_ns"]), round(at * picture["tick_ns"]))
        out.append((CLASSES[value & 7], *ns))
    return out


def parts_of(picture, side: int, rank: int) -> dict[str, list[tuple[int, ...]]]:
    """Begin, wait (-2: none) and length of each named part of a lane, ns, by name."""
    flat = picture["sides"][side]["lanes"][rank]["parts"]
    out: dict[str, list[tuple[int, ...]]] = {}
    for i in range(0, len(flat), 4):
        thing, begin, wait, took = flat[i : i + 4]
        ns = [round(t * picture["tick_ns"]) if t >= 0 else t for t in (begin, wait, took)]
        out.setdefault(picture["labels"][picture["things"][thing]], []).append(tuple(ns))
    return out


def test_the_lanes_before_and_after_by_hand(found):
    """Rank 1 comes 300 late; under align-arrivals both come at the mean, 550, and nobody waits.

    On rank 0 nothing ties the copy at 900 to the collective; on rank 1 its stream does.
    """
    data, _ = found("align-arrivals")
    picture = data["drawing"]
    assert unpacked(picture, 0, 0) == [
        ("compute", 0, 400), ("exposed_wait", 400, 700), ("exposed_transfer", 700, 900),
        ("exposed_memcpy", 900, 950), ("idle", 950, 1000),
    ]  # fmt: skip
    assert unpacked(picture, 0, 1) == [
        ("compute", 0, 700), ("exposed_transfer", 700, 800), ("compute_with_comm", 800, 900),
        ("exposed_memcpy", 900, 950), ("idle", 950, 1000),
    ]  # fmt: skip
    assert unpacked(picture, 1, 0) == [
        ("compute", 0, 400), ("idle", 400, 550), ("exposed_transfer", 550, 750),
        ("idle", 750, 900), ("exposed_memcpy", 900, 950), ("idle", 950, 1000),
    ]  # fmt: skip
    assert unpacked(picture, 1, 1) == [
        ("compute", 0, 550), ("exposed_transfer", 550, 650), ("compute_with_comm", 650, 750),
        ("exposed_memcpy", 750, 800), ("idle", 800, 850),
    ]  # fmt: skip
    # The mean over ranks of 1000 and 850.
    assert (data["before_ns"], data["after_ns"]) == (1000, 925)


def test_the_lanes_are_those_of_the_timelines_at_each_moment(found):
    data, lines = found("align-arrivals")
    for side, (job, start, end) in enumerate((lines[:3], lines[3:])):
        for rank in (0, 1):
            for words, begin, until in unpacked(data["drawing"], side, rank):
                for moment in (begin + 0.5, (begin + until) / 2, until - 0.5):
                    assert doing(job.graph, start, end, rank, moment) == words


def test_named_parts_are_tasks_of_the_timelines(found):
    data, lines = found("align-arrivals")
    assert parts_of(data["drawing"], 0, 1) == {
        "gemm": [(0, -2, 700), (800, -2, 100)],
        "all_reduce · 2 KiB": [(700, 0, 200)],
        "copy: Memcpy DtoD": [(900, -2, 50)],
    }
    assert parts_of(data["drawing"], 0, 0)["all_reduce · 2 KiB"] == [(400, 300, 500)]
    work = lines.after.graph.kind == Kind.COMPUTE
    for rank in (0, 1):
        mine = np.flatnonzero(work & (lines.after.graph.rank == rank))
        took = lines.after_end_ns - lines.after_start_ns
        expected = [(int(lines.after_start_ns[t]), -2, int(took[t])) for t in mine]
        assert parts_of(data["drawing"], 1, rank)["gemm"] == expected
    # A task is one thing on both sides, and the collective on both ranks.
    things = [
        {p[i] for i in range(0, len(p), 4)}
        for side in data["drawing"]["sides"]
        for p in [lane["parts"] for lane in side["lanes"].values()]
    ]
    assert things[:2] == things[2:]
    assert len(things[0] & things[1]) == 1


def test_what_moved_by_hand(found):
    data, _ = found("align-arrivals")
    ranks = data["by_rank"].select("rank", "before_ns", "after_ns", "earlier_ns", *moved.SAVED)
    assert ranks.rows() == [
        (0, 1000, 1000, 0, 0, 300, 0, 0, -300),
        (1, 1000, 850, 150, 150, 0, 0, 0, 0),
    ]
    names = data["by_name"].select("what", "n_before", "n_after", "before_ns", "after_ns", "rank")
    # Means over two ranks: a wait of 300 on one, a delay of 150, 150 less of gemm.
    assert names.rows() == [
        ("wait for others in all_reduce", 2, 2, 150.0, 0.0, 0),
        ("delay before all_reduce", 0, 1, 0.0, 75.0, 0),
        ("gemm", 3, 3, 600.0, 525.0, 1),
    ]
    columns = ("what", "rank", "ranks", "start_before_ns", "start_after_ns", "takes_before_ns",
               "takes_after_ns", "saved_ns", "earlier_ns")  # fmt: skip
    singles = data["singles"].select(columns)
    assert moved.most(singles, "saved_ns").rows() == [
        ("gemm", 1, 1, 0, 0, 700, 550, 150, 0),
        # The mean of 500 and 200, then of 200 and 200.
        ("all_reduce · 2 KiB", -1, 2, 700, 550, 350, 200, 150, 150),
    ]
    assert moved.most(singles, "earlier_ns")["what"].to_list() == [
        "all_reduce · 2 KiB", "gemm", "copy: Memcpy DtoD",
    ]  # fmt: skip


def test_a_policy_that_changes_nothing_moves_nothing(found):
    data, _ = found("align-arrivals:factor=1")
    assert data["singles"].is_empty()
    assert data["by_name"].is_empty()
    assert data["by_rank"]["changed_ns"].to_list() == [0, 0]
    one, other = data["drawing"]["sides"]
    assert one["lanes"] == other["lanes"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_jobs.jobs(), st.integers(0, 2**32 - 1))
def test_lanes_of_random_jobs_hold_together(job, seed):
    """Lanes are whole and back to back, and what is saved adds up to what a rank's step loses."""
    was = job.graph
    drawn = np.random.default_rng(seed)
    now = was.with_(dur_ns=(was.dur_ns * drawn.uniform(0.2, 1.5, was.n)).astype(np.int64))
    step = int(drawn.choice(was.steps[0]))
    both = [sides.of(g, *engine.replay(g), step) for g in (was, now)]
    rows = [sides.stretches(side) for side in both]
    for side, frame in zip(both, rows, strict=True):
        for rank, begin, until in zip(side.ranks, side.begin_ns, side.until_ns, strict=True):
            lane = frame.filter(pl.col("rank") == int(rank))
            if begin == until:
                continue
            assert lane["start_ns"][0] == begin
            assert lane["end_ns"][-1] == until
            assert lane["start_ns"][1:].to_list() == lane["end_ns"][:-1].to_list()
        # A wait that no computation covers is a wait of the replay's own.
        waits = int((side.start_ns[side.transfer] - side.end_ns[side.arrive]).sum())
        lanes = frame.filter(pl.col("class") == sides.WAIT)
        assert int((lanes["end_ns"] - lanes["start_ns"]).sum()) <= waits
    table = moved.by_rank(*both, *rows)
    parts = sum((table[c] for c in moved.SAVED), start=pl.Series([0] * len(table)))
    assert parts.to_list() == table["saved_ns"].to_list()
    lost = [(s.until_ns - s.begin_ns) for s in both]
    assert (lost[0] - lost[1]).tolist() == table["saved_ns"].to_list()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_jobs.jobs())
def test_tasks_are_known_again_where_a_policy_made_others(job):
    """A graph with a task more for each transfer: the old ones pair up, the new ones are new."""
    was = job.graph
    added = edges.Added(was)
    transfers = np.flatnonzero(was.kind == Kind.TRANSFER)
    for task in transfers.tolist():
        added.edge(task, added.task(task, dur_ns=7))
    now, at = edges.extended(was, added, *edges.of(was))
    same = pairs.of(was, now)
    old = np.flatnonzero(was.kind != Kind.JOIN)
    measured = [tuple(getattr(was, c)[old].tolist()) for c in pairs.KEY]
    # Tasks of one rank, kind and measurement are as good as each other.
    if len(set(zip(*measured, strict=True))) == len(old):
        assert dict(zip(same.before.tolist(), same.after.tolist(), strict=True)) == dict(
            zip(old.tolist(), at[old].tolist(), strict=True)
        )
    assert len(same.before) == len(old)
    assert sorted(same.new.tolist()) == sorted(at[was.n :].tolist())
    assert len(same.gone) == 0
    back = pairs.of(now, was)
    assert (len(back.new), len(back.gone)) == (0, len(transfers))


def test_the_head_says_what_is_drawn_and_what_is_not(found):
    data, _ = found("align-arrivals")
    said = "re-timed 1.000 us unchanged, 925 ns after, 7.5 % shorter."
    assert said in page({**data, "timeline": "t"})
    # Saves cost 1 s of 10 s, failures half an interval of 100 s: 10 % and 5 %.
    data, _ = found("checkpoint:every=10s,save=1s,restart=0s,mtbf=100s")
    head = page({**data, "timeline": "t"})
    assert "re-timed 1.000 us unchanged, 1.000 us after. The estimate has 15.0 % more" in head
    assert "Nothing of it moves." in head


def test_new_buckets_are_said_to_be_new(bundled):
    """overlap in buckets makes participations that the trace has not."""
    from retime.replay.load import load

    data, lines = explained(load(bundled.snapshot), "overlap:chunk=8MiB", step=12)
    more = lines.after.graph.n - lines.before.graph.n
    assert more > 100
    assert any("that the trace has not" in said for said in data["beside"])
    new = data["singles"].filter(pl.col("takes_before_ns").is_null())
    assert len(new) > 0
    assert new["what"].str.contains("reduce_scatter · 8 MiB").any()
    assert (new["saved_ns"] == -new["takes_after_ns"]).all()
    row = data["by_name"].filter(pl.col("what") == "transfer of reduce_scatter").row(0, named=True)
    assert row["n_after"] > row["n_before"]


def test_the_step_of_median_time_is_drawn():
    def job(*lengths: int) -> graph.TaskGraph:
        n = len(lengths)
        made, _ = graph.build(
            n, [], [], rank=np.zeros(n), step=np.arange(5, 5 + n), dur_ns=np.array(lengths),
            start_ns=np.arange(n) * 1000, end_ns=np.arange(n) * 1000 + lengths,
            kind=np.full(n, Kind.COMPUTE),
        )  # fmt: skip
        return made

    assert chosen.step(job(30, 10, 20)) == (7, "the median")
    assert chosen.step(job(30, 10, 20, 40)) == (7, "the median")
    assert chosen.step(job(30)) == (5, "the only one")
    assert chosen.step(job(30, 10), 6) == (6, "as asked")


def test_of_several_together_and_of_a_sweep_the_best():
    def entry(name: str, ns: int) -> dict:
        return {"name": name, "step_ns": ns}

    assert chosen.scenario([entry("a", 5), entry("b", 3), entry("a + b", 4)]) == 2
    assert chosen.scenario([entry("a", 5), entry("a", 3), entry("a", 4)]) == 1
    many = [entry("a", 1), entry("b", 2), entry("b", 9), entry("a + b", 8), entry("a + b", 7)]
    assert chosen.scenario(many) == 4


def test_at_most_64_lanes_those_that_change_most():
    n = 200
    changed = pl.DataFrame({"rank": np.arange(n), "changed_ns": [r % 100 for r in range(n)]})
    hosts = {r: f"h{r % 2}" for r in range(n)}
    lanes = drawing.kept(changed, hosts)
    assert len(lanes) == 64
    assert {r % 100 for r in lanes} == set(range(68, 100))
    # Hosts stand together, the one of the lowest rank first.
    assert lanes == [*range(68, 100, 2), *range(168, 200, 2), *range(69, 100, 2),
                     *range(169, 200, 2)]  # fmt: skip


def large(ranks: int = 64, each: int = 2000) -> graph.TaskGraph:
    """A step of many ranks: computations of random length, a collective after every twentieth."""
    drawn = np.random.default_rng(3)
    tasks, src, dst = [], [], []
    last = [-1] * ranks
    for k in range(each):
        if k % 20 == 19:
            join = len(tasks)
            tasks.append((Kind.JOIN, -1, 0, k))
            for r in range(ranks):
                tasks += [(Kind.ARRIVE, r, 0, k), (Kind.TRANSFER, r, 5000, k)]
                arrive, transfer = len(tasks) - 2, len(tasks) - 1
                src += [last[r], arrive, join]
                dst += [arrive, join, transfer]
                last[r] = transfer
            continue
        for r in range(ranks):
            tasks.append((Kind.COMPUTE, r, int(drawn.integers(500, 9000)), -1))
            if last[r] >= 0:
                src.append(last[r])
                dst.append(len(tasks) - 1)
            last[r] = len(tasks) - 1
    kind, rank, dur, collective = (np.array(c) for c in zip(*tasks, strict=True))
    names = tuple(f"kernel_{i}<" + "x" * 60 for i in range(300))
    made, _ = graph.build(
        len(tasks), src, dst, order_ns=np.arange(len(tasks)), kind=kind, rank=rank, dur_ns=dur,
        gap_ns=np.where(kind == Kind.COMPUTE, 300, 0), collective=collective,
        step=np.zeros(len(tasks)), op=np.arange(len(tasks)) % 300,
        comm=np.where(collective >= 0, 0, -1), op_names=names, comm_names=("world",),
    )  # fmt: skip
    start, end = engine.replay(made)
    none = made.kind == Kind.JOIN
    return made.with_(start_ns=np.where(none, NULL, start), end_ns=np.where(none, NULL, end))


def test_a_page_of_64_ranks_is_under_5_mb():
    from retime.replay.policy import ReplayJob

    data, _ = explained(ReplayJob(large(), "large"), "align-arrivals")
    picture = data["drawing"]
    assert len(picture["lanes"]) == 64
    assert picture["merged_under_ns"] > 0
    assert picture["unnamed"] > 0
    assert 1_000_000 < len(page({**data, "timeline": "t"}).encode()) < 5_000_000


def test_both_timelines_in_one_perfetto_trace(rows, job_of, decode, tmp_path):
    told = explain(job_of(rows), ["align-arrivals"], tmp_path / "why.html")
    assert told["explained"] == {
        "page": str(tmp_path / "why.html"),
        "timeline": str(tmp_path / "why.perfetto-trace.gz"),
        "policy": "align-arrivals",
        "step": 5,
        "why": "the only one",
        "before_ns": 1000,
        "after_ns": 925,
    }
    trace = decode(tmp_path / "why.perfetto-trace.gz")
    found = {
        (s.process, trace.tracks[s.lane][1], s.track, s.name): (s.start, s.end)
        for s in trace.slices
        if s.name != "gemm"
    }
    before, after = "replay: unchanged", "replay: align-arrivals"
    assert found[before, "rank 0", "waits", "wait (all_reduce)"] == (400, 700)
    assert (after, "rank 0", "waits", "wait (all_reduce)") not in found
    for rank in ("rank 0", "rank 1"):
        assert found[before, rank, "transfers", "all_reduce"] == (700, 900)
        assert found[after, rank, "transfers", "all_reduce"] == (550, 750)
    assert found[before, "rank 1", "steps", "step 5"] == (0, 1000)
    assert found[after, "rank 1", "steps", "step 5"] == (0, 850)
    assert found[before, "rank 1", "copies", "Memcpy DtoD"] == (900, 950)
    assert found[after, "rank 1", "copies", "Memcpy DtoD"] == (750, 800)
    gemms = sorted(
        (s.process, s.start, s.end)
        for s in trace.slices
        if s.name == "gemm" and trace.tracks[s.lane][1] == "rank 1"
    )
    assert gemms == [(after, 0, 550), (after, 650, 750), (before, 0, 700), (before, 800, 900)]


def test_perfetto_has_what_a_policy_made(bundled, decode, tmp_path):
    """Of the chosen step alone, with the buckets that no trace has, and both begin together."""
    explain(bundled, ["overlap:chunk=8MiB"], tmp_path / "o.html", step=12)
    trace = decode(tmp_path / "o.perfetto-trace.gz")
    slices = {"unchanged": [], "overlap:chunk=8388608": []}
    for s in trace.slices:
        slices[s.process.removeprefix("replay: ")].append(s)
    was, now = slices.values()
    for mine in (was, now):
        assert {s.name for s in mine if s.track == "steps"} == {"step 12"}
    moved_of = [[s for s in mine if s.track == "transfers"] for mine in (was, now)]
    assert len(moved_of[1]) > len(moved_of[0]) > 0
    assert any("measured_start_ns" not in s.args for s in moved_of[1])
    assert all("measured_start_ns" in s.args for s in moved_of[0])
    first = [min(s.start for s in mine if s.track == "steps") for mine in (was, now)]
    assert first[0] == first[1]


SLICES = """
    SELECT p.name AS process, parent.name AS rank, t.name AS track, s.name, s.ts, s.dur
    FROM slice s
    JOIN process_track t ON s.track_id = t.id
    JOIN process p USING (upid)
    LEFT JOIN track parent ON t.parent_id = parent.id
"""
LOST = "SELECT name FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"


def test_both_timelines_in_perfettos_own_trace_processor(rows, job_of, ask, tmp_path):
    """The figures of the job of two ranks by hand, as Perfetto reads them."""
    explain(job_of(rows), ["align-arrivals"], tmp_path / "why.html")
    lost, slices = ask(tmp_path / "why.perfetto-trace.gz", [LOST, SLICES])
    assert lost == []
    took = {}
    for s in slices:
        side = s["process"].removeprefix("replay: ")
        place = side, s["rank"], s["track"]
        took.setdefault(place, []).append((int(s["ts"]), int(s["dur"])))
    for of_place in took.values():
        of_place.sort()
    before, after = "unchanged", "align-arrivals"
    assert {side for side, _, _ in took} == {before, after}
    assert took[before, "rank 0", "steps"] == took[before, "rank 1", "steps"] == [(0, 1000)]
    assert took[after, "rank 0", "steps"] == [(0, 1000)]
    assert took[after, "rank 1", "steps"] == [(0, 850)]
    assert took[before, "rank 0", "waits"] == [(400, 300)]
    assert (after, "rank 0", "waits") not in took
    for rank in ("rank 0", "rank 1"):
        assert took[before, rank, "transfers"] == [(700, 200)]
        assert took[after, rank, "transfers"] == [(550, 200)]
    assert took[before, "rank 1", "compute"] == [(0, 700), (800, 100)]
    assert took[after, "rank 1", "compute"] == [(0, 550), (650, 100)]


def test_a_real_step_in_perfettos_own_trace_processor(bundled, ask, tmp_path):
    """Step 12 of the bundled job: what ran is what the trace says, and rank 1 is late no more."""
    told = explain(bundled, ["align-arrivals"], tmp_path / "why.html", step=12)["explained"]
    lost, ends, work = ask(
        tmp_path / "why.perfetto-trace.gz",
        [
            LOST,
            f"SELECT process, min(ts) AS first, sum(dur) AS dur, count(*) AS n FROM ({SLICES}) "
            "WHERE track = 'steps' GROUP BY process",
            f"SELECT process, count(*) AS n, sum(dur) AS dur FROM ({SLICES}) "
            "WHERE track = 'compute' GROUP BY process",
        ],
    )
    assert lost == []
    ends, work = ({r["process"]: r for r in of} for of in (ends, work))
    before, after = "replay: unchanged", "replay: align-arrivals"
    assert set(ends) == set(work) == {before, after}
    assert ends[before]["first"] == ends[after]["first"]
    assert ends[before]["n"] == ends[after]["n"] == 8
    for process, step_ns in ((before, told["before_ns"]), (after, told["after_ns"])):
        assert int(ends[process]["dur"]) / 8 == pytest.approx(step_ns, abs=1)
    # Nothing computes that the trace has not; a late rank sheds some of it, no other.
    recorded = bundled.sql(
        "SELECT count(*) AS n, sum(e.dur_ns)::BIGINT AS ns FROM events e JOIN steps s ON "
        "s.rank = e.rank AND s.step = 12 AND e.start_ns >= s.start_ns AND e.start_ns < s.end_ns "
        "WHERE e.kind = 'kernel' AND e.category <> 'comm'"
    )
    assert work[before]["n"] == work[after]["n"] == recorded["n"][0]
    assert int(work[before]["dur"]) == recorded["ns"][0] > int(work[after]["dur"])


@pytest.mark.parametrize(
    ("policies", "path", "words"),
    [
        ([], None, "--explain draws what a policy changes: name one with --policy"),
        (["align-arrivals"], "why.txt", "'why.txt', with .html"),
        (["align-arrivals"], "/dev/null/why.html", "cannot be written"),
        (["nonsense"], "why.html", "no policy 'nonsense'"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    rows, job_of, tmp_path, monkeypatch, policies, path, words
):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    job = job_of(rows)
    with pytest.raises(UsageError, match=words):
        explain(job, policies, path)
    assert {p.suffix for p in set(tmp_path.iterdir()) - set(before)} <= {".parquet"}
