"""Reports for tests: real ones as other carriers, and made-up ones with chosen rows."""

import sqlite3
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from retime.ingest.bundles import bundled
from retime.ingest.nsys import report
from retime.ingest.sources import find_sources

VM = 1 << 48
HASH = 0xDEADBEEF12345678

TABLES = {
    "StringIds": "id INTEGER, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER,"
    " shortName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER,"
    " blockY INTEGER, blockZ INTEGER, graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER, end INTEGER, deviceId INTEGER,"
    " contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,"
    " graphId INTEGER, graphExecId INTEGER",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "timestamp INTEGER, deviceId INTEGER, contextId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, eventId INTEGER,"
    " eventSyncId INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start INTEGER, end INTEGER, deviceId INTEGER,"
    " contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,"
    " syncType INTEGER, eventId INTEGER, eventSyncId INTEGER",
    "GENERIC_EVENTS": "rawTimestamp INTEGER, timestamp INTEGER, typeId INTEGER, data TEXT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, eventClass INTEGER,"
    " globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,"
    " textId INTEGER, domainId INTEGER, jsonText TEXT, binaryData TEXT",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId INTEGER, schemaId INTEGER, idx INTEGER,"
    " flags INTEGER, type INTEGER, name TEXT, offset INTEGER",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT",
    "TARGET_INFO_SYSTEM_ENV": "globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER,"
    " value TEXT",
    "TARGET_INFO_GPU": "vmId INTEGER, id INTEGER, name TEXT, busLocation TEXT, smCount INTEGER,"
    " cuDevice INTEGER",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT,"
    " numMultiprocessors INTEGER",
    "META_DATA_CAPTURE": "name TEXT, value TEXT",
    "MPI_RANKS": "globalTid INTEGER, rank INTEGER",
    "DIAGNOSTIC_EVENT": "timestamp INTEGER, timestampType INTEGER, source INTEGER,"
    " severity INTEGER, text TEXT, globalPid INTEGER",
    "GPU_METRICS": "rawTimestamp INTEGER, timestamp INTEGER, typeId INTEGER, metricId INTEGER,"
    " value INTEGER",
    "TARGET_INFO_GPU_METRICS": "typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER,"
    " metricName TEXT",
    "NET_NIC_METRIC": "start INTEGER, end INTEGER, globalId INTEGER, portId INTEGER,"
    " metricsListId INTEGER, metricsIdx INTEGER, value INTEGER",
    "NET_IB_SWITCH_METRIC": "start INTEGER, end INTEGER, globalId INTEGER, portId INTEGER,"
    " metricsListId INTEGER, metricsIdx INTEGER, value INTEGER",
    "TARGET_INFO_NETWORK_METRICS": "metricsListId INTEGER, metricsIdx INTEGER, name TEXT,"
    " description TEXT, unit TEXT",
    "NIC_ID_MAP": "nicId INTEGER, globalId INTEGER",
    "TARGET_INFO_NIC_INFO": "GUID INTEGER, stateName TEXT, nicId INTEGER, name TEXT,"
    " deviceId INTEGER, vendorId INTEGER, linkLayer INTEGER",
    "ENUM_NET_LINK_TYPE": "id INTEGER, name TEXT, label TEXT",
    "NCCL_GPU_OPERATIONS": "text TEXT, start INTEGER, end INTEGER, commHash INTEGER,"
    " commRank INTEGER, count INTEGER, dataType TEXT, operationClass TEXT, operationId INTEGER,"
    " pid INTEGER",
}
"""Columns as the exporter documents them, of the tables that tests fill."""

# Schema ids and offsets as NCCL 2.25 registers them and an export of it shows them.
SCHEMA_ENTRIES = [
    (1, 16777218, 0, None, 18, "NCCL communicator ID", None),
    (1, 16777218, 1, None, 5, "No. of ranks", 8),
    (1, 16777218, 2, None, 5, "Rank", 12),
    (1, 16777218, 3, None, 5, "CUDA device", 16),
    (1, 16777223, 0, None, 18, "NCCL communicator ID", None),
    (1, 16777223, 1, None, 22, "Message size [bytes]", 8),
    (1, 16777223, 2, None, 16777232, "Reduction operation", 16),
    (1, 16777220, 0, None, 18, "NCCL communicator ID", None),
    (1, 16777220, 1, None, 22, "Message size [bytes]", 8),
    (1, 16777225, 0, None, 18, "NCCL communicator ID", None),
    (1, 16777225, 1, None, 22, "Message size [bytes]", 8),
    (1, 16777225, 2, None, 5, "Peer rank", 16),
    (1, 16777222, 0, None, 18, "NCCL communicator ID", None),
    (1, 16777222, 1, None, 22, "Message size [bytes]", 8),
    (1, 16777222, 2, None, 5, "Root", 16),
]
INIT, ALL_REDUCE, ALL_GATHER, P2P, ROOTED = 16777218, 16777223, 16777220, 16777225, 16777222


def blob(schema, payload):
    """A payload behind the exporter's header: domain, schema, size, total size."""
    return struct.pack("<QQQQ", 1, schema, len(payload), 32 + len(payload)) + payload


def gid(pid, tid=0):
    return VM | pid << 24 | tid


def make(path, **tables):
    """A SQLite report with these rows (tuples of leading columns, or dicts) by table."""
    db = sqlite3.connect(path)
    for table, rows in tables.items():
        columns = TABLES[table]
        db.execute(f"CREATE TABLE {table} ({columns})")
        names = [c.split()[0] for c in columns.split(",")]
        for row in rows:
            values = dict(zip(names, row, strict=False)) if isinstance(row, tuple) else row
            marks = ",".join("?" * len(values))
            db.execute(
                f"INSERT INTO {table} ({','.join(values)}) VALUES ({marks})", list(values.values())
            )
    db.commit()
    db.close()
    return path


def source(*paths):
    """The source that the paths make, found as an ingest finds it; a folder's before others."""
    found = bundled(find_sources([str(p) for p in paths], lambda n, p: None))
    whole = [s for s, format in found if format is not None] or [s for s, _ in found]
    assert len(whole) == 1
    return whole[0]


def read(*paths, rank=None, parser=report):
    """All rows by table of the one source that the paths make."""
    return rows_of(parser.parse(source(*paths), rank=rank))


def rows_of(batches):
    out = {}
    for table, batch in batches:
        out.setdefault(table, []).extend(batch.to_pylist())
    return out


def problems(out):
    return {p["code"]: p for p in out.get("problems", [])}


def tables_of(path):
    """Every real table of a SQLite report as Arrow, read by sqlite3 row by row."""
    db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    db.text_factory = lambda raw: raw.decode("utf-8", "replace")
    out = {}
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [r[1] for r in db.execute(f'PRAGMA table_info("{name}")')]
        rows = db.execute(f'SELECT * FROM "{name}"').fetchall()
        if rows:
            by_column = list(zip(*rows, strict=True))
            out[name] = pa.table({c: pa.array(v) for c, v in zip(columns, by_column, strict=True)})
    db.close()
    return out


def as_folder(path, folder, kind):
    """The same report as a parquetdir, or as an arrowdir of the file or the stream format."""
    folder = Path(folder)
    folder.mkdir()
    for name, table in tables_of(path).items():
        if kind == "parquet":
            pq.write_table(table, folder / f"{name}.parquet")
        elif kind == "arrow":
            with pa.ipc.new_file(str(folder / f"{name}.arrow"), table.schema) as f:
                f.write_table(table, max_chunksize=5000)
        else:
            with pa.ipc.new_stream(str(folder / f"{name}.arrows"), table.schema) as f:
                f.write_table(table, max_chunksize=5000)
    return folder
