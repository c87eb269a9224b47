"""Input made to break an ingest: one sentence, the right exit code, and nothing else is lost."""

import gzip
import io
import json
import tarfile
import zipfile

import pytest
from retime import cli
from retime.ingest.gunzip import OUT_BYTES
from retime.ingest.run import ingest
from retime.ingest.sources import find_sources, stream_defect
from retime.ingest.warehouse import Warehouse

BASE_NS = 1_760_000_000_000_000_000
N_EVENTS = 40


def trace(rank=0, events=(), **over):
    """A trace of one rank as text; `over` replaces members of its envelope."""
    kernels = [
        {"ph": "X", "cat": "kernel", "name": f"k{i % 3}", "pid": 0, "tid": 7, "ts": 1000.5 + 20 * i,
         "dur": 10, "args": {"stream": 7, "device": 0, "correlation": i}}
        for i in range(N_EVENTS)
    ]  # fmt: skip
    whole = {
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": [*kernels, *events],
    }
    return json.dumps(whole | over)


def info(**over):
    return {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2} | over}


@pytest.fixture
def take(tmp_path, rows):
    """`take(*paths, **options)` ingests files; gives its report and the job's rows by table."""
    folder = tmp_path / "warehouse"

    def run(*paths, **options):
        report = ingest(folder, [str(p) for p in paths], job="j", **options)
        return report, rows(Warehouse(folder).snapshot("j"))

    run.warehouse = folder
    return run


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def codes(tables):
    return {r["code"]: r["severity"] for r in tables["problems"]}


BAD_BESIDE = {
    "zip": ("x.zip", b"PK\x03\x04 is no zip", "lost"),
    "empty zip": ("x.zip", b"PK\x05\x06" + bytes(18), "warning"),
    "gzip": ("x.json.gz", b"\x1f\x8b and then rubbish", "lost"),
}


@pytest.mark.parametrize("kind", BAD_BESIDE)
def test_a_folder_with_a_broken_file_gives_the_others(tmp_path, take, kind):
    name, content, severity = BAD_BESIDE[kind]
    write(tmp_path / "in" / "a.json", trace())
    write(tmp_path / "in" / name, content)
    report, tables = take(tmp_path / "in")
    assert len(tables["events"]) == N_EVENTS
    assert report.exit_code == (1 if severity == "lost" else 0)
    [(place, problem)] = report.problems
    assert place.endswith(name)
    assert problem.severity == severity


@pytest.mark.parametrize("bad", ["gone.json", "gone*.json", "empty.json", "broken.zip", "nothing"])
@pytest.mark.parametrize("first", [True, False])
def test_a_path_without_input_does_not_keep_the_others_out(tmp_path, take, bad, first):
    good = write(tmp_path / "a.json", trace())
    write(tmp_path / "empty.json", "")
    write(tmp_path / "broken.zip", b"PK\x03\x04 is no zip")
    (tmp_path / "nothing").mkdir()
    paths = [tmp_path / bad, good]
    report, tables = take(*(paths if first else paths[::-1]))
    assert len(tables["events"]) == N_EVENTS
    assert report.exit_code == 1
    assert [place for place, _ in report.problems] == [str(tmp_path / bad)]


@pytest.mark.parametrize(
    ("damage", "says"),
    [(gzip.compress(b"")[:10] + b"\xff" * 20, "damaged"), (gzip.compress(b"x")[:10], "cut")],
    ids=["damaged", "cut"],  # the bytes hold the time at which they were made
)
def test_gzip_that_gives_nothing_is_not_called_empty(tmp_path, capfd, damage, says):
    path = write(tmp_path / "a.json.gz", damage)
    assert cli.run(["ingest", str(path), "--warehouse", str(tmp_path / "w")]) == 3
    err = capfd.readouterr().err
    assert f"the compressed data is {says}" in err
    assert err.count("\n") == 1


def test_wrong_checksum_at_the_end_of_gzip_keeps_all_events(tmp_path, take):
    stored = bytearray(gzip.compress(trace().encode()))
    stored[-8:-4] = b"abcd"
    report, tables = take(write(tmp_path / "a.json.gz", bytes(stored)))
    assert len(tables["events"]) == N_EVENTS
    assert codes(tables)["damaged_compression"] == "lost"
    assert report.exit_code == 1


def test_gzip_gives_every_byte_before_the_damage(tmp_path):
    text = b"".join(b"%d," % (i * i) for i in range(200_000))
    first, second = gzip.compress(text[:1_000_000]), bytearray(gzip.compress(text[1_000_000:]))
    second[-8:-4] = b"abcd"
    [source] = find_sources([str(write(tmp_path / "a.gz", first + bytes(second)))], print)
    with source.open() as f:
        # The byte that comes with the wrong checksum cannot be had.
        assert text[:-1] in (got := f.read(), got[:-1])
        assert "damaged" in (stream_defect(f) or "")


def test_damaged_zip_member_is_told_and_the_others_stay(tmp_path, take):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as z:
        for rank in range(2):
            z.writestr(f"rank{rank}.json", trace(rank))
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"name": "k2"', b'"name": "K2"', 1))
    report, tables = take(path)
    assert len(tables["events"]) == 2 * N_EVENTS
    assert codes(tables)["damaged_compression"] == "lost"
    assert report.exit_code == 1


@pytest.mark.parametrize("size", [1000, OUT_BYTES, 4 << 20])
def test_a_damaged_zip_member_gives_as_much_however_it_is_read(tmp_path, size):
    text = b"".join(b"%d " % (i * i) for i in range(500_000))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("rank0.json", text)
    content = bytearray((tmp_path / "a.zip").read_bytes())
    middle = len(content) // 2
    content[middle : middle + 2000] = b"\xff" * 2000
    (tmp_path / "a.zip").write_bytes(content)
    [source] = find_sources([str(tmp_path / "a.zip")], print)
    with source.open() as f:
        got = b"".join(iter(lambda: f.read(size), b""))
        assert "damaged" in (stream_defect(f) or "")
    assert len(got) % OUT_BYTES == 0
    n = min(len(text) // 2 - 2 * OUT_BYTES, len(got))
    assert n > OUT_BYTES
    assert got[:n] == text[:n]


def test_compressed_tar_in_an_archive_is_said(tmp_path):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as t:
        t.addfile(tarfile.TarInfo("rank0.json"), io.BytesIO())
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as z:
        z.writestr("in.tar.gz", inner.getvalue())
    found = []
    list(find_sources([str(tmp_path / "a.zip")], lambda _, p: found.append(p.code)))
    assert found == ["nested_archive"]


@pytest.mark.parametrize("rank", [2**31, 2**23, -1, 1.5, True, [0], "x", "9" * 5000])
def test_a_rank_that_is_none_is_refused_unless_given(tmp_path, take, capfd, rank):
    path = write(tmp_path / "a.json", trace(**info(rank=rank)))
    assert cli.run(["ingest", str(path), "--warehouse", str(take.warehouse)]) == 2
    err = capfd.readouterr().err
    assert "--rank N" in err
    assert err.count("\n") == 1
    assert not take.warehouse.exists()
    _, tables = take(path, rank=1)
    assert {r["rank"] for r in tables["events"]} == {1}
    assert codes(tables)["bad_rank"] == "warning"


def test_the_highest_rank_has_event_ids_and_no_higher_is_taken(tmp_path, take, capfd):
    _, tables = take(write(tmp_path / "a.json", trace(2**23 - 1)))
    assert {r["event_id"] >> 40 for r in tables["events"]} == {2**23 - 1}
    path = write(tmp_path / "b.json", trace(distributedInfo={}))
    assert cli.run(["ingest", str(path), "--rank", str(2**23), "--warehouse", "w"]) == 2
    assert "8388607" in capfd.readouterr().err


@pytest.mark.parametrize("base", [2**70, 2**63 - 1, -5])
def test_a_time_base_that_is_no_time_is_not_added(tmp_path, take, base):
    _, tables = take(write(tmp_path / "a.json", trace(baseTimeNanoseconds=base)))
    assert min(r["start_ns"] for r in tables["events"]) == 1_000_500
    assert {"bad_time_base", "no_time_base"} <= codes(tables).keys()


def test_times_beyond_64_bits_are_lost_input(tmp_path, take):
    late = {"ph": "X", "cat": "kernel", "name": "late", "ts": 9 * 10**15, "dur": 1, "args": {}}
    count = {"ph": "C", "name": "bytes", "ts": 9 * 10**15, "pid": 0, "args": {"value": 1}}
    report, tables = take(write(tmp_path / "a.json", trace(events=[late, count])))
    assert len(tables["events"]) == N_EVENTS
    [lost] = [r for r in tables["problems"] if r["code"] == "time_out_of_range"]
    assert (lost["severity"], lost["count"]) == ("lost", 2)
    assert report.exit_code == 1


@pytest.mark.parametrize("size", [10**12, 2**70, 2**23, -1])
def test_sizes_of_groups_do_not_fill_memory_or_break(tmp_path, take, size):
    group = {"pg_name": "0", "pg_desc": "x", "pg_size": size, "ranks": "[0, 1, 2, ..., 9]"}
    _, tables = take(write(tmp_path / "a.json", trace(**info(world_size=size, pg_config=[group]))))
    assert len(tables["events"]) == N_EVENTS
    assert all(len(r["ranks"] or []) < 10 for r in tables["comms"])
    assert ("bad_world_size" in codes(tables)) == (size != 2**23)


def kernel(name="ncclDevKernel_AllReduce_Sum", cat="kernel", **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 20, "ts": 3000, "dur": 10,
            "args": {"stream": 20, "device": 0, "correlation": 1, **args}}  # fmt: skip


LIES = {
    "size": {"Group size": 10**12, "Process Group Ranks": "[]"},
    "negative size": {"Group size": -5, "Process Group Ranks": "[-1, 0]"},
    "bytes": {"In msg nelems": 2**63 - 1, "Out msg nelems": 2**62, "dtype": "Double"},
    "ranks": {"Process Group Ranks": f"[0, {10**30}]"},
    "digits": {"Process Group Ranks": f"[0, {'9' * 5000}]"},
    "stride": {"Process Group Ranks": "[]", "Global rank start": 0, "Global rank stride": 2**40},
    "peer": {"Collective name": "send", "Src Rank": -1, "Dst Rank": 2**40},
    "splits": {"Collective name": "all_to_allv", "In split size": f"[1, {2**63}]"},
}


@pytest.mark.parametrize("lie", LIES)
def test_numbers_of_collectives_that_cannot_be_are_null(tmp_path, take, lie):
    args = {"Collective name": "allreduce", "Group size": 2, "Process Group Name": "0",
            "Seq": 1, "dtype": "Float"} | LIES[lie]  # fmt: skip
    events = [kernel(**args), kernel("record_param_comms", "cpu_op", **args)]
    report, tables = take(write(tmp_path / "a.json", trace(events=events)))
    assert len(tables["events"]) == N_EVENTS + 2
    assert len(tables["collectives"]) == 1
    assert report.exit_code == 0
    assert report.n_problems or lie == "stride"  # the size alone says who the members are


@pytest.mark.parametrize("number", ["9" * 20, "9" * 5000, "x", "-1"])
def test_a_step_number_that_is_none_is_another_annotation(tmp_path, take, number):
    step = kernel(f"ProfilerStep#{number}", "user_annotation")
    _, tables = take(write(tmp_path / "a.json", trace(events=[step])))
    assert len(tables["events"]) == N_EVENTS + 1
    assert tables["steps"] == []


def test_a_rank_beyond_its_world_is_said(tmp_path, take):
    _, tables = take(write(tmp_path / "a.json", trace(3)))
    assert codes(tables)["bad_world_size"] == "warning"


def test_what_is_not_json_names_its_file(tmp_path, capfd):
    path = write(tmp_path / "a.json", b"\x89PNG rubbish")
    args = ["ingest", str(path), "--format", "kineto", "--rank", "0"]
    assert cli.run([*args, "--warehouse", str(tmp_path / "w")]) == 3
    assert f"{path} at byte 0: not JSON" in capfd.readouterr().err


def test_a_device_of_absurdly_many_multiprocessors_is_of_unknown_many(tmp_path):
    trace = {
        "schemaVersion": 1,
        "distributedInfo": {"rank": 0, "world_size": 1 << 70},
        "deviceProperties": [{"id": 0, "name": "x", "numSms": 1 << 64}],
        "traceEvents": [
            {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1,
             "args": {"device": 0, "stream": 7}},
        ],
    }  # fmt: skip
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(trace))
    report = ingest(tmp_path / "w", str(path), job="j")
    assert [s.status for s in report.sources] == ["new"]
