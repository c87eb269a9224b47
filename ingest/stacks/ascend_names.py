"""What Ascend's names mean: kinds of tasks, operations of HCCL, element types, times as text."""

from __future__ import annotations

import re
from functools import lru_cache

from .. import classify, values
from ..kineto.rawbatch import NULL

_DTYPES = {"fp16": "float16", "fp32": "float32", "fp64": "float64", "bfp16": "bfloat16",
           "int128": None}  # fmt: skip

_OP = re.compile(
    r"(?P<call>(?:hcom|hccl)_?[A-Za-z][A-Za-z0-9]*)(?:_[A-Za-z]+)?_{1,2}(?P<group>\d+)_\d+_\d+.*",
    re.I,
)
_SEND_RECEIVE = (("batchsendrecv", "send_recv"), ("receive", "recv"))

_COPIES = re.compile(r"MEMCPY|SDMA|PCIE_DMA|D2D|H2D|D2H", re.I)
_WAITS = re.compile(r"EVENT|NOTIFY|WAIT|RECORD|BARRIER", re.I)

_MOST_DIGITS = 80


def scaled(value: object, decimals: int) -> int:
    """A number or its text times 10^decimals as `values.scaled` gives it; NULL for others."""
    if isinstance(value, str) and len(value) > _MOST_DIGITS:
        return NULL
    number = values.scaled(value, decimals)
    return NULL if number is None else number


def us_to_ns(value: object) -> int:
    """Microseconds as integer ns; NULL for what is no time."""
    return scaled(value, 3)


def ms_to_ns(value: object) -> int:
    """Milliseconds as integer ns; NULL for what is no time."""
    return scaled(value, 6)


@lru_cache(maxsize=65536)
def hccl_op(name: str) -> str | None:
    """The op of an operation on a group's track (`hcom_allReduce__293_647_1`); None for another."""
    low = name.lower()
    if not low.startswith(("hcom", "hccl")):
        return None
    for part, op in _SEND_RECEIVE:
        if part in low:
            return op
    return classify.op_of_collective_name(re.sub(r"^(hcom|hccl)_?", "", low).split("__")[0])


@lru_cache(maxsize=65536)
def group_digits(name: str) -> str | None:
    """The last digits of the group's hash, as an operation's name holds them (`293`)."""
    found = _OP.fullmatch(name)
    return found["group"] if found else None


def dtype_of(text: object) -> classify.Dtype | None:
    """The element type that HCCL's name means (FP16, BFP16, INT8, ...)."""
    if not isinstance(text, str):
        return None
    low = text.strip().lower()
    return classify.dtype_of(_DTYPES.get(low, low))


def kind_of_task(task_type: object, name: str) -> str:
    """Kind of a row on the hardware's streams by its `Task Type`, else by its name."""
    text = task_type if isinstance(task_type, str) and task_type else name
    if _WAITS.search(text):
        return "sync"
    return "memcpy" if _COPIES.search(text) else "kernel"
