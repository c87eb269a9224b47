"""Benchmark tables: whole, broken by log lines, with launcher prefixes; real files by count."""

import re
from types import SimpleNamespace

import pytest
from retime.ingest.collect import Collector
from retime.ingest.nccl.nccl_tests_run import version_of_code
from retime.ingest.nccl.nccl_tests_text import TableReader

HEAD = """# nThread 1 nGpus 2 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20
# Using devices
#  Rank  0 Group  0 Pid   1302 on 38dcf168f605 device  0 [0000:41:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1303 on other device  0 [0000:41:00] NVIDIA H100 80GB HBM3
#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time
"""
WIDE = (
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     "
    "time   algbw   busbw  #wrong\n"
)
START = "# Collective test starting: all_reduce_perf\n"
ROW = "   268435456      67108864     float     sum      -1  1346.13  199.41  199.42       0"
ROW += "  1347.25  198.41  198.42     N/A"


def read(text: str, name: str = ""):
    """(rows of cost_curves, problems by code, which lines were the benchmark's)."""
    reader, at, own = TableReader(name), 0, []
    for line in text.split("\n"):
        own.append(reader.feed(line, at))
        at += len(line) + 1
    collector = Collector(SimpleNamespace(name="x"))  # type: ignore[arg-type]
    reader.rows(collector)
    rows, problems = [], {}
    for table, batch in collector.rest():
        if table == "problems":
            problems = {p["code"]: p for p in batch.to_pylist()}
        else:
            assert table == "cost_curves"
            rows += batch.to_pylist()
    return rows, problems, own


def test_both_halves_of_a_row():
    rows, problems, own = read(HEAD + START + WIDE + ROW)
    assert rows[0] == {
        "op": "all_reduce",
        "bytes": 268435456,
        "n_ranks": 2,
        "n_hosts": 2,
        "dtype": "float32",
        "redop": "sum",
        "in_place": False,
        "time_ns": 1346130,
        "algbw_bytes_per_s": 199410000000,
        "busbw_bytes_per_s": 199420000000,
        "n_wrong": 0,
        "algo": None,
        "proto": None,
        "channels": None,
        "library": None,
        "device_name": "NVIDIA H100 80GB HBM3",
        "tool": "nccl-tests",
        "run": "0",
    }
    assert (rows[1]["in_place"], rows[1]["time_ns"], rows[1]["n_wrong"]) == (True, 1347250, None)
    assert len(rows) == 2
    assert not problems
    assert all(own)


def test_a_row_broken_by_log_lines_of_a_host_whose_name_begins_with_digits():
    log = "38dcf168f605:1391:1391 [0] NCCL INFO AllReduce: 268435456 Bytes -> Algo RING proto "
    log += "SIMPLE channel{Lo..Hi}={0..23}"
    text = (
        f"{START}{HEAD}{WIDE}   268435456      67108864     float     sum      -1{log}\n"
        f"{log}\n  1185.50  226.43  339.65       0{log}\n{log}\n  1190.17  225.54  338.32       0\n"
    )
    rows, problems, own = read(text)
    assert [(r["time_ns"], r["n_wrong"], r["in_place"]) for r in rows] == [
        (1185500, 0, False),
        (1190170, 0, True),
    ]
    assert {(r["algo"], r["proto"], r["channels"]) for r in rows} == {("ring", "Simple", 24)}
    assert not problems
    assert own[-6:] == [False, False, False, False, True, False]


def test_glued_text_of_an_unknown_host_is_cut_off_at_the_columns_width():
    row = (
        "   268435456      67108864     float     sum      -138dcf168f605:1391:1391 [0] NCCL INFO x"
    )
    rows, problems, _ = read(f"{START}{WIDE}{row}\n  1185.50  226.43  339.65       0\n")
    assert [(r["bytes"], r["time_ns"]) for r in rows] == [(268435456, 1185500)]
    assert problems["row_cut"]["count"] == 1
    assert problems["row_cut"]["severity"] == "lost"


@pytest.mark.parametrize(
    "prefix", [" 0: ", "12: ", "[1,0]<stdout>: ", "[1,0]<stdout>:", "node-1: "]
)
def test_launcher_prefixes(prefix):
    text = "\n".join(prefix + line for line in (START + HEAD + WIDE + ROW).splitlines())
    rows, problems, _ = read(text)
    assert [(r["n_ranks"], r["time_ns"]) for r in rows] == [(2, 1346130), (2, 1347250)]
    assert not problems


def test_columns_of_single_iterations_and_a_time_stamp_are_passed_over():
    head = "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% "
    head += "time algbw busbw #wrong i_min i_max i_p99 i_cv% timestamp\n"
    row = (
        "  1024  256  float  sum  -1  10.5  1.25  2.5  0  9.00  12.0  11.9  3.1  11.5  1.35  2.6  0"
    )
    rows, _, _ = read(START + HEAD + head + row + "  9.00  12.0  11.9  3.1")
    assert [(r["time_ns"], r["busbw_bytes_per_s"]) for r in rows] == [
        (10500, 2500000000),
        (11500, 2600000000),
    ]


def test_a_row_without_an_out_of_place_half():
    blank = " " * 32
    rows, problems, _ = read(
        START
        + WIDE
        + "        1024           256     float     sum      -1"
        + blank
        + "  10.5  1.0  1.5  0"
    )
    assert [(r["in_place"], r["time_ns"]) for r in rows] == [(True, 10500)]
    assert not problems


def test_a_time_that_is_no_number_and_wrong_results():
    row = "  1024  256  float  sum  -1  nan  nan  nan  N/A  10.5  1.0  1.5  7"
    rows, problems, _ = read(START + WIDE + row)
    assert [(r["time_ns"], r["busbw_bytes_per_s"], r["n_wrong"]) for r in rows] == [
        (None, None, None),
        (10500, 1500000000, 7),
    ]
    assert problems["time_not_a_number"]["count"] == 1
    assert problems["wrong_results"]["count"] == 1


def test_rccl_tests_name_their_library_after_the_heading():
    # The lines' order and wording are those of rccl-tests' own output on MI350X.
    half = "   76.43   13.72   25.72      0"
    text = f"""{START}# nThread 1 nGpus 1 minBytes 1 maxBytes 2 step: 2(factor) warmup iters: 5
#
rccl-tests: Version develop:6405c76
# Using devices
#  Rank  0 Group  0 Pid 3252337 on amd-1 device  0 [0000:05:00] AMD Instinct MI350X
#  Rank  1 Group  0 Pid 3252338 on amd-1 device  1 [0000:15:00] AMD Instinct MI350X
RCCL version : 2.27.7-develop:29e1567
{WIDE}     1048576        262144     float     sum      -1    76.26   13.75   25.78      0 {half}
"""
    rows, problems, _ = read(text)
    assert {(r["tool"], r["library"], r["n_ranks"], r["op"]) for r in rows} == {
        ("rccl-tests", "rccl 2.27.7-develop", 2, "all_reduce")
    }
    assert [r["time_ns"] for r in rows] == [76260, 76430]
    assert not problems


def test_two_runs_of_a_file_stay_apart_and_a_split_counts_its_groups():
    one = START + HEAD + WIDE + ROW + "\n# Avg bus bandwidth    : 1\n"
    two = one.replace("all_reduce_perf", "sendrecv_perf").replace(
        "Rank  1 Group  0", "Rank  1 Group  1"
    )
    rows, _, _ = read(one + two)
    assert sorted({(r["run"], r["op"], r["n_ranks"]) for r in rows}) == [
        ("0", "all_reduce", 2),
        ("1", "send_recv", 1),
    ]


def test_headings_of_a_sweep_set_algorithm_protocol_and_ranks():
    row = ROW.replace("N/A", "0")
    rows, problems, _ = read(
        f"### ALGO=CollnetChain size=4\n### ALGO=Tree size=4\n{row}\n"
        f"### PROTO=LL128\n{row}\n### GPUS=6\n{row}"
    )
    assert [(r["algo"], r["proto"], r["n_ranks"], r["run"]) for r in rows[::2]] == [
        ("tree", None, None, "0 ALGO=Tree size=4"),
        (None, "LL128", None, "1 PROTO=LL128"),
        (None, None, 6, "2 GPUS=6"),
    ]
    assert problems["empty_run"]["count"] == 1
    assert problems["op_from_table"]["count"] == 3


@pytest.mark.parametrize(
    ("columns", "op"),
    [
        ("1024 256 float none -1", "unknown"),
        ("1024 128 float none -1", "unknown"),
        ("1024 256 float sum -1", "all_reduce"),
        ("1024 128 float sum -1", "reduce_scatter"),
        ("1024 256 float sum 0", "reduce"),
        ("1024 256 float none 0", "broadcast"),
        ("1024 128 float none 0", "unknown"),
    ],
)
def test_the_operation_from_the_columns_where_nothing_names_it(columns, op):
    rows, problems, _ = read(HEAD + WIDE + columns + " 1.0 1.0 1.0 0 1.0 1.0 1.0 0")
    assert {r["op"] for r in rows} == {op}
    assert ("op_unknown" in problems) == (op == "unknown")


def test_the_files_name_is_the_last_resort():
    text = HEAD + WIDE + "1024 128 float none -1 1.0 1.0 1.0 0 1.0 1.0 1.0 0"
    rows, problems, _ = read(text, "runs/alltoall_64.log")
    assert {r["op"] for r in rows} == {"all_to_all"}
    assert "the file's name" in problems["op_from_table"]["message"]


def test_other_programs_numbers_are_not_rows():
    text = "1 2 three\n 10 20 epoch 0.5 0.6\n  1.0 2.0 3.0 4\n5 6 float\n"
    rows, problems, own = read(text)
    assert not rows
    assert not problems
    assert not any(own)


def test_hostile_lines():
    hostile = [
        "a" * 100000,
        " " * 100000,
        "1 " * 50000,
        " 1" * 39,
        "#" * 5000,
        "### ALGO=" + "x" * 9999,
    ]
    hostile += [
        "9" * 500 + " 1 float sum -1 " + "1 " * 8,
        "1 1 float sum -1 1e999 1e400 nan 1e99 inf 1 1 1",
    ]
    rows, _, _ = read(START + HEAD + WIDE + "\n".join(hostile) + "\n" + ROW)
    assert [r["time_ns"] for r in rows if r["bytes"] == 268435456] == [1346130, 1347250]


def test_versions_of_nccl_as_a_number():
    assert (version_of_code(22902), version_of_code(2708)) == ("2.29.2", "2.7.8")


@pytest.mark.parametrize(
    ("folder", "pattern"),
    [
        ("nccl_tests/superbenchmark", "*.log"),
        ("nccl_logs/nccl-collectives-bench", "*.txt"),
        ("nccl_logs/awsome-distributed-training", "*.out"),
    ],
)
def test_real_tables_have_two_halves_for_each_row_that_a_search_finds(
    retime_traces, folder, pattern
):
    files = sorted((retime_traces / folder).glob(pattern))
    assert files
    for path in files:
        text = path.read_text()
        n = len(re.findall(r"^(?: ?\d+: )? +\d+ +\d+ +float .*\d\.\d\d +\S+ *$", text, re.M))
        rows, problems, _ = read(text, path.name)
        assert len(rows) == 2 * n, path.name
        assert not {p["severity"] for p in problems.values()} - {"info"}
        assert sum(not r["in_place"] for r in rows) == n
        assert all(r["op"] != "unknown" and r["time_ns"] >= 0 for r in rows)


def test_real_broken_tables(retime_traces):
    chosen = {}
    for path in sorted(
        (retime_traces / "nccl_logs/nccl-collectives-bench/scaling_attributed").iterdir()
    ):
        text = path.read_text()
        rows, problems, _ = read(text, path.name)
        assert len(rows) == 12
        assert not problems
        # The second half of each row ends a line of its own: an independent look at the numbers.
        ends = re.findall(r"^ +(\d+)\.(\d+) +\d+\.\d\d +(\d+)\.(\d\d) +0$", text, re.M)
        assert len(ends) == 6
        ours = [(r["time_ns"], r["busbw_bytes_per_s"]) for r in rows if r["in_place"]]
        assert ours == [
            (int(a) * 1000 + int((b + "000")[:3]), int(c) * 10**9 + int(d) * 10**7)
            for a, b, c, d in ends
        ]
        chosen[path.stem] = {(r["algo"], r["n_ranks"]) for r in rows}
    assert chosen["g4_NVLS"] == {("nvls", 4)}
    assert chosen["g4_Ring"] == {("ring", 4)}
    assert chosen["g6_auto"] == {("nvls", 6)}
    assert chosen["g2_auto"] == {("ring", 2)}


def test_the_scatter_of_two_hosts_is_known_by_its_links(retime_traces):
    path = retime_traces / "nccl_logs/awsome-distributed-training/slurm-104.out"
    rows, problems, _ = read(path.read_text(), path.name)
    assert {(r["op"], r["n_ranks"], r["n_hosts"], r["library"], r["proto"]) for r in rows} == {
        ("scatter", 16, 2, "nccl 2.18.3+cuda12.2", "Simple")
    }
    assert rows[-1]["time_ns"] == 24829000
    assert "links in the log" in problems["op_from_table"]["message"]
