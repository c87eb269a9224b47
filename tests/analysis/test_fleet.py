"""`retime fleet`: a warehouse of two small jobs on two hosts, as rows and on the terminal."""

from __future__ import annotations

import json

import pytest
import retime
from retime import cli
from retime.analysis import fleet_screen, terminal

START = 1_772_409_600_000_000
"""2026-03-02, 00:00 UTC, in microseconds."""


def trace(rank: int, late_us: int, transfer_us: int, day: int) -> dict:
    """A Kineto file of one all-reduce of 8,000 bytes after one kernel, on host n<rank>."""
    base = START + day * 86_400_000_000
    group = {"pg_name": "0", "pg_config": "default", "ranks": [0, 1]}
    kernel = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7}
    args = {
        "device": 0, "stream": 7, "Collective name": "allreduce", "In msg nelems": 2000,
        "Out msg nelems": 2000, "dtype": "Float", "Group size": 2, "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]", "Seq": 1,
    }  # fmt: skip
    return {
        "schemaVersion": 1,
        "baseTimeNanoseconds": 0,
        "host_name": f"n{rank}",
        "distributedInfo": {
            "backend": "nccl", "rank": rank, "world_size": 2, "pg_count": 1,
            "pg_config": [{**group, "backend_config": "cuda:nccl", "pg_desc": "dp"}],
        },
        "traceEvents": [
            {**kernel, "name": "gemm", "ts": base, "dur": 100 + late_us,
             "args": {"device": 0, "stream": 7}},
            {**kernel, "name": "ncclDevKernel_AllReduce_Sum_f32_RING", "ts": base + 100 + late_us,
             "dur": 50 - late_us + transfer_us, "args": args},
        ],
    }  # fmt: skip


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> retime.Warehouse:
    folder = tmp_path_factory.mktemp("fleet")
    wh = retime.open(folder / "warehouse")
    for job, transfer, day in (("first", 80, 0), ("second", 100, 7)):
        for rank in (0, 1):
            path = folder / f"{job}-{rank}.json"
            path.write_text(json.dumps(trace(rank, 50 * rank, transfer, day)))
            assert wh.ingest(path, job=job).exit_code == 0
    return wh


def test_jobs(wh: retime.Warehouse) -> None:
    found = wh.fleet_jobs().select("job", "ranks", "hosts", "scope", "clocks").rows()
    assert [row[:4] for row in found] == [("first", 2, 2, "trace"), ("second", 2, 2, "trace")]


def test_hosts(wh: retime.Warehouse) -> None:
    rows = wh.fleet_hosts().select("host", "jobs").rows()
    assert sorted(rows) == [("n0", 2), ("n1", 2)]
    assert set(wh.fleet_host_jobs()["job"]) == {"first", "second"}


def test_kernels(wh: retime.Warehouse) -> None:
    rows = wh.fleet_kernels().select("host", "name", "jobs", "median_ns", "excess_ns").rows()
    assert rows == [
        ("n1", "gemm", 2, 150_000, 100_000), ("n0", "gemm", 2, 100_000, -100_000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("by", "words"),
    [("jobs", ("first", "2026-03-02 00:00", "2026-03-09 00:00")),
     ("hosts", ("n0", "n1", "also: --by fabric, --by kernels, --by jobs")),
     ("fabric", ("week  2026-03-09", "0.100 GB/s  -20.0 %")),
     ("kernels", ("gemm", "+50.0 %", "-33.3 %"))],
)  # fmt: skip
def test_on_the_terminal(wh, capfd, monkeypatch, by: str, words: tuple[str, ...]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.run(["fleet", "--by", by, "--warehouse", wh.url]) == 0
    out, _ = capfd.readouterr()
    assert all(word in out for word in words)
    assert cli.run(["fleet", "--by", by, "--warehouse", wh.url, "--json"]) == 0
    assert isinstance(json.loads(capfd.readouterr()[0]), list)


def test_jobs_of_no_recorded_host_are_counted(capfd) -> None:
    out = terminal.console()
    fleet_screen.show(out, [], "hosts", 5, 2)
    fleet_screen.show(out, [], "jobs", 5)
    shown = capfd.readouterr()[0]
    assert shown.count("2 jobs have no recorded host name and are left out") == 1


def test_every_job_has_recorded_hosts(wh: retime.Warehouse) -> None:
    assert fleet_screen.unnamed_jobs(wh) == 0


def test_anything_else_is_a_usage_error(wh: retime.Warehouse, capfd) -> None:
    assert cli.run(["fleet", "--by", "moon", "--warehouse", wh.url]) == 2
    assert "hosts, fabric, jobs, kernels" in capfd.readouterr()[1]


def test_at_80_columns_jobs_keep_what_is_asked_of_them(wh: retime.Warehouse) -> None:
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    rows = [{**r, "device_name": "NVIDIA H100 80GB HBM3"} for r in fleet_screen.rows(wh, "jobs")]
    fleet_screen.show(Console(file=out, width=80), rows, "jobs", 9)
    lines = out.getvalue().splitlines()
    assert "2026-03-02 00:00" in lines[1]
    assert lines[0].split()[-4:] == ["compute", "wait", "transfer", "idle"]
    assert "device" in " ".join(lines[3:])
    assert "--json has them)" in lines[-1]
