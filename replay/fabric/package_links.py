"""Links between the dies of a package: a mesh, a tree, or a link a pair."""

from __future__ import annotations

from typing import Any

import numpy as np

from .description import Package


def package_links(draft: Any, package: Package) -> None:
    """Adds a package's blocks to a graph that is being laid out, and its tree's nodes."""
    gpus, dies = draft.fabric.gpus, package.dies
    packages = gpus // dies
    if package.shape == "full":
        of, a, b = _places(packages, dies, dies)
        draft.links("die", ("package", "from", "to"), (packages, dies, dies), package.link,
                    of * dies + a, of * dies + b,
                    share=1.0, into=True)  # fmt: skip
    elif package.shape == "mesh":
        _mesh(draft, package, packages)
    else:
        _tree(draft, package, packages)


def tree_levels(package: Package) -> list[int]:
    """How many nodes each level of the tree has, from the dies up to the one root."""
    levels = [package.dies]
    while levels[-1] > 1:
        levels.append(-(-levels[-1] // package.fanout))
    return levels


def _places(*shape: int) -> tuple[np.ndarray, ...]:
    return tuple(a.ravel() for a in np.indices(shape, dtype=np.int64))


def _mesh(draft: Any, package: Package, packages: int) -> None:
    rows, columns = package.rows, package.columns
    of, row, column = _places(packages, rows, columns - 1)
    west = of * package.dies + row * columns + column
    axes = ("package", "row", "column")
    shape = (packages, rows, columns - 1)
    draft.links("die_east", axes, shape, package.link, west, west + 1, share=1.0)
    draft.links("die_west", axes, shape, package.link, west + 1, west, share=1.0)
    of, row, column = _places(packages, rows - 1, columns)
    north = of * package.dies + row * columns + column
    shape = (packages, rows - 1, columns)
    draft.links("die_south", axes, shape, package.link, north, north + columns, share=1.0)
    draft.links("die_north", axes, shape, package.link, north + columns, north, share=1.0)


def _tree(draft: Any, package: Package, packages: int) -> None:
    levels = tree_levels(package)
    below = np.arange(packages * package.dies)
    for level in range(1, len(levels)):
        of, child = _places(packages, levels[level - 1])
        above = draft.node(f"tree_{level}", ("package", "node"), (packages, levels[level]))
        parent = above.ids(of, child // package.fanout)
        axes, shape = ("package", "node"), (packages, levels[level - 1])
        keys = (f"tree_{level}_up", f"tree_{level}_down")
        draft.pair(keys, axes, shape, package.link, below, parent)
        below = np.arange(above.first, above.last)
