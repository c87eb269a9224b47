"""Matching across ranks: real jobs with a naive reader as oracle, and jobs of known truth."""

import importlib.util
import random
import tarfile
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest import matching, schema
from retime.ingest.matching import participations, resolution


def beside(name):
    """A helper module in this folder (tests are not a package)."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


crude, sim = beside("crude"), beside("simulated")
US, MS, S = sim.US, sim.MS, sim.S
PAIR, FOUR = ((0, 1),), ((0, 1, 2, 3),)


def real(raws):
    """A job of Kineto traces, read by the naive reader; the comm of a kernel is its group."""
    rows, ranks = [], []
    for raw in raws:
        kernels, rank = crude.read(raw)
        rows += kernels
        ranks.append(rank)
    comms = [
        {"comm": c, "name": "0", "ranks": list(range(8)), "size": 8, "dim": "unknown"}
        for c in {r["comm"] for r in rows if r["comm"]}
    ]
    return sim.Job(rows, ranks, comms)


@pytest.fixture(scope="session")
def h100(retime_traces):
    folder = retime_traces / "kineto/modded-nanogpt/2025-12-11_NorMuonOptimsAndFixes"
    return real(p.read_bytes() for p in sorted(folder.glob("*/*.json.gz")))


def resolve(job):
    return matching.resolve(**job.tables())


def codes(resolved):
    return Counter(p.code for p in resolved.problems)


def matches(job, resolved):
    """(ranks, match) of each instance, counted."""
    return Counter((len(v), v[0]["match"]) for v in sim.instances(job, resolved).values())


def counted_from_the_end(job, n):
    """Oracle for equal ends of capture: the i-th kernel from the end, for the last n of a rank."""
    by_rank = {}
    for row in job.rows:
        by_rank.setdefault(row["rank"], []).append(row)
    return {
        row["event_id"]: i for rows in by_rank.values() for i, row in enumerate(reversed(rows[-n:]))
    }


# --- real jobs -----------------------------------------------------------------------------------


def test_the_h100_set_matches_76_kernels_on_all_eight_ranks(h100):
    out = resolve(h100)
    assert matches(h100, out) == {(8, "order"): 76, (4, "partial"): 5, (3, "partial"): 3}
    oracle = counted_from_the_end(h100, 76)
    for rows in sim.instances(h100, out).values():
        places = {oracle.get(r["event_id"]) for r in rows}
        assert len(places) == 1
        if len(rows) == 8:
            ends = [r["end_ns"] for r in rows]
            assert max(ends) - min(ends) <= 200 * US
            assert max(r["start_ns"] for r in rows) <= min(ends)
    assert out.clocks == "one-host"
    assert set(out.ranks["host"].to_pylist()) == {"host0"}
    assert set(out.ranks["host_source"].to_pylist()) == {"inferred"}
    # kernels without args got the stream's only communicator
    assert out.collectives["comm"].null_count == 0
    assert out.comms.to_pylist()[0]["dim"] == "world"
    assert codes(out) == {"match_incomplete": 1}


@pytest.mark.parametrize("per_host", [1, 2, 4])
def test_the_h100_set_on_hosts_with_skewed_clocks_gives_the_same_instances(h100, per_host):
    skew = [0, 50 * MS, -50 * MS, 12_345_678, 3 * S, -7, 400 * S, 90 * US]

    def move(row):
        by = skew[row["rank"] // per_host]
        return row | {"start_ns": row["start_ns"] - by, "end_ns": row["end_ns"] - by}

    ranks = [move(r) | {"host": f"n{r['rank'] // per_host}"} for r in h100.ranks]
    moved = sim.Job([move(r) for r in h100.rows], ranks, h100.comms)
    out = resolve(moved)
    assert out.clocks == "aligned"
    assert matches(moved, out) == {(8, "order"): 76, (4, "partial"): 5, (3, "partial"): 3}
    oracle = counted_from_the_end(h100, 76)
    for rows in sim.instances(moved, out).values():
        assert len({oracle.get(r["event_id"]) for r in rows}) == 1
    for row in out.ranks.to_pylist():
        by = skew[row["rank"] // per_host]
        assert abs(row["clock_offset_ns"] - by) <= row["clock_error_ns"] <= 20 * US


def test_the_dlrm_set_without_any_group_matches_on_all_eight_ranks(retime_traces):
    with tarfile.open(retime_traces / "kineto/param/dlrm_kineto.tar.gz") as tar:
        files = [tar.extractfile(m) for m in tar if m.isfile()]
        job = real(f.read() for f in files if f)
    out = resolve(job)
    assert matches(job, out) == {(8, "order"): 8}
    oracle = counted_from_the_end(job, 8)
    for rows in sim.instances(job, out).values():
        assert len({oracle[r["event_id"]] for r in rows}) == 1
    assert [(r["size"], r["dim"], r["dim_source"]) for r in out.comms.to_pylist()] == [
        (8, "world", "members")
    ]
    assert out.problems == []
    # one rank's trace missing: still found, no longer whole
    seven = sim.Job([r for r in job.rows if r["rank"] != 3],
                    [r for r in job.ranks if r["rank"] != 3], [])  # fmt: skip
    assert matches(seven, resolve(seven)) == {(7, "partial"): 8}


def test_two_sampled_ranks_of_128_are_not_matched(retime_traces):
    folder = retime_traces / "kineto/HolisticTraceAnalysis/trace_filter"
    job = real(p.read_bytes() for p in sorted(folder.iterdir()))
    out = resolve(job)
    assert matches(job, out) == {(1, "partial"): 20}
    assert out.ranks["host_source"].to_pylist() == ["unknown", "unknown"]
    assert out.clocks == "unaligned"


# --- by number -----------------------------------------------------------------------------------


def test_numbers_match_exactly_and_a_missing_rank_makes_partial():
    job = sim.simulate([sim.Op("w", FOUR), sim.Op("w", FOUR, "all_gather")], ranks=4)
    out = resolve(job)
    assert matches(job, out) == {(4, "exact"): 12}
    assert sim.wrong(job, out) == []
    assert out.problems == []
    three = sim.without(job, lambda r: r["rank"] == 2)
    out = resolve(three)
    assert matches(three, out) == {(3, "partial"): 12}
    assert codes(out) == {"match_incomplete": 1}
    assert out.problems[0].count == 12


def test_ids_by_number_stay_when_a_rank_arrives_later():
    job = sim.simulate([sim.Op("w", FOUR)], ranks=4)
    late = sim.without(job, lambda r: r["rank"] == 0)
    ids = {r["event_id"]: i for i, rows in sim.instances(job, resolve(job)).items() for r in rows}
    for i, rows in sim.instances(late, resolve(late)).items():
        assert {ids[r["event_id"]] for r in rows} == {i}


def test_ids_by_order_stay_when_a_higher_rank_arrives_later():
    job = sim.simulate([sim.Op("w", FOUR)], ranks=4, numbered=False)
    late = sim.without(job, lambda r: r["rank"] == 3)
    ids = {r["event_id"]: i for i, rows in sim.instances(job, resolve(job)).items() for r in rows}
    for i, rows in sim.instances(late, resolve(late)).items():
        assert {ids[r["event_id"]] for r in rows} == {i}


def test_ids_are_positive_and_unique():
    program = [sim.Op("w", FOUR), sim.Op("p", ((0, 2), (2, 0)), "send")]
    out = resolve(sim.simulate(program, ranks=4, steps=20))
    ids = out.collectives["collective_id"].to_pylist()
    assert min(ids) > 0
    assert len(set(ids)) == 20 * 3


def test_groups_with_one_name_stay_apart():
    halves = ((0, 2), (1, 3))
    job = sim.simulate([sim.Op("5", halves)], ranks=4)
    assert {c["name"] for c in job.comms} == {"5"}
    out = resolve(job)
    assert matches(job, out) == {(2, "exact"): 12}
    assert sim.wrong(job, out) == []


def test_a_contradicted_number_is_a_problem_and_no_row():
    job = sim.simulate([sim.Op("w", FOUR)], ranks=4, steps=3)
    for row in job.rows:
        if row["seq"] == 1 and row["rank"] == 2:
            row["in_bytes"] = row["out_bytes"] = 64
    out = resolve(job)
    assert matches(job, out) == {(4, "exact"): 2, (1, "partial"): 4}
    assert codes(out)["match_contradiction"] == 1


def test_equal_numbers_of_different_moments_are_a_problem_and_no_row():
    # the job was restarted on rank 1 and counts again from 0: its 3 is not rank 0's 3
    job = sim.simulate([sim.Op("w", PAIR)], ranks=2, steps=10)
    job = sim.without(job, lambda r: r["rank"] == 1 and r["seq"] < 4)
    for row in job.rows:
        if row["rank"] == 1:
            row["seq"] -= 4
    out = resolve(job)
    assert matches(job, out) == {(1, "partial"): 16}
    assert codes(out)["match_contradiction"] == 1


def test_rows_without_args_take_the_number_that_their_place_implies():
    job = sim.simulate([sim.Op("w", FOUR), sim.Op("w", FOUR, "all_gather")], ranks=4)
    for row in job.rows:
        if row["rank"] in (1, 2) and row["seq"] in (0, 1, 2, 7):
            row.update(seq=None, comm=None, in_bytes=None, out_bytes=None, group_size=None)
    out = resolve(job)
    assert sim.wrong(job, out) == []
    assert matches(job, out) == {(4, "exact"): 8, (4, "order"): 4}


def test_a_row_that_does_not_fit_its_place_leaves_the_numbered_rows_together():
    # rank 1 lost the kernel before its first numbered one: its bare row is of an earlier moment
    job = sim.simulate([sim.Op("w", FOUR)], ranks=4)
    job = sim.without(job, lambda r: r["rank"] == 1 and r["seq"] == 1)
    for row in job.rows:
        if row["rank"] == 1 and row["seq"] == 0:
            row.update(seq=None, in_bytes=None, out_bytes=None)
    out = resolve(job)
    assert sim.wrong(job, out) == []
    assert matches(job, out) == {(4, "exact"): 4, (3, "partial"): 2, (1, "partial"): 1}
    assert codes(out)["match_contradiction"] == 1


def test_rows_without_args_on_a_stream_of_two_communicators_stay_alone():
    program = [sim.Op("a", PAIR), sim.Op("b", PAIR)]
    job = sim.simulate(program, ranks=2, steps=3)
    for row in job.rows:
        if row["truth"] == 3:
            row.update(seq=None, comm=None, in_bytes=None, out_bytes=None, group_size=None)
    out = resolve(job)
    assert matches(job, out) == {(2, "exact"): 5, (1, "partial"): 2}
    assert [r for r in out.collectives["comm"].to_pylist() if r is None] == [None, None]


def test_operations_that_share_a_kernel_match_one_by_one():
    job = sim.simulate([sim.Op("w", FOUR)], ranks=4, steps=2)
    twins = [
        r | {"seq": r["seq"] + 100, "op": "broadcast", "truth": r["truth"] + 100, "coalesced": 2}
        for r in job.rows
    ]
    job = job._replace(rows=[r | {"coalesced": 2} for r in job.rows] + twins)
    out = resolve(job)
    assert matches(job, out) == {(4, "exact"): 4}
    assert sim.wrong(job, out) == []


def test_two_operations_of_a_coalesced_block_with_one_number_pair_in_order():
    job = sim.simulate([sim.Op("w", FOUR, size=64), sim.Op("w", FOUR, size=128)], ranks=4, steps=2)
    for row in job.rows:
        row["seq"] //= 2
    out = resolve(job)
    assert matches(job, out) == {(4, "exact"): 4}
    assert sim.wrong(job, out) == []


def test_a_communicator_of_one_is_whole_with_one_row():
    job = sim.simulate([sim.Op("solo", ((0,),))], ranks=2, steps=2)
    assert matches(job, resolve(job)) == {(1, "exact"): 2}


# --- by order ------------------------------------------------------------------------------------

STEP = [
    sim.Op("w", FOUR, "reduce_scatter", 1 << 22, 2 * MS, 200 * US),
    sim.Op("w", FOUR, "reduce_scatter", 1 << 22, 5 * US, 200 * US),
    sim.Op("w", FOUR, "reduce_scatter", 1 << 22, 5 * US, 200 * US),
    sim.Op("w", FOUR, "all_gather", 1 << 22, 1 * MS, 200 * US),
]


def test_windows_that_begin_and_end_at_different_moments_do_not_shift_pairs():
    job = sim.simulate(STEP, ranks=4, numbered=False)
    n = len(STEP) * 6
    cut = {0: (3, n), 1: (0, n - 2), 2: (7, n), 3: (1, n - 5)}
    job = sim.without(job, lambda r: not cut[r["rank"]][0] < r["truth"] <= cut[r["rank"]][1])
    out = resolve(job)
    assert sim.wrong(job, out) == []
    assert matches(job, out)[4, "order"] == n - 7 - 5
    seen = Counter(r["truth"] for r in job.rows)
    assert sorted(len(v) for v in sim.instances(job, out).values()) == sorted(seen.values())


@pytest.mark.parametrize("per_host", [1, 2, 4])
def test_a_lost_kernel_in_the_middle_does_not_shift_what_follows(per_host):
    job = sim.simulate(STEP, ranks=4, per_host=per_host, numbered=False, steps=12,
                       offset_ns=(0, 50 * MS, -50 * MS, 7), jitter_ns=5 * US)  # fmt: skip
    job = sim.without(job, lambda r: r["rank"] == 1 and r["truth"] in (16, 29))
    out = resolve(job)
    assert sim.wrong(job, out) == []
    assert matches(job, out) == {(4, "order"): 46, (3, "partial"): 2}


def test_a_strictly_periodic_job_on_two_hosts_is_left_alone():
    job = sim.simulate([sim.Op("w", PAIR)], ranks=2, per_host=1, numbered=False, steps=20,
                       compute_noise=0, jitter_ns=0, offset_ns=(0, 50 * MS))  # fmt: skip
    unsaid = sim.Job([r | {"step": None} for r in job.rows], job.ranks, job.comms)
    out = resolve(unsaid)
    assert matches(unsaid, out) == {(1, "partial"): 40}
    assert codes(out)["ambiguous_match"] == 1
    assert out.clocks == "unaligned"
    # the numbers of the steps leave one choice
    out = resolve(job)
    assert matches(job, out) == {(2, "order"): 20}
    assert sim.wrong(job, out) == []


def test_sizes_decide_where_they_differ():
    # all ranks on one host, ends far apart in time do not matter where sizes cannot agree
    job = sim.simulate([sim.Op("w", PAIR)], ranks=2, steps=4, numbered=False)
    for row in job.rows:
        if row["rank"] == 1 and row["truth"] == 2:
            row["in_bytes"] = row["out_bytes"] = 64
    out = resolve(job)
    assert matches(job, out) == {(2, "order"): 3, (1, "partial"): 2}


def test_uneven_all_to_all_matches_although_sizes_differ():
    job = sim.simulate([sim.Op("ep", FOUR, "all_to_all")], ranks=4, numbered=False)
    for row in job.rows:
        row["in_bytes"] += 4096 * row["rank"]
    out = resolve(job)
    assert matches(job, out) == {(4, "order"): 6}


def test_ends_that_a_busy_host_notes_late_are_no_contradiction():
    # gloo: operations of the host (no stream), one of them noted 5 ms late, no numbers
    job = sim.simulate([sim.Op("w", FOUR, compute_ns=30 * MS)], ranks=4, numbered=False)
    for row in job.rows:
        row["stream"] = None
        if row["rank"] == 1 and row["truth"] == 3:
            row["end_ns"] += 5 * MS
    out = resolve(job)
    assert matches(job, out) == {(4, "order"): 6}
    assert sim.wrong(job, out) == []


# --- point to point ------------------------------------------------------------------------------

PIPE = [sim.Op("pp", ((0, 1), (1, 0)), "send"), sim.Op("w", PAIR)]


@pytest.mark.parametrize(("numbered", "match"), [(True, "exact"), (False, "order")])
def test_sends_pair_with_receives_in_order(numbered, match):
    job = sim.simulate(PIPE, ranks=2, numbered=numbered, steps=8)
    out = resolve(job)
    assert sim.wrong(job, out) == []
    assert matches(job, out) == {(2, match): 24}


def test_receives_count_for_themselves():
    # each side numbers its own operations: numbers differ, order does not
    job = sim.simulate(PIPE, ranks=2, steps=8)
    for row in job.rows:
        if row["op"] == "recv":
            row["seq"] = row["seq"] * 3 + 1000
    out = resolve(job)
    assert sim.wrong(job, out) == []
    assert matches(job, out) == {(2, "order"): 16, (2, "exact"): 8}


def test_a_send_without_its_receivers_trace_is_partial():
    job = sim.without(sim.simulate(PIPE, ranks=2), lambda r: r["rank"] == 1)
    assert matches(job, resolve(job)) == {(1, "partial"): 18}


def exchanges(neighbours, *, late=(), seq: range | None = range(1), steps=8, ranks=4):
    """A job of 4 pipeline ranks whose kernels exchange with all `neighbours(rank)` at once.

    Ranks in `late` start 30 us after the others; a kernel ends 10 us after its last peer began.
    `truth` is the pair and step.
    """
    rows, pairs = [], {}
    for step in range(steps):
        at = sim.EPOCH_NS + (step + 1) * 10 * MS + (step * 7 % 5) * 700 * US
        start = {r: at + (30 * US if r in late else 0) + 100 * r for r in range(ranks)}
        for r in range(ranks):
            end = max(start[p] for p in [r, *neighbours(r)]) + 10 * US
            for p in neighbours(r):
                truth = pairs.setdefault((step, min(r, p), max(r, p)), len(pairs))
                rows.append(
                    {
                        "truth": truth, "comm": "pp", "seq": seq[step] if seq else None,
                        "rank": r, "op": "send_recv", "dtype": "bfloat16", "in_bytes": 1 << 20,
                        "out_bytes": 1 << 20, "group_size": ranks, "peer": p,
                        "start_ns": start[r], "end_ns": end, "stream": 7, "step": step,
                        "event_id": r << 40 | step, "coalesced": 2 * len(neighbours(r)),
                        "source": "kineto",
                    }
                )  # fmt: skip
    facts = [
        {"rank": r, "host": "n0", "device": r, "world_size": ranks, "start_ns": sim.EPOCH_NS,
         "end_ns": sim.EPOCH_NS + S} for r in range(ranks)
    ]  # fmt: skip
    comms = [{"comm": "pp", "name": "pp", "ranks": list(range(ranks)), "size": ranks, "dim": "pp"}]
    return sim.Job(rows, facts, comms)


def in_pairs(rank):
    return [rank ^ 1]


def in_a_line(rank):
    return [p for p in (rank - 1, rank + 1) if 0 <= p < 4]


@pytest.mark.parametrize(("seq", "match"), [(range(5, 13), "exact"), (None, "order")])
@pytest.mark.parametrize("neighbours", [in_pairs, in_a_line])
def test_a_group_of_sends_and_receives_is_matched_with_its_peers_alone(neighbours, seq, match):
    # numbers are equal on all pairs; the second pair comes 30 us later
    job = exchanges(neighbours, late=(2, 3), seq=seq)
    out = resolve(job)
    assert sim.wrong(job, out) == []
    n_pairs = 2 if neighbours is in_pairs else 3
    assert matches(job, out) == {(2, match): 8 * n_pairs}


def test_a_single_group_with_equal_numbers_on_two_pairs():
    job = exchanges(in_pairs, late=(2, 3), steps=1)
    out = resolve(job)
    assert sim.wrong(job, out) == []
    assert matches(job, out) == {(2, "exact"): 2}


def test_groups_that_each_rank_numbers_for_itself_match_in_order():
    job = exchanges(in_a_line, seq=range(8))
    for row in job.rows:
        row["seq"] = row["seq"] * (1 + row["rank"]) + 50 * row["rank"]
    out = resolve(job)
    assert sim.wrong(job, out) == []
    assert matches(job, out) == {(2, "order"): 24}


def test_an_exchange_is_not_a_send_nor_a_recv_of_its_peer():
    job = exchanges(in_pairs, steps=1)
    for row in job.rows:
        if row["rank"] == 1:
            row.update(op="recv", coalesced=2)
    assert matches(job, resolve(job)) == {(1, "partial"): 2, (2, "exact"): 1}


def test_numbers_of_exchanges_that_did_not_overlap_are_no_match():
    job = exchanges(in_pairs, steps=1)
    for row in job.rows:
        if row["rank"] == 1:
            row.update(start_ns=row["start_ns"] + MS, end_ns=row["end_ns"] + MS)
    assert matches(job, resolve(job)) == {(1, "partial"): 2, (2, "exact"): 1}


@pytest.mark.parametrize("known", [{"seq": None}, {"coalesced": None}, {"op": "send"}])
def test_a_group_whose_peers_are_not_known_stands_alone(known):
    job = exchanges(in_pairs, seq=range(8))
    for row in job.rows:
        row.update({"peer": None, **known})
    assert matches(job, resolve(job)) == {(1, "partial"): 32}


def test_a_bare_sendrecv_kernel_is_an_all_to_all_by_order():
    job = exchanges(in_pairs, seq=None)
    for row in job.rows:
        row.update(peer=None, coalesced=None, in_bytes=None, out_bytes=None, dtype=None)
    assert matches(job, resolve(job)) == {(4, "order"): 8}


# --- any input -----------------------------------------------------------------------------------


def test_nothing_gives_nothing():
    out = resolve(sim.Job([], [], []))
    assert out.collectives.num_rows == out.ranks.num_rows == out.comms.num_rows == 0
    assert out.clocks == "one-host"
    assert out.problems == []


def test_tables_keep_their_schemas():
    out = resolve(sim.simulate([sim.Op("w", FOUR)], ranks=4, per_host=2))
    assert out.collectives.schema == schema.COLLECTIVES.schema
    assert out.ranks.schema == schema.RANKS.schema
    assert out.comms.schema == schema.COMMS.schema


def test_recorded_operations_keep_their_own_clock():
    job = sim.simulate([sim.Op("w", FOUR)], ranks=4, recorded_hosts=False)
    job = job._replace(rows=[r | {"source": "recorded"} for r in job.rows])
    out = resolve(job)
    assert out.clocks == "recorded"
    assert out.ranks["clock_error_ns"].to_pylist() == [0] * 4
    assert matches(job, out) == {(4, "exact"): 6}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([1, 2, 4]))
def test_the_order_of_rows_does_not_matter(seed, numbered, per_host):
    program = [*STEP, sim.Op("tp", ((0, 1), (2, 3)), size=1 << 12), sim.Op("p", PAIR, "send")]
    job = sim.simulate(program, ranks=4, per_host=per_host, numbered=numbered, seed=seed,
                       offset_ns=(0, 9 * MS), steps=3)  # fmt: skip
    mixed = random.Random(seed)
    again = sim.Job(*(mixed.sample(part, len(part)) for part in job))
    one, two = resolve(job), resolve(again)

    def ids(j, out):
        return {
            (r["event_id"]): (o["collective_id"], o["match"])
            for r, o in zip(j.rows, out.collectives.to_pylist(), strict=True)
        }

    def by_rank(out):
        return sorted(out.ranks.to_pylist(), key=lambda r: r["rank"])

    assert ids(job, one) == ids(again, two)
    assert by_rank(one) == by_rank(two)
    assert one.comms == two.comms
    assert (one.problems, one.clocks) == (two.problems, two.clocks)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cut_windows_never_give_a_wrong_pair(data):
    numbered = data.draw(st.booleans())
    per_host = data.draw(st.sampled_from([1, 2, 4]))
    seed = data.draw(st.integers(0, 10_000))
    job = sim.simulate(STEP, ranks=4, per_host=per_host, numbered=numbered, seed=seed, steps=5,
                       offset_ns=(0, 50 * MS, -20 * MS, 1 * MS))  # fmt: skip
    n = len(STEP) * 5
    heads = [data.draw(st.integers(0, n // 2)) for _ in range(4)]
    tails = [data.draw(st.integers(0, n // 3)) for _ in range(4)]
    bare = data.draw(st.integers(0, 6))
    job = sim.without(job, lambda r: not heads[r["rank"]] < r["truth"] <= n - tails[r["rank"]])
    for row in job.rows:
        if row["truth"] <= heads[row["rank"]] + bare:
            row.update(seq=None, comm=None, in_bytes=None, out_bytes=None, group_size=None)
    out = resolve(job)
    assert sim.wrong(job, out) == []
    for rows in sim.instances(job, out).values():
        assert len({r["rank"] for r in rows}) == len(rows)
        if len(rows) < 4:
            assert rows[0]["match"] == "partial"


# --- hosts ---------------------------------------------------------------------------------------


def hosts_of(**columns):
    n = len(columns["rank"])
    table = pa.Table.from_batches([schema.RANKS.batch(columns)])
    out = matching.hosts.place(table)
    assert out.num_rows == n
    return list(
        zip(out["host"].to_pylist(), out["host_source"].to_pylist(), out["local_rank"].to_pylist(),
            strict=True)
    )  # fmt: skip


def test_recorded_hosts_stay():
    assert hosts_of(rank=[1, 0], host=["b", None], device=[3, 0]) == [
        ("b", "recorded", 3), (None, "unknown", None),
    ]  # fmt: skip


def test_hosts_are_inferred_from_devices_that_count_around():
    assert hosts_of(rank=[0, 9], device=[0, 1], n_devices=[8, 8], world_size=[16, 16]) == [
        ("host0", "inferred", 0), ("host1", "inferred", 1),
    ]  # fmt: skip
    # devices not counted by the trace, but ranks wrap around them
    assert hosts_of(rank=[0, 1, 2, 3], device=[0, 1, 0, 1])[3] == ("host1", "inferred", 1)


@pytest.mark.parametrize(
    "columns",
    [
        {"rank": [0, 1], "device": [0, 0], "n_devices": [1, 1]},  # a container each
        {"rank": [0, 1], "device": [1, 0], "n_devices": [2, 2]},  # another layout
        {"rank": [0, 1], "device": [0, 1], "world_size": [128, 128]},  # too few to tell
        {"rank": [0, 1], "device": [0, None], "n_devices": [8, None]},
    ],
)
def test_hosts_are_unknown_where_devices_leave_a_choice(columns):
    assert {h[:2] for h in hosts_of(**columns)} == {(None, "unknown")}


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_rows_is_that_by_all_that_is_known_of_them(seed: int):
    r = np.random.default_rng(seed)
    n = 300

    def some(least: int, most: int) -> pa.Array:
        return pa.array(r.integers(least, most, n), mask=r.random(n) < 0.2)

    names = ("rank", "start_ns", "end_ns", "event_id", "seq", "stream", "peer", "in_bytes",
             "out_bytes")  # fmt: skip
    table = pa.table({name: some(0, 3) for name in names})
    comm, op, dtype = r.integers(-1, 2, (3, n))
    timed = r.random(n) < 0.7
    found = participations._canonical(table, timed, comm, op, dtype)
    get = partial(participations.ints, table)
    start, end = (np.where(timed, get(name, 0), 0) for name in ("start_ns", "end_ns"))
    keys = (get("out_bytes"), get("in_bytes"), dtype, op, get("peer"), comm, get("stream", -2),
            get("seq"), get("event_id"), end, start, ~timed, get("rank"))  # fmt: skip
    assert np.array_equal(found, np.lexsort(keys))


def test_clocks_are_worked_out_once_where_numbers_match_all(monkeypatch):
    found = []
    estimate = resolution._estimate
    monkeypatch.setattr(resolution, "_estimate", lambda *a: found.append(1) or estimate(*a))
    job = sim.simulate([sim.Op("w", FOUR), sim.Op("w", FOUR, "all_gather")], ranks=4)
    assert matches(job, resolve(job)) == {(4, "exact"): 12}
    assert len(found) == 1
