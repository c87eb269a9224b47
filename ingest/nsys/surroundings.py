"""What surrounds a report: variables of its session, its command line, its file's name."""

from __future__ import annotations

import re

from ..schema import MAX_RANK
from .tables import Report

RANK_VARIABLES = (
    "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID",
)  # fmt: skip
WORLD_VARIABLES = (
    "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS",
)  # fmt: skip
LOCAL_VARIABLES = (
    "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
)  # fmt: skip
NODE_VARIABLES = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")

_NAMED = re.compile(r"(?<![a-z])(?:rank|proc|process|r)[-_.=]?(\d{1,7})(?!\d)", re.I)
_NODE = re.compile(r"(?<![a-z])(?:node|host)[-_.=]?(\d{1,6})(?!\d)", re.I)


def environment(report: Report) -> dict[str, str]:
    """Variables of the session: that of the program nsys was started with."""
    out: dict[str, str] = {}
    for name, value in report.pairs("TARGET_INFO_SYSTEM_ENV").items():
        if name == "DeviceEnvironment":
            for part in value.replace("\0", ";").split(";"):
                key, _, text = part.partition("=")
                out.setdefault(key, text)
    capture = report.small("META_DATA_CAPTURE")
    for name, value in zip(capture["name"].to_pylist(), capture["value"].to_pylist(), strict=True):
        if name and name.endswith("ENVIRONMENT_VARIABLE") and value:
            key, _, text = value.partition("=")
            out.setdefault(key, text.strip('"'))
    return out


def number_of(
    variables: dict[str, str], names: tuple[str, ...], most: int = MAX_RANK
) -> int | None:
    """The first of these variables that is a number."""
    for name in names:
        text = variables.get(name, "").strip()
        if text.isascii() and text.isdigit() and len(text) < 9 and int(text) <= most:
            return int(text)
    return None


def rank_in_name(name: str) -> int | None:
    """The rank that a file's own name tells (`report_rank3.sqlite`, `proc1`); None for none."""
    for part in reversed(name.replace("!", "/").split("/")[-3:]):
        found = _NAMED.search(part)
        if found:
            return int(found.group(1))
    return None


def node_in_name(name: str) -> int | None:
    """The number of a node in a file's own name (`report_node2.sqlite`); None for none."""
    found = _NODE.search(name.replace("!", "/").rsplit("/", 1)[-1])
    return int(found.group(1)) if found else None


def command_line(report: Report) -> dict[str, int]:
    """Numbers of a torchrun command line: nnodes, nproc_per_node, node_rank."""
    capture = report.small("META_DATA_CAPTURE")
    words = [
        v or ""
        for n, v in zip(capture["name"].to_pylist(), capture["value"].to_pylist(), strict=True)
        if n and ":ARGUMENT_" in n
    ]
    out: dict[str, int] = {}
    for i, word in enumerate(words):
        key, _, value = word.lstrip("-").partition("=")
        key = key.replace("-", "_")
        if key in ("nnodes", "nproc_per_node", "node_rank") and word.startswith("--"):
            value = value or (words[i + 1] if i + 1 < len(words) else "")
            if value.isascii() and value.isdigit() and len(value) < 8:
                out.setdefault(key, int(value))
    return out
