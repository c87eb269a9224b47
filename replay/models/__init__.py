"""Cost models of collectives: closed forms under every classic algorithm, and NCCL's own model."""

from __future__ import annotations

from ...ingest.tasks.collectives import size_bytes
from . import nccl, nccl_machines
from .closed import (
    ALGOS,
    OPS,
    algorithms,
    crossover_bytes,
    fits,
    form,
    named,
    recorded,
    row,
    time_ns,
)
from .forms import FORMS, Form, NoModel
from .pipelined import PIPELINED, Pipelined

__all__ = [
    "ALGOS",
    "FORMS",
    "OPS",
    "PIPELINED",
    "Form",
    "NoModel",
    "Pipelined",
    "algorithms",
    "crossover_bytes",
    "fits",
    "form",
    "named",
    "nccl",
    "nccl_machines",
    "recorded",
    "row",
    "size_bytes",
    "time_ns",
]
