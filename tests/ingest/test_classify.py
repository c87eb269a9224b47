"""Names and what they mean, each worked out by hand from the library that writes it."""

import pytest
from retime.ingest.classify import (
    buffers,
    comm_kernel,
    dim_of_description,
    dtype_of,
    kind_of,
    nccl_dtype,
    op_of_collective_name,
)
from retime.ingest.kernels import category_of_kernel


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # library, op, dtype, algo, proto
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            ("nccl", "all_reduce", "bfloat16", None, None),
        ),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
            ("nccl", "all_reduce", "float32", None, None),
        ),
        (
            "ncclKernel_AllReduce_TREE_LL_Sum___nv_bfloat16(x)",
            ("nccl", "all_reduce", "bfloat16", "tree", None),
        ),
        (
            "ncclDevKernel_AllReduce_Sum_f32_TREE_LL128(x)",
            ("nccl", "all_reduce", "float32", "tree", "LL128"),
        ),
        (
            "ncclDevKernel_AllReduce_Sum_f16_NVLS_TREE_SIMPLE(x)",
            ("nccl", "all_reduce", "float16", "nvls_tree", "Simple"),
        ),
        ("ncclAllReduceRingLLKernel_sum_f32(x)", ("nccl", "all_reduce", "float32", None, None)),
        (
            "ncclReduceScatterTreeLL128Kernel_sum_f16",
            ("nccl", "reduce_scatter", "float16", "tree", "LL128"),
        ),
        (
            "ncclDevKernel_ReduceScatter_Sum_f8e4m3_RING_SIMPLE(x)",
            ("nccl", "reduce_scatter", "float8_e4m3", "ring", "Simple"),
        ),
        # Compiled for bytes: the type in the name is not the data's.
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(x)", ("nccl", "broadcast", None, None, None)),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)",
         ("nccl", "send_recv", None, None, "Simple")),
        ("ncclDevKernel_SendRecv(x)", ("nccl", "send_recv", None, None, None)),
        ("nccldevkernel_allgather_ring_ll(x)", ("nccl", "all_gather", None, None, None)),
        ("ncclDevKernel_Reduce_Sum_u8_RING_LL", ("nccl", "reduce", "uint8", None, None)),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
         ("nccl", "unknown", None, None, None)),
        ("ncclDevKernel_Generic_1", ("nccl", "unknown", None, None, None)),
        ("ncclSymkDevKernel_AllReduce_AGxLLMC_R_sum_bf16(x)",
         ("nccl", "all_reduce", "bfloat16", None, None)),
        ("mscclKernel_Sum_float_Simple", ("msccl", "unknown", "float32", None, "Simple")),
        ("void deep_ep::intranode::dispatch<8, 768>(int4*)",
         ("deepep", "all_to_all", None, None, None)),
        ("void deep_ep::internode_ll::combine<true>(void*)",
         ("deepep", "all_to_all", None, None, None)),
        ("void deep_ep::internode::notify_dispatch<4>(int)",
         ("deepep", "barrier", None, None, None)),
        ("void nvshmemi_alltoall_on_stream_kernel<int>()",
         ("nvshmem", "all_to_all", None, None, None)),
        ("nvshmemi_barrier_all_kernel", ("nvshmem", "barrier", None, None, None)),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(x)",
         ("custom", "all_reduce", None, "one_shot", None)),
        ("void aiter::cross_device_reduce_2stage<x>()",
         ("custom", "all_reduce", None, "two_shot", None)),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(x)",
         ("custom", "all_reduce", None, "nvls", None)),
        ("void tensorrt_llm::kernels::oneShotAllReduceKernel<float>(x)",
         ("custom", "all_reduce", None, "one_shot", None)),
        ("kuserbuffers_pushsend", ("userbuffers", "send", None, None, None)),
    ],
)  # fmt: skip
def test_communication_kernels(name, expected):
    found = comm_kernel(name)
    assert found is not None
    dtype = found.dtype.name if found.dtype else None
    assert (found.library, found.op, dtype, found.algo, found.proto) == expected
    assert category_of_kernel(name) == "comm"


@pytest.mark.parametrize(
    "name",
    [
        "triton_poi_fused_all_gather_into_tensor_wait_tensor_0",
        "triton_red_fused_reduce_scatter_tensor_1",
        "void deep_ep::layout::get_dispatch_layout<256, 32>(long const*)",
        "my_kernel(ncclDevComm*)",
        "void blockAllReduceSum<float>(float*)",
        "void warp_all_reduce_max<float>(float*)",
    ],
)
def test_kernels_that_only_speak_of_communication(name):
    assert comm_kernel(name) is None


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("allreduce", "all_reduce"),
        ("all_reduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("allgather_into_tensor_coalesced", "all_gather"),
        ("all_gather_single", "all_gather"),
        ("nccl:_reduce_scatter_base", "reduce_scatter"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("c10d::alltoall_base_", "all_to_all"),
        ("gloo:all_reduce", "all_reduce"),
        ("xccl::allreduce", "all_reduce"),
        ("c10d::broadcast_", "broadcast"),
        ("reduce", "reduce"),
        ("gather", "gather"),
        ("scatter", "scatter"),
        ("nccl:send 0->1", "send"),
        ("c10d::recv_", "recv"),
        ("barrier", "barrier"),
        ("something", "unknown"),
        ("wait", None),
        ("init", None),
        ("broadcastUniqueNCCLID", None),
        ("allgatherUniqueNCCLIDs", None),
        ("", None),
    ],
)
def test_ops(name, op):
    assert op_of_collective_name(name) == op


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Float", ("float32", 4)),
        ("BFloat16", ("bfloat16", 2)),
        ("c10::BFloat16", ("bfloat16", 2)),
        ("Half", ("float16", 2)),
        ("Byte", ("uint8", 1)),
        ("Char", ("int8", 1)),
        ("Long", ("int64", 8)),
        ("long int", ("int64", 8)),
        ("unsigned char", ("uint8", 1)),
        ("Float8_e4m3fn", ("float8_e4m3", 1)),
        ("torch.float16", ("float16", 2)),
        ("ComplexFloat", ("complex64", 8)),
        ("Bool", ("bool", 1)),
        ("Tensor", None),
        ("", None),
        (None, None),
    ],
)
def test_dtypes(text, expected):
    assert dtype_of(text) == expected


@pytest.mark.parametrize(
    ("description", "dim"),
    [
        ("default_pg", "world"),
        ("mesh_tp", "tp"),
        ("mesh_dp_shard", "fsdp"),
        ("mesh_fsdp", "fsdp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("EXPERT_DATA_PARALLEL_GROUP", "dp"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("tp:0", "tp"),
        ("ep_size_8", "ep"),
        # Over several dimensions at once, or none.
        ("MODEL_PARALLEL_GROUP", None),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", None),
        ("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", None),
        ("EMBEDDING_GROUP", None),
        ("undefined", None),
        ("17", None),
        (None, None),
    ],
)
def test_dims(description, dim):
    assert dim_of_description(description) == dim


# Of 100 bytes by the call's count and 4 ranks: (in, out) at the root, elsewhere, and where it is
# not known who is the root.
BUFFERS = {
    "all_reduce": ((100, 100),) * 3,
    "broadcast": ((100, 100),) * 3,
    "all_gather": ((100, 400),) * 3,
    "reduce_scatter": ((400, 100),) * 3,
    "all_to_all": ((400, 400),) * 3,
    "reduce": ((100, 100), (100, 0), (100, None)),
    "gather": ((100, 400), (100, 0), (100, None)),
    "scatter": ((400, 100), (0, 100), (None, 100)),
    "send": ((100, None),) * 3,
    "recv": ((None, 100),) * 3,
    "send_recv": ((None, None),) * 3,
    "barrier": ((None, None),) * 3,
    "unknown": ((None, None),) * 3,
}


@pytest.mark.parametrize("op", BUFFERS)
def test_buffers(op):
    assert tuple(buffers(op, 100, 4, is_root) for is_root in (True, False, None)) == BUFFERS[op]
    assert buffers(op, None, 4, True) == buffers(op, -1, 4, True) == (None, None)
    # Without the number of ranks what depends on it is null, and nothing else.
    known = tuple(None if n == 400 else n for n in BUFFERS[op][0])
    assert buffers(op, 100, None, True) == buffers(op, 100, 0, True) == known


def test_types_by_nccls_number():
    sizes = {
        "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "float16": 2,
        "float32": 4, "float64": 8, "bfloat16": 2, "float8_e4m3": 1, "float8_e5m2": 1,
    }  # fmt: skip
    assert [nccl_dtype(k) for k in range(12)] == list(sizes.items())
    assert [nccl_dtype(k) for k in (-1, 12)] == [None, None]


def test_kinds():
    assert [
        kind_of(c) for c in ("Kernel", "gpu_memcpy", "Memset", "Runtime", "Operator", "new")
    ] == [
        "kernel",
        "memcpy",
        "memset",
        "runtime",
        "host_op",
        "other",
    ]
    assert kind_of("gpu_user_annotation") == "gpu_annotation"
