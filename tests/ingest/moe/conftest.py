"""Reading one file by one parser, as plain rows."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from retime.ingest import schema
from retime.ingest.detect import detect
from retime.ingest.source import LocalFile, Source

COLUMNS = [c.name for c in schema.ROUTING.columns]


def source_of(path: Path, name: str | None = None) -> Source:
    packed = path.read_bytes()[:2] == b"\x1f\x8b"
    return Source(
        name or str(path),
        path.stat().st_size,
        LocalFile(str(path)),
        None if packed else path,
        compressed=packed,
    )


class Read:
    """What a parser gave: frames by table."""

    def __init__(self, batches):
        tables: dict[str, list] = {}
        for table, batch in batches:
            assert batch.schema == schema.TABLES[table].schema, table
            batch.validate(full=True)
            tables.setdefault(table, []).append(batch)
        self.frames = {t: pl.from_arrow(pa.Table.from_batches(b)) for t, b in tables.items()}

    def rows(self, *columns: str, table: str = "routing") -> list[tuple]:
        """Rows of these columns, sorted with nulls last."""
        frame = self.frames[table].select(columns) if table in self.frames else pl.DataFrame()
        return sorted(frame.rows(), key=lambda r: [(v is None, 0 if v is None else v) for v in r])

    def problems(self) -> dict[str, tuple[str, int]]:
        """Severity and count by code."""
        found = self.frames.get("problems")
        return {} if found is None else {
            c: (s, n) for c, s, n in found.select("code", "severity", "count").rows()
        }  # fmt: skip

    def message(self, code: str) -> str:
        return self.frames["problems"].filter(pl.col("code") == code)["message"][0]


@pytest.fixture
def read():
    """`read(module, path, name=.., rank=..)`: the file by this parser."""

    def one(module, path: Path, name: str | None = None, rank: int | None = None) -> Read:
        return Read(module.parse(source_of(path, name), rank=rank))

    return one


@pytest.fixture
def format_of():
    """`format_of(path, name)`: the format that the registry finds, None where it finds none."""
    from retime.ingest.errors import UnusableInput

    def one(path: Path, name: str | None = None) -> str | None:
        try:
            return detect(source_of(path, name))
        except UnusableInput:
            return None

    return one
