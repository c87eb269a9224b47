"""Sampled metrics: of GPUs, network adapters and switches, to `counters` and `transfers`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ..schema import TABLES as SCHEMAS
from .tables import Report
from .times import LATEST_NS, Clock, spans
from .who import Job

NIC, SWITCH = "NET_NIC_METRIC", "NET_IB_SWITCH_METRIC"
LINK_TYPES = "ENUM_NET_LINK_TYPE"
TABLES = ("GPU_METRICS", "GENERIC_EVENTS", NIC, SWITCH)

BYTES_A_UNIT = {
    # bytes in a sample: value times this, or times this and the sample's ns
    "bytes": (1.0, False), "b": (1.0, False),
    "bytes/ms": (1e-6, True), "bytes/s": (1e-9, True), "bytes/us": (1e-3, True),
    "bytes/ns": (1.0, True),
}  # fmt: skip
VIA = {"infiniband": "NET/IB", "ethernet": "NET/Ethernet"}

Out = tuple[str, pa.RecordBatch]


def rows(report: Report, clock: Clock, job: Job) -> Iterator[Out]:
    """Rows of `counters`, `transfers` and `topology`."""
    yield from _topology(report, job)
    yield from _gpu(report, clock, job)
    yield from _generic(report, clock, job)
    for table in (NIC, SWITCH):
        yield from _network(report, clock, job, table)


def _topology(report: Report, job: Job) -> Iterator[Out]:
    gpus = report.small("TARGET_INFO_GPU").to_pylist()
    nics = report.small("TARGET_INFO_NIC_INFO").to_pylist()
    owner = _owners(job)
    made = [
        {"device": f"gpu{g['id']}", "kind": "gpu", "rank": owner.get(g["id"]), "via": "PCIe"}
        for g in gpus
        if g["id"] is not None
    ]
    via = _link_types(report)
    made += [
        {"device": n["name"], "kind": "nic", "rank": None, "via": via.get(n["linkLayer"])}
        for n in nics
        if n["name"]
    ]
    if made:
        columns = {k: [m[k] for m in made] for k in made[0]}
        columns |= {"host": [job.host] * len(made), "source": ["nsys"] * len(made)}
        yield "topology", SCHEMAS["topology"].batch(columns)


def _link_types(report: Report) -> dict[int, str]:
    """`via` by the number of a link type: each report brings its numbers in a table."""
    out = {}
    for row in report.small(LINK_TYPES).to_pylist():
        words = f"{row['name']} {row['label']}".lower()
        found = [via for word, via in VIA.items() if word in words]
        if row["id"] is not None and len(found) == 1:
            out[row["id"]] = found[0]
    return out


def _owners(job: Job) -> dict[int, int]:
    """Rank by the report's number of a GPU, where one process alone uses it."""
    seen: dict[int, list[int]] = {}
    for p in job.processes:
        if p.gpu_id is not None and p.rank is not None:
            seen.setdefault(p.gpu_id, []).append(p.rank)
    return {gpu: ranks[0] for gpu, ranks in seen.items() if len(ranks) == 1}


def _times(column: pa.ChunkedArray, clock: Clock) -> tuple[np.ndarray, np.ndarray]:
    """(times, usable)."""
    t = column.fill_null(-1).to_numpy()
    good = (t >= 0) & (t < LATEST_NS - clock.offset_ns)
    return np.where(good, t, 0) + clock.offset_ns, good


def _left_out(report: Report, table: str, n: int) -> None:
    if n:
        report.odd(
            "row_without_time", f"rows of {table} without a usable time or value: left out",
            "lost", count=n,
        )  # fmt: skip


def _gpu(report: Report, clock: Clock, job: Job) -> Iterator[Out]:
    names = {
        (r["typeId"], r["metricId"]): r["metricName"]
        for r in report.small("TARGET_INFO_GPU_METRICS").to_pylist()
    }
    owner = _owners(job)
    for batch in report.batches("GPU_METRICS"):
        time, good = _times(batch["timestamp"], clock)
        good &= batch["value"].is_valid().to_numpy()
        _left_out(report, "GPU_METRICS", int((~good).sum()))
        at = np.flatnonzero(good)
        kind = batch["typeId"].fill_null(0).to_numpy()[at]
        metric = batch["metricId"].fill_null(-1).to_numpy()[at]
        pairs, code = np.unique(np.stack([kind, metric], 1), axis=0, return_inverse=True)
        words = [names.get((k, m)) or f"gpu metric {m}" for k, m in pairs.tolist()]
        gpu = kind & 0xFF
        yield "counters", _counters(
            job.host, time[at], batch["value"].take(pa.array(at)), _coded(code.ravel(), words),
            [f"gpu{k & 0xFF}" for k, _ in pairs.tolist()], code.ravel(),
            [owner.get(int(g)) for g in range(256)], gpu,
        )  # fmt: skip


def _counters(host, time, value, name, devices, code, rank_of_gpu, gpu) -> pa.RecordBatch:
    n = len(time)
    ranks = np.array([-1 if r is None else r for r in rank_of_gpu], np.int64)
    rank = ranks[gpu] if gpu is not None else np.full(n, -1)
    order = np.argsort(time, kind="stable")
    device = _coded(code, devices)
    value = value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
    take = pa.array(order)
    return SCHEMAS["counters"].batch(
        {
            "rank": pa.array(rank[order].astype(np.int32), mask=rank[order] < 0),
            "host": _all(host, n),
            "device": device.take(take),
            "name": name.take(take),
            "time_ns": pa.array(time[order]),
            "value": value.take(take),
        }
    )


def _coded(code: np.ndarray, words: list[str]) -> pa.DictionaryArray:
    plain = pa.array([words[c] for c in code.tolist()], pa.string())
    return plain.dictionary_encode()


def _all(word: str | None, n: int) -> pa.DictionaryArray:
    return pa.array([word], pa.string()).take(pa.array(np.zeros(n, np.int64))).dictionary_encode()


def _generic(report: Report, clock: Clock, job: Job) -> Iterator[Out]:
    """Metrics of older exports: one JSON object of names and values a sample."""
    bad = 0
    for batch in report.batches("GENERIC_EVENTS"):
        time, good = _times(batch["timestamp"], clock)
        times: list[int] = []
        values: list[float] = []
        words: list[str] = []
        devices: list[str] = []
        kinds = batch["typeId"].fill_null(0).to_pylist()
        for i, text in enumerate(batch["data"].to_pylist()):
            found = _numbers(text) if good[i] else {}
            bad += not found
            for name, value in found.items():
                times.append(int(time[i]))
                values.append(value)
                words.append(name)
                devices.append(f"source {kinds[i] & 0xFF}")
        if times:
            yield "counters", _counters(
                job.host, np.array(times), pa.array(values, pa.float64()),
                pa.array(words).dictionary_encode(), devices, np.arange(len(times)), [None], None,
            )  # fmt: skip
    if bad:
        report.odd(
            "generic_event",
            "rows of GENERIC_EVENTS without any number: left out",
            "info",
            count=bad,
        )


def _numbers(text: str | None) -> dict[str, float]:
    if not text or len(text) > 65536:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    out: dict[str, float] = {}
    for name, value in found.items() if isinstance(found, dict) else ():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except (ValueError, OverflowError):
                continue
            if np.isfinite(number):
                out[name.encode("utf-8", "replace").decode()[:200]] = number
    return out


def _network(report: Report, clock: Clock, job: Job, table: str) -> Iterator[Out]:
    """Samples of adapters or switch ports; those that count bytes are `transfers` as well."""
    if not report.has(table):
        return
    metrics = {
        (r["metricsListId"], r["metricsIdx"]): (r["name"], (r["unit"] or "").strip().lower())
        for r in report.small("TARGET_INFO_NETWORK_METRICS").to_pylist()
    }
    nic_names = {r["nicId"]: r["name"] for r in report.small("TARGET_INFO_NIC_INFO").to_pylist()}
    nics = {
        r["globalId"]: nic_names.get(r["nicId"]) for r in report.small("NIC_ID_MAP").to_pylist()
    }
    n_before = 0
    for batch in report.batches(table):
        row, start, end = spans(batch, clock, report, table, n_before)
        n_before += batch.num_rows
        kept = batch.take(pa.array(row))
        good = kept["value"].is_valid().to_numpy()
        _left_out(report, table, int((~good).sum()))
        at = np.flatnonzero(good)
        start, end, kept = start[at], end[at], kept.take(pa.array(at))
        keys = np.stack(
            [kept[c].fill_null(-1).to_numpy()
             for c in ("globalId", "portId", "metricsListId", "metricsIdx")], 1,
        )  # fmt: skip
        known, code = np.unique(keys, axis=0, return_inverse=True)
        code = code.ravel()
        words, devices, units = [], [], []
        for g, port, listed, index in known.tolist():
            name, unit = metrics.get((listed, index), (None, ""))
            words.append(name or f"network metric {listed}/{index}")
            units.append(unit)
            if table == SWITCH:
                devices.append(f"switch {g & (2**64 - 1):#x} port {port}")
            else:
                nic = nics.get(g) or f"nic {g}"
                devices.append(nic if port <= 1 else f"{nic} port {port}")
        yield "counters", _counters(
            job.host if table == NIC else None, start, kept["value"], _coded(code, words),
            devices, code, [None], None,
        )  # fmt: skip
        yield from _transfers(
            start, end, kept["value"].to_numpy(), code, words, units, devices,
            job.host if table == NIC else None, clock,
        )  # fmt: skip


def _transfers(start, end, value, code, words, units, devices, host, clock: Clock) -> Iterator[Out]:
    way = ["send" if w.lower().endswith("sent") else "recv" if w.lower().endswith("received")
           else None for w in words]  # fmt: skip
    via = ["NET/Ethernet" if w.lower().startswith("eth") else "NET/IB" for w in words]
    counted = np.array(
        [u in BYTES_A_UNIT and d is not None for u, d in zip(units, way, strict=True)] or [False]
    )
    at = np.flatnonzero(counted[code]) if len(code) else np.empty(0, np.int64)
    if not len(at):
        return
    code, start, end, value = code[at], start[at], end[at], value[at]
    factor = np.array([BYTES_A_UNIT.get(u, (0.0, False))[0] for u in units])
    timed = np.array([BYTES_A_UNIT.get(u, (0.0, False))[1] for u in units])
    n_bytes = value * factor[code] * np.where(timed[code], end - start, 1)
    fits = (n_bytes >= 0) & (n_bytes < 2.0**62)
    order = np.argsort(start, kind="stable")
    take = pa.array(order)
    n = len(at)
    yield (
        "transfers",
        SCHEMAS["transfers"].batch(
            {
                "host": _all(host, n),
                "nic": _coded(code, devices).take(take),
                "bytes": pa.array(
                    np.where(fits, np.rint(n_bytes), 0).astype(np.int64)[order], mask=~fits[order]
                ),
                "start_ns": pa.array(start[order]),
                "end_ns": pa.array(end[order]),
                "direction": _coded(code, [w or "" for w in way]).take(take),
                "measured": pa.array(np.ones(n, bool)),
                "via": _coded(code, via).take(take),
                "clock": _all(clock.word, n),
                "source": _all("nsys", n),
            }
        ),
    )
