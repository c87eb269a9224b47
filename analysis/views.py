"""The views of the SQL library as methods of a job: a frame each, in an order that stays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection


class Views(ABC):
    """Rows of each table and view of a job; times in ns, sizes in bytes, rates in GB/s."""

    @property
    @abstractmethod
    def con(self) -> DuckDBPyConnection:
        """The connection that is asked."""

    def _rows(self, view: str, order: str = "ALL") -> pl.DataFrame:
        from . import query as queries

        return queries.frame(self.con.sql(f"SELECT * FROM {view} ORDER BY {order}"))

    def ranks(self) -> pl.DataFrame:
        """One row a rank: host, device, clock offset and error (ns)."""
        return self._rows("ranks", "rank")

    def steps(self) -> pl.DataFrame:
        """One row a step on a rank: windows on device and host (ns)."""
        return self._rows("steps", "step, rank")

    def comms(self) -> pl.DataFrame:
        """One row a communicator: members and parallel dimension."""
        return self._rows("comms", "comm")

    def collectives(self) -> pl.DataFrame:
        """One row a participation, as recorded (the table behind `waits`)."""
        return self._rows("collectives", "start_ns, rank, event_id")

    def collective_instances(self) -> pl.DataFrame:
        """One row a matched collective: wait, transfer (ns), bandwidths (GB/s), who was last."""
        return self._rows("collective_instances", "first_start_ns, collective_id")

    def waits(self) -> pl.DataFrame:
        """One row a participation: wait_ns + transfer_ns = its duration."""
        return self._rows("waits", "start_ns, rank")

    def sync_tax(self) -> pl.DataFrame:
        """Share of communication time that is waiting, by dimension, operation, size class."""
        return self._rows("sync_tax")

    def overlap(self) -> pl.DataFrame:
        """Communication under compute by rank and step; step null is time outside steps."""
        return self._rows("overlap", "rank, step")

    def step_breakdown(self) -> pl.DataFrame:
        """Every ns of a step on a rank, in one class each."""
        return self._rows("step_breakdown", "rank, step, class")

    def step_composition(self) -> pl.DataFrame:
        """Work of a step on a rank, down to the kernel or collective that its time went to."""
        return self._rows("step_composition", "rank, step, class, ns DESC, what")

    def bandwidth(self) -> pl.DataFrame:
        """algbw and busbw (GB/s) by communicator, operation and size class."""
        return self._rows("bandwidth")

    def hockney_fit(self) -> pl.DataFrame:
        """alpha (ns), bandwidth (bytes/s) and tau (ns) by communicator, operation, algorithm."""
        return self._rows("hockney_fit", "comm, op, n_ranks, algorithm")

    def cost_curve_fit(self) -> pl.DataFrame:
        """The same of the benchmarks (`cost_curves`) that were ingested with the job."""
        return self._rows("cost_curve_fit")

    def rail_load(self) -> pl.DataFrame:
        """Bytes and busy time (ns) by window and rail, measured and derived each by itself."""
        return self._rows("rail_load", "step, window_start_ns, source, unit, host, rail, nic")

    def rail_imbalance(self) -> pl.DataFrame:
        """max/mean, variation and Jain's index over the rails of each window."""
        return self._rows("rail_imbalance", "step, window_start_ns, source, unit")

    def rail_left_out(self) -> pl.DataFrame:
        """Operations whose bytes could not be derived for any rail, by the reason."""
        return self._rows("rail_left_out")

    def kernel_stats(self) -> pl.DataFrame:
        """Kernels by rank and name: count, total, median, p99 (ns), the longest in all first."""
        return self._rows("kernel_stats", "total_ns DESC, rank, name")

    def kernel_classes(self) -> pl.DataFrame:
        """Device work by rank and class (gemm, attention, ..., unknown): ns and share."""
        return self._rows("kernel_classes", "rank, total_ns DESC, class")

    def unknown_kernels(self) -> pl.DataFrame:
        """Names that no pattern fits, the longest in all first: count, ns, share, ranks."""
        return self._rows("unknown_kernels", "total_ns DESC, name")

    def idle_gaps(self) -> pl.DataFrame:
        """Gaps of a GPU, classified, with what was before and after."""
        return self._rows("idle_gaps", "rank, start_ns")

    def replay_scores(self) -> pl.DataFrame:
        """One row a rank: what its own slowness costs the step (ns), by replay, costliest first."""
        return self._rows("replay_scores", "score_ns DESC NULLS LAST, rank")

    def critical_path(self) -> pl.DataFrame:
        """The chain of tasks across ranks that sets each step's time, piece by piece (ns)."""
        return self._rows("critical_path", "step, position")

    def slack(self) -> pl.DataFrame:
        """How much later (ns) the tasks of a name, rank and step could end, the least first."""
        return self._rows("slack", "step, rank, slack_ns, kind, name")

    def expert_load(self) -> pl.DataFrame:
        """Tokens by step, layer and expert."""
        return self._rows("expert_load", "source, step, layer, expert")

    def expert_imbalance(self) -> pl.DataFrame:
        """How unevenly a layer's tokens fell over experts and over their ranks, a step a row."""
        return self._rows("expert_imbalance", "source, step, layer")

    def expert_rail_regression(self) -> pl.DataFrame:
        """How far uneven experts explain uneven rails, a layer a row."""
        return self._rows("expert_rail_regression", "source, layer")

    def sm_budget(self) -> pl.DataFrame:
        """Blocks that communication kernels hold, and the slowdown of compute beside them."""
        return self._rows("sm_budget", "total_ns DESC, name, comm")

    def storage_interference(self) -> pl.DataFrame:
        """Stalls for data (ns) and collectives beside storage traffic, a step a row."""
        return self._rows("storage_interference", "step")

    def hangs(self) -> pl.DataFrame:
        """One row a collective that was under way: who had completed, entered, never entered it."""
        return self._rows("hangs", "enqueued_ns, comm, seq")

    def late_ranks(self) -> pl.DataFrame:
        """One row a rank: how often it was last, and what that cost the others (ns)."""
        return self._rows("late_ranks", "wait_caused_ns DESC, rank")

    def straggler_causes(self) -> pl.DataFrame:
        """View `stragglers`: one row a rank, why it is late and what that costs (ns)."""
        return self._rows("stragglers", "wait_caused_ns DESC, rank")

    def lateness_trend(self) -> pl.DataFrame:
        """One row a rank and step: how far behind the median it came (ns), and its slope."""
        return self._rows("lateness_trend", "rank, step")
