"""Cost models of collectives: closed forms under every classic algorithm, and NCCL's own model."""

from __future__ import annotations

from .forms import ALGOS, FORMS, OPS, Form, NoModel, crossover_bytes, form, size_bytes, time_ns

__all__ = [
    "ALGOS",
    "FORMS",
    "OPS",
    "Form",
    "NoModel",
    "crossover_bytes",
    "form",
    "size_bytes",
    "time_ns",
]
