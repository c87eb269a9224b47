"""What nccl-tests and rccl-tests write to files: one JSON document, JSON lines, or CSV."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..texts import lines, whole
from ..values import scaled
from .nccl_tests_run import Half, Run, add_cost, op_of_program, version_of_code

if TYPE_CHECKING:
    from ..collect import Collector
    from ..sources import Source

_MAX_DOCUMENT = 64 << 20
_MAX_TEXT = 200


def nccl_document(source: Source, collector: Collector) -> int:
    """The halves of rows that a document of nccl-tests (`-J`) gives.

    A document whose end is missing (the run crashed) gives the rows that are whole.
    """
    text = whole(source, collector.odd, _MAX_DOCUMENT).decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = _opened(text, collector)
    if not isinstance(document, dict):
        return 0
    run = _run_of(document)
    results = document.get("results")
    n = 0
    for row in results if isinstance(results, list) else []:
        n += _result(row, run, collector)
    if run.op is None:
        collector.odd(
            "op_unknown",
            "neither the command nor the rows name the operation; the rows have op unknown",
        )
    return n


def _opened(text: str, collector: Collector) -> dict[str, Any]:
    """What can be read of a document that is not whole: its head's members and its rows."""
    collector.odd(
        "truncated",
        "the JSON document is cut or broken (the run crashed, say); whole rows are kept",
        "lost",
        offset=len(text),
    )
    decoder = json.JSONDecoder()
    found: dict[str, Any] = {"results": []}
    for key in ("args", "env", "nccl_version", "config"):
        at = text.find(f'"{key}":')
        if at >= 0:
            try:
                found[key] = decoder.raw_decode(text, at + len(key) + 3)[0]
            except (ValueError, RecursionError):
                continue
    at = text.find('"results":[')
    while at >= 0:
        at = text.find('{"size":', at)
        if at < 0:
            break
        try:
            row, at = decoder.raw_decode(text, at)
            found["results"].append(row)
        except (ValueError, RecursionError):
            at += 1
    return found


def _run_of(document: dict[str, Any]) -> Run:
    run = Run(0)
    args = document.get("args")
    if isinstance(args, list) and args and isinstance(args[0], str):
        run.op = op_of_program(args[0][:4096])
    env = document.get("env")
    for entry in env if isinstance(env, list) else []:
        if isinstance(entry, str) and entry.startswith(("NCCL_ALGO=", "NCCL_PROTO=")):
            key, _, value = entry[5:_MAX_TEXT].partition("=")
            run.settings[key.lower()] = value
    version = document.get("nccl_version")
    if isinstance(version, int) and 0 < version < 10_000_000:
        run.library = f"nccl {version_of_code(version)}"
    config = document.get("config")
    devices = config.get("devices") if isinstance(config, dict) else None
    for device in devices if isinstance(devices, list) else []:
        if isinstance(device, dict) and isinstance(rank := device.get("rank"), int):
            group = device.get("group")
            host, model = device.get("hostname"), device.get("device_info")
            run.add_rank(
                rank,
                group if isinstance(group, int) else 0,
                host[:_MAX_TEXT] if isinstance(host, str) else "",
                model[:_MAX_TEXT] if isinstance(model, str) else "",
            )
    run.hosts.discard("")
    if run.groups and isinstance(config, dict):
        # A process of several threads or GPUs writes only its first one to the document.
        each = [config.get("nthreads"), config.get("ngpus")]
        if all(isinstance(n, int) and 0 < n < 1000 for n in each):
            run.n_ranks = max(len(g) for g in run.groups.values()) * each[0] * each[1]  # type: ignore[operator]
            if len(run.groups[min(run.groups)]) == run.n_ranks:
                run.n_ranks = None
    return run


def _result(row: Any, run: Run, collector: Collector) -> int:
    if not isinstance(row, dict):
        collector.odd("not_a_row", "an entry of the results is no object; it is left out", "lost")
        return 0
    size, count = scaled(row.get("size"), 0), scaled(row.get("count"), 0)
    if size is None or size < 0:
        collector.odd("not_a_row", "a result without a size; it is left out", "lost")
        return 0
    if run.op is None and isinstance(name := row.get("experiment_name"), str):
        run.op = op_of_program(name[:_MAX_TEXT])
    n = 0
    for key, in_place in (("out_of_place", False), ("in_place", True)):
        half = row.get(key)
        if not isinstance(half, dict):
            continue
        cells = {
            "time": half.get("time", half.get("cpu_time")),
            "algbw": half.get("alg_bw"),
            "busbw": half.get("bus_bw"),
            "wrong": half.get("nwrong"),
        }
        add_cost(
            collector,
            run,
            Half(0, size, count or 0, _text(row.get("type")), _text(row.get("redop")) or None,
                 scaled(row.get("root"), 0), in_place, cells),
            run.op or "unknown",
            "0",
        )  # fmt: skip
        n += 1
    return n


def rccl_lines(source: Source, collector: Collector) -> int:
    """The rows of what rccl-tests write with `-Z json -x FILE`: an object a line, a half each.

    Newer ones put the lines into an array, with commas between them.
    """
    n = 0
    for offset, line, whole_line in lines(source, collector.odd, 1 << 20):
        line = line.strip().removesuffix(b",")
        if line in (b"", b"[", b"]"):
            continue
        try:
            row = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            what = "a line that is no JSON object" if whole_line else "the last line is cut"
            collector.odd("not_a_row", f"{what}; it is left out", "lost", offset=offset)
            continue
        n += _rccl_row(row, offset, collector)
    return n


def rccl_csv(source: Source, collector: Collector) -> int:
    """The rows of what rccl-tests write with `-Z csv -x FILE`."""
    columns: list[str] = []
    n = 0
    for offset, line, _ in lines(source, collector.odd, 1 << 20):
        cells = [c.strip(' "') for c in line[:4096].decode("utf-8", "replace").split(",")]
        if not columns:
            columns = [_CSV.get(c.lower(), c) for c in cells]
            continue
        if len(cells) == len(columns) + 1 and "ranks" in columns and "nodes" not in columns:
            # The writer gives the number of nodes but leaves it out of its heading.
            columns.insert(columns.index("ranks"), "nodes")
        if len(cells) != len(columns):
            if line.strip():
                collector.odd(
                    "not_a_row",
                    f"a line of {len(cells)} fields where the heading has {len(columns)}; "
                    "it is left out",
                    "lost",
                    offset=offset,
                )
            continue
        n += _rccl_row(dict(zip(columns, cells, strict=True)), offset, collector)
    return n


_CSV = {"collective": "name", "rankspernode": "ranksPerNode", "gpusperrank": "gpusPerRank",
        "inplace": "inPlace", "algbw": "algBw", "busbw": "busBw", "#wrong": "wrong"}  # fmt: skip


def _rccl_row(row: dict[str, Any], offset: int, collector: Collector) -> int:
    size, in_place = scaled(row.get("size"), 0), scaled(row.get("inPlace"), 0)
    if size is None or size < 0 or in_place not in (0, 1):
        collector.odd(
            "not_a_row", "a row without a size or inPlace; it is left out", "lost", offset=offset
        )
        return 0
    run = Run(offset)
    run.tool = "rccl-tests"
    run.op = op_of_program(_text(row.get("name")))
    processes, gpus = scaled(row.get("ranks"), 0), scaled(row.get("gpusPerRank"), 0)
    run.n_ranks = scaled(row.get("gpus"), 0)
    if processes is not None and gpus is not None:
        run.n_ranks = processes * gpus
    nodes = scaled(row.get("nodes"), 0)
    run.hosts = (
        {str(i) for i in range(nodes)} if nodes is not None and 0 < nodes < 100_000 else set()
    )
    for key in ("algo", "proto"):
        if isinstance(row.get(key), str):
            run.settings[key] = row[key][:_MAX_TEXT]
    run.channels = scaled(row.get("nChannels", row.get("channels")), 0)
    if run.op in ("reduce_scatter", "scatter") and run.n_ranks:
        size = _whole_size(size, run.n_ranks, row, offset, collector)
    cells = {"time": row.get("time"), "algbw": row.get("algBw"), "busbw": row.get("busBw"),
             "wrong": row.get("wrong")}  # fmt: skip
    if run.op is None:
        collector.odd("op_unknown", "a row that names no operation we know", offset=offset)
    add_cost(
        collector,
        run,
        Half(offset, size, 0, _text(row.get("type")), _text(row.get("redop")) or None, None,
             bool(in_place), cells),
        run.op or "unknown",
        _text(row.get("numCycle"))[:20] or "0",
    )  # fmt: skip
    return 1


def _whole_size(
    size: int, n_ranks: int, row: dict[str, Any], offset: int, collector: Collector
) -> int:
    """rccl-tests write what a rank receives; algbw times time tells whether that is all."""
    time_ns, speed = scaled(row.get("time"), 3), scaled(row.get("algBw"), 9)
    if not time_ns or not speed:
        return size
    moved = time_ns * speed // 1_000_000_000
    if abs(moved - size * n_ranks) >= abs(moved - size):
        return size
    collector.odd(
        "size_of_a_part",
        "sizes are what one rank receives; bytes is that times the ranks, as in the tool's tables",
        "info",
        offset=offset,
    )
    return size * n_ranks


def _text(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
        return str(value)
    return value.strip()[:_MAX_TEXT] if isinstance(value, str) else ""
