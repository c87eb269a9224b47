"""What an export reads of a job, on the job's clock: few rows of all ranks, events rank by rank."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ...ingest.errors import UsageError
from ..query import compute_once, frame, literal, tuples, within_memory
from .chosen import Chosen, windows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_COMM = 200

_TIMES = """_aligned_ns({start}, k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns,
    _aligned_ns({end}, k.offset_ns, k.drift_ppm, k.anchor_ns) AS end_ns"""


class Rows:
    """The rows of one job that a choice leaves. Raises UsageError for a rank or step it lacks."""

    def __init__(self, con: DuckDBPyConnection, chosen: Chosen):
        self.con = con
        self.chosen = chosen
        compute_once(con, "waits")
        ((definition,),) = tuples(con, "SELECT sql FROM duckdb_views() WHERE view_name = 'events'")
        con.execute(re.sub(r"VIEW events\b", "VIEW _events_of_all", definition, count=1))
        ranks = self._frame(
            "SELECT r.rank, r.host, r.clock, k.clock AS same_clock, k.clock_error_ns, "
            "r.start_ns + coalesce(r.clock_offset_ns, 0) AS start_ns "
            "FROM ranks r LEFT JOIN _rank_clocks k USING (rank) ORDER BY rank"
        ).unique("rank", keep="first", maintain_order=True)
        known = ranks["rank"].to_list()
        for rank in chosen.ranks or ():
            if rank not in known:
                have = f"it has {known[0]} to {known[-1]}" if known else "it has none"
                raise UsageError(f"the job has no rank {rank}; {have}")
        self.ranks = ranks.filter(pl.col("rank").is_in(chosen.ranks or known))
        """A row a chosen rank: `host`, `clock`, `same_clock` (equal where times can be compared),
        `clock_error_ns`."""
        steps = self._frame(
            "SELECT w.rank, w.step, w.start_ns, w.end_ns, "
            + _TIMES.format(start="s.host_start_ns", end="s.host_end_ns")
            .replace("AS start_ns", "AS host_start_ns")
            .replace("AS end_ns", "AS host_end_ns")
            + " FROM _step_windows w LEFT JOIN steps s USING (rank, step) "
            "LEFT JOIN _rank_clocks k USING (rank) ORDER BY rank, start_ns"
        ).unique(["rank", "step", "start_ns"], keep="first", maintain_order=True)
        self._windows = windows(chosen, steps)
        steps = self._of_ranks(steps)
        if chosen.steps is not None:
            steps = steps.filter(pl.col("step").is_in(chosen.steps))
        self.steps = steps
        """A row a chosen step of a chosen rank."""

    def only(self, rank: int) -> None:
        """Makes `events` those of one rank, in memory: every view is then of that rank alone, at
        the cost of its own events, and no more than these are held."""
        with within_memory():
            self.con.execute(
                "CREATE OR REPLACE TABLE _events_of_one AS "
                f"FROM _events_of_all WHERE rank = {literal(rank)}"
            )
        self.con.execute("CREATE OR REPLACE VIEW events AS FROM _events_of_one")

    def parts(self) -> pl.DataFrame:
        """Participations of the chosen ranks and steps, with what their collective measured.

        `wait_known` is false also where ranks' clocks cannot be compared: a wait is then at least
        what it is given as.
        """
        found = self._frame(
            f"""SELECT w.rank, w.event_id, w.collective_id, w.start_ns, w.end_ns, w.wait_ns,
            w.transfer_ns, w.wait_known AND w.is_last IS NOT NULL AS wait_known,
            w.op, left(w.comm, {MAX_COMM}) AS comm, w.dim, w.bytes, w.n_ranks,
            w.n_seen, w.match, w.clock_error_ns, w.step,
            i.algbw_gbps, i.busbw_gbps, i.busbw_transfer_gbps, i.last_rank
            FROM waits w LEFT JOIN collective_instances i USING (job, collective_id)
            ORDER BY w.start_ns, w.rank, w.event_id, w.collective_id"""
        )
        return self._in_windows(self._of_ranks(found))

    def events(self, rank: int, kinds: tuple[str, ...]) -> pl.DataFrame:
        """Events of these kinds of a rank, in order of time."""
        found = self._frame(
            f"""SELECT e.rank, e.kind, e.name, e.category, e.stream, e.device, e.thread,
            {_TIMES.format(start="e.start_ns", end="e.start_ns + greatest(e.dur_ns, 0)")},
            e.event_id, e.step, e.grid_blocks, e.block_threads, e.bytes
            FROM events e LEFT JOIN _rank_clocks k USING (job, rank)
            WHERE e.rank = {literal(rank)} AND e.kind IN ({", ".join(map(literal, kinds))})
            AND e.start_ns IS NOT NULL"""
        )
        found = self._in_windows(found.with_columns(pl.col("end_ns").fill_null(pl.col("start_ns"))))
        return found.sort("start_ns", "end_ns", "event_id", descending=[False, True, False])

    def exposed(self, rank: int) -> pl.DataFrame:
        """Stretches of one rank with communication or copies and no compute, named by their class
        (that of `step_breakdown`)."""
        found = self._frame(
            f"""SELECT rank, start_ns, end_ns,
            CASE WHEN transfer THEN 'exposed_transfer'
                 WHEN unsplit THEN 'exposed_comm_unsplit'
                 WHEN comm THEN 'exposed_wait'
                 ELSE 'exposed_memcpy' END AS name
            FROM _segments
            WHERE rank = {literal(rank)} AND NOT compute AND (comm OR copy)
            ORDER BY start_ns"""
        )
        joined = (pl.col("start_ns") == pl.col("end_ns").shift()) & (
            pl.col("name") == pl.col("name").shift()
        )
        piece = (~joined).fill_null(True).cum_sum()
        return self._in_windows(
            found.group_by(piece.alias("piece"), maintain_order=True)
            .agg(
                pl.col("rank", "start_ns", "name").first(),
                pl.col("end_ns").last(),
            )
            .drop("piece")
        )

    def idle(self, rank: int) -> pl.DataFrame:
        """Gaps of one rank, named by their class (`idle_gaps`)."""
        return self._in_windows(
            self._frame(
                "SELECT rank, start_ns, start_ns + dur_ns AS end_ns, class AS name, "
                f"before, after FROM idle_gaps WHERE rank = {literal(rank)} ORDER BY start_ns"
            )
        )

    def counters(self, rank: int | None) -> pl.DataFrame:
        """Samples of one rank, or of the hosts (of those with chosen ranks), in order of time."""
        whose = "c.rank IS NULL" if rank is None else f"c.rank = {literal(rank)}"
        on = "c.host = k.host" if rank is None else "c.rank = k.rank"
        found = self._frame(
            f"""SELECT c.host, c.device, c.name, c.value,
            _aligned_ns(c.time_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) AS time_ns
            FROM counters c LEFT JOIN (
                SELECT DISTINCT ON ({on.split(" = ")[1]}) * FROM _rank_clocks k ORDER BY rank
            ) k ON {on}
            WHERE {whose} AND c.time_ns IS NOT NULL AND c.value IS NOT NULL
            ORDER BY time_ns"""
        )
        if rank is not None and self._windows is not None:
            spans = found.with_columns(
                rank=pl.lit(rank), start_ns="time_ns", end_ns=pl.col("time_ns") + 1
            )
            return self._in_windows(spans)
        return found

    def _frame(self, query: str) -> pl.DataFrame:
        return frame(self.con.sql(query))

    def _of_ranks(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.filter(pl.col("rank").is_in(self.ranks["rank"].to_list()))

    def _in_windows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Those rows that lie, in part at least, in the chosen steps of their rank."""
        if self._windows is None:
            return rows
        rank, start, end = (rows[c].to_numpy() for c in ("rank", "start_ns", "end_ns"))
        inside = np.zeros(len(rows), bool)
        for (of,), spans in self._windows.group_by("rank", maintain_order=True):
            since = spans["since"].to_numpy()
            until = spans["until"].cum_max().to_numpy()
            mine = np.flatnonzero(rank == of)
            # The last that begins by a row's last moment; those before it end no later.
            at = np.searchsorted(since, np.maximum(end[mine] - 1, start[mine]), "right") - 1
            inside[mine] = (at >= 0) & (until[np.maximum(at, 0)] > start[mine])
        return rows.filter(pl.Series(inside))
