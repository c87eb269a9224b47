"""A job as notebooks have it: what it looks like, what is said of it, what comes out of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ingest.errors import RetimeError
from .views import Views

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

    from ..ingest.store import Folder
    from ..ingest.warehouse import Snapshot
    from .warehouse import Warehouse


class Job(Views):
    """One job of a warehouse. Each view of the SQL library is a method that gives its rows."""

    def __init__(self, warehouse: Warehouse, id: str):
        self.warehouse = warehouse
        self.id = id
        self._con: DuckDBPyConnection | None = None
        self._kept = False
        self._study: dict[str, Any] | None = None
        self._whatif: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"{self.warehouse!r}.job({self.id!r})"

    @property
    def snapshot(self) -> Snapshot:
        """The files of the job as they stand."""
        return self.warehouse.store.snapshot(self.id)

    @property
    def con(self) -> DuckDBPyConnection:
        """A connection with this job's tables and views, kept for as long as the job object."""
        if self._con is None:
            self._con = self.warehouse.connect(self.id)
        return self._con

    def sql(self, query: str) -> pl.DataFrame:
        """The rows of one query over this job's tables and views."""
        from . import query as queries

        return queries.run(self.con, query)

    def dims(self) -> pl.DataFrame:
        """One row a communicator: members, operations, dimension, how found and on what ground."""
        from . import dims

        return dims.table(self.con)

    def set_dims(
        self,
        rules: Mapping[str, str] | None = None,
        *,
        degrees: Mapping[str, int] | None = None,
        clear: bool = False,
    ) -> Job:
        """Says which dimension communicators serve; the job is derived anew when next asked.

        `rules` map patterns of identity, name or description (`*`, `?`, `[...]`) to dimensions;
        `degrees` give the mesh, fastest-varying dimension first, and name groups by their exact
        members; `clear` forgets what was said before. Returns this job, with a new connection.
        Raises UsageError for a dimension that there is not or degrees that do not fit the job.
        """
        from . import dims

        dims.say(self.warehouse.store.job_folder(self.id), self.world_size(), rules, degrees, clear)
        self._con, self._kept, self._study, self._whatif = None, False, None, None
        return self

    def kernels(self) -> dict[str, Any]:
        """Kernels by class, names that no pattern knows, and the rules said (`kernels.facts`)."""
        from . import kernels

        return kernels.facts(self.con, self.snapshot.kernels)

    def set_kernels(
        self,
        rules: Sequence[str] = (),
        *,
        patterns: str | os.PathLike[str] | None = None,
        clear: bool = False,
    ) -> Job:
        """Says what kernels do, by their names; nothing is ingested anew.

        `rules` are texts `PATTERN=CLASS` (or a finer category), `patterns` a TOML or CSV file of
        them; the first that finds a name decides, before the built-in table. `clear` forgets what
        was said before. Waits and matched collectives stay as they were ingested. Returns this
        job, with a new connection. Raises UsageError, and changes nothing, for a wrong rule.
        """
        from . import kernels

        said = kernels.given(os.fspath(patterns) if patterns is not None else None, rules)
        kernels.say(self.warehouse.store.job_folder(self.id), said, clear)
        self._con, self._kept, self._study, self._whatif = None, False, None, None
        return self

    def tag(
        self,
        tags: Mapping[str, str] | None = None,
        *,
        remove: Iterable[str] = (),
        author: str | None = None,
    ) -> list[dict[str, Any]]:
        """Sets and removes tags; all tags then: tag, value, author, at_ns (since the epoch).

        A tag `keep` keeps the job from being pruned. `author` is else $RETIME_AUTHOR, else the
        user. Raises UsageError for a name or value that cannot be one.
        """
        from ..ingest import labels

        said = labels.tag(self._folder, tags, remove=remove, author=author)
        return [
            {"tag": key, "value": t.value, "author": t.author, "at_ns": t.at_ns}
            for key, t in sorted(said.tags.items())
        ]

    def note(
        self, text: str | None = None, *, remove: int | None = None, author: str | None = None
    ) -> list[dict[str, Any]]:
        """Adds a note, or removes one by its number; all notes then: note, text, author, at_ns."""
        from ..ingest import labels

        said = labels.read(self._folder)
        if remove is not None:
            said = labels.remove_note(self._folder, remove)
        if text is not None:
            said = labels.note(self._folder, text, author=author)
        return [
            {"note": n, "text": one.text, "author": one.author, "at_ns": one.at_ns}
            for n, one in enumerate(said.notes, 1)
        ]

    @property
    def _folder(self) -> Folder:
        return self.warehouse.store.folder(self.id)

    def world_size(self) -> int | None:
        """Ranks that the job had, where a source says."""
        manifests, _ = self.warehouse.store.manifests(self.id)
        return max((w for m in manifests for w in m.world_sizes), default=None)

    def problems(self) -> pl.DataFrame:
        """What was odd in this job's input, lost input first."""
        from . import frames

        return frames.problems(self.con)

    def waited_for(self) -> pl.DataFrame:
        """`late_ranks` that were ever last, with each one's share of all wait of the job."""
        from . import frames

        return frames.waited_for(self.con)

    def show(self) -> dict[str, Any]:
        """What the job looks like: ranks, clocks, steps, matches, and where the step went.

        `waited_for` is the rank that was last at the greatest cost, `culprit` (see
        `culprit.find`) the rank that holds the job up, by root cause, `hang` (see `hangs.find`)
        who is missing from which collective, where Flight Recorder dumps tell. `holds` counts the
        rows of the other tables that the job has: topology, cost curves, routing and so on.
        `fix_first` is what the page leads with (`fix_first.of_job`). `tags` and `notes` are what
        was said of the job; `pruned` are tables whose rows were removed for their age (ns since
        the epoch), and what needs them is as it was before, where that was kept.
        """
        from ..ingest import labels
        from . import kept_summary

        said, pruned = labels.read(self._folder), self.snapshot.pruned
        facts = (kept_summary.read(self) if pruned else None) or self._facts()
        return {**facts, "tags": said.values, "notes": self.note(), "pruned": pruned}

    def _facts(self) -> dict[str, Any]:
        from . import culprit, fix_first, frames, hangs
        from .query import compute_once

        if not self._kept:
            compute_once(self.con)
            # The reason of a culprit is asked of each, and so are all of them by a report.
            compute_once(self.con, "late_ranks", "_explained")
            self._kept = True
        facts = {
            **frames.facts(self.con),
            **frames.headline(self.con),
            "holds": frames.holdings(self.con),
        }
        facts |= {"culprit": culprit.find(self, facts), "hang": hangs.find(self.con)}
        return {**facts, "fix_first": fix_first.of_job(self, facts)}

    def replay(self, policies: Sequence[Any] = (), **options: Any) -> dict[str, Any]:
        """`retime.replay(job, policies)`."""
        from ..replay.run import replay

        return replay(self.snapshot, policies, **options)

    def explain(
        self, policies: Sequence[Any], path: str | os.PathLike[str] | None = None, **options: Any
    ) -> dict[str, Any]:
        """`replay`, and what the policies change in a step as a page and a Perfetto trace.

        `analysis.explain.explain` has the options and what is returned.
        """
        from .explain import explain

        return explain(self, policies, path, **options)

    def stragglers(self) -> dict[str, Any]:
        """`study`, who holds the job up (`culprit`, `said` in words), and its `ideals`.

        `ideals.rows` sets the study's ideal beside those of `whatif`. Raises UnusableInput for a
        job without steps.
        """
        from . import ideals, terminal

        study, facts = self.study(), self.show()
        return {
            **study,
            "culprit": facts["culprit"],
            "said": terminal.straggler_sentence(facts),
            "ideals": ideals.rows(self.whatif(facts), study),
        }

    def study(self) -> dict[str, Any]:
        """Slowdown against the ideal, m_w, m_s, and its parts by operation, rank and stage.

        `replay.stragglers.Stragglers` as a dict. Raises UnusableInput for a job without steps.
        """
        from ..replay.findings.stragglers import of_snapshot

        if self._study is None:
            self._study = of_snapshot(self.snapshot).as_dict()
        return {**self._study}

    def study_of_pairs(self, facts: Mapping[str, Any]) -> dict[str, Any] | None:
        """`study` where it is what tells: recorded operations, waits at sends and receives."""
        from .sentences import mostly_paired

        if not facts["steps"] or not (facts["framework"] == "recorded" or mostly_paired(facts)):
            return None
        try:
            return self.study()
        except RetimeError:
            return None

    def whatif(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """What the page tries (`whatif.of_job`), re-timed once; `facts` has the culprit."""
        from . import whatif

        if self._whatif is None:
            self._whatif = whatif.of_job(self, facts)
        return self._whatif

    def whatif_at_hand(self, facts: Mapping[str, Any]) -> dict[str, Any] | None:
        """`whatif` where that is made already, or takes no longer than a second or so."""
        from . import whatif

        return self.whatif(facts) if self._whatif or whatif.is_cheap(self) else None

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Writes the self-contained page of this job and returns where it is."""
        from . import report

        return report.write(self, path)

    def export(
        self, path: str | os.PathLike[str] | None = None, to: str = "perfetto", **chosen: Any
    ) -> dict[str, Any]:
        """Writes the timeline for Perfetto or Chakra's traces: `analysis.export.export`."""
        from .export import export

        return export(self, path, to, **chosen)
