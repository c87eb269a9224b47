"""A real Ray cluster of three nodes on this machine: results are those of one machine, to the byte.

A node and a worker are killed while they read.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest
from retime import cli
from retime.ingest import detect, on_ray, staging
from retime.ingest.on_ray import connection
from retime.ingest.on_ray.quiet import quiet
from retime.ingest.run import ingest
from retime.ingest.workers import WorkerDied

pytest.importorskip("ray", reason="Ray is not installed: pip install 'retime[ray]'")

HERE = Path(__file__).resolve().parent
STORE_BYTES = 80 << 20
MOST_S = 60.0


class Nodes:
    """The cluster: its address, its nodes, and the folder whose `open` lets readers go on."""

    def __init__(self, cluster, workers, gate: Path):
        self.cluster, self.workers, self.gate = cluster, workers, gate
        self.address: str = cluster.address

    def tries(self) -> list[tuple[int, int, str]]:
        """(rank, process, node) of every try of a source so far."""
        names = [p.name.split(".") for p in self.gate.glob("*.*.*")]
        return [(int(rank), int(pid), node) for rank, pid, node in names]


def wait_for(found, what: str):
    until = time.monotonic() + MOST_S
    while time.monotonic() < until:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError(f"not in {MOST_S:g} s: {what}")


def processes_with(mark: str) -> list[int]:
    """The processes that have this in the environment that they were started with."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def started(cluster, mark: str, **options):
    """A further node of the cluster; tried again where the machine is too busy for Ray."""
    before = processes_with(mark)
    for _ in range(3):
        try:
            return cluster.add_node(wait=False, **options)
        except Exception as e:
            if "timed out during startup" not in str(e):
                raise
            for pid in set(processes_with(mark)) - set(before):
                os.kill(pid, signal.SIGKILL)
    return pytest.skip("this machine is too busy for Ray, which gives a node 30 s to start")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Three nodes of one CPU each; whatever they started is gone at the end."""
    from ray.cluster_utils import Cluster

    gate = tmp_path_factory.mktemp("gate")
    mark = secrets.token_hex(8)
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Paths of sockets have a bound that pytest's own folders may be beyond.
    temporary = tempfile.mkdtemp(prefix="rt-ray-", dir="/tmp")
    each = {
        "num_cpus": 1,
        "object_store_memory": STORE_BYTES,
        "include_log_monitor": False,
        "temp_dir": temporary,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RETIME_TEST_GATE", str(gate))
        patch.setenv("RETIME_TEST_MARK", mark)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Else it depends on whether the home folder has a token of some other cluster.
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.delenv("RAY_ADDRESS", raising=False)
        connection.library()
        cluster = Cluster(initialize_head=False)
        try:
            started(cluster, mark, **each, include_dashboard=False)
            workers = [started(cluster, mark, **each) for _ in range(2)]
            cluster.wait_for_nodes(timeout=MOST_S)
            # Every call below finds this connection, so that workers need to start only once.
            with on_ray.connected(cluster.address):
                yield Nodes(cluster, workers, gate)
            cluster.shutdown()
            wait_for(lambda: not processes_with(mark), "an end of what the cluster started")
        finally:
            for pid in processes_with(mark):
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(temporary, ignore_errors=True)


@pytest.fixture(scope="module")
def local(tmp_path_factory, demo_job: Path) -> Path:
    """The bundled job, ingested on this machine."""
    warehouse = tmp_path_factory.mktemp("local") / "warehouse"
    assert ingest(warehouse, [demo_job], job="j").exit_code == 0
    return warehouse


def contents(folder: Path) -> dict[str, bytes]:
    """Every file by its path, the times of their making left out of manifests.

    `jobs` holds the time of the first ingest as a row: of its file only that it is there.
    """
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        data = path.read_bytes()
        if path.suffix == ".json":
            said = json.loads(data)
            del said["created_at_ns"]
            for part in said["tables"].get("jobs", []) if "sources" in said else []:
                del part["sha256"], part["bytes"]
            data = json.dumps(said).encode()
        name = str(path.relative_to(folder))
        found[name] = b"" if path.parent.name == "jobs" else data
    return found


def test_a_node_and_a_worker_killed_in_the_middle_of_an_ingest_cost_only_time(
    nodes: Nodes, local: Path, demo_job: Path, tmp_path: Path, monkeypatch, capfd
) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    gated = detect.FORMATS["kineto"]._replace(module="gated_kineto")
    monkeypatch.setitem(detect.FORMATS, "kineto", gated)
    told: list[tuple[int, int]] = []
    reports = []
    work = threading.Thread(
        target=lambda: reports.append(
            ingest(
                tmp_path / "w", [demo_job], job="j", ray=nodes.address,
                progress=lambda done, total, name: told.append((done, total)),
            )
        )
    )  # fmt: skip
    work.start()
    wait_for(lambda: len({n for *_, n in nodes.tries()}) == 3, "a task on each of three nodes")
    lost_rank, _, _ = next(t for t in nodes.tries() if t[2] == nodes.workers[0].node_id)
    crashed_rank, pid, _ = next(t for t in nodes.tries() if t[2] == nodes.workers[1].node_id)
    nodes.cluster.remove_node(nodes.workers[0], allow_graceful=False)
    os.kill(pid, signal.SIGKILL)
    (nodes.gate / "open").touch()
    work.join(MOST_S)
    assert not work.is_alive()
    (report,) = reports
    assert capfd.readouterr().out == ""  # though Ray has much to say of a lost node
    assert report.exit_code == 0
    assert [s.status for s in report.sources] == ["new"] * 8
    tries = [rank for rank, *_ in nodes.tries()]
    assert tries.count(lost_rank) >= 2
    assert tries.count(crashed_rank) >= 2
    assert told[-1][0] == told[-1][1] > 4_000_000
    found, expected = contents(tmp_path / "w"), contents(local)
    assert list(found) == list(expected)
    assert [name for name in found if found[name] != expected[name]] == []


def test_a_sweep_prints_what_it_prints_here(nodes: Nodes, local: Path, capfd) -> None:
    command = [
        "replay", "j", "--warehouse", str(local), "--policy", "align-arrivals",
        "--policy", "scale-fabric", "--sweep", "factor=1,2,4", "--json",
    ]  # fmt: skip
    printed = []
    for more in ([], ["--ray", nodes.address]):
        capfd.readouterr()
        with quiet():  # the fixture's connection has remarks on the lost node whenever it likes
            assert cli.run([*command, *more]) == 0
        printed.append(capfd.readouterr().out)
    assert len(json.loads(printed[0])["policies"]) == 7
    assert printed[0] == printed[1]


def test_the_first_error_of_a_sweep_is_the_one_told(nodes: Nodes, local: Path, capfd) -> None:
    command = [
        "replay", "j", "--warehouse", str(local), "--policy", "scale-fabric",
        "--sweep", "factor=1,0,-1",
    ]  # fmt: skip
    said = []
    for more in ([], ["--ray", nodes.address]):
        capfd.readouterr()
        assert cli.run([*command, *more]) == 2
        said.append(capfd.readouterr().err.splitlines()[-1])
    assert "factor=0" in said[0]
    assert said[0] == said[1]


def test_jobs_are_analysed_as_here_and_one_that_fails_keeps_no_other_from_its_turn(
    nodes: Nodes, local: Path, tmp_path: Path, capfd
) -> None:
    printed, kept = [], []
    for name, more in (("here", []), ("there", ["--ray", nodes.address])):
        warehouse = tmp_path / "w"  # one path: it is in what is said
        shutil.rmtree(warehouse, ignore_errors=True)
        shutil.copytree(local, warehouse)
        shutil.copytree(local / "job=j", warehouse / "job=k")
        for path in (warehouse / "job=k").glob("events/*.parquet"):
            path.write_bytes(bytes(path.stat().st_size))
        capfd.readouterr()
        command = ["analyse", "--all", "--json", "--warehouse", str(warehouse)]
        with quiet():
            assert cli.run([*command, *more]) == 0
        printed.append(capfd.readouterr().out)
        kept.append(contents(warehouse))
        assert not list(warehouse.glob(f"job=*/{staging.INCOMING}/*.*.*")), name
    rows = json.loads(printed[0])
    assert [(r["job"], r["status"], r["replay_scores"]) for r in rows] == [
        ("j", "computed", 8),
        ("k", "no rows", 0),
    ]
    assert printed[0] == printed[1]
    assert kept[0] == kept[1]
    assert sum("_kept" in name for name in kept[0]) == 5


def test_what_kills_its_worker_each_time_is_given_up_and_what_raises_is_not_tried_again(
    nodes: Nodes, tmp_path: Path
) -> None:
    with on_ray.connected(nodes.address) as ray:
        died = dict(on_ray.run(ray, "gated_kineto:die", [(str(tmp_path), 7)], None, None))
        failed = dict(on_ray.run(ray, "gated_kineto:fail", [(str(tmp_path), 8)], None, None))
    assert isinstance(died[0], WorkerDied)
    assert len(list(tmp_path.glob("7.*"))) == 3
    assert isinstance(failed[0], KeyError)
    assert len(list(tmp_path.glob("8.*"))) == 1


def test_a_node_that_does_not_see_a_file_is_named_with_it(nodes: Nodes, tmp_path: Path) -> None:
    wanted = [on_ray.Seen(str(tmp_path / "nowhere" / "trace.json"), 5)]
    with (
        on_ray.connected(nodes.address) as ray,
        pytest.raises(on_ray.ClusterError, match=r"node [0-9.]+ \(\w+\) does not see .*trace.json"),
    ):
        next(on_ray.run(ray, "gated_kineto:fail", [(str(tmp_path), 9)], 1, None, wanted=wanted))
    assert not list(tmp_path.iterdir())
