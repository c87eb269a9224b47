"""One run of nccl-tests or rccl-tests: what its rows share, and a row of `cost_curves`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..classify import dtype_of, op_of_collective_name
from ..values import scaled
from .values import algo_name, proto_name

if TYPE_CHECKING:
    from ..collect import Collector

_GROUP = ["time", "algbw", "busbw", "wrong"]
_HEADINGS = {"time": "time", "cputime": "time", "algbw": "algbw", "busbw": "busbw",
             "error": "wrong", "#wrong": "wrong", "wrong": "wrong"}  # fmt: skip


class Half(NamedTuple):
    """The out-of-place or the in-place half of a row, as text."""

    offset: int
    size: int
    count: int
    dtype: str
    redop: str | None
    root: int | None
    in_place: bool
    cells: dict[str, Any]


class Row:
    """A row of a table, perhaps not yet all of it."""

    def __init__(
        self,
        offset: int,
        size: int,
        count: int,
        dtype: str,
        redop: str | None,
        root: int | None,
        group: list[str],
        cells: list[str],
        *,
        in_place: bool,
    ):
        self.offset, self.size, self.count, self.dtype = offset, size, count, dtype
        self.redop, self.root, self.group, self.cells = redop, root, group, cells
        self.in_place, self.done = in_place, False

    def takes(self, words: list[str]) -> bool:
        """Whether so many cells are missing that these can belong to the row."""
        left = (1 if self.in_place else 2) * len(self.group) - len(self.cells)
        return 0 < len(words) <= left + 2


class Run:
    """One table and what stands above it."""

    def __init__(self, offset: int):
        self.offset = offset
        self.op: str | None = None
        self.label: str | None = None
        self.tool = "nccl-tests"
        self.library: str | None = None
        self.settled = False
        self.columns: list[str] = []
        self.n_ranks: int | None = None
        self.channels: int | None = None
        self.settings: dict[str, str] = {}
        self.groups: dict[int, set[int]] = {}
        self.tuned: dict[tuple[str, int], set[tuple[str, str, int]]] = {}
        self.hosts: set[str] = set()
        self.devices: set[str] = set()
        self.rows: list[Half] = []
        self.cut: list[int] = []

    def add_rank(self, rank: int, group: int, host: str, device: str) -> None:
        """A `# Rank` line: a rank, its group, its host and the model of its device."""
        self.groups.setdefault(group, set()).add(rank)
        self.hosts.add(host)
        if device:
            self.devices.add(device)
        if "AMD" in device or "Instinct" in device:
            self.tool = "rccl-tests"

    def inherit(self, other: Run) -> None:
        """Takes over what stood above all tables of a file."""
        self.op, self.library, self.columns = other.op, other.library, other.columns
        self.groups, self.hosts, self.devices = other.groups, other.hosts, other.devices
        self.tool, self.settings = other.tool, dict(other.settings)

    @property
    def size_of_group(self) -> int | None:
        """Ranks of one communicator, where the run says: it may have split them into groups."""
        if self.n_ranks is not None:
            return self.n_ranks
        return max((len(g) for g in self.groups.values()), default=0) or None

    def tune(self, function: str, size: int, algo: str, proto: str, channels: int) -> None:
        """A line of the debug log with what the library chose for a size."""
        op = op_of_program(function)
        if op is not None and len(self.tuned) < 10_000:
            self.tuned.setdefault((op, size), set()).add((algo, proto, channels))

    def chosen(self, op: str, size: int) -> tuple[str | None, str | None, int | None]:
        """(algorithm, protocol, channels) of an operation, where the run or its log says."""
        said = self.tuned.get((op, size), set())
        algo, proto, channels = next(iter(said)) if len(said) == 1 else (None, None, None)
        return (
            algo_name(algo or self.settings.get("algo")),
            proto_name(proto or self.settings.get("proto")),
            channels or self.channels,
        )

    def group_columns(self) -> list[str]:
        """The columns of one half of a row, from the table's heading."""
        start = next((i for i, c in enumerate(self.columns) if c in ("time", "cputime")), None)
        if start is None:
            return _GROUP
        end = next((i for i in range(start + 1, len(self.columns))
                    if self.columns[i] in ("time", "cputime")), None)  # fmt: skip
        if end is None:
            return _GROUP
        group = [_HEADINGS.get(c, c) for c in self.columns[start:end]]
        return group if len(group) <= 16 and len(set(group)) == len(group) else _GROUP

    def add_half(self, row: Row, cells: dict[str, Any]) -> None:
        """Keeps one half of a row; `row` has its size, count, type, redop and root."""
        self.rows.append(
            Half(row.offset, row.size, row.count, row.dtype, row.redop, row.root, row.in_place,
                 cells)
        )  # fmt: skip


def op_of_program(name: str) -> str | None:
    """The op that a benchmark's executable measures (`all_reduce_perf`); None where unknown."""
    bare = name.rsplit("/", 1)[-1].lower().removesuffix("_perf")
    op = op_of_collective_name(bare)
    return None if op in (None, "unknown") else op


def version_of_code(code: int) -> str:
    """`2.29.2` of NCCL's version number 22902 (major * 10000 or, before 2.9, * 1000)."""
    if code < 10000:
        return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def op_of_table(rows: list[Half], n_ranks: int | None) -> tuple[str | None, str | None]:
    """(op, how it was found) from the columns of a table that does not name its operation.

    The tools print size = count * item size for operations on whole buffers, and that times the
    ranks where each rank has a part. (None, reason) where a root's part may go either way, and
    (None, None) where the columns fit several operations.
    """
    row = next((r for r in rows if r.count > 0), None)
    dtype = dtype_of(row.dtype) if row is not None else None
    if row is None or dtype is None:
        return None, None
    whole = row.size == row.count * dtype.itemsize
    parts = n_ranks is not None and n_ranks > 1 and row.size == row.count * dtype.itemsize * n_ranks
    reduces = row.redop is not None and row.redop.lower() != "none"
    how = "its columns and sizes"
    if reduces:
        if row.root is not None and row.root >= 0:
            return "reduce", how
        return ("all_reduce", how) if whole else ("reduce_scatter", how) if parts else (None, None)
    if row.root is not None and row.root >= 0:
        return ("broadcast", how) if whole else (None, how) if parts else (None, None)
    return None, None


def add_cost(collector: Collector, run: Run, half: Half, op: str, name: str) -> None:
    """Adds one row of `cost_curves`; a time that is no number is told and null."""
    cells = half.cells
    time_ns = scaled(cells.get("time"), 3)
    if time_ns is None or time_ns < 0:
        collector.odd(
            "time_not_a_number",
            f"a row's time is {str(cells.get('time'))[:20]!r}; null is kept",
            "warning",
            offset=half.offset,
        )
        time_ns = None
    wrong = scaled(cells.get("wrong"), 0)
    if wrong:
        collector.odd(
            "wrong_results",
            f"{wrong} elements of a result were wrong: the run's times are of a faulty operation",
            "warning",
            offset=half.offset,
        )
    algo, proto, channels = run.chosen(op, half.size)
    dtype = dtype_of(half.dtype)
    redop = half.redop.lower() if half.redop else None
    collector.add(
        "cost_curves",
        op=op,
        bytes=half.size,
        n_ranks=run.size_of_group,
        n_hosts=len(run.hosts) or None,
        dtype=dtype.name if dtype is not None else half.dtype,
        redop=None if redop == "none" else redop,
        in_place=half.in_place,
        time_ns=time_ns,
        algbw_bytes_per_s=scaled(cells.get("algbw"), 9),
        busbw_bytes_per_s=scaled(cells.get("busbw"), 9),
        n_wrong=wrong,
        algo=algo,
        proto=proto,
        channels=channels,
        library=run.library,
        device_name=", ".join(sorted(run.devices)[:4]) or None,
        tool=run.tool,
        run=f"{name} {run.label}" if run.label else name,
    )
