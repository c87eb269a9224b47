"""Blocks of rows of the plain form from CSV, JSON lines and Parquet, as typed Arrow columns."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from ..errors import UnusableInput
from ..gunzip import BLOCK, stream_defect
from ..parquet_footer import MAGIC
from ..values import printable
from .plain import COLUMNS, header, is_plain
from .plain_sums import Block

if TYPE_CHECKING:
    from ..sources import Source

Odd = Callable[..., None]
MAX_LINE_BYTES = 8 << 20
BLOCK_BYTES = 4 << 20
PARQUET_ROWS = 65536
"""Of a file with more, compiled code sums the rows: it takes a second to load."""
TOGETHER_ROWS = 65536

_WANTED: dict[str, Any] = {
    n: pl.Int64() for n in ("step", "microbatch", "layer", "rank", "token", "count", "tokens",
                            "expert", "physical_expert", "expert_rank")
} | {n: pl.String() for n in ("block", "token_class", "id_space", "source")} | {
    "weight_sum": pl.Float64(), "experts": pl.List(pl.Int64), "weights": pl.List(pl.Float64),
}  # fmt: skip
_ARROW = {n: pl.Series([], dtype=k).to_arrow().type for n, k in _WANTED.items()}
_WEIGHED = {"weights", "weight_sum"}
_INTEGER = r"^[+-]?[0-9]{1,18}$"
_NUMBER = r"^[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?$"
_BETWEEN = r"[\s,;|\[\]()\"']+"
_NULLS = ("", "null", "NULL", "None", "NA")
I64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Row(msgspec.Struct):
    """A row of JSON lines."""

    step: I64 | None = None
    microbatch: I64 | None = None
    block: str | None = None
    layer: I64 | None = None
    rank: I64 | None = None
    token: I64 | None = None
    count: I64 | None = None
    tokens: I64 | None = None
    experts: I64 | list[I64] | None = None
    expert: I64 | None = None
    physical_expert: I64 | None = None
    expert_rank: I64 | None = None
    weights: float | list[float | None] | None = None
    weight_sum: float | None = None
    token_class: str | None = None
    id_space: str | None = None
    source: str | None = None


def blocks(source: Source, odd: Odd, rank: int | None, threads: int = 1) -> Iterator[Block]:
    """Blocks of a few thousand to a million rows, in the file's order, on up to so many threads.

    Ordinary ones of a file that has more than one are summed by compiled code (`plain_fast`);
    others are frames of integers, texts, and for `experts` and `weights` lists, without the
    columns that are not there. Raises UnusableInput where the columns are not those of the plain
    form.
    """
    head = source.head(4096)
    if head[:4] == MAGIC:
        yield from _parquet(source, odd, rank, threads)
    elif head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        yield from _json_lines(source, odd, rank, threads)
    else:
        yield from _csv(source, odd, rank, threads)


def _whole_lines(source: Source, odd: Odd) -> Iterator[tuple[int, bytes]]:
    """(byte offset, bytes that end with a line's end) of some MB; the last may lack its end."""
    kept, start, at, dropping = b"", 0, 0, False
    with source.open() as f:
        while block := f.read(BLOCK):
            at += len(block)
            if dropping:
                end = block.find(b"\n")
                if end < 0:
                    continue
                block, dropping = block[end + 1 :], False
                start = at - len(block)
            kept += block
            if len(kept) < BLOCK_BYTES:
                continue
            end = kept.rfind(b"\n") + 1
            if end:
                yield start, kept[:end]
                start, kept = start + end, kept[end:]
            if len(kept) > MAX_LINE_BYTES:
                told = f"a line of more than {MAX_LINE_BYTES} bytes; left out"
                odd("long_line", told, "lost", offset=start)
                kept, dropping = b"", True
        if kept:
            yield start, kept
        defect = stream_defect(f)
        if defect is not None:
            odd("truncated", f"{defect}; what came before is kept", "lost", offset=at)


def _csv(source: Source, odd: Odd, rank: int | None, threads: int) -> Iterator[Block]:
    from .plain_ahead import ahead

    names: list[str] = []

    def lines() -> Iterator[tuple[int, bytes]]:
        for at, block in _whole_lines(source, odd):
            if not names:
                line, _, block = block.partition(b"\n")
                names.extend(_names_of(line, source.name, odd))
            if block.strip():
                yield at, block

    def quickly(block: bytes) -> pl.DataFrame | None:
        from .plain_fast import csv_sums

        return csv_sums(block, names, rank)

    for at, block, sums in ahead(lines(), quickly, threads):
        if sums is not None:
            yield Block(sums, True)
            continue
        frame = _csv_frame(block, names, at, odd)
        if frame is not None:
            yield Block(_typed(frame, odd), False)


def _names_of(line: bytes, path: str, odd: Odd) -> list[str]:
    names = header(line.strip())
    if not is_plain(set(names)):
        raise UnusableInput("not the columns of a routing table: see docs/routing.md", path=path)
    if len(set(names)) < len(names) or len(names) > 1000:
        raise UnusableInput("a header that names a column twice", path=path)
    _tell_ignored(names, odd)
    return names


def _csv_frame(block: bytes, names: list[str], at: int, odd: Odd) -> pl.DataFrame | None:
    """The known columns of lines that begin at byte `at`, as texts."""
    from pyarrow import csv

    clean = block.decode("utf-8", "replace").encode()
    bad: list[int] = []

    def skip(row):
        bad.append(row.actual_columns)
        return "skip"

    try:
        table = csv.read_csv(
            io.BytesIO(clean),
            read_options=csv.ReadOptions(
                column_names=names, block_size=len(clean) + 1, use_threads=False
            ),
            parse_options=csv.ParseOptions(invalid_row_handler=skip),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=[n for n in names if n in COLUMNS],
                strings_can_be_null=True,
                null_values=list(_NULLS),
            ),
        )
    except (pa.ArrowException, ValueError) as e:
        told = f"lines that are no CSV ({str(e)[:120]}); left out"
        odd("bad_record", told, "lost", offset=at)
        return None
    if bad:
        told = f"a line of {bad[0]} fields where the header has {len(names)}; left out"
        odd("bad_record", told, "lost", offset=at, count=len(bad))
    made = pl.from_arrow(table)
    assert isinstance(made, pl.DataFrame)
    return made


def _tell_ignored(names: list[str], odd: Odd) -> None:
    for n in names:
        if n not in COLUMNS:
            told = f"a column that is not read ({printable(n, 60)!r})"
            odd("column_ignored", told, "info")


def _typed(frame: pl.DataFrame, odd: Odd) -> pl.DataFrame:
    """The known columns as what they should be; what does not fit becomes null and is told."""
    out: dict[str, pl.Series] = {}
    for name in frame.columns:
        if name not in COLUMNS:
            continue
        wanted, given = _WANTED[name], frame[name]
        if isinstance(given.dtype, pl.Categorical | pl.Enum):
            given = given.cast(pl.String)
        if isinstance(wanted, pl.List):
            lists = _listed(given)
            flat = lists.explode(empty_as_null=False, keep_nulls=False)
            made = _simple(flat, wanted.inner)
            out[name] = _lists(lists, made).cast(wanted)
            n_given = len(flat) - flat.null_count()
            if not isinstance(given.dtype, pl.List | pl.Array) and not len(lists.drop_nulls()):
                n_given = len(given) - given.null_count()
        else:
            made = out[name] = _simple(given, wanted)
            n_given = len(given) - given.null_count()
        n_bad = n_given - (len(made) - made.null_count())
        if n_bad > 0:
            told = f"a value of `{name}` that is not {wanted}; null is kept"
            odd("wrong_type", told, count=n_bad)
    return pl.DataFrame(out)


def _listed(values: pl.Series) -> pl.Series:
    """A column of lists, whatever it was: texts are taken apart, single numbers become lists."""
    kind = values.dtype
    if isinstance(kind, pl.List):
        return values
    if isinstance(kind, pl.Array):
        return values.arr.to_list()
    if kind == pl.String:
        clean = values.str.replace_all(_BETWEEN, " ").str.strip_chars(" ")
        # Nothing is a list without elements, not one with an empty text.
        parts = clean.str.split(" ")
        empty = (clean == "").fill_null(False)
        if empty.any():
            none = pl.Series([[]], dtype=pl.List(pl.String))
            parts = none.new_from_index(0, len(parts)).zip_with(empty, parts)
        return parts
    if kind.is_numeric():
        return values.reshape((-1, 1)).arr.to_list().zip_with(
            values.is_not_null(), pl.Series([None] * len(values), dtype=pl.List(kind))
        )  # fmt: skip
    return pl.Series(values.name, [None] * len(values), pl.List(pl.Null))


def _lists(like: pl.Series, flat: pl.Series) -> pl.Series:
    """Lists of the same lengths as those of `like` (null where it is null) from flat values."""
    lengths = like.list.len().fill_null(0).to_numpy().astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    mask = like.is_null().to_numpy() if like.null_count() else None
    made = pa.LargeListArray.from_arrays(
        pa.array(ends, pa.int64()), flat.to_arrow(), mask=None if mask is None else pa.array(mask)
    )
    return pl.Series(like.name, made)


def _simple(values: pl.Series, wanted: pl.DataType | type) -> pl.Series:
    kind = values.dtype
    none = pl.Series(values.name, [None] * len(values), wanted)
    if kind == pl.Null:
        return none
    if wanted == pl.String:
        return values if kind == pl.String else none
    if kind == pl.String:
        values = values.str.strip_chars()
        # A number is plain: no `inf`, and nothing that is no digit.
        good = values.str.contains(_NUMBER if wanted == pl.Float64 else _INTEGER)
        values = values.set(~good.fill_null(True), None)
        return values.str.strip_prefix("+").cast(wanted, strict=False)
    if not kind.is_numeric():
        return none
    if wanted == pl.Int64 and kind.is_float():
        floats = values.cast(pl.Float64)
        whole = (floats == floats.round()) & floats.is_finite() & (floats.abs() < 2.0**53)
        return floats.set(~whole.fill_null(True), None).cast(pl.Int64, strict=False)
    return values.cast(wanted, strict=False)


def _json_lines(source: Source, odd: Odd, rank: int | None, threads: int) -> Iterator[Block]:
    from .plain_ahead import ahead

    decoder = msgspec.json.Decoder(Row)

    def quickly(block: bytes) -> pl.DataFrame | None:
        from .plain_fast import json_sums

        return json_sums(block, rank)

    for at, block, sums in ahead(_whole_lines(source, odd), quickly, threads):
        if sums is not None:
            yield Block(sums, True)
            continue
        try:
            rows = decoder.decode_lines(block)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            rows = list(_one_by_one(decoder, at, block, odd))
        if rows:
            yield Block(_columns_of(rows), False)


def _one_by_one(decoder, at: int, block: bytes, odd: Odd) -> Iterator[Row]:
    for line in block.split(b"\n"):
        if line.strip():
            try:
                yield decoder.decode(line)
            except (msgspec.MsgspecError, ValueError, RecursionError) as e:
                told = f"a line that is no row ({str(e)[:120]}); left out"
                odd("bad_record", told, "lost", offset=at)
        at += len(line) + 1


def _columns_of(rows: list[Row]) -> pl.DataFrame:
    out: dict[str, pl.Series] = {}
    for name in COLUMNS:
        values: list[Any] = [getattr(r, name) for r in rows]
        if all(v is None for v in values):
            continue
        wanted = _WANTED[name]
        if isinstance(wanted, pl.List):
            values = [v if v is None or isinstance(v, list) else [v] for v in values]
        elif wanted == pl.String:
            # JSON can spell half a character, which no text may hold.
            values = [None if v is None else v.encode("utf-8", "replace").decode() for v in values]
        out[name] = pl.Series(name, pa.array(values, _ARROW[name])).cast(wanted)
    return pl.DataFrame(out or {"layer": pl.Series([None] * len(rows), dtype=pl.Int64)})


def _parquet(source: Source, odd: Odd, rank: int | None, threads: int) -> Iterator[Block]:
    from ..parquet_in import TROUBLE, opened
    from .plain_ahead import ahead

    with source.as_file() as local:
        try:
            with opened(local) as file:
                names = file.schema.names
                if not is_plain(set(names)) or len(set(names)) < len(names):
                    told = "not the columns of a routing table: see docs/routing.md"
                    raise UnusableInput(told, path=source.name)
                _tell_ignored(names, odd)
                kept = [n for n in names if n in COLUMNS]
                batches = enumerate(file.batches(kept))
                if file.n_rows > PARQUET_ROWS:
                    from .plain_fast import batch_sums

                    if not _WEIGHED & set(kept):
                        batches = enumerate(_together(file.batches(kept)))
                    found = ahead(batches, lambda batch: batch_sums(batch, rank), threads)
                else:
                    found = ((n, batch, None) for n, batch in batches)
                for _, batch, sums in found:
                    if sums is not None:
                        yield Block(sums, True)
                    else:
                        yield Block(_typed(_frame(batch, odd), odd), False)
        except TROUBLE as e:
            told = f"Parquet that cannot be read to its end: {str(e)[:160]}"
            odd("truncated", f"{told}; what came before is kept", "lost")


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of `TOGETHER_ROWS` or somewhat more.

    Not where there are weights: what is left of their sums in the last bits depends on the blocks.
    """
    waiting: list[pa.RecordBatch] = []
    n = n_bytes = 0
    for batch in batches:
        waiting.append(batch)
        n, n_bytes = n + batch.num_rows, n_bytes + batch.nbytes
        if n >= TOGETHER_ROWS or n_bytes >= 4 * BLOCK_BYTES:
            yield pa.concat_batches(waiting)
            waiting, n, n_bytes = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)


def _frame(batch: pa.RecordBatch, odd: Odd) -> pl.DataFrame:
    """The batch as a frame. Names inside of types and texts are a stranger's: they are checked
    before polars sees them."""
    out: dict[str, pl.Series] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind = column.type
        try:
            column.validate(full=True)
            if pa.types.is_list(kind) or pa.types.is_large_list(kind):
                column = column.cast(pa.large_list(kind.value_type))
            elif pa.types.is_fixed_size_list(kind):
                column = column.cast(pa.list_(kind.value_type, kind.list_size))
            if pa.types.is_nested(kind) and pa.types.is_nested(kind.value_type):
                raise ValueError("nested deeper than a list")
        except (pa.ArrowException, ValueError, AttributeError) as e:
            told = f"column `{name}` cannot be read ({str(e)[:100]}); null is kept"
            odd("bad_column", told, "lost", count=len(column))
            column = pa.nulls(len(column), pa.null())
        made = pl.from_arrow(column)
        assert isinstance(made, pl.Series)
        out[name] = made
    return pl.DataFrame(out)
