"""retime: where the step time went, who made everybody wait, and what it would have cost.

    import retime
    wh = retime.open("warehouse")
    wh.ingest(["traces/"], job="run-7")
    job = wh.job("run-7")
    job.waits()                                      # a Polars frame, one row a participation
    retime.replay(job, policies=["align-arrivals"])  # what the step costs with nobody late

Every command of the command line is one of these calls; nothing heavy is imported early.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

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
    "trace_handler",
    "upload",
]

if TYPE_CHECKING:
    from .analysis.doors import (
        Job,
        Warehouse,
        connect,
        demo,
        fabric,
        model,
        open,
        plan,
        policies,
        replay,
        tables,
    )
    from .ingest.upload.handler import trace_handler
    from .ingest.upload.run import upload

_UPLOADS = {"trace_handler": ".ingest.upload.handler", "upload": ".ingest.upload.run"}


def __getattr__(name: str) -> Any:
    """The public names, imported when first asked for (`import retime` stays fast)."""
    if name == "replay":  # the sub-package itself, which can be called
        return import_module(".replay", __name__)
    if name in _UPLOADS:  # a training process has no use for the rest
        return getattr(import_module(_UPLOADS[name], __name__), name)
    if name in __all__:
        return getattr(import_module(".analysis.doors", __name__), name)
    raise AttributeError(f"module 'retime' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
