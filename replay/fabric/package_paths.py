"""Routes between dies of one package: along the row and then the column, or over a tree."""

from __future__ import annotations

import numpy as np

from .links import LinkGraph
from .package_links import tree_levels


def package_columns(
    graph: LinkGraph, a: np.ndarray, b: np.ndarray, take: np.ndarray
) -> list[np.ndarray]:
    """int64 [k] a hop, -1 where a pair does not take it; `take` bool [k]: pairs of one package."""
    package = graph.fabric.package
    assert package is not None
    of, one, other = a // package.dies, a % package.dies, b % package.dies
    if package.shape == "full":
        return [np.where(take, graph.blocks["die"].ids(of, one, other), -1)]
    if package.shape == "tree":
        return _tree(graph, of, one, other, take)
    columns = package.columns
    row, column = one // columns, one % columns
    to_row, to_column = other // columns, other % columns
    at = {"die_east": (of, row, None), "die_south": (of, None, to_column)}
    out = []
    for forth, back, start, end in (
        ("die_east", "die_west", column, to_column),
        ("die_south", "die_north", row, to_row),
    ):
        up = end >= start
        far = np.where(take, np.abs(end - start), 0)
        for hop in range(int(far.max(initial=0))):
            link = np.where(up, start + hop, start - hop - 1)
            place = [link if p is None else p for p in at[forth]]
            ids = np.where(up, graph.blocks[forth].ids(*place), graph.blocks[back].ids(*place))
            out.append(np.where(hop < far, ids, -1))
    return out


def _tree(graph: LinkGraph, of, one, other, take) -> list[np.ndarray]:
    """Up to the lowest node that has both below it, and down again."""
    package = graph.fabric.package
    assert package is not None
    up, down = [], []
    for level in range(1, len(tree_levels(package))):
        apart = take & (one != other)
        up.append(np.where(apart, graph.blocks[f"tree_{level}_up"].ids(of, one), -1))
        down.append(np.where(apart, graph.blocks[f"tree_{level}_down"].ids(of, other), -1))
        one, other = one // package.fanout, other // package.fanout
    return up + down[::-1]
