"""Ratios of collectives, a communicator and operation at a time: what most policies share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from .. import models
from ..calibration import calibrate
from ..calibration.calibrate import Link
from ..calibration.hockney import NoFit
from ..policy import ReplayJob
from . import altered

MOST_SAID = 6
"""A job has thousands of communicators: no more of their links are told one by one."""


class Group(NamedTuple):
    """Collectives of one operation on one communicator that ran by one algorithm."""

    rows: pl.DataFrame
    comm: str
    op: str
    algo: str
    n: int
    link: Link
    size_bytes: np.ndarray
    """float64 [k]: the size of each."""

    @property
    def label(self) -> str:
        """How messages name them."""
        return f"{self.op} on {self.comm}"

    def time_ns(self, alpha_ns: float | None = None, bandwidth: float | None = None) -> np.ndarray:
        """float64 [k]: what they take by their form; alpha and bytes/s default to the link's.

        The link's are those of each size's class, where the link has classes.

        Raises models.NoModel.
        """
        of_size = self.link.at(self.size_bytes)
        alpha = of_size[0] if alpha_ns is None else alpha_ns
        rate = of_size[1] if bandwidth is None else bandwidth
        return models.time_ns(self.op, self.algo, self.n, self.size_bytes, alpha, rate)


def ratios(
    job: ReplayJob, rows: pl.DataFrame, price: Callable[[Group], np.ndarray | None]
) -> tuple[ReplayJob, np.ndarray]:
    """float64 [k], new time over old for `rows` of `transfers.chosen`; and the job, with notes.

    Groups are of collectives as policies so far have altered them (`altered.present`).
    `price` gives the ratios of a group, or None to leave it as measured. Groups of one rank, and
    those for which it raises NoModel or NoFit, stay as measured (the latter are said).
    """
    ratio = np.ones(len(rows))
    said = altered.formless(job, rows)
    if said:
        job = job.note(warnings=(said,))
    links: dict[str, None] = {}
    outside: dict[str, None] = {}
    for _, group in (
        altered.present(job, rows)
        .with_row_index("at")
        .group_by("comm", "op", "algo", "n", maintain_order=True)
    ):
        comm, op, n = group["comm"][0], group["op"][0], int(group["n"][0])
        if n < 2:
            continue
        link = calibrate.link(job, comm, op)
        size = group["bytes"].to_numpy()
        one = Group(group, comm, op, group["algo"][0], n, link, size)
        try:
            found = price(one)
        except (NoFit, models.NoModel) as e:
            job = job.note(warnings=(f"{len(group)} {one.label}: left as measured: {e}",))
            continue
        if found is None:
            continue
        ratio[group["at"].to_numpy()] = found
        links[link.words] = None
        if link.doubt:
            outside[link.doubt] = None
        if link.outside(size):
            outside[f"{one.label}: {link.outside(size)}"] = None
    return job.note(assumptions=_few(links), warnings=_few(outside)), ratio


def _few(said: dict[str, None]) -> tuple[str, ...]:
    if len(said) <= MOST_SAID:
        return tuple(said)
    first = list(said)[: MOST_SAID - 1]
    return (*first, f"and {len(said) - len(first)} more communicators and operations like these")
