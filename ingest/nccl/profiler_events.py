"""One file of the profiler plugin: its nested events to collectives and transfers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..classify import Dtype, dtype_of, op_of_collective_name
from ..schema import MAX_RANK, event_id
from ..values import integer
from .comm_places import Places, buffers, comm_of_hash
from .profiler_kernels import kernel_time
from .profiler_lines import events, time_ns
from .profiler_transfers import Transfers
from .values import algo_name, proto_name

if TYPE_CHECKING:
    import pyarrow as pa

    from ..collect import Collector
    from ..sources import Source

SOURCE = "profiler"
_I64_MAX = (1 << 63) - 1
_NET = ("PROXY", "NET", "NET_IB", "NET_SOCK")
_STRUCTURE = ("GROUP", "GROUP_API", "KERNEL_LAUNCH")
_MAX_OPEN = 4096


@dataclass
class Own:
    """What the files of a rank say about it."""

    host: str | None = None
    pid: int | None = None
    start: int | None = None
    end: int | None = None
    rows: int = 0

    def widen(self, start: int | None, end: int | None) -> None:
        """Takes a stretch of time into the rank's window."""
        for t in (start, end):
            if t is not None:
                self.start = t if self.start is None else min(self.start, t)
                self.end = t if self.end is None else max(self.end, t)


@dataclass
class Operation:
    """A collective or point-to-point operation, while its children are read."""

    row: dict[str, Any]
    rank: int
    comm: str
    place: int
    event: int | None
    key: tuple[str, Any]
    begin: int | None
    kernels: list[tuple[int | None, int | None, int, int]] = field(default_factory=list)
    proxy_start: int | None = None
    proxy_end: int | None = None


class FileEvents:
    """Reads one file in order; children come between the two events of their parent."""

    def __init__(
        self,
        collector: Collector,
        places: Places,
        own_places: set[tuple[int, int]],
        spans: dict[int, Own],
        sizes: dict[int, int],
    ):
        self._collector, self._places, self._spans, self._sizes = collector, places, spans, sizes
        self._own_places = own_places
        self._api: dict[str, Any] = {}
        self._stack: list[Operation] = []
        self._kernel: tuple[int | None, int, int] | None = None
        self._ce: dict[Any, tuple[dict, int | None]] = {}
        self._other: Counter[str] = Counter()
        self._ranks: set[int] = set()
        self._transfers = Transfers(collector, places, spans)
        self.n_events = 0

    def read(self, source: Source) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yields full batches now and then; what is left stays in the collector."""
        for offset, event in events(source, self._collector.odd):
            phase, cat, name = event.get("ph"), event.get("cat"), event.get("name")
            if phase not in ("b", "e") or not isinstance(cat, str) or not isinstance(name, str):
                self._odd("not_an_event", "an object that is no asynchronous event", offset)
                continue
            self.n_events += 1
            args = event.get("args")
            args = args if isinstance(args, dict) else {}
            self._event(phase == "b", cat, name, event, args, offset)
            if self.n_events % 4096 == 0:
                yield from self._collector.full()
        while self._stack:
            self._odd("unclosed_operation", "an operation without its end", None)
            self._close(self._stack.pop(), None)
        self._transfers.finish()
        for cat, n in self._other.items():
            self._collector.odd(
                f"not_read_{cat.lower()}"[:60],
                f"events of category {cat[:40]} have no place in the tables",
                "info",
                count=n,
            )

    def _event(
        self, begins: bool, cat: str, name: str, event: dict, args: dict, offset: int
    ) -> None:
        ts = time_ns(event.get("ts"))
        if cat in ("COLL", "P2P"):
            key = (cat, _key(event.get("id")))
            if begins:
                self._open(cat, name, key, args, ts, offset)
            else:
                self._end(key, ts, offset)
        elif cat in ("COLL_API", "P2P_API"):
            self._api = {**args, "ts": ts} if begins else {}
        elif cat in _NET:
            operation = self._stack[-1] if self._stack else None
            self._transfers.take(begins, cat, name, _key(event.get("id")), args, ts, operation,
                                 self._lone_rank(), offset)  # fmt: skip
        elif cat == "GPU" and name == "KernelCh":
            self._kernel_channel(begins, args, ts)
        elif cat == "CE_COLL":
            self._copy_engine(begins, name, _key(event.get("id")), args, ts, offset)
        elif cat not in _STRUCTURE and begins:
            self._other["KernelStep" if cat == "GPU" else cat] += 1

    def _lone_rank(self) -> tuple[str, int, int] | None:
        """(comm, place, global rank) of a file that is of one communicator."""
        if len(self._own_places) != 1:
            return None
        hash_, place = next(iter(self._own_places))
        comm = comm_of_hash(hash_)
        rank = self._places.rank_of(comm, place)
        return None if rank is None else (comm, place, rank)

    def _open(
        self, cat: str, name: str, key: tuple, args: dict, ts: int | None, offset: int
    ) -> None:
        hash_, place = args.get("CommHash"), integer(args.get("Rank"))
        if not isinstance(hash_, int) or not -(1 << 63) <= hash_ < 1 << 64 or place is None:
            self._lost("no_communicator", "an operation without a communicator or rank", offset)
            return
        comm = comm_of_hash(hash_)
        rank = self._places.rank_of(comm, place)
        if rank is None or not 0 <= rank <= MAX_RANK:
            self._lost(
                "rank_unknown",
                "several processes seem to share a process id, or one drives several devices: "
                "nobody knows the global rank of what is done in a smaller communicator (a host's "
                "name in NCCL_PROFILE_DUMP_FILE sets processes apart)",
                offset,
            )
            return
        if len(self._stack) >= _MAX_OPEN:
            self._lost("unclosed_operation", "too many operations without an end", offset)
            return
        op = op_of_collective_name(name[:64]) or "unknown"
        dtype = _dtype(args.get("Datatype"))
        size = self._sizes.get(hash_ & ((1 << 64) - 1))
        count = integer(args.get("Count"))
        one = None
        if dtype is not None and count is not None and 0 <= count <= _I64_MAX >> 28:
            one = count * dtype.itemsize
        sent, got = buffers(op, one, size)
        own = self._spans.setdefault(rank, Own())
        row = event_id(rank, SOURCE, own.rows)
        own.rows += 1
        root = integer(self._api.get("root"))
        rooted = op in ("broadcast", "reduce", "gather", "scatter") and cat == "COLL"
        peer_of = self._places.peer_of
        self._ranks.add(rank)
        self._stack.append(
            Operation(
                {
                    "comm": comm,
                    "seq": integer(args.get("SeqNum")) if cat == "COLL" else None,
                    "rank": rank,
                    "op": op,
                    "dtype": dtype.name if dtype is not None else None,
                    "in_bytes": sent,
                    "out_bytes": got,
                    "group_size": size,
                    "root": peer_of(comm, place, root) if rooted else None,
                    "peer": peer_of(comm, place, integer(args.get("Peer"))),
                    "algo": algo_name(_word(args.get("Algorithm"))),
                    "proto": proto_name(_word(args.get("Protocol"))),
                    "channels": integer(args.get("nChannels", args.get("nMaxChannels"))),
                    "event_id": row,
                    "enqueued_ns": self._api.get("ts") or ts,
                },
                rank, comm, place, row, key, ts,
            )
        )  # fmt: skip

    def _end(self, key: tuple, ts: int | None, offset: int) -> None:
        at = next((i for i in reversed(range(len(self._stack))) if self._stack[i].key == key), None)
        if at is None:
            self._odd("end_without_begin", "an operation's end without its begin", offset)
            return
        while len(self._stack) > at + 1:
            self._odd("unclosed_operation", "an operation without its end", offset)
            self._close(self._stack.pop(), None)
        self._close(self._stack.pop(), ts)

    def _close(self, operation: Operation, ts: int | None) -> None:
        """Adds the row; its time is the kernel's where known, else the proxy's, else the host's."""
        start, end, timing = kernel_time(operation.kernels)
        if start is None and operation.proxy_start is not None:
            start, end, timing = operation.proxy_start, operation.proxy_end, "proxy"
        if start is None:
            start, end, timing = operation.begin, ts, "host"
            if start is not None and end is not None:
                self._collector.odd(
                    "host_times_only",
                    "operations without events of the kernel or the proxy: their times are the "
                    "host's launch (NCCL_PROFILE_EVENT_MASK with 64 adds the kernel's)",
                    "info",
                    rank=operation.rank,
                )
        if start is not None and end is not None and end < start:
            self._odd("end_before_start", "an operation that ends before it starts", None)
            end = None
        timed = start is not None and end is not None
        if not timed:
            timing = None
        self._spans[operation.rank].widen(start, end)
        when = start if start is not None else operation.row["enqueued_ns"]
        self._collector.add(
            "collectives",
            start_ns=start,
            end_ns=end,
            timing=timing,
            state="completed" if timed else "started",
            clock="process" if when is not None else None,
            source=SOURCE,
            **operation.row,
        )

    def _kernel_channel(self, begins: bool, args: dict, ts: int | None) -> None:
        """A channel of a kernel; all have the same id, but never nest."""
        if not self._stack:
            self._other["GPU"] += begins
            return
        if begins:
            clocks = [integer(args.get(k)) for k in ("StartGpuClk", "StopGpuClk")]
            self._kernel = (ts, clocks[0] or 0, clocks[1] or 0)
        elif self._kernel is not None:
            self._stack[-1].kernels.append((self._kernel[0], ts, *self._kernel[1:]))
            self._kernel = None

    def _copy_engine(
        self, begins: bool, name: str, key: Any, args: dict, ts: int | None, offset: int
    ) -> None:
        """A collective by copy engines: it names no communicator, the file does."""
        if begins:
            if len(self._ce) < _MAX_OPEN:
                self._ce[key] = (args, ts)
            return
        whose = self._lone_rank()
        said, begin = self._ce.pop(key, ({}, None))
        if whose is None:
            self._lost("no_communicator", "an operation of copy engines in a file of several "
                       "communicators", offset)  # fmt: skip
            return
        comm, _, rank = whose
        own = self._spans.setdefault(rank, Own())
        dtype, count = _dtype(said.get("datatype")), integer(said.get("count"))
        micros = integer(said.get("duration_gpu_us"))
        op = op_of_collective_name(name[:64]) or "unknown"
        hash_ = next(iter(self._own_places))[0]
        one = None
        if dtype is not None and count is not None and 0 <= count <= _I64_MAX >> 28:
            one = count * dtype.itemsize
        sent, got = buffers(op, one, self._sizes.get(hash_))
        own.widen(begin, ts)
        timed = begin is not None and ts is not None and ts >= begin
        self._collector.add(
            "collectives",
            comm=comm,
            rank=rank,
            op=op,
            dtype=dtype.name if dtype is not None else None,
            in_bytes=sent,
            out_bytes=got,
            group_size=self._sizes.get(hash_),
            algo="copy_engine",
            start_ns=begin,
            end_ns=ts if timed else None,
            exec_ns=micros * 1000 if micros is not None and 0 <= micros < 1 << 50 else None,
            timing=("kernel" if micros is not None else "host") if timed else None,
            state="completed",
            clock="process" if begin is not None else None,
            event_id=event_id(rank, SOURCE, own.rows),
            source=SOURCE,
        )
        own.rows += 1

    def tell(self, host: str | None, pid: int | None) -> None:
        """Notes the host and process of the ranks that the file was of."""
        for rank in self._ranks:
            own = self._spans.setdefault(rank, Own())
            own.host, own.pid = own.host or host, own.pid if own.pid is not None else pid

    def _odd(self, code: str, message: str, offset: int | None) -> None:
        self._collector.odd(code, message, offset=offset)

    def _lost(self, code: str, message: str, offset: int) -> None:
        self._collector.odd(code, f"{message}; it is left out", "lost", offset=offset)


def _key(value: Any) -> Any:
    return value if isinstance(value, int | str) else None


def _word(value: Any) -> str | None:
    return value[:32] if isinstance(value, str) and value else None


def _dtype(value: Any) -> Dtype | None:
    """The element type of a name as ncclFloat32 or ncclFloat8e4m3."""
    if not isinstance(value, str):
        return None
    return dtype_of(value[:32].removeprefix("nccl").lower().replace("float8e", "float8_e"))
