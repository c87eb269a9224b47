"""A real Ray cluster of three nodes on this machine: results are those of one machine, to the byte.

A node and a worker are killed while they read, and a worker while it uploads into an object store.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import secrets
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from retime import cli
from retime.ingest import detect, on_ray, owners, rooms, store
from retime.ingest.on_ray import connection, tasks
from retime.ingest.on_ray.quiet import quiet
from retime.ingest.run import IngestReport, ingest
from retime.ingest.warehouse import Warehouse
from retime.ingest.workers import WorkerDied

pytest.importorskip("ray", reason="Ray is not installed: pip install 'retime[ray]'")

HERE = Path(__file__).resolve().parent
STORE_BYTES = 80 << 20
MOST_S = 60.0
NODES_KEY = "the-nodes-own-key"
DRIVERS_KEY = "the-drivers-own-key"
SECRET = "what-nobody-but-the-driver-knows"


class Nodes:
    """The cluster: its address, its nodes, and the folder whose `open` lets readers go on."""

    def __init__(self, cluster, workers, gate: Path, temporary: str):
        self.cluster, self.workers, self.gate = cluster, workers, gate
        self.temporary = Path(temporary)
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
def proxy(request, s3_server):
    """A proxy before an S3 server, for whoever has its address in the environment; None where what
    that needs is not installed."""
    if not all(importlib.util.find_spec(name) for name in ("s3fs", "moto")):
        yield None
        return
    proxy = s3_server.Proxy(request.getfixturevalue("s3_url"))
    yield proxy
    proxy.close()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory, s3_server, proxy):
    """Three nodes of one CPU each; whatever they started is gone at the end.

    They have credentials for the S3 server from the environment that they were started in.
    """
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
        patch.delenv("AWS_PROFILE", raising=False)
        # Where a cluster's address is noted, in a folder that Ray does not make.
        patch.setenv("RAY_TMPDIR", temporary)
        os.mkdir(os.path.join(temporary, "ray"))
        connection.library()
        cluster = Cluster(initialize_head=False)
        theirs = {} if proxy is None else s3_server.credentials(proxy.url)
        try:
            with pytest.MonkeyPatch.context() as of_nodes:
                for name, value in theirs.items():
                    of_nodes.setenv(name, NODES_KEY if name == "AWS_ACCESS_KEY_ID" else value)
                started(cluster, mark, **each, include_dashboard=False)
                workers = [started(cluster, mark, **each) for _ in range(2)]
            cluster.wait_for_nodes(timeout=MOST_S)
            # Every call below finds this connection, so that workers need to start only once.
            with on_ray.connected(cluster.address):
                yield Nodes(cluster, workers, gate, temporary)
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
            for of_it in (said, said.get("summary") or {}):
                for name in ("created_at_ns", "newest_at_ns", "stored_bytes"):
                    of_it.pop(name, None)
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
        for table in ("events", "_made_tasks"):
            for path in (warehouse / "job=k" / table).glob("*.parquet"):
                path.write_bytes(bytes(path.stat().st_size))
        capfd.readouterr()
        command = ["analyse", "--all", "--json", "--warehouse", str(warehouse)]
        with quiet():
            assert cli.run([*command, *more]) == 0
        printed.append(capfd.readouterr().out)
        kept.append(contents(warehouse))
        assert not list(warehouse.glob(f"job=*/{rooms.INCOMING}/*.*.*")), name
    rows = json.loads(printed[0])
    assert [(r["job"], r["status"], r["replay_scores"]) for r in rows] == [
        ("j", "computed", 8),
        ("k", "no rows", 0),
    ]
    assert printed[0] == printed[1]
    assert kept[0] == kept[1]
    assert sum("_kept" in name for name in kept[0]) == 5


class Uploaded(NamedTuple):
    """What an ingest into the object store left of which one worker was killed as it uploaded."""

    address: str
    report: IngestReport
    tries: list[int]
    """the rank of each try of a source"""
    killed: str
    """the part that was on its way"""
    log: list[Any]


@contextlib.contextmanager
def as_driver(s3_server, proxy):
    """This process's own credentials, which no node has."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.credentials(proxy.url).items():
            patch.setenv(name, value)
        patch.setenv("AWS_ACCESS_KEY_ID", DRIVERS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        yield patch


@pytest.fixture(scope="module")
def uploaded(nodes: Nodes, s3_server, proxy, local: Path, demo_job: Path):
    """The bundled job in the object store, put there by the cluster."""
    if proxy is None:
        pytest.skip("no S3 server: pip install 'retime[s3,s3-server]'")
    (nodes.gate / "open").touch()
    for path in nodes.gate.glob("*.*.*"):
        path.unlink()
    (last,) = [m for m in Warehouse(local).manifests("j")[0] if m.ranks == [7]]
    seen: list[str] = []
    killed: list[str] = []

    def rule(request):
        if request.op != "PUT" or f"/{last.id[:16]}-" not in request.key or killed:
            return None
        seen.append(request.key)
        if len(seen) < 3:
            return None
        killed.append(request.key)
        ((_, pid, _),) = [t for t in nodes.tries() if t[0] == 7]
        os.kill(pid, signal.SIGKILL)
        return "cut_request"

    address = f"s3://{s3_server.BUCKET}/warehouse"
    with as_driver(s3_server, proxy) as patch:
        patch.syspath_prepend(str(HERE))
        gated = detect.FORMATS["kineto"]._replace(module="gated_kineto")
        patch.setitem(detect.FORMATS, "kineto", gated)
        proxy.rule = rule
        report = ingest(address, [demo_job], job="j", ray=nodes.address)
        proxy.rule = None
        tries = [rank for rank, *_ in nodes.tries()]
        yield Uploaded(address, report, tries, killed[0], list(proxy.log))


def digests(warehouse: Warehouse) -> dict[str, list[str]]:
    """By table and source (or generation) the SHA-256 of each part's bytes as they lie there."""
    manifests, bad = warehouse.manifests("j")
    assert bad == []
    made = warehouse.generation("j", manifests)
    assert made is not None
    folder = store.folder(warehouse.job_folder("j"))
    found = {}
    for m in (*manifests, made):
        for table, parts in (*m.tables.items(), *getattr(m, "views", {}).items()):
            if table != "jobs" or m is not made:  # that has the time of the first ingest
                read = [folder.read(p.file, p.bytes) for p in parts]
                found[f"{table} of {m.id}"] = [hashlib.sha256(data).hexdigest() for data in read]
                assert found[f"{table} of {m.id}"] == [p.sha256 for p in parts]
    return found


def test_an_object_store_has_what_a_disk_has_though_a_worker_was_killed_as_it_uploaded(
    uploaded: Uploaded, local: Path
) -> None:
    assert uploaded.report.exit_code == 0
    assert [s.status for s in uploaded.report.sources] == ["new"] * 8
    assert uploaded.tries.count(7) == 2
    found, expected = digests(Warehouse(uploaded.address)), digests(Warehouse(local))
    assert len(found) > 50
    assert found == expected


def test_what_a_killed_worker_had_uploaded_goes_with_the_orphans(
    uploaded: Uploaded, monkeypatch
) -> None:
    warehouse = Warehouse(uploaded.address)
    folder = store.folder(warehouse.job_folder("j"))
    manifests, _ = warehouse.manifests("j")
    made = warehouse.generation("j", manifests)
    assert made is not None
    named = {p.file for m in (*manifests, made) for p in m.parts}

    def there() -> set[str]:
        return {name for name in folder.sizes() if name.endswith(".parquet")}

    assert there() - named
    assert len(there() - named) < 3 + 16  # of one try of one source
    assert not [name for name in warehouse.remove_orphans("j") if name.endswith(".parquet")]
    monkeypatch.setattr(owners, "ABANDONED_S", -1.0)  # as if a day had passed
    warehouse.remove_orphans("j")
    assert there() == named
    assert not [name for name in folder.sizes() if name.startswith("_claims/")]


def test_nodes_use_their_own_credentials_and_hear_nothing_of_the_drivers(
    uploaded: Uploaded, nodes: Nodes
) -> None:
    by_key: dict[str, set[str]] = {NODES_KEY: set(), DRIVERS_KEY: set()}
    for done in uploaded.log:
        key = done.request.headers["authorization"].split("Credential=")[1].split("/")[0]
        if done.request.op == "PUT":
            by_key[key].add(done.request.key.rpartition("/job=j/")[2])
    parts = {p.file for m in Warehouse(uploaded.address).manifests("j")[0] for p in m.parts}
    assert parts <= by_key[NODES_KEY]
    assert not parts & by_key[DRIVERS_KEY]
    assert not [name for name in by_key[NODES_KEY] if name.startswith("_manifests/")]
    said = [p for p in nodes.temporary.rglob("*") if p.is_file()]
    assert said
    for path in said:
        assert not {s for s in (DRIVERS_KEY, SECRET) if s.encode() in path.read_bytes()}, path
    workers = processes_with(f"AWS_ACCESS_KEY_ID={NODES_KEY}")
    assert workers
    for pid in workers:
        assert SECRET.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


def test_traces_in_an_object_store_are_fetched_by_the_nodes(
    uploaded: Uploaded, nodes: Nodes, proxy, demo_job: Path
) -> None:
    traces = store.folder(f"{uploaded.address.rpartition('/')[0]}/traces")
    names = [f"rank{rank}.json.gz" for rank in range(2)]
    for name in names:
        traces.put(name, demo_job / name)
    before = len(proxy.log)
    report = ingest(uploaded.address, [str(traces)], job="from-there", ray=nodes.address)
    assert [s.status for s in report.sources] == ["new"] * 2
    fetched = dict.fromkeys((NODES_KEY, DRIVERS_KEY), 0)
    for done in proxy.log[before:]:
        if done.request.op == "GET" and done.request.key.startswith("traces/"):
            (key,) = [k for k in fetched if k in done.request.headers["authorization"]]
            fetched[key] += done.sent
    sizes = sum((demo_job / name).stat().st_size for name in names)
    assert fetched[NODES_KEY] >= sizes
    assert fetched[DRIVERS_KEY] < sizes / 2  # their first bytes, which tell what they are
    warehouse = Warehouse(uploaded.address)
    found, expected = ({m.id: m for m in warehouse.manifests(j)[0]} for j in ("from-there", "j"))
    for id, m in found.items():
        assert m.views.keys() == expected[id].views.keys()
        events = [p.sha256 for p in m.tables["events"]]
        assert events == [p.sha256 for p in expected[id].tables["events"]]


def test_jobs_in_an_object_store_are_analysed_and_swept_as_on_a_disk(
    uploaded: Uploaded, nodes: Nodes, proxy, local: Path, tmp_path: Path, capfd
) -> None:
    shutil.copytree(local, tmp_path / "w")
    kept, printed, before = [], [], len(proxy.log)
    for place, more in ((str(tmp_path / "w"), []), (uploaded.address, ["--ray", nodes.address])):
        for command in (
            ["analyse", "j"],
            ["replay", "j", "--policy", "scale-fabric", "--sweep", "factor=1,2"],
        ):
            capfd.readouterr()
            with quiet():
                assert cli.run([*command, "--json", "--warehouse", place, *more]) == 0
            printed.append(json.loads(capfd.readouterr().out))
        folder = store.folder(place) / "job=j"
        names = [n for n in folder.sizes("_kept") if n.endswith(".parquet")]
        kept.append({name: folder.read(name, 1 << 24) for name in names})
    assert printed[0][0]["status"] == "computed"
    assert printed[:2] == printed[2:]
    tables = {name.rpartition("-")[2] for name in kept[0]}
    assert tables == {"replay_scores.parquet", "critical_path.parquet", "slack.parquet"}
    assert kept[0] == kept[1]
    # The tasks are read by whoever replays them.
    read = [d.request for d in proxy.log[before:] if "/job=j/_made_tasks/" in d.request.key]
    assert {r.key for r in read if NODES_KEY in r.headers["authorization"]}


def test_a_node_that_the_store_refuses_is_named_before_anything_is_read(
    uploaded: Uploaded, nodes: Nodes, proxy, demo_job: Path
) -> None:
    before = store.folder(uploaded.address).sizes()
    tries = len(nodes.tries())

    def rule(request):
        refused = NODES_KEY in request.headers["authorization"]
        return (403, "AccessDenied") if refused else None

    proxy.rule = rule
    try:
        with pytest.raises(on_ray.ClusterError) as e:
            ingest(uploaded.address, [demo_job], job="other", ray=nodes.address)
    finally:
        proxy.rule = None
    assert re.match(
        r"node [0-9.]+ \(\w+\) has no way to s3://bucket/warehouse/job=other/_claims/seen-\w+: "
        r"access refused, cannot be read \(AccessDenied\); .* every node needs its own access",
        str(e.value),
    )
    assert store.folder(uploaded.address).sizes() == before
    assert len(nodes.tries()) == tries


def test_what_kills_its_worker_each_time_is_given_up_and_what_raises_is_not_tried_again(
    nodes: Nodes, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(tasks, "CRASHES", 2)  # each takes a new worker's start
    with on_ray.connected(nodes.address) as ray:
        died = dict(on_ray.run(ray, "gated_kineto:die", [(str(tmp_path), 7)], None, None))
        failed = dict(on_ray.run(ray, "gated_kineto:fail", [(str(tmp_path), 8)], None, None))
    assert isinstance(died[0], WorkerDied)
    assert len(list(tmp_path.glob("7.*"))) == 2
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
