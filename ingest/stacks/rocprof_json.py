"""rocprofv3 JSON (`rocprofiler-sdk-tool`), streamed: one process a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import UnusableInput
from ..kineto.rawbatch import NULL
from .jsonwalk import Opened, Path, walk
from .rocprof_rows import Records, rank_of
from .timeline import whole_number

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

TOP = "rocprofiler-sdk-tool"
_RANK_VARIABLES = (
    "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID",
)  # fmt: skip
_APIS = {"hip_api": "runtime", "rccl_api": "runtime", "marker_api": "annotation"}
_NOT_STORED = frozenset({
    "hsa_api", "memory_allocation", "scratch_memory", "kfd", "page_migration", "rocdecode_api",
    "rocjpeg_api", "hipfile_api", "rocshmem_api", "pc_sample_host_trap", "pc_sample_stochastic",
    "hip_graph", "ompt",
})  # fmt: skip
_FULL_EVERY = 16384
_MOST_NAMES = 1 << 20


def _opens(path: Path) -> bool:
    """Opens processes, and in them all but the records, which come whole."""
    if path[:1] != (TOP,):
        return False
    inside = path[2:] if path[1:2] == ("*",) else path[1:]
    return inside != ("metadata",) and len(inside) <= 2 and inside[-1:] != ("*",)


class _Process:
    """What was read of the process before its records, and the rows from then on."""

    def __init__(self, source: Source):
        self.source = source
        self.metadata: dict = {}
        self.agents: dict[int, dict] = {}
        self.kernels: dict[int, str] = {}
        self.markers: dict[int, str] = {}
        self.kinds: list[dict] = []
        self.records: Records | None = None
        self._devices: dict[int, int] = {}

    def note(self, inside: Path, value: Any) -> None:
        """Takes in a value from beside the records."""
        if inside == ("metadata",) and isinstance(value, dict):
            self.metadata = value
        elif not isinstance(value, dict):
            return
        elif inside == ("agents", "*"):
            handle = whole_number(_at(value, "id", "handle"))
            if len(self.agents) < 65536:
                self.agents[handle] = value
        elif inside == ("kernel_symbols", "*"):
            name = next(
                (t for k in ("formatted_kernel_name", "demangled_kernel_name", "kernel_name")
                 if isinstance(t := value.get(k), str) and t), None,
            )  # fmt: skip
            if name is not None and len(self.kernels) < _MOST_NAMES:
                self.kernels[whole_number(value.get("kernel_id"))] = name
        elif inside == ("strings", "buffer_records", "*"):
            if len(self.kinds) < 1024:
                self.kinds.append(value)
        elif inside == ("strings", "marker_api", "*") and len(self.markers) < _MOST_NAMES:
            text = value.get("value")
            if isinstance(text, str):
                self.markers[whole_number(value.get("key"))] = text

    def operation(self, record: dict) -> str | None:
        """The name of a record's operation, from the table of names."""
        kind, number = whole_number(record.get("kind")), whole_number(record.get("operation"))
        if not 0 <= kind < len(self.kinds):
            return None
        names = self.kinds[kind].get("operations")
        if isinstance(names, list) and 0 <= number < len(names) and isinstance(names[number], str):
            return names[number]
        return None

    def device_of(self, agent: object) -> int:
        """The index of a GPU among GPUs; NULL for an agent that is none or not listed."""
        if not self._devices:
            gpus = [(h, a) for h, a in self.agents.items() if a.get("type") in (2, "GPU")]
            for place, (handle, gpu) in enumerate(gpus):
                stated = whole_number(gpu.get("logical_node_type_id"))
                self._devices[handle] = place if stated == NULL else stated
        return self._devices.get(whole_number(_at(agent, "handle")), NULL)

    def of_rank(self, device: int | None) -> dict[str, object]:
        """Columns of `ranks` that the metadata gives."""
        gpus = [a for a in self.agents.values() if a.get("type") in (2, "GPU")]
        mine = next(
            (a for a in gpus if self.device_of(a.get("id")) == device), gpus[0] if gpus else {}
        )
        host = _at(self.metadata, "node", "hostname")
        host = host if isinstance(host, str) and host else None
        name = next(
            (t for k in ("product_name", "model_name", "name")
             if isinstance(t := mine.get(k), str) and t), None,
        )  # fmt: skip
        pid, cus = whole_number(self.metadata.get("pid")), whole_number(mine.get("cu_count"))
        return {
            "host": host,
            "host_source": "recorded" if host else "unknown",
            "pid": None if pid == NULL else pid,
            "device": device,
            "n_devices": len(gpus) or None,
            "device_name": name,
            "n_sms": None if cus == NULL else cus,
        }

    def rank_recorded(self) -> object:
        """A launcher's variable in the metadata, where the writer keeps the environment."""
        for key in ("environment", "env"):
            for place in (self.metadata, self.metadata.get("config")):
                variables = place.get(key) if isinstance(place, dict) else None
                if isinstance(variables, dict):
                    return next((variables[v] for v in _RANK_VARIABLES if v in variables), None)
        return None


def _at(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _dim3(value: object) -> tuple[int, int, int]:
    return tuple(whole_number(_at(value, k)) for k in "xyz")  # type: ignore[return-value]


def tables_of_json(source: Source, rank: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The tables of one JSON file; see `rocprof.parse`. Raises as that does."""
    process, n, found = _Process(source), 0, 0
    odd: list[tuple[tuple, dict]] = []

    def on_odd(*args: object, **more: object) -> None:
        odd.append((args, more))

    for path, value in walk(source, _opens, on_odd):
        if path[:1] != (TOP,):
            continue
        inside = path[2:] if path[1:2] == ("*",) else path[1:]
        if not inside:
            # An array of processes, or (in old releases) the one process itself.
            found += isinstance(value, Opened) and value.bracket == "{"
            continue
        if found > 1:
            continue
        if inside[0] != "buffer_records" or len(inside) < 3:
            if not isinstance(value, Opened):
                process.note(inside, value)
            continue
        if process.records is None:
            process.records = Records(
                source, rank_of(source, process.rank_recorded(), rank, on_odd)
            )
        _record(process, process.records, inside[1], value)
        n += 1
        if n % _FULL_EVERY == 0:
            yield from process.records.full()
    if not found:
        detail = f" ({odd[0][0][1]})" if odd else ""
        raise UnusableInput(f"no process of rocprofiler-sdk-tool in it{detail}", path=source.name)
    records = process.records or Records(
        source, rank_of(source, process.rank_recorded(), rank, on_odd)
    )
    for args, more in odd:
        records.c.odd(*args, **more)  # type: ignore[arg-type]
    if found > 1:
        records.c.odd(
            "more_processes",
            f"{found} processes in one file: the first is kept (let rocprofv3 write one file a "
            "process: -o %pid%)",
            "lost",
        )
    why = str(odd[0][0][1]) if odd else None
    yield from records.rest(why, **process.of_rank(records.time.main_device))


def _record(process: _Process, records: Records, group: str, record: object) -> None:
    """One record of `buffer_records` to a row."""
    if not isinstance(record, dict):
        records.c.odd("not_a_record", "a record that is not an object; left out", "lost")
        return
    if group in _NOT_STORED:
        records.c.odd(f"{group}_not_stored", f"records of {group}: no table has room", "info")
        return
    start = whole_number(record.get("start_timestamp"))
    end = whole_number(record.get("end_timestamp"))
    thread = whole_number(record.get("thread_id"))
    correlation = whole_number(_at(record, "correlation_id", "internal"))
    stream = whole_number(_at(record, "stream_id", "handle"))
    if group == "kernel_dispatch":
        info = record.get("dispatch_info")
        kernel = whole_number(_at(info, "kernel_id"))
        name = process.kernels.get(kernel)
        if name is None:
            records.c.odd("kernel_unnamed", "a kernel whose name is not in kernel_symbols")
            name = f"kernel {kernel}" if kernel != NULL else "kernel"
        records.kernel(
            name, start, end, thread=thread, correlation=correlation,
            stream=_stream(stream, whole_number(_at(info, "queue_id", "handle"))),
            device=process.device_of(_at(info, "agent_id")),
            grid=_dim3(_at(info, "grid_size")), group=_dim3(_at(info, "workgroup_size")),
        )  # fmt: skip
    elif group == "memory_copy":
        to, by = (process.device_of(record.get(k)) for k in ("dst_agent_id", "src_agent_id"))
        records.copy(
            process.operation(record) or "", start, end, correlation=correlation, stream=stream,
            device=to if to != NULL else by, n_bytes=whole_number(record.get("bytes")),
        )  # fmt: skip
    elif group in _APIS:
        name = process.operation(record)
        if group == "marker_api":
            name = process.markers.get(correlation) or name
        if name is None:
            records.c.odd("call_unnamed", "a call whose name is not in the table of operations")
            name = group
        records.host(_APIS[group], name, start, end, thread=thread, correlation=correlation)
    else:
        records.c.odd("records_unknown", "records of a kind that is not known; left out", "lost")


def _stream(stream: int, queue: int) -> int:
    """The HIP stream where it is recorded, else the hardware queue."""
    return queue if stream == NULL else stream
