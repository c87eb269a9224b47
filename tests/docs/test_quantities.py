"""The page of quantities: its examples are asked, its views all there, its pictures drawn."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import retime
from retime.ingest.schema import TABLES
from retime.queries import loader, manual

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "quantities.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(csv|sql|text)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


class Section(NamedTuple):
    """A section's title, its rows by table, and its questions with the answers as printed."""

    title: str
    tables: dict[str, list[dict[str, Any]]]
    asked: list[tuple[str, str]]


def sections() -> Iterator[Section]:
    """The page's sections; the first, which has no title, has what all others start from."""
    for title, text in re.findall(r"(?:^## (.*?)\n|\A)(.*?)(?=^## |\Z)", PAGE, re.M | re.S):
        found, tables, asked = BLOCK.findall(text), {}, []
        for i, (kind, body) in enumerate(found):
            if kind == "csv":
                name, rows = body.split("\n", 1)
                tables[name.removeprefix("# ")] = table(name.removeprefix("# "), rows)
            elif kind == "sql":
                after, answer = found[i + 1]
                assert after == "text", body
                asked.append((body, answer))
        yield Section(title, tables, asked)


def table(name: str, text: str) -> list[dict[str, Any]]:
    """Rows of a table, each value as the type that its column has; nothing is null."""
    types = {f.name: f.type for f in TABLES[name].schema}
    return [
        {column: value(types[column], cell) for column, cell in row.items()}
        for row in csv.DictReader(io.StringIO(text))
    ]


def value(kind: pa.DataType, cell: str) -> Any:
    if cell == "":
        return None
    if pa.types.is_list(kind):
        return [int(v) for v in cell.split()]
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[cell]
    return int(cell) if pa.types.is_integer(kind) else cell


def printed(v: Any) -> str:
    if v is None:
        return "null"
    if isinstance(v, bool):
        return str(v).lower()
    return f"{v:.10g}" if isinstance(v, float) else str(v)


SHARED, *EXAMPLES = sections()


@pytest.mark.parametrize(
    "section", [s for s in EXAMPLES if s.asked], ids=lambda section: section.title
)
def test_an_example_says_what_the_views_say(section: Section, tmp_path: Path) -> None:
    files = {}
    for name, rows in {**SHARED.tables, **section.tables}.items():
        columns = {c for row in rows for c in row}
        batch = TABLES[name].batch({c: [row.get(c) for row in rows] for c in columns})
        pq.write_table(pa.Table.from_batches([batch]), tmp_path / f"{name}.parquet")
        files[name] = [str(tmp_path / f"{name}.parquet")]
    con = loader.connect({"j": files}, threads=1)
    for query, answer in section.asked:
        got = [[printed(v) for v in row] for row in con.execute(query).fetchall()]
        lines = [re.split(r"  +", line.strip()) for line in answer.splitlines()]
        assert got == lines, query


def test_the_path_and_slack_of_the_picture(tmp_path: Path) -> None:
    """Two ranks compute for 40 and 100 us, then transfer for 20 us: what the page says of them."""
    warehouse = retime.open(tmp_path / "warehouse")
    for rank, compute in enumerate((40, 100)):
        path = tmp_path / f"{rank}.json"
        path.write_text(json.dumps(one_step(rank, compute)))
        warehouse.ingest(path, job="j")
    job = warehouse.job("j")
    path_of = job.critical_path().select("class", "name", "dur_ns").rows()
    assert path_of == [("work", "gemm", 100_000), ("transfer", "all_reduce", 20_000)]
    slack = job.sql("SELECT rank, slack_ns FROM slack WHERE name = 'gemm' ORDER BY rank")
    assert slack.rows() == [(0, 60_000), (1, 0)]
    section = PAGE[PAGE.index("## Critical path") :]
    assert "120 us in all; rank 0's kernel has a slack of 60 us" in section


def one_step(rank: int, compute: int) -> dict[str, Any]:
    """A Kineto trace of a step: a kernel of so many us, then an all-reduce that ends at 120."""
    members = {"pg_name": "0", "pg_desc": "dp", "ranks": [0, 1], "backend_config": "cuda:nccl"}
    said = {
        "Collective name": "allreduce", "In msg nelems": 2000, "Out msg nelems": 2000,
        "dtype": "Float", "Group size": 2, "Process Group Name": "0", "Seq": 1,
        "Process Group Ranks": "[0, 1]",
    }  # fmt: skip

    def row(cat: str, name: str, start: int, dur: int, **args: Any) -> dict[str, Any]:
        on = {"pid": 0, "tid": 7} if cat == "kernel" else {"pid": 1, "tid": 1}
        return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": dur, **on, "args": args}

    device = {"device": 0, "stream": 7}
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    return {
        "schemaVersion": 1, "baseTimeNanoseconds": 0, "host_name": "h",
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2, "pg_count": 1,
                            "pg_config": [members]},
        "traceEvents": [
            row("user_annotation", "ProfilerStep#1", 0, 130),
            row("cuda_runtime", "cudaLaunchKernel", 1, 1, correlation=1),
            row("cuda_runtime", "cudaLaunchKernel", 3, 1, correlation=2),
            row("kernel", "gemm", 10, compute, correlation=1, **device),
            row("kernel", name, 10 + compute, 120 - compute, correlation=2, **device, **said),
        ],
    }  # fmt: skip


def test_every_public_view_is_on_the_page() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    views = {e.name for e in manual.dictionary() if e.kind == "view"}
    assert views - named == set()
    assert {"critical_path", "slack", "replay_scores"} <= named


def test_every_section_has_its_picture_and_its_caveat() -> None:
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        assert "](pictures/" in section, section[:40]
        assert "**Caveat.**" in section, section[:40]


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (DOCS / target).exists(), target


def test_columns_that_the_page_names_exist() -> None:
    known = {f.name for e in manual.dictionary() for f in e.fields}
    known |= {e.name for e in manual.dictionary()}
    said = set(re.findall(r"`(\w+_(?:ns|gbps|share|source|known|best|bytes))`", PAGE))
    assert said - known == {"_transfer_gbps", "_ns"} & said


def drawn() -> dict[str, str]:
    scope: dict[str, Any] = {"__name__": "draw"}
    exec(compile((DOCS / "pictures" / "draw.py").read_text(), "draw.py", "exec"), scope)
    return scope["pictures"]()


def test_pictures_are_what_the_script_draws() -> None:
    made = drawn()
    assert set(re.findall(r"\]\(pictures/(.*?)\)", PAGE)) == {f"{name}.svg" for name in made}
    for name, svg in made.items():
        path = DOCS / "pictures" / f"{name}.svg"
        assert path.read_text(encoding="utf-8") == svg, f"python {path.parent / 'draw.py'}"


@pytest.mark.parametrize("path", sorted((DOCS / "pictures").glob("*.svg")), ids=lambda p: p.stem)
def test_a_picture_says_what_it_shows_and_keeps_inside(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    space = "{http://www.w3.org/2000/svg}"
    title = root.find(f"{space}title")
    assert title is not None
    assert title.text
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter(f"{space}rect"):
        x, y = float(box.attrib["x"]), float(box.attrib["y"])
        assert 0 <= x <= x + float(box.attrib["width"]) <= width
        assert 0 <= y <= y + float(box.attrib["height"]) <= height
    for text in root.iter(f"{space}text"):
        assert 0 <= float(text.attrib["x"]) <= width
        assert 0 <= float(text.attrib["y"]) <= height
