"""The merged timeline of a job: its tracks, and what stands on them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ...ingest.errors import UnusableInput
from . import arrows, lanes
from .chosen import ON_DEVICE, ON_HOST, Chosen
from .perfetto import Sequence, TraceFile
from .rows import Rows

if TYPE_CHECKING:
    from ..doors import Job

STEPS, EXPOSED, WAITS, TRANSFERS, IDLE, STREAMS, HOST, COUNTERS = range(8)
"""Places of a rank's tracks on screen."""

ARGS = (
    "op", "comm", "dim", "bytes", "n_ranks", "n_seen", "match", "wait_ns", "transfer_ns",
    "waits_for_rank", "algbw_gbps", "busbw_gbps", "busbw_transfer_gbps", "last_rank",
    "clock_error_ns", "collective_id",
)  # fmt: skip
"""What is said of a participation."""


def write(
    job: Job, path: str | os.PathLike[str], chosen: Chosen, policies: tuple[Any, ...] = ()
) -> dict[str, Any]:
    """Writes the timeline of a job to one file and counts what is in it.

    Returns `path`, `format`, `slices`, `tracks`, `flows`, `samples`, `bytes`, `shift_ns` (what
    was added to all times; 0 unless some are before 0) and `warnings`. Raises UnusableInput where
    the choice leaves nothing, UsageError for a rank, step or policy that there is not.
    """
    from .replayed import scenarios

    rows = Rows(job.warehouse.connect(job.id), chosen)
    parts = arrows.with_releasers(rows.parts())
    replays = scenarios(job.snapshot, policies, chosen.steps)
    with TraceFile(path, shift_ns=_shift(rows, parts)) as file:
        if (first := _epoch(rows.ranks)) is not None:
            file.epoch(first)
        processes = {
            rank: file.process(rank, *_of_rank(rank, host, error, same), place)
            for place, (rank, host, error, same) in enumerate(
                rows.ranks.select("rank", "host", "clock_error_ns", "same_clock").iter_rows()
            )
        }
        _waits_and_transfers(file, parts, processes, chosen)
        for rank, process in processes.items():
            _rank(file, rows, parts.filter(pl.col("rank") == rank), rank, process)
        _hosts(file, rows, len(processes))
        for replay in replays:
            replay.write(file, rows.ranks["rank"].to_list(), chosen)
        if not file.slices + file.samples:
            raise UnusableInput(
                f"job {job.id!r} has nothing to show of these ranks, steps and kinds: "
                "`retime show` says what it holds"
            )
    return {
        "path": str(file.path),
        "format": "perfetto",
        "slices": file.slices,
        "tracks": file.tracks,
        "flows": file.flows,
        "samples": file.samples,
        "bytes": file.path.stat().st_size,
        "shift_ns": file.shift_ns,
        "warnings": [*_about_clocks(rows), *(w for r in replays for w in r.warnings)],
    }


def _shift(rows: Rows, parts: pl.DataFrame) -> int:
    firsts = [f["start_ns"].min() for f in (rows.ranks, rows.steps, parts)]
    known = [int(f) for f in firsts if f is not None]  # type: ignore[arg-type]
    return max(0, -min(known, default=0))


def _epoch(ranks: pl.DataFrame) -> int | None:
    """A moment (ns since 1970) of the job, where all its clocks count from there."""
    first = ranks["start_ns"].min()
    of_host = ranks["clock"].cast(pl.String).fill_null("host") == "host"
    return first if isinstance(first, int) and bool(of_host.all()) else None


def _of_rank(
    rank: int, host: str | None, error_ns: int | None, same: str | None
) -> tuple[str, tuple[str, ...]]:
    """A rank's name on screen and its label: what its clock is worth."""
    name = f"rank {rank} on {host}" if host else f"rank {rank}"
    if error_ns is not None:
        return name, (f"clock ±{error_ns} ns",)
    return name, (f"clock of {same}: tied to no other",) if same else ()


def _about_clocks(rows: Rows) -> list[str]:
    clocks = rows.ranks["same_clock"].drop_nulls().unique().to_list()
    if len(clocks) < 2:
        return []
    return [
        f"the ranks' times are on {len(clocks)} clocks that nothing ties to each other: their "
        "slices stand side by side as each clock had them"
    ]


def _waits_and_transfers(
    file: TraceFile, parts: pl.DataFrame, processes: dict[int, int], chosen: Chosen
) -> None:
    """The waits and transfers of all ranks in one order of time, with the arrows between them.

    An arrow goes from what stands first in the file to what comes later; both ends begin at the
    same moment, when the last rank arrived, so of the slices of one moment the releaser's leads.
    """
    sequence = file.sequence()
    if chosen.has("wait"):
        waits = parts.filter(pl.col("wait_ns") > 0)
        for_whom = pl.format("wait for rank {} ({})", "waits_for_rank", "op")
        plain = pl.format("wait ({})", pl.col("op").cast(pl.String).fill_null("?"))
        waits = waits.select(
            "rank",
            "start_ns",
            (pl.col("start_ns") + pl.col("wait_ns")).alias("end_ns"),
            pl.coalesce(for_whom, plain).alias("name"),
            *_said(waits),
        )
        track = _lanes_by_rank(file, waits, processes, "waits", WAITS)
        sequence.slices(waits.drop("rank"), track)
    if chosen.has("transfer"):
        moved = parts.filter(pl.col("transfer_ns") > 0)
        plain = pl.col("op").cast(pl.String).fill_null("?")
        unsplit = pl.format("{} (wait or transfer)", plain)
        ptr, ids, leads = arrows.flows(moved)
        moved = moved.select(
            "rank",
            (pl.col("start_ns") + pl.col("wait_ns")).alias("start_ns"),
            "end_ns",
            pl.when("wait_known").then(plain).otherwise(unsplit).alias("name"),
            *_said(moved),
        )
        track = _lanes_by_rank(file, moved, processes, "transfers", TRANSFERS)
        start, end = moved["start_ns"].to_numpy(), moved["end_ns"].to_numpy()
        order = lanes.in_time(start, end, leads)
        sequence.slices(moved.drop("rank"), track, marks=order, flows=(ptr, ids))
        file.flows += len(ids) // 2


def _said(parts: pl.DataFrame) -> list[pl.Expr]:
    """Arguments of a participation, without wait and transfer where nothing tells them apart."""
    known = pl.col("wait_known")
    split = {c: pl.when(known).then(c).alias(c) for c in ("wait_ns", "transfer_ns")}
    return [split.get(c, pl.col(c)) for c in (*ARGS, "event_id", "step") if c in parts.columns]


def _lanes_by_rank(
    file: TraceFile, frame: pl.DataFrame, processes: dict[int, int], name: str, place: int
) -> np.ndarray:
    rank = frame["rank"].to_numpy().astype(np.int64)
    return on_lanes(file, frame, rank, {r: (name, p, place) for r, p in processes.items()}, False)


def on_lanes(
    file: TraceFile,
    frame: pl.DataFrame,
    group: np.ndarray,
    tracks: dict[int, tuple[str, int, int]],
    nested: bool,
) -> np.ndarray:
    """The track of each slice: new lanes of its group's track (name, parent, place)."""
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    lane = lanes.place(group, start, end, np.full(len(group), nested))
    many = int(lane.max(initial=0)) + 1
    codes, inverse = np.unique(group * many + lane, return_inverse=True)
    ids = [file.track(*tracks[int(c) // many]) for c in codes]
    return np.asarray(ids, np.int64)[inverse]


def _rank(file: TraceFile, rows: Rows, parts: pl.DataFrame, rank: int, process: int) -> None:
    """What one rank shows beside waits and transfers."""
    sequence, chosen = file.sequence(), rows.chosen
    rows.only(rank)

    def one_track(name: str, place: int, frame: pl.DataFrame) -> None:
        if len(frame):
            group = np.zeros(len(frame), np.int64)
            track = on_lanes(file, frame, group, {0: (name, process, place)}, False)
            sequence.slices(frame.drop("rank"), track)

    if chosen.has("step"):
        steps = rows.steps.filter(pl.col("rank") == rank)
        named = pl.format("step {}", "step")
        one_track(
            "steps", STEPS, steps.select("rank", "start_ns", "end_ns", named.alias("name"), "step")
        )
    if chosen.has("exposed"):
        one_track("exposed", EXPOSED, rows.exposed(rank))
    if chosen.has("idle"):
        one_track("idle", IDLE, rows.idle(rank))
    on_device = tuple(k for k in ON_DEVICE if chosen.has(k))
    if on_device:
        _device(file, sequence, rows.events(rank, on_device), parts, process)
    on_host = tuple(k for k in ON_HOST if chosen.has(k))
    if on_host:
        _host(file, sequence, rows.events(rank, on_host), process)
    if chosen.has("counter"):
        _counters(file, sequence, rows.counters(rank), process)


def _device(
    file: TraceFile, sequence: Sequence, events: pl.DataFrame, parts: pl.DataFrame, process: int
) -> None:
    """Streams, a track each with as many lanes as overlap; annotations' twins beside them."""
    said = [c for c in ARGS if c != "bytes"]
    known = parts.filter(pl.col("event_id").is_not_null()).unique(
        "event_id", keep="first", maintain_order=True
    )
    known = known.select("event_id", pl.col("bytes").alias("moved"), *_said(known)[: len(ARGS)])
    events = events.join(
        known.select("event_id", "moved", *said), on="event_id", how="left", maintain_order="left"
    )
    several = events["device"].drop_nulls().n_unique() > 1
    stream = pl.format("stream {}", pl.col("stream").cast(pl.String).fill_null("?"))
    on = pl.format("device {} ", "device").fill_null("")
    label = pl.concat_str(on, stream) if several else stream
    beside = pl.when(pl.col("kind") == "gpu_annotation").then(pl.lit(" annotations"))
    beside = beside.when(pl.col("kind") == "sync").then(pl.lit(" syncs")).otherwise(pl.lit(""))
    events = events.with_columns(
        track=pl.concat_str(label, beside),
        bytes=pl.coalesce("moved", "bytes"),
        category=pl.coalesce(pl.col("category").cast(pl.String), pl.col("kind").cast(pl.String)),
    )
    _by_track(
        file, sequence, events, process, STREAMS, nested="annotations",
        args=("event_id", "step", "grid_blocks", "block_threads", "bytes", *said),
    )  # fmt: skip


def _host(file: TraceFile, sequence: Sequence, events: pl.DataFrame, process: int) -> None:
    """Host threads, below one track that can be closed."""
    if not len(events):
        return
    thread = pl.col("thread").cast(pl.String).fill_null("").replace("", "?")
    events = events.with_columns(
        track=pl.format("thread {}", thread),
        category=pl.coalesce(pl.col("category").cast(pl.String), pl.col("kind").cast(pl.String)),
    )
    above = file.track("host threads", process, HOST)
    _by_track(
        file, sequence, events, above, 0, nested="", args=("event_id", "step", "bytes")
    )  # fmt: skip


def _by_track(
    file: TraceFile,
    sequence: Sequence,
    events: pl.DataFrame,
    parent: int,
    place: int,
    *,
    nested: str,
    args: tuple[str, ...],
) -> None:
    """Events on the tracks that their column `track` names; those whose name ends with `nested`
    take slices within each other on one lane."""
    names = events["track"].unique().sort().to_list()
    for at, name in enumerate(sorted(names, key=_natural)):
        mine = events.filter(pl.col("track") == name)
        group = np.zeros(len(mine), np.int64)
        track = on_lanes(
            file, mine, group, {0: (name, parent, place + at)}, name.endswith(nested)
        )  # fmt: skip
        sequence.slices(mine.select("start_ns", "end_ns", "name", "category", *args), track)


def _natural(name: str) -> tuple:
    return tuple((0, int(w), "") if w.isdecimal() else (1, 0, w) for w in name.split(" "))


def _counters(file: TraceFile, sequence: Sequence, found: pl.DataFrame, parent: int) -> None:
    for (device, name), mine in found.sort("time_ns").group_by(
        "device", "name", maintain_order=True
    ):
        label = f"{name} ({device})" if device is not None else str(name)
        track = file.track(label, parent, COUNTERS, counter=True)
        sequence.samples(
            mine["time_ns"].to_numpy(), np.full(len(mine), track), mine["value"].to_numpy()
        )


def _hosts(file: TraceFile, rows: Rows, place: int) -> None:
    """Counters of machines that are no rank's, a process a machine."""
    if not rows.chosen.has("counter"):
        return
    found = rows.counters(None)
    top = rows.ranks["rank"].max()
    for n, ((host,), mine) in enumerate(found.group_by("host", maintain_order=True)):
        pid = int(top if isinstance(top, int) else 0) + 1 + n
        process = file.process(pid, f"host {host}" if host else "host", (), place + n)
        _counters(file, file.sequence(), mine, process)
