"""Which tables of an Nsight Systems export are read, and each column's kind of value."""

from __future__ import annotations

import pyarrow as pa

INT, REAL, TEXT, BYTES = "int", "real", "text", "bytes"

ARROW = {INT: pa.int64(), REAL: pa.float64(), TEXT: pa.string(), BYTES: pa.binary()}
"""The Arrow type in which a kind is given, whatever carried it."""

_SPAN = {"start": INT, "end": INT}
_WORK = {
    **_SPAN, "deviceId": INT, "contextId": INT, "streamId": INT, "correlationId": INT,
    "globalPid": INT,
}  # fmt: skip

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CUDA_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX = "NVTX_EVENTS"
OVERHEAD = "PROFILER_OVERHEAD"

READ: dict[str, dict[str, str]] = {
    "StringIds": {"id": INT, "value": TEXT},
    KERNEL: {
        **_WORK, "demangledName": INT, "shortName": INT, "gridX": INT, "gridY": INT, "gridZ": INT,
        "blockX": INT, "blockY": INT, "blockZ": INT, "graphNodeId": INT,
    },
    MEMCPY: {**_WORK, "bytes": INT, "copyKind": INT, "srcKind": INT, "dstKind": INT},
    MEMSET: {**_WORK, "bytes": INT, "memKind": INT},
    GRAPH: {**_WORK, "graphId": INT},
    SYNC: {**_WORK, "syncType": INT, "eventId": INT, "eventSyncId": INT},
    CUDA_EVENT: {
        "streamId": INT, "correlationId": INT, "globalPid": INT, "eventId": INT, "eventSyncId": INT,
    },
    RUNTIME: {**_SPAN, "globalTid": INT, "correlationId": INT, "nameId": INT},
    OVERHEAD: {**_SPAN, "globalTid": INT, "nameId": INT},
    NVTX: {
        **_SPAN, "eventType": INT, "text": TEXT, "textId": INT, "globalTid": INT, "domainId": INT,
        "binaryData": BYTES, "jsonText": TEXT, "jsonTextId": INT,
    },
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": {
        "domainId": INT, "schemaId": INT, "idx": INT, "type": INT, "name": TEXT, "offset": INT,
    },
    "NCCL_GPU_OPERATIONS": {
        **_SPAN, "text": TEXT, "commHash": INT, "commRank": INT, "count": INT, "dataType": TEXT,
        "operationClass": TEXT, "operationId": INT, "seqNumber": INT, "peer": INT, "root": INT,
        "globalTid": INT, "globalPid": INT, "pid": INT, "localId": INT,
    },
    "NCCL_GPU_OPERATIONS_COLLECTIVE": {
        **_SPAN, "text": TEXT, "commHash": INT, "commRank": INT, "count": INT, "dataType": TEXT,
        "seqNumber": INT, "globalTid": INT, "globalPid": INT, "pid": INT, "localId": INT,
    },
    "PROCESSES": {"globalPid": INT, "pid": INT, "name": TEXT},
    "MPI_RANKS": {"globalTid": INT, "rank": INT},
    "TARGET_INFO_SESSION_START_TIME": {"utcEpochNs": INT},
    "TARGET_INFO_SYSTEM_ENV": {"globalVid": INT, "name": TEXT, "value": TEXT},
    "TARGET_INFO_GPU": {
        "vmId": INT, "id": INT, "name": TEXT, "smCount": INT, "busLocation": TEXT, "cuDevice": INT,
    },
    "TARGET_INFO_CUDA_DEVICE": {"gpuId": INT, "cudaId": INT, "pid": INT, "numMultiprocessors": INT},
    "META_DATA_CAPTURE": {"name": TEXT, "value": TEXT},
    "META_DATA_EXPORT": {"name": TEXT, "value": TEXT},
    "EXPORT_META_DATA": {"name": TEXT, "value": TEXT},
    "DIAGNOSTIC_EVENT": {"timestamp": INT, "severity": INT, "text": TEXT},
    "GPU_METRICS": {"timestamp": INT, "typeId": INT, "metricId": INT, "value": REAL},
    "TARGET_INFO_GPU_METRICS": {"typeId": INT, "metricId": INT, "metricName": TEXT},
    "GENERIC_EVENTS": {"timestamp": INT, "typeId": INT, "data": TEXT},
    "NET_NIC_METRIC": {
        **_SPAN, "globalId": INT, "portId": INT, "metricsListId": INT, "metricsIdx": INT,
        "value": REAL,
    },
    "NET_IB_SWITCH_METRIC": {
        **_SPAN, "globalId": INT, "portId": INT, "metricsListId": INT, "metricsIdx": INT,
        "value": REAL,
    },
    "TARGET_INFO_NETWORK_METRICS": {
        "metricsListId": INT, "metricsIdx": INT, "name": TEXT, "unit": TEXT,
    },
    "NIC_ID_MAP": {"nicId": INT, "globalId": INT},
    "ENUM_NET_LINK_TYPE": {"id": INT, "name": TEXT, "label": TEXT},
    "TARGET_INFO_NIC_INFO": {"GUID": INT, "nicId": INT, "name": TEXT, "linkLayer": INT},
}  # fmt: skip
"""By name; a column that an export lacks is null, one that is not here is not read."""

EVENT_SPACE = {
    t: k for k, t in enumerate(
        (KERNEL, MEMCPY, MEMSET, GRAPH, SYNC, RUNTIME, NVTX, OVERHEAD, "NCCL_GPU_OPERATIONS")
    )
}  # fmt: skip
"""Number of a table within the event ids of a rank: rows of two tables never share one."""

ROW_BITS = 30

_QUIET = ("ENUM_", "TARGET_INFO_", "META_DATA_", "sqlite_", "NVTX_PAYLOAD_")


def is_bookkeeping(table: str) -> bool:
    """Whether a table that is not read says nothing of what the job did."""
    return table.startswith(_QUIET) or table in (
        "ANALYSIS_FILE", "ANALYSIS_DETAILS", "ProcessStreams", "ThreadNames", "UnwindMethodType",
        "EXPORT_META_DATA",
    )  # fmt: skip
