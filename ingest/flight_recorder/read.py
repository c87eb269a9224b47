"""A Flight Recorder dump as plain records, whatever its version and carrier."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import Damaged, UnusableInput
from ..kineto.header import as_int, parse_rank_list
from ..pickles import safe_pickle
from ..texts import whole

if TYPE_CHECKING:
    from ..collect import Collector
    from ..sources import Source

MAX_BYTES = 256 << 20
MAX_DIMS = 64
NEWEST = (2, 10)


class Group(NamedTuple):
    """A process group of the process: members in order, None where they are not all listed."""

    name: str
    description: str | None
    ranks: tuple[int, ...] | None


class Status(NamedTuple):
    """How far the process had come on a group, by its number in the process."""

    group_id: int
    enqueued: int | None
    started: int | None
    completed: int | None


class Entry(NamedTuple):
    """One operation that was enqueued. `in_sizes` and `out_sizes` have a shape for each tensor."""

    record_id: int
    group_id: int | None
    group: str | None
    description: str | None
    collective_seq: int | None
    p2p_seq: int | None
    op_id: int | None
    name: str
    created_ns: int | None
    duration_ms: float | None
    in_sizes: list[list[int]] | None
    in_dtypes: list[str] | None
    out_sizes: list[list[int]] | None
    out_dtypes: list[str] | None
    state: str | None
    started_ns: int | None
    completed_ns: int | None
    is_p2p: bool


class Dump(NamedTuple):
    """All that is used of a dump."""

    version: str
    library: str | None
    groups: list[Group]
    status: list[Status]
    entries: list[Entry]
    n_frames: int

    @property
    def common_member(self) -> int | None:
        """The one rank that is in every group listed; None where there is none or several."""
        shared = self.common_members
        return next(iter(shared)) if len(shared) == 1 else None

    @property
    def common_members(self) -> frozenset[int]:
        """The ranks that are in every group listed."""
        listed = [frozenset(g.ranks) for g in self.groups if g.ranks]
        return frozenset.intersection(*listed) if listed else frozenset()


def read(source: Source, c: Collector) -> Dump:
    """The dump in a source. Raises UnusableInput for what is no dump, Damaged for one cut."""
    raw = whole(source, c.odd, MAX_BYTES)
    data = _json(raw, source.name) if raw.lstrip()[:1] == b"{" else _pickle(raw, source.name, c)
    if type(data) is not dict or not ("entries" in data or "pg_config" in data):
        raise UnusableInput("no Flight Recorder dump: it has no entries", path=source.name)
    version = data.get("version")
    version = version if type(version) is str else str(version)[:20]
    numbers = tuple(as_int(v) or 0 for v in version[:20].split("."))
    if numbers > NEWEST:
        told = f"a dump of version {version}, newer than 2.10: fields that are new are not read"
        c.odd("new_version", told, "info")
    groups = list(_groups(data.get("pg_config"), c))
    entries = data.get("entries", [])
    if type(entries) is not list:
        c.odd("bad_entries", "its entries are no list; none is kept", "lost")
        entries = []
    found = []
    for n, entry in enumerate(entries):
        if type(entry) is not dict:
            c.odd("bad_entry", "an entry that is no dictionary; left out", "lost", offset=n)
            continue
        found.append(_entry(entry, n, data.get("pg_config")))
    found.sort(key=lambda e: e.record_id)
    if data.get("nccl_comm_state"):
        told = "it has NCCL's own state of each communicator, which is not stored"
        c.odd("nccl_state_not_stored", told, "info")
    library = data.get("comm_lib_version") or data.get("nccl_version")
    return Dump(
        version,
        library if type(library) is str else None,
        groups,
        list(_status(data.get("pg_status"), c)),
        found,
        sum(1 for e in entries if type(e) is dict and e.get("frames")),
    )


def _pickle(raw: bytes, name: str, c: Collector) -> Any:
    try:
        data, end = safe_pickle.loads_at(raw, 0, name=name)
    except Damaged:
        data, end = safe_pickle.salvage(raw, name=name)
        entries = data.get("entries") if type(data) is dict else None
        if type(entries) is not list or not entries:
            raise
        if type(entries[-1]) is not dict or "is_p2p" not in entries[-1]:
            entries.pop()
        told = f"the dump is cut at byte {end}: its newest operations are lost, the others kept"
        c.odd("truncated", told, "lost", offset=end)
        return data
    if end < len(raw):
        told = f"{len(raw) - end} bytes behind the end of the pickle; not read"
        c.odd("trailing_bytes", told, offset=end)
    return data


def _json(raw: bytes, name: str) -> Any:
    try:
        return json.loads(raw.decode("utf-8", "replace"))
    except RecursionError:
        raise UnusableInput("refused: JSON that is nested too deep", path=name) from None
    except json.JSONDecodeError as e:
        raise UnusableInput(f"no whole JSON object: {e.msg}", path=name, offset=e.pos) from None
    except ValueError as e:
        raise UnusableInput(f"no readable JSON: {e}", path=name) from None


def _groups(config: Any, c: Collector) -> Any:
    """The groups of pg_config, which is by name (by number before version 2)."""
    if type(config) is not dict:
        if config is not None:
            c.odd("bad_pg_config", "its pg_config is no dictionary; groups stay unknown")
        return
    for key, about in config.items():
        ranks_text = about.get("ranks") if type(about) is dict else about
        ranks, complete = parse_rank_list(ranks_text)
        about = about if type(about) is dict else {}
        if not complete or not ranks or len(set(ranks)) < len(ranks):
            told = "a group whose members cannot be read or are not all listed"
            c.odd("members_unknown", told)
            ranks = None
        yield Group(_text(about.get("name")) or _text(key) or "", _text(about.get("desc")), ranks)


def _status(status: Any, c: Collector) -> Any:
    """pg_status: numbers in a pickle, texts in JSON; -1 where there was nothing yet."""
    if type(status) is not dict:
        if status is not None:
            c.odd("bad_pg_status", "its pg_status is no dictionary; not used")
        return
    for key, about in status.items():
        number = as_int(key)
        if number is None or type(about) is not dict:
            c.odd("bad_pg_status", "a group's status that cannot be read; left out")
            continue
        said = [as_int(about.get(f"last_{what}_collective"))
                for what in ("enqueued", "started", "completed")]  # fmt: skip
        yield Status(number, *(v if v is not None and v >= 0 else None for v in said))


def _entry(entry: dict, n: int, config: Any) -> Entry:
    group_id = as_int(entry.get("pg_id"))
    said = entry.get("process_group")
    group, description = None, None
    if isinstance(said, list | tuple) and len(said) == 2:
        group, description = _text(said[0]), _text(said[1])
    elif group_id is not None and type(config) is dict:
        # Before version 2 an entry has the group's number alone, which pg_config goes by.
        about = config.get(str(group_id), config.get(group_id))
        about = about if type(about) is dict else {}
        group = _text(about.get("name")) or str(group_id)
        description = _text(about.get("desc"))
    name = _text(entry.get("profiling_name")) or ""
    p2p = entry.get("is_p2p")
    record_id = as_int(entry.get("record_id", entry.get("id")))
    duration = entry.get("duration_ms")
    state = entry.get("state")
    return Entry(
        record_id=record_id if record_id is not None and 0 <= record_id < 1 << 62 else n,
        group_id=group_id,
        group=group,
        description=description,
        collective_seq=as_int(entry.get("collective_seq_id", entry.get("seq_id"))),
        p2p_seq=as_int(entry.get("p2p_seq_id")),
        op_id=as_int(entry.get("op_id")),
        name=name,
        created_ns=_time(entry.get("time_created_ns")),
        duration_ms=_positive(duration),
        in_sizes=_sizes(entry.get("input_sizes")),
        in_dtypes=_texts(entry.get("input_dtypes")),
        out_sizes=_sizes(entry.get("output_sizes")),
        out_dtypes=_texts(entry.get("output_dtypes")),
        state=state if state in ("scheduled", "started", "completed") else None,
        started_ns=_time(entry.get("time_discovered_started_ns")),
        completed_ns=_time(entry.get("time_discovered_completed_ns")),
        is_p2p=p2p if type(p2p) is bool else _is_p2p_name(name),
    )


def _is_p2p_name(name: str) -> bool:
    return "->" in name or "<-" in name


def _positive(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return None
    return float(value)


def _time(value: Any) -> int | None:
    """A time in ns; None for none, which JSON writes as 0."""
    number = as_int(value)
    return number if number else None


def _text(value: Any) -> str | None:
    if type(value) is int:
        return str(value) if value.bit_length() < 64 else None
    return value if type(value) is str else None


def _texts(value: Any) -> list[str] | None:
    if type(value) is not list or any(type(v) is not str for v in value):
        return None
    return value


def _sizes(value: Any) -> list[list[int]] | None:
    """Shapes, one a tensor; None where one of them is no shape."""
    if type(value) is not list:
        return None
    for shape in value:
        if type(shape) is not list or len(shape) > MAX_DIMS:
            return None
        if any(type(d) is not int or not 0 <= d < 1 << 63 for d in shape):
            return None
    return value
