"""Blocks of rows of the plain form from CSV, JSON lines and Parquet, summed or as typed columns."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import polars as pl
import pyarrow as pa

from ..errors import UnusableInput
from ..parquet_footer import MAGIC
from ..values import printable
from . import plain_fast
from .plain import COLUMNS, header, is_plain
from .plain_ahead import ahead
from .plain_lines import Lines, lines_of, whole_lines
from .plain_sums import Block
from .plain_typed import ARROW, WANTED, Odd, frame_of_batch, typed

if TYPE_CHECKING:
    from ..sources import Source

TOGETHER_ROWS = 65536
AT_ONCE_ROWS = 32768
"""Rows of Parquet read at once where there are no weights: what reads them and what sums them pass
the interpreter to each other for each batch."""
TOGETHER_BYTES = 16 << 20

_WEIGHED = {"weights", "weight_sum"}
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

    Ordinary ones are summed by compiled code (`plain_fast`) where that is there; others are frames
    of integers, texts, and for `experts` and `weights` lists, without the columns that are not
    there. Raises UnusableInput where the columns are not those of the plain form.
    """
    head = source.head(4096)
    read = _csv
    if head[:4] == MAGIC:
        read = _parquet
    elif head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        read = _json_lines
    try:
        yield from read(source, odd, rank, threads)
    finally:
        plain_fast.end_of_file()


def _csv(source: Source, odd: Odd, rank: int | None, threads: int) -> Iterator[Block]:
    names: list[str] = []

    def lines() -> Iterator[tuple[int, Lines]]:
        for at, block in whole_lines(source, odd, threads):
            if not names:
                line, _, rest = block.text().partition(b"\n")
                names.extend(_names_of(line, source.name, odd))
                block = lines_of(rest)
            # Blank ones, too: `ahead` has to know of each for which lines are asked.
            yield at, block

    def quickly(block: Lines) -> Block | None:
        return plain_fast.csv_sums(block, names, rank)

    for at, block, sums in ahead(lines(), quickly, threads):
        if sums is not None:
            yield sums
            continue
        text = block.text()
        if not text.strip():
            continue
        frame = _csv_frame(text, names, at, odd)
        if frame is not None:
            yield typed(frame, odd)


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


def _json_lines(source: Source, odd: Odd, rank: int | None, threads: int) -> Iterator[Block]:
    decoder = msgspec.json.Decoder(Row)

    def quickly(block: Lines) -> Block | None:
        return plain_fast.json_sums(block, rank)

    for at, block, sums in ahead(whole_lines(source, odd, threads), quickly, threads):
        if sums is not None:
            yield sums
            continue
        text = block.text()
        try:
            rows = decoder.decode_lines(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            rows = list(_one_by_one(decoder, at, text, odd))
        if rows:
            yield _columns_of(rows)


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
        wanted = WANTED[name]
        if isinstance(wanted, pl.List):
            values = [v if v is None or isinstance(v, list) else [v] for v in values]
        elif wanted == pl.String:
            # JSON can spell half a character, which no text may hold.
            values = [None if v is None else v.encode("utf-8", "replace").decode() for v in values]
        out[name] = pl.Series(name, pa.array(values, ARROW[name])).cast(wanted)
    return pl.DataFrame(out or {"layer": pl.Series([None] * len(rows), dtype=pl.Int64)})


def _parquet(source: Source, odd: Odd, rank: int | None, threads: int) -> Iterator[Block]:
    from ..parquet_in import TROUBLE, opened

    with ThreadPoolExecutor(1, "retime-hash") as beside, source.as_file() as local:
        beside.submit(lambda: source.sha256)
        try:
            with opened(local) as file:
                names = file.schema.names
                if not is_plain(set(names)) or len(set(names)) < len(names):
                    told = "not the columns of a routing table: see docs/routing.md"
                    raise UnusableInput(told, path=source.name)
                _tell_ignored(names, odd)
                kept = [n for n in names if n in COLUMNS]
                if _WEIGHED & set(kept):
                    together = _together(file.batches(kept), 1)
                else:
                    plain = file.batches(kept, most_rows=AT_ONCE_ROWS)
                    together = _together(plain, TOGETHER_ROWS)

                def quickly(batches: Sequence[pa.RecordBatch]) -> Block | None:
                    return plain_fast.batch_sums(batches, rank)

                for _, batches, sums in ahead(enumerate(together), quickly, threads):
                    if sums is not None:
                        yield sums
                    else:
                        yield typed(frame_of_batch(pa.concat_batches(batches), odd), odd)
        except TROUBLE as e:
            told = f"Parquet that cannot be read to its end: {str(e)[:160]}"
            odd("truncated", f"{told}; what came before is kept", "lost")


def _together(batches: Iterator[pa.RecordBatch], n_rows: int) -> Iterator[list[pa.RecordBatch]]:
    """The batches, as many at once as have so many rows or somewhat more.

    One by one where there are weights: what is left of their sums in the last bits depends on what
    is summed at once. Those before damage come before what it raises.
    """
    waiting: list[pa.RecordBatch] = []
    n = n_bytes = 0
    try:
        for batch in batches:
            waiting.append(batch)
            n, n_bytes = n + batch.num_rows, n_bytes + batch.nbytes
            if n >= n_rows or n_bytes >= TOGETHER_BYTES:
                yield waiting
                waiting, n, n_bytes = [], 0, 0
    except Exception:
        if waiting:
            yield waiting
        raise
    if waiting:
        yield waiting
