"""What names mean: kind of an event, op of a collective's kernel, element type, dim of a group."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from .kernel_names import MOST_OF_A_NAME, function_name

KINDS: dict[str, str] = {
    "kernel": "kernel",
    "concurrent_kernel": "kernel",
    "mtia_ccp_events": "kernel",
    "hpu_op": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "cpu_op": "host_op",
    "operator": "host_op",
    "collective_comm": "host_op",
    "runtime": "runtime",
    "driver": "runtime",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "hip_runtime": "runtime",
    "xpu_runtime": "runtime",
    "xpu_driver": "runtime",
    "mtia_runtime": "runtime",
    "glow_runtime": "runtime",
    "privateuse1_runtime": "runtime",
    "privateuse1_driver": "runtime",
    "cuda_sync": "sync",
    "xpu_sync": "sync",
    "cuda_event": "sync",
    "user_annotation": "annotation",
    "gpu_user_annotation": "gpu_annotation",
    "python_function": "python",
    "cpu_instant_event": "instant",
    "overhead": "overhead",
}
"""Category in the trace, in lower case (names before late 2022 had capitals): kind of the row."""


def kind_of(category: str) -> str:
    """Kind of a complete event by its category in the trace; `other` for those not known."""
    return KINDS.get(category.lower(), "other")


_OF_VIEWERS = frozenset({"trace", ""})
"""Categories of rows that are there for a viewer only: of kind `other`, and meant to be."""


def is_known(category: str) -> bool:
    """Whether a category of complete events is one that is told apart, or a viewer's."""
    low = category.lower()
    return low in KINDS or low in _OF_VIEWERS


class Dtype(NamedTuple):
    """An element type: one name for all spellings, and its size."""

    name: str
    itemsize: int


_DTYPES: tuple[tuple[str, int, str], ...] = (
    # name, bytes, other spellings (c10, C, NCCL kernel names, NumPy), in lower case
    ("float32", 4, "float f32 fp32 single"),
    ("float64", 8, "double f64 fp64"),
    ("float16", 2, "half f16 fp16 __half c10::half"),
    ("bfloat16", 2, "bf16 __nv_bfloat16 nv_bfloat16 hip_bfloat16 rccl_bfloat16 c10::bfloat16"),
    ("float8_e4m3", 1, "f8e4m3 fp8e4m3 float8_e4m3fn float8_e4m3fnuz __nv_fp8_e4m3 rccl_float8"),
    ("float8_e5m2", 1, "f8e5m2 fp8e5m2 float8_e5m2fnuz __nv_fp8_e5m2 rccl_bfloat8"),
    ("float8_e8m0", 1, "float8_e8m0fnu"),
    ("int8", 1, "char i8 int8_t signed_char"),
    ("uint8", 1, "byte u8 uint8_t unsigned_char"),
    ("int16", 2, "short i16 int16_t"),
    ("uint16", 2, "u16 uint16_t"),
    ("int32", 4, "int i32 int32_t"),
    ("uint32", 4, "u32 uint32_t"),
    ("int64", 8, "long i64 int64_t long_int long_long"),
    ("uint64", 8, "u64 uint64_t unsigned_long"),
    ("bool", 1, "bool_"),
    ("complex64", 8, "complexfloat c10::complex<float>"),
    ("complex128", 16, "complexdouble c10::complex<double>"),
    ("complex32", 4, "complexhalf"),
    ("qint8", 1, "qint8_t"),
    ("quint8", 1, "quint8_t"),
    ("qint32", 4, "qint32_t"),
)

_DTYPE_BY_NAME: dict[str, Dtype] = {
    spelling: Dtype(name, size)
    for name, size, others in _DTYPES
    for spelling in (name, *others.split())
}


def dtype_of(text: str | None) -> Dtype | None:
    """The element type that a spelling means; None for none or an unknown one."""
    if not text:
        return None
    return _DTYPE_BY_NAME.get(text.strip().lower().replace(" ", "_").removeprefix("torch."))


NCCL_DTYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "bfloat16", "float8_e4m3", "float8_e5m2",
)  # fmt: skip
"""Names by the number of ncclDataType_t."""


def nccl_dtype(number: int) -> Dtype | None:
    """The element type of a number of ncclDataType_t; None for one that is not known."""
    return dtype_of(NCCL_DTYPES[number]) if 0 <= number < len(NCCL_DTYPES) else None


def buffers(
    op: str, count_bytes: int | None, n_ranks: int | None, is_root: bool | None = None
) -> tuple[int | None, int | None]:
    """(input, output) bytes of a rank from the count of its call times the item size.

    NCCL's and HCCL's headers count alike: an all-gather and a gather by what each rank sends, a
    reduce-scatter and a scatter by what each gets, an all-to-all by what goes to one rank. A
    reduce has an output at the root only, as a gather; a scatter has an input there only: 0 for
    the others, null where `is_root` is unknown. A broadcast is taken as in place (ncclBcast), so
    that all ranks say the same size. A send has no output and a receive no input: null. So are
    both for a barrier, whose count is of the library's own making, and for unknown operations.
    """
    if count_bytes is None or count_bytes < 0:
        return None, None
    every = count_bytes * n_ranks if n_ranks is not None and n_ranks > 0 else None
    match op:
        case "all_reduce" | "broadcast":
            return count_bytes, count_bytes
        case "all_gather":
            return count_bytes, every
        case "reduce_scatter":
            return every, count_bytes
        case "all_to_all":
            return every, every
        case "reduce":
            return count_bytes, _at_root(is_root, count_bytes)
        case "gather":
            return count_bytes, _at_root(is_root, every)
        case "scatter":
            return _at_root(is_root, every), count_bytes
        case "send":
            return count_bytes, None
        case "recv":
            return None, count_bytes
    return None, None


def _at_root(is_root: bool | None, n_bytes: int | None) -> int | None:
    if is_root is None:
        return None
    return n_bytes if is_root else 0


_NOT_TRANSFERS = re.compile(r"uniquencclid|^wait|^init$|^end$|coalescingmanager|splitcomm|^abort")

_OPS: tuple[tuple[str, str], ...] = (
    # substring of the name without punctuation, in lower case; the first that fits decides
    ("reducescatter", "reduce_scatter"),
    ("allreducebarrier", "barrier"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("all2all", "all_to_all"),
    ("sendrecv", "send_recv"),
    ("batchisendirecv", "send_recv"),
    ("barrier", "barrier"),
    ("broadcast", "broadcast"),
    ("bcast", "broadcast"),
    ("scatter", "scatter"),
    ("gather", "gather"),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv"),
    ("coalesced", "send_recv"),
)

_PREFIX = re.compile(r"^(nccl|rccl|gloo|mpi|ucc|xccl|hccl|eccl|ccl|c10d|_c10d_functional)::?")


@lru_cache(maxsize=4096)
def op_of_collective_name(name: str) -> str | None:
    """The op that a collective's name means, with or without a backend's prefix.

    `unknown` where the name says nothing; None for calls that move no data of their own (wait,
    init, the exchange of a communicator's id).
    """
    bare = re.sub(r"[^a-z0-9]", "", _PREFIX.sub("", name.strip().lower()))
    if not bare or _NOT_TRANSFERS.search(bare):
        return None
    return next((op for part, op in _OPS if part in bare), "unknown")


class CommKernel(NamedTuple):
    """What the name of a communication kernel tells; None where it does not."""

    library: str
    op: str
    dtype: Dtype | None
    algo: str | None
    proto: str | None


_ALGOS: tuple[tuple[str, str], ...] = (
    ("collnet_direct", "collnet_direct"),
    ("collnet_chain", "collnet_chain"),
    ("collnetdirect", "collnet_direct"),
    ("collnetchain", "collnet_chain"),
    ("collnet", "collnet"),
    ("nvls_tree", "nvls_tree"),
    ("nvlstree", "nvls_tree"),
    ("nvls", "nvls"),
    ("tree", "tree"),
    ("ring", "ring"),
    ("_pat", "pat"),
    ("oneshot", "one_shot"),
    ("one_shot", "one_shot"),
    ("1stage", "one_shot"),
    ("twoshot", "two_shot"),
    ("two_shot", "two_shot"),
    ("2stage", "two_shot"),
    ("multimem", "nvls"),
)

_PROTO = re.compile(r"(?:(?<=_)|(?<=ring)|(?<=tree))(LL128|SIMPLE|LL)(?=_|Kernel|$)", re.I)

_PROTO_NAMES = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}

_COMM_FAMILIES: tuple[tuple[str, re.Pattern[str], str | None], ...] = (
    # library, pattern on the kernel's name, op where the pattern alone decides it
    ("nccl", re.compile(r"(^|[\s:])nccl(\w*kernel|dev|sym|all|reduce|broad|send)", re.I), None),
    ("rccl", re.compile(r"(^|[\s:])rccl", re.I), None),
    ("msccl", re.compile(r"msccl", re.I), None),
    ("oneccl", re.compile(r"oneccl|sycl.*\bccl|ccl_(kernel|allreduce|allgather)", re.I), None),
    ("deepep", re.compile(r"deep_ep::.*(notify|barrier|clean_low_latency)"), "barrier"),
    ("deepep", re.compile(r"deep_ep::.*(dispatch|combine)(?!_layout)"), "all_to_all"),
    ("nvshmem", re.compile(r"nvshmem\w*_(barrier|sync|quiet)|nvshmem\w*barrier", re.I), "barrier"),
    ("nvshmem", re.compile(r"nvshmem", re.I), None),
    ("rocshmem", re.compile(r"rocshmem", re.I), None),
    ("custom", re.compile(r"cross_device_reduce|quickreduce|quick_all_reduce", re.I), "all_reduce"),
    ("userbuffers", re.compile(r"userbuffers\w*(pushsend|push_send)", re.I), "send"),
    ("userbuffers", re.compile(r"userbuffers\w*(pullrecv|pushrecv|pull_recv)", re.I), "recv"),
    ("userbuffers", re.compile(r"userbuffers\w*_rs|userbuffers\w*reduce_?scatter", re.I),
     "reduce_scatter"),
    ("userbuffers", re.compile(r"userbuffers\w*_ag|userbuffers\w*all_?gather", re.I), "all_gather"),
    ("userbuffers", re.compile(r"userbuffers", re.I), "all_reduce"),
    # (A block or a warp that reduces among its own threads sends nothing.)
    ("custom", re.compile(r"(?<!block)(?<!warp)(?<!block_)(?<!warp_)all_?reduce"
                          r"|reduce_?scatter|all_?gather|all_?to_?all|all2all", re.I), None),
)  # fmt: skip

_COMM_SEEN = ("ccl", "reduce", "gather", "scatter", "all", "deep_ep", "shmem", "userbuffers")
"""One of these is in every name that a family above fits."""

_COPY_OPS = frozenset({"all_gather", "broadcast", "send", "recv", "send_recv", "all_to_all"})
"""Ops whose NCCL kernels are compiled once, for bytes: the type in their name says nothing."""


@lru_cache(maxsize=65536)
def comm_kernel(name: str) -> CommKernel | None:
    """What a communication kernel's name tells, or None for a kernel that is not one.

    Kernels that a compiler generated (`triton_...`) carry the names of the operators fused into
    them and are never communication.
    """
    if name.startswith("triton_"):
        return None
    function = function_name(name)
    low = function.lower()
    if not any(text in low for text in _COMM_SEEN):
        return None
    family = next((f for f in _COMM_FAMILIES if f[1].search(function)), None)
    if family is None:
        return None
    library, _, op = family
    if op is None:
        body = re.sub(r"(nccl|rccl)(symk?)?(dev)?kernel|generic|kernel", "", low)
        op = op_of_collective_name(body) or "unknown"
    dtype = None
    if op not in _COPY_OPS:
        tokens = re.split(r"_(?=[a-z])", re.sub(r"_t\b", "", low))
        for token in (*(t.strip("_") for t in tokens), *low.split("_")):
            dtype = _DTYPE_BY_NAME.get(token) or dtype
        if "bfloat16" in low:
            dtype = _DTYPE_BY_NAME["bfloat16"]
    algo = next((a for part, a in _ALGOS if part in low), None)
    proto = None
    if library in ("nccl", "rccl", "msccl"):
        found = _PROTO.search(function)
        proto = _PROTO_NAMES[found.group(1).lower()] if found else None
        if proto == "LL":
            # NCCL compiles one kernel a function, named RING_LL or TREE_LL, that runs the other
            # protocols too, and every algorithm but tree under the ring's name.
            proto = None
            algo = None if algo == "ring" else algo
        elif op == "send_recv":
            algo = None
    return CommKernel(library, op, dtype, algo, proto)


_DIMS: tuple[tuple[str, str], ...] = (
    # pattern on the description in lower case; the first that fits decides
    (r"^default_pg$|^world$|^world_group$", "world"),
    (r"_and_|^model_parallel_group|tensor_model_pipeline", "unknown"),
    (r"fsdp|dp_shard|shard_dp|zero|hybrid_shard", "fsdp"),
    (r"data_?parallel|(^|[_\W\d])e?dp([_\W\d]|$)|ddp|replica|dp_replicate", "dp"),
    (r"expert_tensor|tensor|(^|[_\W\d])e?tp([_\W\d]|$)|model_parallel_tp", "tp"),
    (r"pipeline|(^|[_\W\d])pp([_\W\d]|$)|pipe_?parallel", "pp"),
    (r"expert|(^|[_\W\d])ep([_\W\d]|$)|moe", "ep"),
    (r"context|(^|[_\W\d])cp([_\W\d]|$)|ulysses|ring_attn|sequence_?parallel|(^|[_\W\d])sp([_\W\d]|$)",
     "cp"),
    (r"world|global", "world"),
)  # fmt: skip
_DIM_PATTERNS = tuple((re.compile(pattern), dim) for pattern, dim in _DIMS)


@lru_cache(maxsize=4096)
def dim_of_description(description: str | None) -> str | None:
    """Parallel dimension that a group's description (or telling name) names; None if it does not.

    A group over several dimensions at once (`TENSOR_AND_DATA_PARALLEL_GROUP`) is none of them.
    """
    low = (description or "")[:MOST_OF_A_NAME].strip().lower()
    if not low or low == "undefined":
        return None
    dim = next((dim for pattern, dim in _DIM_PATTERNS if pattern.search(low)), None)
    return None if dim == "unknown" else dim
