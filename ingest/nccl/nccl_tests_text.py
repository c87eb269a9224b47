"""Tables that nccl-tests and rccl-tests print, read line by line out of any log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..classify import dtype_of
from .nccl_tests_run import Row, Run, add_cost, op_of_program, op_of_table, version_of_code

if TYPE_CHECKING:
    from ..collect import Collector

_MAX_ROW_CHARS = 1024
_MAX_MARK_CHARS = 4096

_LAUNCHER = re.compile(r" {0,8}\d{1,7}: ?|\[\d{1,6},\d{1,7}\]<(?:stdout|stderr)>: ?")
"""`srun -l` and `mpirun --tag-output`; both may stand before any line."""
_HOST_TAG = re.compile(r"[\w.-]{1,255}: (?=#| {3,}\d)")
_LOG_PART = re.compile(r"(\S{1,300}?):(\d{1,10}):(\d{1,10}) \[")
_LOG_TIME = re.compile(r"\[\d{4}-\d\d-\d\d[ T]")
_RANK = re.compile(
    r"# {1,8}Rank {1,8}(\d{1,9}) {1,8}(?:Group {1,8}(\d{1,9}) {1,8})?Pid {1,10}\d{1,10} on "
    r" {0,20}(\S{1,255}) {1,8}device {1,8}\d{1,5} \[[^\]]{0,64}\] ?(.{0,200})"
)
_LABEL = re.compile(r"(\w{1,32})=([^\s,]{1,64})")
_WORD = re.compile(r"[A-Za-z_][\w.:<>-]{0,40}\Z")
_INT = re.compile(r"-?\d{1,20}\Z")
_NUMBER = re.compile(r"-?(?:\d{1,20}(?:\.\d{0,12})?(?:e[+-]?\d{1,3})?|nan|inf)\Z", re.I)
_CELL = re.compile(r"N/A\Z", re.I)
_PROGRAM = re.compile(r"\b([a-z0-9_]{3,40}_perf)\b")
_NRANKS = re.compile(r" nranks (\d{1,7}) ", re.I)
_ENV = re.compile(r"NCCL_(ALGO|PROTO)(?:=| set by environment to )([^\s,]{1,64})")
_TUNED = re.compile(
    r"(\w{1,20}): (\d{1,18}) Bytes -> Algo (\w{1,20}) proto (\w{1,10}) "
    r"channel\{Lo\.\.Hi\}=\{(\d{1,4})\.\.(\d{1,4})\}"
)
_VERSION = re.compile(r"\b(NCCL|RCCL) version ?:? {0,4}(\d[\w.+-]{0,40})")
_P2P_LINK = re.compile(r"Channel \d{1,4}/1 : (\d{1,7})\[[^\]]{0,20}\] -> (\d{1,7})\[")

_PREAMBLE_CHARS = 50
"""Width of size, count, type, redop and root as they are printed since 2.11."""

_MAX_ROWS = 200_000


class TableReader:
    """Rows of the benchmark tables of one file, fed with its lines in their order.

    Lines of other writers in between, before or in the middle of a row do no harm: a row whose
    end comes on a later line is put together again.
    """

    def __init__(self, file_name: str = ""):
        self._file_name = file_name
        self._runs: list[Run] = []
        self._run: Run | None = None
        self._pending: Row | None = None
        self._env: dict[str, str] = {}
        self._library: str | None = None
        self._program: str | None = None
        self._nranks = 0
        self._from_root = self._to_root = 0
        self.rows_seen = 0

    def feed(self, line: str, offset: int) -> bool:
        """Takes one line (without its end) at its byte offset.

        True where it was a benchmark's alone; False also where only a part of it was, as the rest
        is another writer's.
        """
        text = line[:_MAX_MARK_CHARS]
        text = text[m.end() :] if (m := _LAUNCHER.match(text)) else text
        text = text[m.end() :] if (m := _HOST_TAG.match(text)) else text
        if text.startswith("#"):
            return self._comment(text, offset)
        own, other = self._split(text)
        taken = False
        if own.strip() and (own[0] == " " or own[0].isdigit()) and len(own) <= _MAX_ROW_CHARS:
            taken = self._numbers(own, offset)
        if other or not taken:
            self._notice(text)
        return taken and not other

    def rows(self, collector: Collector) -> None:
        """Adds the rows of `cost_curves` and what was odd about them; call it once, at the end."""
        self._close_row()
        if self.rows_seen > _MAX_ROWS:
            collector.odd(
                "too_many_rows",
                f"more than {_MAX_ROWS} rows of benchmark tables in one file; the rest is left out",
                "lost",
                count=self.rows_seen - _MAX_ROWS,
            )
        for number, run in enumerate(r for r in self._runs if r.rows):
            self._finish(run, number, collector)
        for run in self._runs:
            if not run.rows and run.label:
                collector.odd(
                    "empty_run",
                    f"the run {run.label!r} has no row: it gave no result (not supported, say)",
                    "info",
                    offset=run.offset,
                )

    def _finish(self, run: Run, number: int, collector: Collector) -> None:
        if run.n_ranks is None and not run.groups:
            run.n_ranks = self._nranks or None
        run.library = run.library or self._library
        for key, value in self._env.items():
            run.settings.setdefault(key, value)
        op, how = run.op, None
        if op is None and (m := _PROGRAM.search(self._file_name)):
            op, how = op_of_program(m[1]), "the file's name"
        if op is None:
            op, how = op_of_table(run.rows, run.size_of_group)
            if op is None and how is not None and (self._from_root or self._to_root):
                # A scatter and a gather print the same table, but send from or to the root.
                op = "scatter" if self._from_root > self._to_root else "gather"
                how = "columns, sizes, and the direction of the links in the log"
        if op is None and (m := re.search(r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|"
                                          r"broadcast|sendrecv|scatter|gather|reduce)",
                                          self._file_name.rsplit("/", 1)[-1], re.I)):  # fmt: skip
            op, how = op_of_program(m[1]), "the file's name"
        if op is None:
            collector.odd(
                "op_unknown",
                "a table does not name its operation and its columns fit several; the rows have "
                "op unknown. Keep the line 'Collective test starting' or the command with it",
                "warning",
                offset=run.offset,
            )
        elif how is not None:
            collector.odd(
                "op_from_table",
                f"a table does not name its operation; {op} was taken from {how}",
                "info",
                offset=run.offset,
            )
        for row in run.rows:
            add_cost(collector, run, row, op or "unknown", str(number))
        for offset in run.cut:
            collector.odd(
                "row_cut",
                "a row of a benchmark table has no end: another line came in between, or the file "
                "stops; the complete halves of it are kept",
                "lost",
                offset=offset,
            )

    def _comment(self, text: str, offset: int) -> bool:
        if text.startswith("###"):
            return self._labelled(text, offset)
        if m := _RANK.match(text):
            self._current(offset).add_rank(int(m[1]), int(m[2] or 0), m[3], m[4].strip())
            return True
        low = text[:200].lower()
        if low.startswith("# nccl-tests version") or low.startswith("# rccl-tests"):
            self._start(offset).tool = low[2:12]
            if m := re.search(r"(?:library)=(\d{1,7})", low):
                self._run.library = f"nccl {version_of_code(int(m[1]))}"  # type: ignore[union-attr]
            return True
        if "nthread" in low and "ngpus" in low:
            if not self._run or self._run.rows or self._run.settled:
                self._start(offset)
            self._current(offset).settled = True
            return True
        if "collective test starting" in low:
            run = self._run
            if run is None or run.rows:
                run = self._start(offset)
            run.op = op_of_program(low.rsplit(":", 1)[-1].strip())
            return True
        words = low.strip("# ").split()
        if words[:2] == ["size", "count"]:
            self._close_row()
            if self._run is None or (self._run.rows and self._run.columns):
                self._start(offset)
            self._current(offset).columns = words
            return True
        known = ("avg bus bandwidth", "out of bounds values", "using devices", "out-of-place",
                 "(elements)", "collective test concluded", "gpu memory usage",
                 "blocking enabled", "parallel init enabled", "per-iteration report")  # fmt: skip
        if any(k in low for k in known):
            if "avg bus bandwidth" in low:
                self._close_row()
            return True
        return text.strip() == "#" and self._run is not None

    def _labelled(self, text: str, offset: int) -> bool:
        """`### ALGO=Ring size=268435456`: the heading of one run of a sweep."""
        labels = {k.lower(): v for k, v in _LABEL.findall(text[:400])}
        known = labels.keys() & {"algo", "proto", "gpus", "nranks", "channels", "nchannels"}
        if not known:
            return False
        old = self._run
        run = self._start(offset)
        run.label = text.strip("# ")[:120]
        if old is not None and not old.label:
            run.inherit(old)
        elif old is not None and old.op:
            run.op = old.op
        for key in ("algo", "proto"):
            if key in labels:
                run.settings[key] = labels[key]
        n = labels.get("gpus", labels.get("nranks", ""))
        run.n_ranks = int(n) if n.isascii() and n.isdigit() and len(n) < 8 else run.n_ranks
        n = labels.get("channels", labels.get("nchannels", ""))
        run.channels = int(n) if n.isascii() and n.isdigit() and len(n) < 6 else None
        return True

    def _numbers(self, own: str, offset: int) -> bool:
        words = own.split()
        if len(words) > 40:
            return False
        row = self._pending
        rest = all(_NUMBER.match(w) or _CELL.match(w) for w in words)
        if row is not None and rest and row.takes(words):
            self._grow(row, words)
            return True
        if len(words) < 3 or not (_INT.match(words[0]) and _INT.match(words[1])):
            return False
        if not _WORD.match(words[2]) or words[2].lower() in ("nan", "inf"):
            return False
        bare = self._run is None or not (self._run.columns or self._run.settled)
        if bare and (dtype_of(words[2]) is None or len(words) < 7):
            return False
        self._close_row()
        row = self._begin(own, words, offset)
        if row is None:
            return False
        self._pending = row
        self.rows_seen += 1
        if self.rows_seen > _MAX_ROWS:
            self._pending = None
            return True
        self._grow(row, [])
        return True

    def _begin(self, own: str, words: list[str], offset: int) -> Row | None:
        run = self._current(offset)
        redop, root, at = None, None, 3
        word = words[at] if at < len(words) else ""
        if _WORD.match(word) and not _NUMBER.match(word) and not _CELL.match(word):
            redop, at = word, at + 1
        cells = words[at:]
        if not all(_NUMBER.match(w) or _CELL.match(w) for w in cells):
            return None
        has_root = "root" in run.columns if run.columns else len(cells) % 2 == 1
        if has_root and cells:
            if not _INT.match(cells[0]):
                return None
            root, cells = int(cells[0]), cells[1:]
        group = run.group_columns()
        # A run that skips the out-of-place half leaves its columns blank.
        blank = len(cells) == len(group) and own.rstrip().endswith(cells[-1]) and bool(
            re.search(r"\S {32,}\S", own))  # fmt: skip
        return Row(offset, int(words[0]), int(words[1]), words[2], redop, root, group, cells,
                    in_place=blank)  # fmt: skip

    def _grow(self, row: Row, more: list[str]) -> None:
        run = self._current(row.offset)
        row.cells += more
        while len(row.cells) >= len(row.group) and not row.done:
            cells, row.cells = row.cells[: len(row.group)], row.cells[len(row.group) :]
            run.add_half(row, dict(zip(row.group, cells, strict=True)))
            row.in_place, row.done = True, row.in_place
        if row.done:
            self._pending = None

    def _close_row(self) -> None:
        row, self._pending = self._pending, None
        if row is not None and not row.done and self._run is not None:
            self._run.cut.append(row.offset)

    def _split(self, text: str) -> tuple[str, str]:
        """(what a benchmark may have printed, another writer's text glued to it)."""
        if (text[:1] != " " and not text[:1].isdigit()) or (" [" not in text and "[2" not in text):
            return text, ""
        at = m.start() if (m := _LOG_TIME.search(text)) else len(text)
        m = _LOG_PART.search(text)
        if m is not None:
            for host in self._run.hosts if self._run is not None else ():
                if m[1].endswith(host):
                    return text[: min(at, m.end(1) - len(host))], text[m.end(1) - len(host) :]
            before = text[: m.start()]
            if len(before) < _PREAMBLE_CHARS <= m.end(1) and before[:1] == " ":
                return text[:_PREAMBLE_CHARS], text[_PREAMBLE_CHARS:]
            at = min(at, m.start())
        return text[:at], text[at:]

    def _notice(self, text: str) -> None:
        """What lines of other writers say about a run."""
        if "version" in text:
            m = re.match(
                r"(?:.{0,300} )?(NCCL|RCCL) version ?:? {0,4}(\d[\w.+-]{0,40})", text[:400]
            )
            if m:
                self._library = f"{m[1].lower()} {m[2]}"
        if text.startswith("rccl-tests:") and self._run is not None:
            self._run.tool = "rccl-tests"
        if "Bytes -> Algo" in text and self._run is not None and (m := _TUNED.search(text)):
            self._run.tune(m[1], int(m[2]), m[3], m[4], int(m[6]) - int(m[5]) + 1)
        if "Init COMPLETE" in text and (m := _NRANKS.search(text)):
            self._nranks = max(self._nranks, int(m[1]))
        if "/1 : " in text and (m := _P2P_LINK.search(text)):
            self._from_root += int(m[1]) == 0
            self._to_root += int(m[2]) == 0
        if "NCCL_" in text and (m := _ENV.search(text)):
            self._env[m[1].lower()] = m[2]
        if "_perf" in text and (m := _PROGRAM.search(text)) and (op := op_of_program(m[1])):
            self._program = op
            if self._run is not None and not self._run.rows:
                self._run.op = self._run.op or op

    def _start(self, offset: int) -> Run:
        self._close_row()
        if self._run is not None and not self._run.rows and not self._run.label:
            return self._run
        self._run = Run(offset)
        self._run.op, self._program = self._program, None
        self._runs.append(self._run)
        return self._run

    def _current(self, offset: int) -> Run:
        return self._run if self._run is not None else self._start(offset)
