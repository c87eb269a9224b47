"""The notebook API: a warehouse, a job in it, and the calls that the command line wraps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..ingest.errors import UsageError
from .job import Job
from .warehouse import Warehouse

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = [
    "Job",
    "Warehouse",
    "connect",
    "demo",
    "fabric",
    "model",
    "open",
    "plan",
    "policies",
    "replay",
    "tables",
]

DEFAULT_WAREHOUSE = "warehouse"


def open(url: str | os.PathLike[str] | None = None) -> Warehouse:
    """The warehouse at `url`, else at $RETIME_WAREHOUSE, else ./warehouse. Nothing is created."""
    return Warehouse(os.fspath(url or os.environ.get("RETIME_WAREHOUSE") or DEFAULT_WAREHOUSE))


def connect(
    url: str | os.PathLike[str] | None = None,
    job: str | Sequence[str] | None = None,
    *,
    memory: str | int | None = None,
    threads: int | None = None,
) -> DuckDBPyConnection:
    """`open(url).connect(job, memory=memory, threads=threads)`."""
    return open(url).connect(job, memory=memory, threads=threads)


def replay(
    job: Job,
    policies: Sequence[Any] = (),
    **options: Any,
) -> dict[str, Any]:
    """Re-times a job under policies: `replay.run.replay` has the object and the options.

    `policies` are names, or names with parameters as on the command line
    (`"align-arrivals:ranks=3"`). Options are `sweep` (a parameter's several values), `step`,
    `fabric`, `strict`, `calibration`, `progress` and `ray`. Raises UsageError for a policy or a
    parameter that there is not.
    """
    from ..replay.run import replay

    return replay(job.snapshot, policies, **options)


def model(op: str, ranks: int, **options: Any) -> dict[str, Any]:
    """What a collective costs by algorithm and size: `analysis.model.model` has the options.

    `retime.model("all_reduce", 8, alpha="0.822us", bandwidth="450GB/s")`. Needs no trace.
    """
    from . import model

    return model.model(op, ranks, **options)


def plan(name: str | None = None, *, gpus: int, **options: Any) -> dict[str, Any]:
    """Splits of a model over GPUs, ranked: `analysis.plan.plan` has the options and the fields.

    `retime.plan("gpt3-175b", gpus=512, machine="A100", batch=1536)`. Needs no trace.
    """
    from . import plan

    return plan.plan(name, gpus=gpus, **options)


def policies(name: str | None = None) -> list[dict[str, Any]]:
    """The catalogue, or one policy of it: `catalogue.policies` has the fields.

    Raises UsageError for a name that it does not hold, with those near it.
    """
    from . import catalogue

    return catalogue.policies(name)


def fabric(
    name: str | os.PathLike[str] | None = None, *, gpus: int | None = None
) -> list[dict[str, Any]] | dict[str, Any]:
    """The presets of fabrics; or what one (a preset, a TOML file) amounts to with `gpus` GPUs.

    `analysis.fabric` has the fields. Raises UsageError for a fabric that there is not or cannot be.
    """
    from . import fabric

    if name is None:
        if gpus is not None:
            raise UsageError("--gpus scales one fabric: name a preset or a file")
        return fabric.presets()
    return fabric.facts(name, gpus)


def tables(name: str | None = None) -> list[dict[str, Any]]:
    """The dictionary of tables, views and macros: one row each, or the columns of one.

    Raises UsageError for a name that there is not, with those near it.
    """
    from . import catalogue

    return catalogue.tables(name)


def demo(folder: str | os.PathLike[str] = "retime-demo", **options: Any) -> dict[str, Any]:
    """The whole path on the bundled job: ingest, report, replay; leaves `folder` behind."""
    from . import demo as bundled

    return bundled.run(folder, **options)
