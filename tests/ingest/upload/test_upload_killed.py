"""kill -9 at any moment, and many uploads at once: nothing is lost, nothing is there twice."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time

import pyarrow.parquet as pq
from retime.ingest.upload.run import left, upload
from retime.ingest.warehouse import Warehouse

EVENTS = 9
KILLS = 5
RANKS = 4
NODES = 8

SERVE = """
import os, sys, time
from retime.cli import NoPandas
sys.meta_path.insert(0, NoPandas)
from retime.ingest.upload import delivery, sending
from retime.ingest.upload.run import upload
import retime.ingest.kineto.parser, retime.ingest.derive, retime.ingest.steps, retime.ingest.dims
import retime.ingest.matching.resolution, retime.ingest.joining.ranks, retime.ingest.transfers
sending.MOST_AT_ONCE = 2  # several commits, moments between them
for line in sys.stdin:
    word, *args = line.split()
    if word == 'wait':
        print(os.waitstatus_to_exitcode(os.waitpid(int(args[0]), 0)[1]), flush=True)
        continue
    pid = os.fork()
    if not pid:
        code = 99
        try:
            code = upload(args[2:], to=args[0], job='j', spool=args[1], retry=word == 'retry',
                          for_s=30, workers=1, finish=None if word == 'upload' else False).exit_code
        finally:
            os._exit(code)
    print(pid, flush=True)
"""
"""Forks an upload on demand, without the cost of imports."""


class Forks:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *words) -> int:
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def assert_whole(wh, ranks):
    snapshot = Warehouse(str(wh)).snapshot("j")
    assert snapshot.problems == []
    folder = wh / "job=j"
    for part in [p for m in [*snapshot.manifests, snapshot.generation] for p in m.parts]:
        assert hashlib.sha256((folder / part.file).read_bytes()).hexdigest() == part.sha256
    seen = sorted(r for m in snapshot.manifests for r in m.ranks)
    assert sum(pq.read_metadata(f).num_rows for f in snapshot.files["events"]) == EVENTS * len(seen)
    assert len(set(seen)) == len(seen)
    if ranks is not None:
        assert seen == ranks
    return seen


def test_killed_at_any_moment_the_next_one_goes_on_from_there(trace, tmp_path):
    for rank in range(RANKS):
        trace(rank, world=RANKS)
    forks, at = Forks(), random.Random(7)
    try:
        (tmp_path / "w").mkdir()
        began = time.monotonic()
        pid = forks.ask("send", tmp_path / "w", tmp_path / "s", tmp_path / "traces")
        assert forks.ask("wait", pid) == 0
        took = time.monotonic() - began
        killed = resumed = 0
        for n in range(KILLS * 3):
            wh, spool = tmp_path / f"w{n}", tmp_path / f"s{n}"
            wh.mkdir()
            pid = forks.ask("send", wh, spool, tmp_path / "traces")
            time.sleep(at.uniform(0, took))
            os.kill(pid, 9)
            if forks.ask("wait", pid) != -9:
                continue  # it was done
            killed += 1
            stand = list((wh / "job=j" / "_manifests").glob("*.json"))
            done = assert_whole(wh, None) if stand else []
            waiting = [s.path for s in left(spool).sent]
            if len(waiting) + len(done) >= RANKS:
                # All was written down: what is not in is left, and needs no path any more.
                pid = forks.ask("retry", wh, spool)
                resumed += 1
            else:
                pid = forks.ask("send", wh, spool, tmp_path / "traces")
            assert forks.ask("wait", pid) == 0
            assert_whole(wh, list(range(RANKS)))
            assert left(spool).sent == []
            if killed >= KILLS:
                break
        assert killed
        assert resumed
    finally:
        forks.close()


def test_eight_nodes_at_once_into_one_job(trace, wh, tmp_path):
    forks = Forks()
    try:
        pids = [
            forks.ask("upload", wh, tmp_path / f"spool{rank}", trace(rank, world=NODES))
            for rank in range(NODES)
        ]
        assert [forks.ask("wait", pid) for pid in pids] == [0] * NODES
    finally:
        forks.close()
    assert_whole(wh, list(range(NODES)))
    assert [left(tmp_path / f"spool{rank}").sent for rank in range(NODES)] == [[]] * NODES


def test_four_uploads_of_one_spool_at_once(trace, wh, spool, tmp_path):
    for rank in range(NODES):
        trace(rank, world=NODES)
    away = tmp_path / "away"
    report = upload(tmp_path / "traces", to=str(away), job="j", spool=spool, for_s=0)
    assert len(report.left) == NODES
    away.mkdir()
    forks = Forks()
    try:
        pids = [forks.ask("retry", away, spool) for _ in range(4)]
        assert [forks.ask("wait", pid) for pid in pids] == [0] * 4
    finally:
        forks.close()
    assert_whole(away, list(range(NODES)))
    assert left(spool).sent == []
    log = (spool / "upload.log").read_text()
    assert log.count("delivered (new)") == NODES
    assert "delivered (already)" not in log


def test_the_same_traces_from_two_nodes_are_there_once(trace, wh, tmp_path):
    for rank in range(4):
        trace(rank)
    forks = Forks()
    try:
        pids = [forks.ask("upload", wh, tmp_path / f"s{n}", tmp_path / "traces") for n in range(3)]
        assert [forks.ask("wait", pid) for pid in pids] == [0] * 3
    finally:
        forks.close()
    assert_whole(wh, [0, 1, 2, 3])
