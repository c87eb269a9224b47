"""Inputs of the benchmarks, made once each, by processes of their own (this one stays small)."""

from __future__ import annotations

import subprocess
import sys
from functools import cached_property
from pathlib import Path

from benchmarks.scale.measured import ROOT, measured

from .case import RUN_WAY


class Inputs:
    """Where inputs lie and how much is asked for: `quick` leaves the largest sizes out, `large`
    adds the job of 1,024 ranks, `tiny` is for tests; `words` are in the names of the cases that
    are wanted. Raises RuntimeError where one cannot be made.
    """

    def __init__(
        self, folder: Path, *, quick: bool = False, large: bool = False, tiny: bool = False,
        traces: Path | None = None, artifact: Path | None = None,
        artifact_python: Path | None = None, words: str = "",
    ):  # fmt: skip
        self.folder = folder
        self.quick, self.large, self.tiny = quick or tiny, large, tiny
        self.traces, self.artifact, self.words = traces, artifact, words
        self.artifact_python = artifact_python or Path(sys.executable)

    def wants(self, name: str) -> bool:
        """Whether the case of this name is asked for: nothing is made for others."""
        return self.words in name

    def tiled(self, mb: float) -> Path:
        """A Kineto trace of about so many megabytes: the bundled job's first rank, repeated."""
        path = self.folder / f"tiled-{mb:g}.json"
        if not path.exists():
            self._make("tiled", path, mb * 1e6)
        return path

    def gzipped(self, path: Path) -> Path:
        """The file in gzip, at the level that profilers use by custom."""
        packed = path.with_name(path.name + ".gz")
        if not packed.exists():
            self._make("gzipped", path, packed)
        return packed

    def generated(self, ranks: int, steps: int) -> Path:
        """A made-up job's traces, records and routing: a folder a host."""
        folder = self.folder / f"generated-{ranks}-{steps}"
        if not folder.exists():
            self._make("generated", folder, ranks, steps)
        return folder

    def warehouse(self, hosts: int, events: int) -> Path:
        """A warehouse with a job `cluster` of 8 ranks a host, so many events each."""
        folder = self.folder / f"cluster-{hosts}-{events}"
        if not folder.exists():
            self._make("warehouse", folder, hosts, events)
        return folder

    def cluster(self, ranks: int) -> Path:
        """A warehouse with a job `cluster` of ranks with 100,000 events each, up to 64 of them by
        `warehouse`; more are the made-up job of 64 ranks so many times side by side (`grown`).
        """
        if ranks <= 64:
            return self.warehouse(ranks // 8, 100_000)
        folder = self.folder / f"grown-{ranks}"
        if not folder.exists():
            small = self.ingested(self.generated(64, 30), "generated-64-30")
            self._make("grown", folder, small, ranks // 64)
        return folder

    def ingested(self, source: Path, name: str) -> Path:
        """A warehouse with a job `cluster` of a folder's files."""
        folder = self.folder / f"warehouse-{name}"
        if not folder.exists():
            self._make("ingested", folder, source)
        return folder

    def routing(self, form: str, tokens: int) -> Path:
        """A routing log of so many tokens, in a form of `benchmarks.tables_made`."""
        folder = self.folder / f"{form.replace(' ', '-')}-{tokens}"
        if not folder.exists():
            self._make("routing", folder, form, tokens)
        return next(p for p in folder.rglob("*") if p.is_file())

    def inspector(self, steps: int) -> Path:
        """Inspector's records of one rank of a made-up job of 16, not packed."""
        path = self.folder / f"rank0-{steps}.inspector.log"
        if not path.exists():
            self._make("inspector", path, steps)
        return path

    def repeated(self, path: Path, copies: int) -> Path:
        """A text so many times."""
        longer = self.folder / f"{copies}-times-{path.name}"
        if not longer.exists():
            self._make("repeated", path, longer, copies)
        return longer

    def nsys(self, path: Path, copies: int) -> Path:
        """An Nsight export whose run lasts so many times as long as the given one's."""
        longer = self.folder / f"{copies}-times-{path.name}"
        if not longer.exists():
            self._make("nsys", path, longer, copies)
        return longer

    @cached_property
    def demo(self) -> Path:
        """The traces of the bundled job: 8 ranks of a real run."""
        return ROOT / "analysis" / "demo_job"

    @cached_property
    def in_notebooks(self) -> tuple[str, ...]:
        """The public views that the notebooks ask more than once."""
        told = measured([sys.executable, "-m", "benchmarks.suite.make", "in_notebooks"]).printed
        return tuple(told.split())

    @cached_property
    def no_simdjson(self) -> str:
        """Why C++ simdjson cannot be compared with; "" where it can."""
        try:
            measured([sys.executable, "-m", RUN_WAY, "limits.files.simdjson_there"])
        except RuntimeError as e:
            return str(e).strip().splitlines()[-1]
        return ""

    def no_cold(self, path: Path) -> str:
        """Why the system cannot be made to let go of a file here; "" where it can."""
        try:
            measured([sys.executable, "-m", RUN_WAY, "limits.files.forgotten_there", str(path)])
        except RuntimeError as e:
            return str(e).strip().splitlines()[-1]
        return ""

    def _make(self, what: str, *words: object) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        measured([sys.executable, "-m", "benchmarks.suite.make", what, *map(str, words)])


class NamesOnly(Inputs):
    """For a list of the cases: an input is an empty file, and nothing is compiled or asked."""

    in_notebooks = ()
    no_simdjson = ""

    def no_cold(self, path: Path) -> str:
        return ""

    def _make(self, what: str, *words: object) -> None:
        path = Path(str(words[1] if what in ("gzipped", "repeated", "nsys") else words[0]))
        if not path.suffix:
            path = path / "host" / "rank0.json.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def can_import(module: str) -> bool:
    """Whether another Python process finds the module; nothing is imported here."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return not subprocess.run([sys.executable, "-c", code], check=False).returncode


def without(module: str, package: str = "") -> str:
    """Why a way that needs the module is missing; "" if it is there."""
    return "" if can_import(module) else f"{package or module} is not installed"
