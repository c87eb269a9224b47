"""What a kernel does, by its name: its category, from the table in `kernel_classes.tsv`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from . import classify
from .kernel_names import MOST_OF_A_NAME, words

TABLE = Path(__file__).with_name("kernel_classes.tsv")
UNKNOWN = "unknown"
"""The category of kernels that no row of the table matches."""

_MOST_OF_A_FUNCTION = 300
"""Characters of a function's name that patterns are looked for in: a longer one is CuTe's list of
its arguments, or nonsense made to cost time."""


class Row(NamedTuple):
    """A row of the table: kernels that `pattern` matches are of `category`, as `example` is."""

    family: str
    pattern: str
    category: str
    example: str


@lru_cache(maxsize=65536)
def category_of_kernel(name: str) -> str:
    """Category of a kernel by its name: comm, gemm, attention, ..., `unknown` where none fits."""
    if classify.comm_kernel(name) is not None:
        return "comm"
    row = row_of_kernel(name)
    return UNKNOWN if row is None else row.category


def row_of_kernel(name: str) -> Row | None:
    """The row of the table that decides a kernel's category; None where no row matches."""
    low = name[:MOST_OF_A_NAME].lower()
    for family in _table()[1]:
        if any(text in low for text in family.seen):
            for row in family.rows:
                if _matcher(row.pattern).matches(name):
                    return row
    return None


def rows() -> Iterator[Row]:
    """All rows of the table, in their order."""
    return (row for family in _table()[1] for row in family.rows)


@cache
def class_of_category() -> dict[str, str]:
    """The public class of each category, in the table's order."""
    return _table()[0]


@cache
def classes() -> tuple[str, ...]:
    """The public classes, `unknown` last."""
    return tuple(dict.fromkeys(class_of_category().values()))


def category_of_word(word: str) -> str | None:
    """The category that a user's word means: one itself, or the chief one of a class; else None."""
    by_class = {c: k for k, c in reversed(class_of_category().items())}
    return word if word in class_of_category() else by_class.get(word)


class _Family(NamedTuple):
    seen: tuple[str, ...]
    rows: list[Row]


@cache
def _table() -> tuple[dict[str, str], tuple[_Family, ...]]:
    """The class of each category, and the families in their order."""
    of_category: dict[str, str] = {}
    families: list[_Family] = []
    rows: list[Row] = []
    name = ""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if "\t" not in line:
            name, _, seen = line[1:].partition("]")
            rows = []
            families.append(_Family(tuple(seen.split()) or ("",), rows))
        elif name == "classes":
            category, of_class = line.split("\t")
            of_category[category] = of_class
        else:
            rows.append(Row(name, *line.split("\t")))
    return of_category, tuple(families[1:])


class _Matcher:
    """A row's pattern: it is compiled when a name comes to it that holds one of its words."""

    def __init__(self, pattern: str):
        self._pattern = pattern
        kind = pattern[:1]
        self.alternatives = alternatives(pattern[1:-1] if kind in "/<" else pattern)
        self._needs = None if kind == "/" else _needed(self.alternatives)

    def matches(self, name: str) -> bool:
        """Whether a kernel's name, or its parts, fit."""
        if self._pattern[0] == "/":
            return bool(self._whole.search(name[:_MOST_OF_A_FUNCTION]))
        parts = words(name)
        if self._pattern[0] == "<":
            return self._may(parts.inside) and bool(self._whole.search(parts.inside))
        function = parts.function[:_MOST_OF_A_FUNCTION]
        if not (self._may(function) or self._may(parts.leaf)):
            return False
        whole, leaf = self._whole, self._leaf
        return bool(
            (whole and whole.search(function))
            or (leaf and leaf.fullmatch(parts.leaf[:_MOST_OF_A_FUNCTION]))
        )

    def _may(self, text: str) -> bool:
        return self._needs is None or any(word in text for word in self._needs)

    @cached_property
    def _whole(self) -> Any:
        if self._pattern[0] == "/":
            return re.compile(self._pattern[1:-1])
        words = "|".join(p for p in self.alternatives if not p.startswith("="))
        return re.compile(f"(?<![a-z])(?:{words})(?![a-z])") if words else None

    @cached_property
    def _leaf(self) -> Any:
        leaf = "|".join(p[1:] for p in self.alternatives if p.startswith("="))
        return re.compile(leaf) if leaf else None


@cache
def _matcher(pattern: str) -> _Matcher:
    return _Matcher(pattern)


_OPTIONAL = re.compile(r"\\w|\[[^\]]*\]|\(\?<?[!=][^()]*\)|[a-z0-9_](?=[?*{])|\{[^}]*\}|[?*+]")


def _needed(parts: Sequence[str]) -> tuple[str, ...] | None:
    """For each alternative a text without which it cannot match; None where one has no such text.

    Looked for before a pattern is compiled and tried, which takes hundreds of times as long.
    """
    needed = []
    for part in parts:
        bare = _OPTIONAL.sub(" ", part.removeprefix("="))
        while "(" in bare:
            fewer = re.sub(r"\([^()]*\)", " ", bare)
            if fewer == bare:
                return None
            bare = fewer
        longest = max(bare.split(), key=len, default="")
        if len(longest) < 2:
            return None
        needed.append(longest)
    return tuple(needed)


_MARK = re.compile(r"[()\[\]|]")


def alternatives(pattern: str) -> list[str]:
    """A pattern's alternatives: its parts between the `|` that are in no brackets."""
    out, depth, start = [], 0, 0
    for mark in _MARK.finditer(pattern):
        if mark[0] != "|":
            depth += 1 if mark[0] in "([" else -1
        elif depth == 0:
            out.append(pattern[start : mark.start()])
            start = mark.end()
    return [*out, pattern[start:]]
