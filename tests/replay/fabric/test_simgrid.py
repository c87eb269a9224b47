"""Held to an outside simulator: SimGrid's times of small collectives, to rounding.

`simgrid_4_1.json` is what `simgrid_collectives.py` printed with SimGrid 4.1.0 from PyPI (its
settings stand in the file): all-reduce by ring and halving-doubling, all-to-all at once and in
pairs, even and uneven, over a switch and round a ring, with equal and with mixed links.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from retime.replay.fabric import flows as f
from retime.replay.fabric import rounds
from retime.replay.fabric.simulate import flows, simulate

HERE = Path(__file__).parent
KNOWN = json.loads((HERE / "simgrid_4_1.json").read_text())

ALGOS = {
    "ring": ("all_reduce", "ring"),
    "halving_doubling": ("all_reduce", "halving-doubling"),
    "exchange": ("all_to_all", "direct"),
    "pairwise": ("all_to_all", "pairwise"),
}


def name(case):
    return "-".join(str(v) for k, v in case.items() if k != "seconds")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("cases", HERE / "simgrid_collectives.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def way(network, n, a, b):
    """Links of a route: up and down, or round the shorter side; and its hops."""
    if network == "switch":
        return [a, n + b], 1
    hops = (b - a) % n
    if hops <= n - hops:
        return [(a + k) % n for k in range(hops)], hops
    return [n + (a - k - 1) % n for k in range(n - hops)], n - hops


def seconds(case, script):
    n, size = case["n"], KNOWN["size_bytes"]
    op, algo = ALGOS[case["algo"]]
    matrix = np.array(getattr(script, case["demand"])(n), float)
    made = rounds.decompose(op, algo, n, matrix if op == "all_to_all" else size)
    ways = [way(case["network"], n, a, b) if a >= 0 else ([], 0)
            for a, b in zip(made.src.tolist(), made.dst.tolist(), strict=True)]  # fmt: skip
    hops = np.array([h for _, h in ways])
    ptr = np.cumsum([0] + [len(w) for w, _ in ways])
    moved = flows(
        np.arange(len(hops)), np.floor(made.size_bytes), delay_ns=hops * KNOWN["latency_s"] * 1e9,
        pred_ptr=made.pred_ptr, pred=made.pred, sender=made.src, weight=1 / np.maximum(hops, 1),
    )  # fmt: skip
    links = f.links(np.tile(script.bandwidths(n, case["links"]), 2))
    paths = f.paths(ptr, np.concatenate([w for w, _ in ways]))
    return simulate(links, paths, moved).time_ns / 1e9


@pytest.mark.parametrize("case", KNOWN["cases"], ids=name)
def test_simgrid_takes_as_long(case, script):
    assert seconds(case, script) == pytest.approx(case["seconds"], rel=1e-9)


def test_simgrid_still_says_so():
    pytest.importorskip("simgrid", reason="SimGrid's Python binding is not installed")
    done = subprocess.run(
        [sys.executable, str(HERE / "simgrid_collectives.py")],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    now = json.loads(done.stdout[done.stdout.index("{") :])
    assert [c["seconds"] for c in now["cases"]] == pytest.approx(
        [c["seconds"] for c in KNOWN["cases"]], rel=1e-6
    )
