"""All-reduces by a ring before, by another algorithm after: four algorithms, three sizes."""

from __future__ import annotations

from ..pairs import Pair, Run
from ..shape import Shape
from .jobs import data_parallel, gradients

KIND = "algorithm changed"
ALGORITHMS = ("tree", "halving-doubling", "recursive-doubling", "direct")
SIZES = {"small": 60_000, "middle": 200_000, "large": 1_200_000}


def pairs() -> list[Pair]:
    """Eight ranks; each step reduces a size, a third of it and a tenth."""
    shape, out = Shape(8), []
    for label, size in SIZES.items():

        def run(algo: str, label=label, size=size) -> Run:
            sizes = tuple(s // 32 * 32 for s in (size, size // 3, size // 10))
            return Run(f"{algo}-{label}", shape, data_parallel(8, gradients(sizes, algo)))

        out += [
            Pair(KIND, f"{algo}-{label}", run("ring"), run(algo), (f"algorithm:algo={algo}",),
                 fabric=True)
            for algo in ALGORITHMS
        ]  # fmt: skip
    return out
