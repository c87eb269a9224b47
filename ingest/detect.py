"""Which parser reads a source: the registry of formats, and the guess from a source's head."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import NamedTuple

from .errors import Damaged, UnusableInput, UsageError
from .sources import Source, stream_defect


class Format(NamedTuple):
    """A format: the module that reads it, one phrase for people, and what a rank may have of it.

    The module has `looks_like(head, name) -> bool` and `parse(source, *, rank, threads)`. It may
    have `peek_rank(source)`, which tells a rank without parsing; `looks_like_further(source)`,
    asked of files that no head gave away; `prepare(n_bytes)`, which is told the bytes that a
    process is about to parse; and `bundle_of(path)`, which gives the folder that makes one source
    together with all it claims there, else None. It must import little: every file of a folder is
    shown to every format.

    `holds` says what clashes: `timeline`, a job takes one of a rank, of whatever format; `one`, a
    job takes one of this format of a rank; `many`, any number.
    """

    module: str
    what: str
    holds: str = "many"
    bundles: bool = False


FORMATS: dict[str, Format] = {
    # Before Kineto, which takes any array of trace events.
    "ascend": Format("retime.ingest.stacks.ascend", "Ascend NPU profile", "timeline", True),
    "kineto": Format("retime.ingest.kineto", "PyTorch Kineto Chrome JSON", "timeline"),
    "recorded": Format("retime.ingest.recorded", "recorded operations, Parquet", "timeline"),
    "plain": Format("retime.ingest.plain", "rows of tables, JSON lines", "timeline"),
    "nsys": Format("retime.ingest.nsys.report", "Nsight Systems export", "timeline", bundles=True),
    "nsys-recipe": Format(
        "retime.ingest.nsys.recipe", "Nsight Systems recipe tables", "timeline", bundles=True
    ),
    "nsys-stats": Format("retime.ingest.nsys.stats", "nsys stats GPU trace, CSV", "timeline"),
    "rocprof": Format(
        "retime.ingest.stacks.rocprof", "ROCm rocprofv3 JSON and CSV", "timeline", True
    ),
    "nccl-log": Format("retime.ingest.nccl.debug_log", "NCCL or RCCL debug text log"),
    "nccl-topology": Format("retime.ingest.nccl.topology", "NCCL topology and graph XML"),
    "nccl-tests": Format("retime.ingest.nccl.nccl_tests", "nccl-tests and rccl-tests output"),
    "vtrain": Format("retime.ingest.nccl.vtrain", "vTrain's measured tables, CSV"),
    "execution-trace": Format(
        "retime.ingest.graphs.pytorch_et", "PyTorch execution trace, JSON", "one"
    ),
    "chakra": Format("retime.ingest.graphs.chakra", "Chakra execution trace", "one"),
    "param-comms": Format("retime.ingest.graphs.param_comms", "PARAM basic comms trace", "one"),
    "nccl-inspector": Format("retime.ingest.nccl.inspector", "NCCL Inspector's JSON lines"),
    "flight-recorder": Format(
        "retime.ingest.flight_recorder", "PyTorch Flight Recorder dump, pickle or JSON", "one"
    ),
    "megatron-router": Format(
        "retime.ingest.moe.megatron", "Megatron-LM router trace, JSON lines", "one"
    ),
    "megatron-counts": Format(
        "retime.ingest.moe.megatron_counts", "Megatron-LM tokens per expert, JSON lines", "one"
    ),
    "sglang-experts": Format("retime.ingest.moe.sglang", "SGLang expert distribution dump"),
    "vllm-eplb": Format("retime.ingest.moe.vllm", "vLLM expert load, log or arrays"),
    "deepep": Format("retime.ingest.moe.deepep", "DeepEP dispatch tensors"),
    "eplb": Format("retime.ingest.moe.eplb", "EPLB weights and placement"),
    "flame-moe": Format("retime.ingest.moe.flame", "FLAME-MoE routing trace, Parquet"),
    "esft": Format("retime.ingest.moe.esft", "ESFT expert weight log"),
    "olmoe": Format("retime.ingest.moe.olmoe", "OLMoE expert counts, pickle"),
    "routing": Format("retime.ingest.moe.plain", "routing table, CSV, JSON lines or Parquet"),
    "nccl-profiler": Format(
        "retime.ingest.nccl.profiler", "NCCL profiler plugin's JSON", "many", True
    ),
}
"""By name; asked in this order."""

HEAD_BYTES = 65536


def clash_group(format: str) -> str | None:
    """What a job takes one of for each rank: equal for formats that exclude each other.

    None where a rank may have any number of sources of this format.
    """
    known = FORMATS.get(format)
    if known is None or known.holds == "timeline":
        return "timeline"
    return format if known.holds == "one" else None


def parser(format: str) -> ModuleType:
    """The parser module of a format. Raises UsageError for a name that is not one."""
    if format not in FORMATS:
        raise UsageError(f"no format {format!r}; formats: {', '.join(FORMATS)}")
    return module(FORMATS[format].module)


def module(name: str) -> ModuleType:
    """A parser's module, imported only now: start-up is part of a small ingest's time."""
    return importlib.import_module(name)


def detect(source: Source) -> str:
    """The format of a source, from its first 64 KiB (decompressed) and its name.

    Raises UnusableInput where no parser takes it.
    """
    try:
        head = source.head(HEAD_BYTES)
    except OSError as e:
        raise UnusableInput(f"cannot be read: {e.strerror or e}", path=source.name) from e
    if not head.strip(b"\0 \t\r\n"):
        if not head and (defect := _defect(source)) is not None:
            raise Damaged(f"{defect} before anything could be read of it", path=source.name)
        what = "it is empty" if not head else "there is nothing but white space at its start"
        raise UnusableInput(what, path=source.name)
    for format in FORMATS:
        if parser(format).looks_like(head, source.name):
            return format
    for format in FORMATS:
        further = getattr(parser(format), "looks_like_further", None)
        if further is not None and further(source):
            return format
    raise UnusableInput(
        "not a trace of a known format; --format NAME forces a parser",
        path=source.name,
    )


def _defect(source: Source) -> str | None:
    with source.open() as f:
        f.read(1)
        return stream_defect(f)


def peek_rank(source: Source, format: str) -> int | None:
    """The rank of a source where its parser can tell without reading it all, else None."""
    peek = getattr(parser(format), "peek_rank", None)
    try:
        return None if peek is None else peek(source)
    except (UnusableInput, OSError):
        return None  # parsing says it with its place
