"""Dimensions of communicators: each rule on a job small enough to be told by eye."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest import dims, schema
from retime.ingest.classify import dim_of_description
from retime.ingest.dims.layout import form, in_mesh, partitions
from retime.ingest.run import ingest
from retime.ingest.settings import DimRule, Settings
from retime.ingest.warehouse import Warehouse

KIB, MIB = 1 << 10, 1 << 20
STEP_NS = 1000
"""Steps begin every STEP_NS: an operation's `at` is its place in its step, in thousandths."""


def table(name, rows):
    declared = schema.TABLES[name]
    if not rows:
        return declared.schema.empty_table()
    keys = sorted({k for r in rows for k in r})
    return pa.Table.from_batches([declared.batch({k: [r.get(k) for r in rows] for k in keys})])


class Made:
    """A job made by hand: communicators, and what they did in each of `steps` steps."""

    def __init__(self, world, per_host=None, steps=2):
        self.world, self.steps = world, steps
        self.comms, self.rows = [], []
        self.ranks = [{"rank": r, "host": f"h{r // (per_host or world)}"} for r in range(world)]

    def comm(self, name, ranks, description=None, dim="unknown"):
        source = "none" if dim == "unknown" else "description"
        self.comms.append(
            {"comm": name, "name": name, "description": description, "ranks": list(ranks),
             "size": len(ranks), "dim": dim, "dim_source": source}
        )  # fmt: skip
        return name

    def op(self, comm, op, size, at=500, ranks=None, out=None, **more):
        members = next(c["ranks"] for c in self.comms if c["comm"] == comm)
        for step in range(max(self.steps, 1)):
            for rank in ranks or members:
                start = step * STEP_NS + at
                self.rows.append(
                    {"comm": comm, "rank": rank, "op": op, "dtype": "float32", "in_bytes": size,
                     "out_bytes": size if out is None else out, "start_ns": start,
                     "end_ns": start + 1, **more}
                )  # fmt: skip

    def decide(self, **said):
        steps = [
            {"rank": r, "step": s, "start_ns": s * STEP_NS, "end_ns": (s + 1) * STEP_NS}
            for r in range(self.world)
            for s in range(self.steps)
        ]
        comms, self.problems = dims.decide(
            table("comms", self.comms), table("collectives", self.rows),
            table("ranks", self.ranks), table("steps", steps), self.world, Settings(**said),
        )  # fmt: skip
        return {r["comm"]: (r["dim"], r["dim_source"]) for r in comms.to_pylist()}


UNKNOWN = ("unknown", "none")


def tensor_parallel(job, comm, n=20):
    for i in range(n):
        job.op(comm, "all_reduce", 8 * MIB, at=40 * i)


def test_forms_of_members():
    some = (None, (), (3,), (0, 1), (0, 4), (0, 1, 2, 3), (0, 8, 16), (0, 1, 5))
    texts = [None, "", "3", "0-1", "0,4", "0-3", "0-16/8", "0,1,5"]
    assert [form(m) for m in some] == texts
    assert form(tuple(i * i for i in range(12))) == "0,1,4,9,16,25,36,49,..."


def test_a_mesh_names_groups_by_their_exact_members():
    mesh = {"tp": 2, "cp": 1, "pp": 2, "dp": 2}
    assert in_mesh((0, 1), mesh) == ["tp"]
    assert in_mesh((6, 7), mesh) == ["tp"]
    assert in_mesh((1, 3), mesh) == ["pp"]
    assert in_mesh((3, 7), mesh) == ["dp"]
    assert in_mesh((5,), mesh) == ["cp"]
    # across two tp groups; two dimensions at once; of no such mesh; longer than it
    assert [in_mesh(m, mesh) for m in ((1, 2), (0, 1, 2, 3), (2, 4), (8, 9))] == [[]] * 4


def test_groups_partition_ranks_or_do_not():
    assert partitions([(0, 1), (2, 3)], range(4))
    assert not partitions([(0, 1), (1, 2)], range(3))
    assert not partitions([(0, 1)], range(3))


def test_many_sums_of_one_size_all_through_the_step_in_one_host_are_tp():
    job = Made(8, per_host=4)
    for first in (0, 4):
        tensor_parallel(job, job.comm(f"a{first}", range(first, first + 4)))
    assert job.decide() == {"a0": ("tp", "operations"), "a4": ("tp", "operations")}
    assert job.problems == []


def test_without_steps_or_across_hosts_the_same_sums_are_not_called_tp():
    job = Made(8, per_host=4, steps=0)
    tensor_parallel(job, job.comm("a", range(4)))
    assert job.decide() == {"a": UNKNOWN}
    job = Made(8, per_host=2)
    tensor_parallel(job, job.comm("a", range(4)))
    assert job.decide() == {"a": UNKNOWN}


def test_large_sums_after_the_forward_pass_in_groups_of_all_ranks_are_dp():
    job = Made(8, per_host=4)
    for r in range(4):
        comm = job.comm(f"d{r}", (r, r + 4))
        for i, size in enumerate((25 * MIB, 30 * MIB, 7 * MIB)):
            job.op(comm, "all_reduce", size, at=600 + 100 * i)
        job.op(comm, "all_reduce", 8, at=990)  # a norm says nothing
    assert set(job.decide().values()) == {("dp", "operations")}


@pytest.mark.parametrize("spoil", ["in the forward pass", "not all ranks", "small"])
def test_sums_that_may_be_something_else_are_not_dp(spoil):
    job = Made(8, per_host=4)
    for r in range(3 if spoil == "not all ranks" else 4):  # as the embeddings of two stages
        comm = job.comm(f"d{r}", (r, r + 4))
        size = 100 * KIB if spoil == "small" else 25 * MIB
        job.op(comm, "all_reduce", size, at=100 if spoil == "in the forward pass" else 700)
    assert set(job.decide().values()) == {UNKNOWN}


def send(job, comm, a, b, at=500):
    job.op(comm, "send", MIB, at=at, ranks=[a], peer=b)
    job.op(comm, "recv", MIB, at=at, ranks=[b], peer=a)


def test_sends_to_neighbours_and_back_are_pp_also_where_stages_interleave():
    job = Made(4)
    job.comm("p", range(4))
    for a, b in ((0, 1), (1, 2), (2, 3)):
        send(job, "p", a, b)
        send(job, "p", b, a)
    assert job.decide() == {"p": ("pp", "operations")}
    send(job, "p", 3, 0)
    send(job, "p", 0, 3)
    assert job.decide() == {"p": ("pp", "operations")}


def test_a_ring_that_goes_round_one_way_is_cp_and_a_chain_one_way_is_pp():
    job = Made(4)
    job.comm("r", range(4))
    for a in range(3):
        send(job, "r", a, a + 1)
    assert job.decide() == {"r": ("pp", "operations")}
    send(job, "r", 3, 0)
    assert job.decide() == {"r": ("cp", "operations")}


def test_sends_to_others_than_neighbours_or_with_sums_are_unknown():
    job = Made(4)
    job.comm("p", range(4))
    send(job, "p", 0, 2)
    send(job, "p", 2, 0)
    assert job.decide() == {"p": UNKNOWN}
    job = Made(4)
    job.comm("p", range(3))
    send(job, "p", 0, 1)
    send(job, "p", 1, 0)
    job.op("p", "all_reduce", MIB)
    assert job.decide() == {"p": UNKNOWN}


def test_two_ranks_that_exchange_are_unknown_unless_pairs_make_a_chain():
    job = Made(4)
    job.comm("01", (0, 1))
    send(job, "01", 0, 1)
    send(job, "01", 1, 0)
    assert job.decide() == {"01": UNKNOWN}
    job.comm("12", (1, 2))
    send(job, "12", 1, 2)
    send(job, "12", 2, 1)
    assert job.decide() == dict.fromkeys(("01", "12"), ("pp", "operations"))


def test_all_to_alls_of_changing_unequal_parts_are_ep():
    job = Made(8)
    for name in ("e", "even", "tables"):
        job.comm(name, (0, 2, 4, 6) if name == "e" else range(4))
    for i in range(6):
        job.op("e", "all_to_all", MIB + i, out=MIB - i - 1, at=100 * i)
        job.op("even", "all_to_all", MIB, at=100 * i)
        job.op("tables", "all_to_all", MIB, out=2 * MIB, at=100 * i)
    # equal parts: Ulysses or padded experts; the same unequal parts each time: sharded tables
    assert job.decide() == {"e": ("ep", "operations"), "even": UNKNOWN, "tables": UNKNOWN}


def shard(job, comm, n, regather=True):
    """Parameters of two sizes gathered (again for the backward pass), their gradients scattered."""
    for k, size in enumerate((64 * MIB, 8 * MIB)):
        job.op(comm, "all_gather", size // n, out=size, at=100 + k)
        if regather:
            job.op(comm, "all_gather", size // n, out=size, at=500 + k)
        job.op(comm, "reduce_scatter", size, out=size // n, at=600 + k)


def test_parameters_gathered_twice_across_hosts_are_fsdp():
    job = Made(8, per_host=4)
    for r in range(4):
        shard(job, job.comm(f"s{r}", (r, r + 4)), 2)
    assert set(job.decide().values()) == {("fsdp", "operations")}


def test_gathers_that_a_sharded_optimizer_or_tensor_parallelism_has_too_are_unknown():
    job = Made(8, per_host=4)
    shard(job, job.comm("once", (0, 4)), 2, regather=False)
    shard(job, job.comm("near", range(4)), 4)
    assert job.decide() == {"once": UNKNOWN, "near": UNKNOWN}


def test_shards_that_a_group_across_adds_up_are_fsdp_and_that_group_dp():
    job = Made(8, per_host=4)
    for first in (0, 4):
        shard(job, job.comm(f"s{first}", range(first, first + 4)), 4)
    for r in range(4):
        comm = job.comm(f"d{r}", (r, r + 4))
        for k, size in enumerate((16 * MIB, 2 * MIB)):
            job.op(comm, "all_reduce", size, at=650 + k)
    found = job.decide()
    assert {found[f"s{r}"] for r in (0, 4)} == {("fsdp", "operations")}
    assert {found[f"d{r}"] for r in range(4)} == {("dp", "operations")}


def test_groups_of_the_same_size_and_stride_do_the_same():
    job = Made(8, per_host=4)
    tensor_parallel(job, job.comm("a", range(4)))
    job.comm("b", range(4, 8))  # of ranks whose traces are not here
    assert job.decide() == {"a": ("tp", "operations"), "b": ("tp", "size+stride")}
    job.comm("c", range(4, 8))  # two of the same ranks: which of them?
    assert job.decide() == {"a": ("tp", "operations"), "b": UNKNOWN, "c": UNKNOWN}


def test_a_communicator_without_description_serves_what_a_described_one_of_its_ranks_does():
    job = Made(8)
    job.comm("pg", (0, 1), "TENSOR_MODEL_PARALLEL_GROUP", "tp")
    job.comm("nccl-1", (1, 0))
    job.comm("pg2", (2, 3), "TENSOR_MODEL_PARALLEL_GROUP", "tp")
    job.comm("pg3", (2, 3), "TENSOR_AND_CONTEXT_PARALLEL_GROUP")
    job.comm("nccl-2", (2, 3))  # of which of the two?
    found = job.decide()
    assert found["nccl-1"] == ("tp", "members")
    assert found["pg3"] == found["nccl-2"] == UNKNOWN


def test_evidence_for_two_dimensions_is_unknown_and_said():
    job = Made(8, per_host=8)
    job.comm("a", range(4), "TENSOR_MODEL_PARALLEL_GROUP", "tp")
    tensor_parallel(job, job.comm("b", range(2)))  # another tp of the same ranks?
    assert job.decide() == {"a": ("tp", "description"), "b": UNKNOWN}
    assert [(p.code, p.severity) for p in job.problems] == [("dim_unclear", "info")]
    assert "b: a second tp of rank 0" in job.problems[0].message


def test_what_a_description_means_otherwise_is_not_inferred():
    job = Made(8, per_host=4)
    tensor_parallel(job, job.comm("a", range(4), "TENSOR_AND_CONTEXT_PARALLEL_GROUP"))
    assert job.decide() == {"a": UNKNOWN}


def test_the_user_comes_first_then_descriptions_then_degrees():
    job = Made(8)
    job.comm("x", (0, 1), "TENSOR_MODEL_PARALLEL_GROUP", "tp")
    job.comm("y", (2, 3))
    job.comm("z", (0, 4))
    job.comm("w", (0, 6))
    said = {"tp": 2, "pp": 2, "dp": 2}
    assert job.decide(degrees=said) == {
        "x": ("tp", "description"), "y": ("tp", "degrees"), "z": ("dp", "degrees"), "w": UNKNOWN
    }  # fmt: skip
    assert job.problems == []
    rules = [DimRule("*tensor*", "cp"), DimRule("[xy]", "ep"), DimRule("?", "unknown")]
    assert job.decide(degrees=said, dims=rules) == {
        "x": ("cp", "set by user"), "y": ("ep", "set by user"),
        "z": ("unknown", "set by user"), "w": ("unknown", "set by user"),
    }  # fmt: skip


def test_degrees_that_do_not_fit_are_said():
    job = Made(8)
    job.comm("x", (0, 4), "TENSOR_MODEL_PARALLEL_GROUP", "tp")
    job.comm("y", (0, 1))
    assert job.decide(degrees={"tp": 2, "dp": 4})["y"] == ("tp", "degrees")
    assert "not how described communicators lie (tp 0,4)" in job.problems[0].message
    assert job.decide(degrees={"tp": 2, "dp": 2})["y"] == UNKNOWN
    assert "make 4 ranks, the job has 8" in job.problems[0].message


def test_patterns_fit_the_whole_of_a_name():
    row = {"comm": "1@ab", "name": "1", "description": "Mesh_TP"}
    assert all(dims.matches(p, row) for p in ("1", "1@*", "mesh_tp", "MESH*"))
    assert not any(dims.matches(p, row) for p in ("", "mesh", "ab", "0"))


@pytest.mark.parametrize(
    ("description", "dim"),
    [
        # Megatron-Core
        ("INTRA_PARTIAL_EXPERT_DATA_PARALLEL_GROUP", "dp"),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "tp"),
        ("HIERARCHICAL_CONTEXT_PARALLEL_GROUP", "cp"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", None),
        ("POSITION_EMBEDDING_GROUP", None),
        # torchtitan's and others' device meshes
        ("mesh_dp_replicate", "dp"),
        ("mesh_dp_shard_cp", "fsdp"),
        ("mesh_pp", "pp"),
        ("mesh_cp", "cp"),
        ("mesh_ep", "ep"),
        # DeepSpeed
        ("ep_size_4", "ep"),
        ("zero_param_parallel_group", "fsdp"),
    ],
)
def test_descriptions_of_frameworks(description, dim):
    assert dim_of_description(description) == dim


def test_a_real_megatron_job_without_its_descriptions_is_told_right_or_not_at_all(
    retime_traces, tmp_path
):
    """The flight recorders of 16 ranks: what is inferred agrees with what descriptions say."""
    folder = retime_traces / "flight_recorder/nvidia-resiliency-ext/fr_traces/gpu_error_1st"
    ingest(tmp_path / "w", str(folder), job="j")
    files = Warehouse(tmp_path / "w").snapshot("j").files
    comms, collectives, ranks = (
        pq.ParquetFile(files[t][0]).read() for t in ("comms", "collectives", "ranks")
    )
    rows = comms.to_pylist()
    truth = {r["comm"]: r["dim"] for r in rows}
    bare = [r | {"description": None, "dim": "unknown", "dim_source": "none"} for r in rows]
    found, problems = dims.decide(
        table("comms", bare), collectives, ranks, table("steps", []), 16, Settings()
    )
    told = {r["comm"]: r["dim"] for r in found.to_pylist() if r["dim"] != "unknown"}
    assert problems == []
    assert told == {c: truth[c] for c in told}
    assert sorted(told.values()) == ["ep"] + ["pp"] * 4


def test_members_are_hashed_once_a_communicator():
    """Once for each of them takes time with the square of their number."""
    hashed = []

    class Members(tuple):
        def __hash__(self):
            hashed.append(len(self))
            return super().__hash__()

    rows = [{"comm": c, "dim": "dp", "dim_source": "operations"} for c in "ab"]
    members = [Members(range(50)), Members(range(49, 99))]
    comms = [
        dims.Comm(row, m, dims.Group(m, 50, None, None))
        for row, m in zip(rows, members, strict=True)
    ]
    unclear = dims._settle(comms, comms[:1], defaultdict(list))
    assert unclear == []
    assert hashed == [50, 50]


def test_what_nothing_is_known_of_stays_as_it_is_beside_what_is_found():
    """A log names thousands of communicators whose members and operations nobody knows."""
    unknown = {"dim": "unknown", "dim_source": "none"}
    rows = [
        {"comm": "nobody", "size": 2, "dim_reason": "of before", **unknown},
        {"comm": "pair", "ranks": [0, 1], "size": 2, **unknown},
        {"comm": "alone", "ranks": [3], "size": 1, **unknown},
        {"comm": "told", "size": 2, "description": "embedding", **unknown},
        {"comm": "no size", **unknown},
        {"comm": "like", "ranks": [1, 0], "size": 2, "dim": "tp", "dim_source": "recorded"},
        {"comm": "of two", "size": 4, "dim": None, "dim_source": "none"},
    ]
    ranks = [{"rank": r, "host": "a"} for r in range(4)]
    found, problems = dims.decide(
        table("comms", rows), table("collectives", []), table("ranks", ranks),
        table("steps", []), 4, Settings(),
    )  # fmt: skip
    assert problems == []
    assert [tuple(r[c] for c in ("comm", "dim", "dim_source", "dim_reason"))
            for r in found.to_pylist()] == [
        ("nobody", "unknown", "none", None),
        ("pair", "tp", "members", "a described communicator has the same members"),
        ("alone", "unknown", "none", None),
        ("told", "unknown", "none", "its description names no single dimension"),
        ("no size", "unknown", "none", None),
        ("like", "tp", "recorded", None),
        ("of two", None, "none", None),
    ]  # fmt: skip
    assert found.select(["comm", "ranks", "size", "description"]).to_pylist() == [
        {c: r.get(c) for c in ("comm", "ranks", "size", "description")} for r in rows
    ]


@pytest.mark.parametrize("again", [2, 5])
def test_groups_made_anew_are_each_told_as_the_first_of_them(again):
    job = Made(4)
    tensor_parallel(job, job.comm("tp", [0, 1]))
    job.comm("said", [0, 2], description="data_parallel", dim="dp")
    groups = {"as said": [0, 2], "twice there": [2, 3]}
    for name, ranks in groups.items():
        for k in range(again):
            job.comm(f"{name} {k}", ranks)
    for comm in job.comms:
        if comm["comm"].startswith(tuple(groups)):
            comm["name"] = None
    found = job.decide()
    for k in range(again):
        assert found[f"as said {k}"] == ("dp", "members")
        # The group of ranks 0 and 1 is tp, but groups that have ranks in common are no dimension.
        assert found[f"twice there {k}"] == UNKNOWN


def test_a_group_that_is_there_once_is_told_by_one_of_its_size_and_stride():
    job = Made(4)
    tensor_parallel(job, job.comm("tp", [0, 1]))
    job.comm("alike", [2, 3])
    job.comms[-1]["name"] = None
    assert job.decide()["alike"] == ("tp", "size+stride")
