"""Steps that several kinds share: a data-parallel step with a few reductions of gradients."""

from __future__ import annotations

from ..workload import AllReduce, Comm, Thing, Work, Workload, world


def gradients(
    sizes: tuple[int, ...],
    algo: str = "ring",
    *,
    comm: str = "world",
    paths: tuple[int, ...] = (0,),
    ms: float = 15.0,
    late: dict[int, float] | None = None,
    behind: bool = False,
) -> tuple[Thing, ...]:
    """A forward pass, then a piece of the backward pass and a reduction for each size."""
    step: list[Thing] = [Work("forward", ms, late or {})]
    for size in sizes:
        step += [Work("backward", ms), AllReduce(comm, size, algo, paths, behind)]
    return (*step, Work("optimizer", 4.0))


def data_parallel(ranks: int, step: tuple[Thing, ...], **more) -> Workload:
    """All ranks reduce together."""
    return Workload(ranks, step, world(ranks), **more)


def with_loss(load: Workload) -> Workload:
    """The same, and its loss is averaged at the end of each step.

    Who receives most ends last of every exchange, who is far down a tree of every sum, as one whose
    clock is fast would; ranks of a small reduction end together.
    """
    everybody = {"loss": Comm((tuple(range(load.ranks)),), "dp")}
    step = (*load.step, AllReduce("loss", 4_000, "recursive-doubling"))
    return load.but(step=step, comms=load.comms | everybody)


def a_rail_each(hosts: int, per_host: int) -> dict[str, Comm]:
    """Communicators of the ranks at one place in their hosts: each keeps to its rail."""
    groups = tuple(tuple(range(k, hosts * per_host, per_host)) for k in range(per_host))
    return {f"dp{k}": Comm((group,), "dp") for k, group in enumerate(groups)}
