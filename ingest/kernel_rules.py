"""What a user says of kernels: patterns on their names, before the built-in table."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from . import kernels
from .errors import UsageError
from .kernel_names import MOST_OF_A_NAME
from .settings import MOST_RULES, KernelRule, check_text
from .store import reading

MOST_OF_A_PATTERN = 1000
MOST_BYTES = 1 << 20
"""Of a file of patterns; a larger one is not what it is taken for."""


def rule(pattern: str, word: str, place: str) -> KernelRule:
    """The rule that kernels whose name `pattern` finds are of class or category `word`.

    The pattern is a regular expression of RE2, which takes time linear in a name's length, looked
    for anywhere in the name as the trace has it. Raises UsageError, beginning with `place`.
    """
    category = kernels.category_of_word(word.strip().lower())
    if category is None:
        known = dict.fromkeys((*kernels.classes(), *kernels.class_of_category()))
        raise UsageError(f"{place}: no class {word.strip()[:80]!r}; there are {', '.join(known)}")
    if not 0 < len(pattern) <= MOST_OF_A_PATTERN:
        raise UsageError(f"{place}: a pattern has 1 to {MOST_OF_A_PATTERN} characters")
    check_text(pattern, place)
    try:
        _found(pa.array([""]), pattern)
    except pa.ArrowInvalid as e:
        why = str(e).rpartition("regex: ")[2] or str(e)
        raise UsageError(f"{place}: {pattern[:200]!r} is no regular expression: {why}") from e
    return KernelRule(pattern, category)


def parse(texts: Iterable[str], place: str = "--set") -> list[KernelRule]:
    """`["my_fused=gemm"]` -> rules. Raises UsageError for other forms."""
    out = []
    for text in texts:
        pattern, equals, word = text.rpartition("=")
        if not equals:
            raise UsageError(f"{place} {text[:200]!r} is not of the form PATTERN=CLASS")
        out.append(rule(pattern, word, f"{place} {text[:200]!r}"))
    return out


def read(path: str | Path) -> list[KernelRule]:
    """The rules of a file, in its order: TOML (`"pattern" = "class"`) or CSV (`pattern,class`).

    Which of them its name's end says, `.toml` or any other. In CSV a heading `pattern,class` and
    lines that begin with `#` are passed over. Raises UsageError with the line of what is wrong.
    """
    path = Path(path)
    try:
        with path.open("rb") as f:
            raw = f.read(MOST_BYTES + 1)
    except OSError as e:
        raise UsageError(f"{path}: cannot be read: {e.strerror or e}") from e
    if len(raw) > MOST_BYTES:
        raise UsageError(f"{path}: larger than {MOST_BYTES} bytes: not a file of patterns")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = raw[: e.start].count(b"\n") + 1
        raise UsageError(f"{path}:{line}: not UTF-8") from e
    rows = _toml(path, text) if path.suffix.lower() == ".toml" else _csv(path, text)
    if not rows:
        raise UsageError(f"{path}: no patterns in it")
    _not_too_many(path, len(rows))
    return [rule(pattern, word, f"{path}:{line}") for line, pattern, word in rows]


def _not_too_many(path: Path, n: int) -> None:
    if n > MOST_RULES:
        raise UsageError(f"{path}: {n} patterns; {MOST_RULES} are the most")


_HEADINGS = (("pattern", "class"), ("pattern", "category"))


def _csv(path: Path, text: str) -> list[tuple[int, str, str]]:
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    out = []
    try:
        for row in reader:
            at = reader.line_num
            if not row or row[0].startswith("#"):
                continue
            if len(row) != 2:
                raise UsageError(
                    f"{path}:{at}: {len(row)} fields, not pattern,class (a pattern with a comma "
                    "stands in double quotes)"
                )
            if (row[0].lower(), row[1].strip().lower()) not in _HEADINGS:
                out.append((at, row[0], row[1]))
    except csv.Error as e:
        raise UsageError(f"{path}:{reader.line_num}: {e}") from e
    return out


def _toml(path: Path, text: str) -> list[tuple[int, str, str]]:
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as e:
        raise UsageError(f"{path}: {e}") from e
    if isinstance(table.get("patterns"), dict):
        table = table["patterns"]
    _not_too_many(path, len(table))  # before the lines are looked through for each
    lines = text.splitlines()
    out = []
    for pattern, word in table.items():
        escaped = pattern.replace("\\", "\\\\")
        at = next((i for i, x in enumerate(lines, 1) if pattern in x or escaped in x), 1)
        if not isinstance(word, str):
            raise UsageError(
                f'{path}:{at}: {pattern[:80]!r} is not given a text: write "pattern" = "class" '
                "(a pattern with a dot stands in quotes)"
            )
        out.append((at, pattern, word))
    return out


def categories(files: Mapping[str, Sequence[str]], rules: Sequence[KernelRule]) -> dict[str, str]:
    """Name -> category of the kernels of a job that its rules move from what was stored.

    `files` are the job's Parquet files by table. The first rule that finds a name decides. Reads
    the distinct names of its kernels, once for the same files and rules.
    """
    return _categories(tuple(files.get("events") or ()), tuple(rules)) if rules else {}


@lru_cache(maxsize=8)
def _categories(paths: tuple[str, ...], rules: tuple[KernelRule, ...]) -> dict[str, str]:
    if not paths:
        return {}
    import polars as pl

    stored = (
        reading.scan(paths)
        .filter(pl.col("kind").cast(pl.String) == "kernel")
        .select(pl.col("name", "category").cast(pl.String))
        .filter(pl.col("name").is_not_null())
        .unique()
        .sort("name", "category")
        .collect()
    )
    said = of_names(stored["name"].unique(maintain_order=True).to_list(), rules)
    return {
        name: said[name] for name, category in stored.rows() if said.get(name, category) != category
    }


def of_names(names: Sequence[str], rules: Sequence[KernelRule]) -> dict[str, str]:
    """Name -> category of those names that a rule finds; the first that does decides."""
    left = list(dict.fromkeys(names))
    out: dict[str, str] = {}
    for one in rules:
        if not left:
            break
        looked_at = pa.array([name[:MOST_OF_A_NAME] for name in left], pa.large_string())
        found = _found(looked_at, one.pattern).to_pylist()
        out |= {name: one.category for name, hit in zip(left, found, strict=True) if hit}
        left = [name for name, hit in zip(left, found, strict=True) if not hit]
    return out


def _found(texts: pa.Array, pattern: str) -> pa.Array:
    """Whether RE2 finds a pattern in each text."""
    return pc.match_substring_regex(texts, pattern)  # pyright: ignore
