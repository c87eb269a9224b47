"""The lab without a network: its plans by hand, its fabric as retime reads it, its verdicts."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from retime.replay import fabric

from benchmarks.lab import all_reduces, demand, exchanges, machine, names, pairs, table
from benchmarks.lab.demand import demand_of
from benchmarks.lab.errors import LabError
from benchmarks.lab.predict import Verdict
from benchmarks.lab.shape import EFFICIENCY, MBIT, Shape
from benchmarks.lab.wire import UP, Message
from benchmarks.lab.workload import AllToAll


class Post:
    """Mailboxes in place of a network: `exchange` as a mesh has it, for ranks on threads."""

    def __init__(self, n: int):
        self._boxes = {(a, b): [] for a in range(n) for b in range(n)}
        self._news = threading.Condition()
        self.moved = np.zeros((n, n), np.int64)

    def mesh(self, rank: int) -> Post.Mesh:
        return Post.Mesh(self, rank)

    class Mesh:
        def __init__(self, post: Post, rank: int):
            self.post, self.rank = post, rank

        def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
            post = self.post
            with post._news:
                for m in sends:
                    post._boxes[self.rank, m.peer].append(bytes(m.data))
                    post.moved[self.rank, m.peer] += len(m.data)
                post._news.notify_all()
                for m in receives:
                    box = post._boxes[m.peer, self.rank]
                    assert post._news.wait_for(lambda box=box: box, timeout=10)
                    m.data[:] = box.pop(0)


def together(n: int, what) -> Post:
    """Runs `what(mesh, rank)` for all ranks at once."""
    post, failed = Post(n), []

    def one(rank: int) -> None:
        try:
            what(post.mesh(rank), rank)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=one, args=(r,)) for r in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed
    return post


@pytest.mark.parametrize("algo", sorted(all_reduces.ALGORITHMS))
@pytest.mark.parametrize("n", [2, 4, 8])
def test_every_algorithm_sums(algo: str, n: int):
    data = [np.arange(101, dtype=np.int32) * (r + 1) for r in range(n)]
    together(n, lambda mesh, r: all_reduces.ALGORITHMS[algo](mesh, data[r], range(n), (0,)))
    whole = np.arange(101) * sum(range(1, n + 1))
    assert all((d == whole).all() for d in data)


@pytest.mark.parametrize("paths", [(0, 1), (0, 1, 2)])
def test_a_ring_over_several_nics_sums(paths: tuple[int, ...]):
    data = [np.full(100, r + 1, np.int32) for r in range(4)]
    together(4, lambda mesh, r: all_reduces.ring(mesh, data[r], range(4), paths))
    assert all((d == 10).all() for d in data)


@pytest.mark.parametrize(("n", "local"), [(8, 4), (8, 2), (6, 3)])
def test_two_levels_sum(n: int, local: int):
    data = [np.full(97, r + 1, np.int32) for r in range(n)]
    together(n, lambda mesh, r: all_reduces.hierarchical(mesh, data[r], range(n), (0,), local))
    assert all((d == n * (n + 1) // 2).all() for d in data)


def test_a_ring_moves_what_the_form_says():
    """2 (n-1)/n M from each rank to the next: 1200 bytes of 800 for four ranks."""
    data = [np.ones(200, np.int32) for _ in range(4)]
    post = together(4, lambda mesh, r: all_reduces.ring(mesh, data[r], range(4), (0,)))
    assert post.moved.tolist() == [[0, 1200, 0, 0], [0, 0, 1200, 0], [0, 0, 0, 1200],
                                   [1200, 0, 0, 0]]  # fmt: skip


@pytest.mark.parametrize("algo", ["direct", "pairwise", "waves"])
def test_exchanges_move_the_demand(algo: str):
    demand = demand_of(AllToAll("w", 40_960, skew=(3, 1, 1, 1)), 4, [1, 2, 3])
    assert demand.sum(axis=1).tolist() == [40_960] * 4
    way = getattr(exchanges, algo)
    post = together(
        4, lambda mesh, _: way(mesh, demand, range(4), lambda _a, _b: 0, exchanges.Rooms())
    )
    off = demand.copy()
    np.fill_diagonal(off, 0)
    # Two barriers of two rounds: four ranks send a byte in each.
    off += (post.moved > off) * (post.moved - off) if algo == "waves" else 0
    assert post.moved.tolist() == off.tolist()
    assert off.sum() - demand.sum() + np.trace(demand) == (16 if algo == "waves" else 0)


def test_a_balanced_exchange_loads_rails_alike():
    """Seat 0 of host 0 has 800 for host 1 and the others nothing: 200 a rail, 600 handed on."""
    demand = np.zeros((8, 8), np.int64)
    demand[0, 4:] = 200
    first, second, third = exchanges.balanced_phases(demand, 2, 4)
    assert first[0].tolist() == [0, 200, 200, 200, 0, 0, 0, 0]
    assert [second[k, 4 + k] for k in range(4)] == [200] * 4
    assert third.sum(axis=1).tolist() == [0, 0, 0, 0, 150, 150, 150, 150]


def test_a_balanced_exchange_delivers_everything():
    """What comes to a seat from other hosts, on its own rail or handed on, is what it is due."""
    demand = demand_of(AllToAll("w", 300_032, skew=(4, 1, 1, 1, 2, 1, 1, 1)), 8, [5])
    _, second, third = exchanges.balanced_phases(demand, 2, 4)
    for host in (0, 1):
        here, there = slice(host * 4, host * 4 + 4), slice(4 - host * 4, 8 - host * 4)
        came = second[there, here].sum(axis=0) + third[here, here].sum(axis=0)
        left = third[here, here].sum(axis=1)
        assert np.abs(came - left - demand[there, here].sum(axis=0)).max() <= 8


@pytest.mark.parametrize(
    ("shape", "rate"),
    [
        (Shape(4), 100),
        (Shape(2, 4, nic_bps=50 * MBIT), 50),
        (Shape(4, 2, wiring="rail"), 100),
        (Shape(4, nics=2), 100),
        (Shape(4, 2, wiring="tor", hosts_per_leaf=2, uplink_bps=60 * MBIT), 100),
        (Shape(4, storage_bps=60 * MBIT), 100),
        (Shape(4, storage_bps=60 * MBIT, store_bps=20 * MBIT), 100),
    ],
)
def test_a_network_is_a_fabric_of_retime(tmp_path, shape: Shape, rate: int):
    path = tmp_path / "lab.toml"
    path.write_text(shape.toml("x", 500))
    found = fabric.load(str(path))
    assert (found.hosts, found.gpus_per_host) == (shape.hosts, shape.per_host)
    assert found.nic is not None
    assert found.nic.link.usable_bytes_per_s == pytest.approx(rate * 1e6 / 8 * EFFICIENCY, rel=1e-3)
    assert (fabric.graph(found).link_capacity_bytes_per_s > 0).all()


def test_a_slow_rail_is_a_load_of_others(tmp_path):
    slow = Shape(2, 2, wiring="rail", slow={(1, "rail0"): 40 * MBIT, (3, "rail0"): 40 * MBIT})
    path = tmp_path / "lab.toml"
    path.write_text(slow.toml())
    assert {(b.of, b.share) for b in fabric.load(str(path)).background} == {
        (f"nic_{way} host {h} rail 1", 0.6) for way in ("tx", "rx") for h in (0, 1)
    }


def test_there_are_pairs_enough():
    found = pairs.every()
    assert len(found) >= 40
    assert len({p.kind for p in found}) >= 8
    assert all(r.name == name for name, r in pairs.runs(found).items())
    changed = [p for p in found if p.kind == "algorithm changed"]
    assert len({p.after.name.rsplit("-", 1)[0] for p in changed}) == 4
    assert len({p.after.name.rsplit("-", 1)[1] for p in changed}) == 3


def verdict(**more) -> Verdict:
    usual = {"kind": "k", "name": "n", "before_ms": 100.0, "predicted_ms": 80.0, "low_ms": 79.0,
             "high_ms": 81.0, "after_ms": 84.0, "noise_pct": 1.0, "warnings": (),
             "assumptions": ()}  # fmt: skip
    return Verdict(**{**usual, **more})


def test_a_verdict_by_hand():
    one = verdict()
    assert one.error_pct == pytest.approx(-100 * 4 / 84)
    assert (one.covered, one.sign) == (False, "right")
    assert verdict(high_ms=84.0).covered
    assert verdict(predicted_ms=101.0).sign == "wrong"
    assert verdict(after_ms=99.5).sign == "noise"


def test_the_table_sums_up():
    rows = [verdict(), verdict(name="m", after_ms=80.0)]
    last = table.lines(rows)[-1]
    assert last == "| all | 2 | 2.4 % | 4.3 % | 4.8 % | 1 of 2 | 0 | 1.0 % |"


def test_only_the_labs_own_names_are_removed():
    from benchmarks.lab import fabric as lab

    with pytest.raises(LabError, match="not the lab's"):
        lab.remove("somebody-elses")


def test_a_dead_owner_is_told_from_a_living_one(monkeypatch):
    mine = f"{names.PREFIX}-{names.run_id()}-sw"
    monkeypatch.setattr(names, "present", lambda: ["rtlab-999999999-1-sw", mine])
    assert names.by_owner() == (["rtlab-999999999-1-sw"], [])
    with pytest.raises(LabError, match="clean removes them"):
        machine.leftovers()


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(machine.os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="needs root"):
        machine.tools()
    monkeypatch.setattr(machine.os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine.shutil, "which", lambda tool: None if tool == "tc" else tool)
    with pytest.raises(LabError, match=r"`tc` is not installed: apt-get install iproute2"):
        machine.tools()


def test_a_busy_machine_is_refused(monkeypatch):
    monkeypatch.setattr(machine.os, "getloadavg", lambda: (64.0, 64.0, 64.0))
    with pytest.raises(LabError, match="too busy to measure on"):
        machine.quiet()
    assert "load average is 64.00" in machine.quiet(patient=True)[0]


def test_a_kernel_without_buckets_is_told_and_nothing_is_left(monkeypatch):
    made: list[str] = []

    def run(*words: str) -> str:
        if words[0] == "tc":
            raise LabError("`tc ...` failed: Error: Specified qdisc kind is unknown.")
        if words[:3] == ("ip", "netns", "add"):
            made.append(words[3])
        if words[:3] == ("ip", "netns", "del"):
            made.remove(words[3])
        return ""

    monkeypatch.setattr(machine, "run", run)
    monkeypatch.setattr(names, "present", lambda: list(made))
    with pytest.raises(LabError, match=r"makes no token buckets \(tbf\).*modprobe sch_tbf"):
        machine.kernel()
    assert not made


def test_a_path_within_a_host_is_its_own():
    from benchmarks.lab.wire import paths_between, port_of

    shape = Shape(2, 2)
    assert paths_between(shape, 0, 1) == [0, UP]
    assert paths_between(shape, 0, 2) == [0]
    assert (port_of(UP), port_of(0)) == ("up", "rail0")


def test_a_routing_log_says_who_gets_how_much():
    thing = AllToAll("w", 6_000 * 512, logged=True)
    got = demand_of(thing, 8, [1], step=0).sum(axis=0)
    # 780 choices in the log's first batch: experts 32 to 39 have 1.42 times the mean.
    weight = demand.logged(0, 8)
    assert weight.sum() == pytest.approx(weight[4] / 1.42 * 8, rel=0.01)
    assert got / got.mean() == pytest.approx(weight / weight.mean(), abs=0.03)
    assert (demand.logged(9, 8) == weight).all()
    assert (demand.logged(1, 8) != weight).any()
