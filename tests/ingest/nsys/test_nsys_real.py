"""Real exports of three versions against counts by sqlite3, and the same report by each carrier."""

import json
import sqlite3
from collections import Counter

import pytest
from retime.ingest.detect import detect
from retime.ingest.run import ingest
from retime.ingest.warehouse import Warehouse

MFU = "nsys/nsys-ai/mfu_2gpu_before.sqlite"
MOCK = "nsys/nsys-ai/mock.sqlite"
SAXPY = "nsys/pipit/saxpy-mpi-cuda_nsys_perlmutter0.sqlite"

KINDS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "memset",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "sync",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "runtime",
    "PROFILER_OVERHEAD": "overhead",
}


@pytest.fixture(scope="module")
def real(nsys, retime_traces):
    """Rows of the real reports, read once."""
    return {f: nsys.read(retime_traces / f) for f in (MFU, MOCK, SAXPY)}


@pytest.fixture
def database(retime_traces):
    """`database(file)`: a query function by sqlite3 on a real file."""
    opened = []

    def of(file):
        path = retime_traces / file
        db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        opened.append(db)
        return lambda query: db.execute(query).fetchall()

    yield of
    for db in opened:
        db.close()


@pytest.mark.parametrize("file", [MFU, MOCK, SAXPY])
def test_every_row_of_every_table_is_an_event(real, database, file):
    query = database(file)
    tables = {t for (t,) in query("select name from sqlite_master where type = 'table'")}
    wanted = Counter()
    for table, kind in KINDS.items():
        if table in tables:
            wanted[kind] += query(f"select count(*) from {table}")[0][0]
    if "NVTX_EVENTS" in tables:
        wanted["annotation"] += query(
            "select count(*) from NVTX_EVENTS where eventType in (59, 60)"
        )[0][0]
    got = Counter(e["kind"] for e in real[file]["events"])
    assert got == +wanted
    ids = [e["event_id"] for e in real[file]["events"]]
    assert len(set(ids)) == len(ids)


def test_counts_of_the_two_gpu_report(real):
    out = real[MFU]
    assert Counter((e["kind"], e["rank"]) for e in out["events"] if e["kind"] == "kernel") == {
        ("kernel", 0): 1993, ("kernel", 1): 2017,
    }  # fmt: skip
    assert Counter(c["rank"] for c in out["collectives"]) == {0: 33, 1: 33}
    # nothing was lost, and what is doubtful is said
    assert {p["code"]: p["severity"] for p in out["problems"]} == {
        "rank_from_device": "warning", "all_to_all_inferred": "info", "no_steps": "info",
        "no_launch": "info",
    }  # fmt: skip


@pytest.mark.parametrize("file", [MFU, MOCK, SAXPY])
def test_times_names_and_places_of_all_kernels(real, database, file):
    query = database(file)
    (zero,) = query("select utcEpochNs from TARGET_INFO_SESSION_START_TIME")[0]
    wanted = Counter(
        query(
            f"""select {zero} + start, end - start, value, streamId, deviceId, correlationId,
            gridX * gridY * gridZ, blockX * blockY * blockZ
            from CUPTI_ACTIVITY_KIND_KERNEL join StringIds on id = demangledName"""
        )
    )
    columns = (
        "start_ns", "dur_ns", "name", "stream", "device", "correlation", "grid_blocks",
        "block_threads",
    )  # fmt: skip
    got = Counter(
        tuple(e[c] for c in columns) for e in real[file]["events"] if e["kind"] == "kernel"
    )
    assert got == wanted


def test_times_and_texts_of_all_ranges(real, database):
    for file in (MFU, SAXPY):
        query = database(file)
        (zero,) = query("select utcEpochNs from TARGET_INFO_SESSION_START_TIME")[0]
        wanted = Counter(
            query(
                f"""select {zero} + start, end - start, coalesce(text, value),
                cast(globalTid & 0xffffff as text) from NVTX_EVENTS left join StringIds
                on id = textId where eventType in (59, 60)"""
            )
        )
        got = Counter(
            (e["start_ns"], e["dur_ns"], e["name"], e["thread"])
            for e in real[file]["events"]
            if e["kind"] == "annotation"
        )
        assert got == wanted


def test_copies_and_waits(real, database):
    query = database(MFU)
    wanted = dict(
        query("select copyKind, sum(bytes) from CUPTI_ACTIVITY_KIND_MEMCPY group by copyKind")
    )
    got = Counter()
    for e in real[MFU]["events"]:
        if e["kind"] == "memcpy":
            got[{"HtoD": 1, "DtoH": 2, "DtoD": 8}[e["name"].split()[1]]] += e["bytes"]
    assert got == wanted
    names = Counter(e["name"] for e in real[MFU]["events"] if e["kind"] == "sync")
    labels = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
    assert names == {
        labels[k]: n
        for k, n in query(
            "select syncType, count(*) from CUPTI_ACTIVITY_KIND_SYNCHRONIZATION group by syncType"
        )
    }


def test_kernels_without_a_call_are_events_without_a_launch(real, database):
    query = database(MFU)
    made = query("select correlationId, globalTid & ~0xffffff from CUPTI_ACTIVITY_KIND_RUNTIME")
    kernels = query("select correlationId, globalPid from CUPTI_ACTIVITY_KIND_KERNEL")
    numbers, calls = {c for c, _ in made}, set(made)
    assert sum(c not in numbers for c, _ in kernels) == 23
    # one more has a call of its number only in the other process
    assert sum(k not in calls for k in kernels) == 24
    without = [c for c in real[MFU]["collectives"] if c["enqueued_ns"] is None]
    assert [(c["rank"], c["op"]) for c in without] == [(1, "send_recv"), (0, "send_recv")]


def test_all_to_alls_of_the_two_ranks_are_one_each(retime_traces, tmp_path, rows):
    """What traces/README.md knows: 33 a rank that overlap pairwise and end within 27 us."""
    ingest(tmp_path / "w", [str(retime_traces / MFU)], job="j")
    found = rows(Warehouse(tmp_path / "w").snapshot("j"), "collectives")
    pairs = {}
    for c in found:
        pairs.setdefault(c["collective_id"], []).append(c)
    assert sorted(len(p) for p in pairs.values()) == [2] * 33
    for a, b in pairs.values():
        assert {a["rank"], b["rank"]} == {0, 1}
        assert max(a["start_ns"], b["start_ns"]) < min(a["end_ns"], b["end_ns"])
        assert abs(a["end_ns"] - b["end_ns"]) <= 27_000
        assert a["match"] == b["match"] == "order"
    assert Counter(c["op"] for c in found) == {"all_to_all": 64, "send_recv": 2}


def test_hosts_ranks_and_devices(real):
    keys = ("rank", "host", "device", "device_name", "n_sms", "world_size", "pid", "clock")
    one = {f: [tuple(r[k] for k in keys) for r in real[f]["ranks"]] for f in real}
    assert one[MFU] == [
        (0, "modal", 0, None, None, 2, 144, "host"),
        (1, "modal", 1, None, None, 2, 145, "host"),
    ]
    assert one[MOCK] == [
        (0, "DESKTOP-KBEMEQS", 0, "NVIDIA GeForce RTX 3080", 68, None, 91186, "host")
    ]
    # the thread's name says the MPI rank, and the session's environment the number of tasks
    assert one[SAXPY] == [(0, "nid001608", 0, "NVIDIA A100-SXM4-40GB", 108, 2, 1230493, "host")]


def test_what_is_not_read_is_said(nsys, real):
    assert (
        "COMPOSITE_EVENTS, CUDA_CALLCHAINS, SAMPLING_CALLCHAINS, SCHED_EVENTS"
        in (nsys.problems(real[SAXPY])["tables_not_read"]["message"])
    )
    assert "Unified Memory cannot be traced" in nsys.problems(real[MOCK])["nsys_warning"]["message"]


def without_source(out):
    """Rows as sorted tuples, without the name of the source."""
    return {
        table: sorted(
            (tuple(str(v) for k, v in r.items() if k != "source") for r in found),
        )
        for table, found in out.items()
    }


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        (MFU, "parquet"), (MFU, "jsonl"), (MOCK, "parquet"), (MOCK, "arrow"), (MOCK, "arrows"),
        (MOCK, "jsonl"), (SAXPY, "parquet"), (SAXPY, "arrow"), (SAXPY, "arrows"), (SAXPY, "jsonl"),
    ],
)  # fmt: skip
def test_every_carrier_gives_the_same_rows(nsys, real, retime_traces, tmp_path, file, kind):
    if kind == "jsonl":
        path = tmp_path / "report.jsonl"
        with open(path, "w") as f:
            for table, content in nsys.tables_of(retime_traces / file).items():
                for row in content.to_pylist():
                    row = {k: v for k, v in row.items() if v is not None}
                    f.write(json.dumps({"table": table, **row}) + "\n")
        source = nsys.source(path)
        assert detect(source) == "nsys"
    else:
        path = tmp_path / ("report_pqtdir" if kind == "parquet" else "report_arwdir")
        nsys.as_folder(retime_traces / file, path, kind)
        source = nsys.source(path)
        assert source.members
        assert source.name == str(path)
    assert without_source(nsys.read(path)) == without_source(real[file])
