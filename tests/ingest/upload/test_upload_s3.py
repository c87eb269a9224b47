"""Uploads into an object store over HTTP: a real server, and a proxy before it that fails."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from retime.ingest.upload.run import left, upload
from retime.ingest.warehouse import Warehouse

pytest.importorskip("s3fs", reason="no client for S3: install the extra `s3`")
pytest.importorskip("moto", reason="no server of S3's protocol: install the extra `s3-server`")


@pytest.fixture
def proxy(s3_server, s3_url, monkeypatch):
    found = s3_server.Proxy(s3_url)
    for name, value in s3_server.credentials(found.url).items():
        monkeypatch.setenv(name, value)
    from retime.ingest.store import patience

    monkeypatch.setattr(patience, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(patience, "MOST_DELAY_S", 0.02)
    yield found
    found.close()


@pytest.fixture
def address(s3_server, proxy, tmp_path):
    return f"s3://{s3_server.BUCKET}/{tmp_path.name}"


def ranks_of(address: str) -> list[int]:
    snapshot = Warehouse(address).snapshot("j")
    assert snapshot.problems == []
    return sorted(r for m in snapshot.manifests for r in m.ranks)


def test_nodes_at_once_into_one_job_of_a_bucket(trace, tmp_path, address):
    reports = []

    def node(n: int) -> None:
        reports.append(upload([trace(n, world=4)], to=address, job="j", spool=tmp_path / f"s{n}"))

    nodes = [threading.Thread(target=node, args=(n,)) for n in range(4)]
    for thread in nodes:
        thread.start()
    for thread in nodes:
        thread.join()
    assert [r.exit_code for r in reports] == [0] * 4
    assert ranks_of(address) == [0, 1, 2, 3]


def test_a_store_that_fails_throttles_and_cuts_at_random(
    s3_server, trace, tmp_path, spool, address, proxy
):
    chance = random.Random(5)
    proxy.rule = lambda _: chance.choice(s3_server.FAULTS[:5]) if chance.random() < 0.2 else ""
    for rank in range(4):
        trace(rank)
    report = upload(tmp_path / "traces", to=address, job="j", spool=spool, for_s=120)
    assert report.exit_code == 0
    assert sum(bool(done.fault) for done in proxy.log) > 5
    proxy.rule = None
    assert ranks_of(address) == [0, 1, 2, 3]
    assert left(spool).sent == []


def test_a_store_that_is_away_and_comes_back(trace, tmp_path, spool, address, proxy):
    proxy.rule = lambda _: "slow_down"
    report = upload([trace(0)], to=address, job="j", spool=spool, for_s=0)
    assert (report.exit_code, len(report.left)) == (1, 1)
    proxy.rule = None
    assert upload(spool=spool, retry=True).exit_code == 0
    assert ranks_of(address) == [0]


def test_a_store_that_refuses_is_asked_once_and_secrets_are_said_nowhere(
    trace, spool, proxy, monkeypatch
):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    report = upload([trace(0)], to="s3://no-such-bucket/w", job="j", spool=spool, for_s=60)
    assert report.exit_code == 1
    assert report.left[0].attempts == 1
    assert "no-such-bucket" in report.left[0].error
    kept = "".join(p.read_text() for p in spool.rglob("*") if p.is_file())
    assert "hunter2" not in kept
    assert "hunter2" not in str(report.to_dict())


def test_a_job_s_process_sends_to_a_bucket(trace, spool, address, proxy):
    import retime

    class Profiler:
        def export_chrome_trace(self, path):
            Path(path).write_text(trace(0, world=1).read_text())

    take = retime.trace_handler(address, "j", spool=spool, for_s=60)
    take(Profiler())
    assert take._child is not None
    assert take._child.wait(timeout=100) == 0
    assert left(spool).sent == []
    assert ranks_of(address) == [0]
    take.close()


def test_a_warehouse_that_is_new_is_said_to_be(trace, address, spool):
    first = upload([trace(0)], to=address, job="j", spool=spool)
    assert first.new_warehouses == [address]
    assert first.to_dict()["new_warehouses"] == [address]
    assert f"new warehouse at {address} (no job was" in (spool / "upload.log").read_text()
    assert upload([trace(1)], to=address, job="k", spool=spool).new_warehouses == []
