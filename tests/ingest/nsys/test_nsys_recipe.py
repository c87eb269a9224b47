"""Recipe tables of two real processes, and made-up ones, against counts by pyarrow."""

import re
import zipfile
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest.errors import RankUnknown, UnusableInput
from retime.ingest.nsys import recipe
from retime.ingest.run import ingest
from retime.ingest.warehouse import Warehouse

PROC = "nsys/JAX-Toolbox/pax_fsdp4_4proc_proc{}.zip"


@pytest.fixture(scope="module")
def real(nsys, retime_traces):
    return [nsys.read(retime_traces / PROC.format(i), parser=recipe) for i in (0, 1)]


@pytest.fixture(scope="module")
def traces(retime_traces):
    out = []
    for i in (0, 1):
        with (
            zipfile.ZipFile(retime_traces / PROC.format(i)) as z,
            z.open("nvtx_gpu_proj_trace/trace.parquet") as f,
        ):
            out.append(pq.read_table(pa.BufferReader(f.read())).to_pylist())
    return out


@pytest.mark.parametrize("i", [0, 1])
def test_every_range_on_the_device_and_on_its_thread(real, traces, i):
    device = Counter(
        (e["start_ns"], e["dur_ns"], e["name"])
        for e in real[i]["events"]
        if e["kind"] == "gpu_annotation"
    )
    assert device == Counter(
        (r["Projected Start"], r["Projected Duration"], r["Name"] or "all work of the thread")
        for r in traces[i]
    )
    host = Counter(
        (e["start_ns"], e["dur_ns"], e["name"], e["thread"])
        for e in real[i]["events"]
        if e["kind"] == "annotation"
    )
    assert host == Counter(
        (int(r["Orig Start"]), int(r["Orig Duration"]), r["Name"], str(r["TID"]))
        for r in traces[i]
        if r["Orig Start"] is not None
    )
    assert len(real[i]["events"]) == (28609, 28597)[i]


@pytest.mark.parametrize("i", [0, 1])
def test_collectives_and_steps(real, traces, i):
    named = Counter(
        m.group(1)
        for r in traces[i]
        if (m := re.search(r"hlo_op=(all-reduce|all-gather|reduce-scatter)", r["Name"] or ""))
    )
    assert named == {"all-reduce": 50, "all-gather": 50, "reduce-scatter": 20}
    assert Counter(c["op"].replace("_", "-") for c in real[i]["collectives"]) == named
    module = "TSL:XlaModule:#hlo_module=pjit__wrapped_step_fn,program_id=40#"
    runs = [r for r in traces[i] if r["Name"] == module]
    assert [(s["step"], s["start_ns"]) for s in real[i]["steps"]] == [
        (k, r["Projected Start"]) for k, r in enumerate(runs)
    ]
    assert len(runs) == 5
    within = Counter(
        k
        for r in traces[i]
        for k, run in enumerate(runs)
        if re.search(r"hlo_op=(all-reduce|all-gather|reduce-scatter)", r["Name"] or "")
        and r["RangeStack"].startswith(run["RangeStack"] + ":")
    )
    assert within == dict.fromkeys(range(5), 23)
    steps = Counter(c["step"] for c in real[i]["collectives"])
    assert steps == within | {None: 5}


def test_ranks_from_the_metadata(real):
    keys = ("rank", "host", "device", "device_name", "n_sms", "world_size", "local_rank", "clock")
    for i in (0, 1):
        assert [tuple(r[k] for k in keys) for r in real[i]["ranks"]] == [
            (i, "nvdl-a112-luna04", i, "NVIDIA A100-SXM4-40GB", 108, 4, i, "process")
        ]


def test_both_processes_match_though_each_has_a_zero_of_its_own(retime_traces, tmp_path, rows):
    paths = [str(retime_traces / PROC.format(i)) for i in (0, 1)]
    ingest(tmp_path / "w", paths, job="j")
    snapshot = Warehouse(tmp_path / "w").snapshot("j")
    found: dict = {}
    for c in rows(snapshot, "collectives"):
        found.setdefault(c["collective_id"], []).append(c)
    assert sorted(len(p) for p in found.values()) == [2] * 120
    offset = {r["rank"]: r["clock_offset_ns"] for r in rows(snapshot, "ranks")}
    for pair in found.values():
        assert {c["rank"] for c in pair} == {0, 1}
        assert len({c["op"] for c in pair}) == 1
        ends = [c["end_ns"] + offset[c["rank"]] for c in pair]
        assert abs(ends[0] - ends[1]) < 100_000


def write(tmp_path, name="out_rank3", trace=None, **more):
    place = tmp_path / name
    (place / "nvtx_gpu_proj_trace").mkdir(parents=True)
    table = trace or {"Name": ["a"], "Projected Start": [5], "Projected Duration": [6]}
    pq.write_table(pa.table(table), place / "nvtx_gpu_proj_trace" / "trace.parquet")
    for file, content in more.items():
        pq.write_table(pa.table(content), place / f"{file.replace('_', '-')}.parquet")
    return place


def test_few_columns_are_enough(nsys, tmp_path):
    out = nsys.read(write(tmp_path), parser=recipe)
    assert [(e["rank"], e["start_ns"], e["dur_ns"], e["name"]) for e in out["events"]] == [
        (3, 5, 6, "a")
    ]
    assert out["ranks"][0]["rank"] == 3


@pytest.mark.parametrize(
    "title",
    [
        "('TARGET_INFO_GPU', 'name')", "name", "(__import__('os').abort(), 'name')",
        "('a', ['name'])", "(" * 400, "('TARGET_INFO_GPU', 'name'",
    ],
)  # fmt: skip
def test_titles_are_read_and_never_run(nsys, tmp_path, title):
    place = write(tmp_path, device_metadata={title: ["H100"]})
    out = nsys.read(place, parser=recipe)
    told = title in ("name", "('TARGET_INFO_GPU', 'name')")
    assert out["ranks"][0]["device_name"] == ("H100" if told else None)


def test_a_recipe_over_several_reports(nsys, tmp_path):
    trace = {"Name": ["a", "b"], "Projected Start": [5, 9], "Projected Duration": [6, 1],
             "Rank": [0, 1]}  # fmt: skip
    place = write(tmp_path, trace=trace)
    files = pa.table({"File": ["job_rank6.nsys-rep", "job_rank4.nsys-rep"]})
    pq.write_table(files, place / "nvtx_gpu_proj_trace" / "files.parquet")
    out = nsys.read(place, parser=recipe)
    assert [(e["rank"], e["name"]) for e in out["events"]] == [(6, "a"), (4, "b")]


def test_recipes_that_say_too_little(nsys, tmp_path):
    with pytest.raises(RankUnknown):
        nsys.read(write(tmp_path, name="plain"), parser=recipe)
    assert nsys.read(tmp_path / "plain", parser=recipe, rank=1)["ranks"][0]["rank"] == 1
    with pytest.raises(UnusableInput, match="no column Projected Start"):
        nsys.read(write(tmp_path, name="r0", trace={"Name": ["a"]}), parser=recipe)
    bad = tmp_path / "r1" / "nvtx_gpu_proj_trace"
    bad.mkdir(parents=True)
    (bad / "trace.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(UnusableInput, match="no nvtx_gpu_proj_trace"):
        nsys.read(tmp_path / "r1", parser=recipe)
