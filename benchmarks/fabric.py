"""How long the fabric's simulation takes: 16,384 GPUs, a step of 1,024, and growth with flows.

`python -m benchmarks.fabric` prints a table a part, and ratios; `--json` the rows. Compiled code is
loaded before the first clock starts; what is remembered is dropped before each part.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from retime.replay.fabric import cost, graph, named, orbits, uniform
from retime.replay.fabric.placed import Part, Setting, links_of, place
from retime.replay.fabric.rounds import decompose
from retime.replay.fabric.simulate import simulate
from retime.replay.fabric.symmetry import quotient, simulate_classes

Row = dict[str, Any]

LAYERS, TENSOR, REPLICAS = 96, 8, 128
ACTIVATION_BYTES = 64e6
"""Of one tensor-parallel all-reduce: 4096 tokens of 8192 features in bf16."""
BUCKET_BYTES = 83e6
"""Of one layer's gradients on one GPU: 8 GB over 96 layers."""
COMPUTE_NS = 5e6
"""Of one layer, forward and backward."""


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and the result."""
    begin = time.perf_counter()
    found = call()
    return time.perf_counter() - begin, found


def exchanges() -> list[Row]:
    """One even all-to-all of all GPUs, 1 GB a GPU."""
    rows = []
    for name, gpus in (("h100", 1024), ("multi-plane", 16384), ("h100", 16384), ("hpn", 15360),
                       ("roce-rail", 16384)):  # fmt: skip
        cost.forget()
        fabric = named.preset(name, gpus)
        seconds, took = timed(
            lambda fabric=fabric, gpus=gpus: cost.collective_time_ns(
                fabric, "all_to_all", "direct", np.arange(gpus), 1e9
            )
        )
        rows.append({"what": f"all-to-all, {name}", "gpus": gpus, "flows": gpus * (gpus - 1),
                     "simulated_ms": took / 1e6, "seconds": seconds})  # fmt: skip
    return rows


def step() -> list[Row]:
    """A step of 1,024 GPUs, TP8 x DP128: every collective priced, and a bucket with contention."""
    cost.forget()
    fabric = named.preset("h100", TENSOR * REPLICAS)
    replicas = [np.arange(r * TENSOR, (r + 1) * TENSOR) for r in range(REPLICAS)]
    shards = [np.arange(t, TENSOR * REPLICAS, TENSOR) for t in range(TENSOR)]

    def priced() -> tuple[int, float, float]:
        tensor = gradient = 0.0
        calls = 0
        for _ in range(LAYERS):
            for _ in range(4):
                for group in replicas:
                    tensor = cost.collective_time_ns(
                        fabric, "all_reduce", "ring", group, ACTIVATION_BYTES
                    )
            for group in shards:
                gradient = cost.collective_time_ns(
                    fabric, "all_reduce", "ring", group, BUCKET_BYTES
                )
            calls += 4 * len(replicas) + len(shards)
        return calls, tensor, gradient

    def together() -> tuple[int, float, float]:
        every = [
            *(cost.Collective("all_reduce", "ring", g, ACTIVATION_BYTES) for g in replicas),
            *(cost.Collective("all_reduce", "ring", g, BUCKET_BYTES) for g in shards),
        ]
        times = cost.concurrent_times(fabric, every)
        return len(every), times[: len(replicas)].max(), times[len(replicas) :].max()

    rows = []
    for what, call in (("priced one by one", priced), ("one layer's at once", together)):
        seconds, (calls, tensor, gradient) = timed(call)
        # Buckets follow one another under the backward; tensor-parallel ones are in its way.
        layer = COMPUTE_NS + 4 * tensor
        end = 0.0
        for k in range(LAYERS):
            end = max(end, (k + 1) * layer) + gradient
        rows.append({"what": f"step of 1,024, {what}", "collectives": calls,
                     "simulated_ms": end / 1e6, "seconds": seconds})  # fmt: skip
    return rows


def growth() -> list[Row]:
    """Whole simulation against classes and orbits, by the number of flows."""
    rows = []
    for gpus in (64, 128, 256, 512):
        fabric = named.preset("h100", gpus)
        net = graph(fabric)
        links, of = links_of(net), orbits.tree(net)
        at = np.arange(gpus)
        random = np.random.default_rng(0).lognormal(14, 1.0, (gpus, gpus))
        for what, op, algo, size in (
            ("even, at once", "all_to_all", "direct", 1e6 * gpus),
            ("ring", "all_reduce", "ring", 1e9),
            ("uneven, pairwise", "all_to_all", "pairwise", random),
            ("uneven, at once", "all_to_all", "direct", random),
        ):
            if what.startswith("uneven, at") and gpus > 64:
                continue
            made = decompose(op, algo, gpus, size)
            placed = place(net, links, [Part(made, at)], Setting())[:3]
            whole_s, whole = timed(lambda placed=placed: simulate(*placed))
            row: Row = {"what": what, "gpus": gpus, "flows": len(made.src),
                        "solves": whole.solves, "whole_s": whole_s}  # fmt: skip
            class_s, found = timed(lambda placed=placed: quotient(*placed))
            assert found is not None
            row["classes"] = found.flows.n
            if found.flows.n < len(made.src):
                again_s, by_class = timed(lambda found=found: simulate_classes(found))
                row |= {"classes_s": class_s + again_s, "again_s": again_s}
                assert abs(by_class.time_ns / whole.time_ns - 1) < 1e-9
            if what == "even, at once" and of is not None:
                row["orbits_s"], kinds = timed(
                    lambda net=net, links=links, of=of, at=at: uniform.simulate_kinds(
                        uniform.kinds(net, links, of, at, 1e6)  # type: ignore[arg-type]
                    )
                )
                assert abs(kinds.time_ns / whole.time_ns - 1) < 1e-9
            rows.append(row)
    return rows


def uneven() -> list[Row]:
    """Uneven exchanges at once, as `collective_time_ns` simulates them: near ends are merged."""
    rows = []
    for gpus in (64, 128, 256):
        cost.forget()
        fabric = named.preset("h100", gpus)
        demand = np.random.default_rng(0).lognormal(14, 1.0, (gpus, gpus))
        seconds, took = timed(
            lambda fabric=fabric, gpus=gpus, demand=demand: cost.collective_time_ns(
                fabric, "all_to_all", "direct", np.arange(gpus), demand
            )
        )
        rows.append({"what": "uneven all-to-all, h100", "gpus": gpus, "flows": gpus * (gpus - 1),
                     "simulated_ms": took / 1e6, "seconds": seconds})  # fmt: skip
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    small = named.preset("h100", 64)
    for size in (1e6, 2e6):  # compiled code is loaded
        cost.collective_time_ns(small, "all_reduce", "ring", range(64), size)
        cost.collective_time_ns(small, "all_to_all", "direct", range(64), size)
    parts = {"exchanges": exchanges(), "step": step(), "uneven": uneven(), "growth": growth()}
    if args.json:
        print(json.dumps(parts, indent=1))
        return
    for r in parts["exchanges"] + parts["uneven"]:
        print(f"{r['what']:26} {r['gpus']:6,} GPUs {r['flows']:12,} flows  "
              f"{r['simulated_ms']:8.2f} ms simulated in {r['seconds']:.2f} s")  # fmt: skip
    for r in parts["step"]:
        print(f"{r['what']:36} {r['collectives']:6,} collectives  "
              f"{r['simulated_ms']:8.2f} ms simulated in {r['seconds']:.2f} s")  # fmt: skip
    print(f"\n{'':18}{'GPUs':>5}{'flows':>10}{'solves':>9}{'whole s':>9}{'us/flow':>9}"
          f"{'classes':>9}{'s':>8}{'again s':>9}{'orbits s':>10}{'times faster':>14}")  # fmt: skip
    for r in parts["growth"]:
        best = min(r.get("again_s", np.inf), r.get("orbits_s", np.inf))
        faster = f"{r['whole_s'] / best:.0f}" if np.isfinite(best) else "-"
        print(f"{r['what']:18}{r['gpus']:5}{r['flows']:10,}{r['solves']:9,}{r['whole_s']:9.3f}"
              f"{r['whole_s'] / r['flows'] * 1e6:9.2f}{r['classes']:9,}{_s(r, 'classes_s'):>8}"
              f"{_s(r, 'again_s'):>9}{_s(r, 'orbits_s'):>10}{faster:>14}")  # fmt: skip


def _s(row: Row, key: str) -> str:
    return f"{row[key]:.3f}" if key in row else "-"


if __name__ == "__main__":
    main()
