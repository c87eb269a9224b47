"""What is made for views at derive: left to them where events cannot be read, or went since."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs
from retime.analysis import doors
from retime.ingest import scratch, store
from retime.ingest.errors import UsageError
from retime.ingest.keeping import slices
from retime.ingest.made import OF_EVENTS, beside, compared, events, marks, own, tasks
from retime.ingest.made.aligned import Odd
from retime.ingest.run import ingest
from retime.ingest.schema import TABLES
from retime.ingest.warehouse import Warehouse
from retime.queries import loader

TRACES = Path(doors.__file__).parent / "demo_job"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of two ranks."""
    folder = tmp_path_factory.mktemp("made") / "wh"
    ingest(str(folder), [str(TRACES / f"rank{r}.json.gz") for r in (0, 1)], job="j")
    return folder


@pytest.fixture
def wh(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(whole, tmp_path / "wh"))


def forget_derived(wh: Path) -> None:
    for path in wh.rglob("derived-*"):
        path.unlink()


def made(wh: Path) -> set[str]:
    """The tables made for views that a snapshot of the job has."""
    files = Warehouse(wh).snapshot("j").files
    return {t for t, paths in files.items() if paths and TABLES[t].made}


def test_tables_of_events_are_known() -> None:
    beside_them = {marks.TABLE, compared.KERNELS, own.GAPS, *tasks.ALL}
    assert {*loader.STORED.values(), *loader.SPARED.values(), *beside_them} >= OF_EVENTS
    assert all(TABLES[t].made for t in OF_EVENTS)


@pytest.mark.parametrize("readable", [True, False])
def test_a_job_with_a_damaged_file_of_events_is_derived(wh: Path, readable: bool) -> None:
    of_large_jobs = {beside.TABLE, marks.TABLE, compared.TABLE, compared.KERNELS, own.STRETCHES,
                     own.GAPS, *tasks.ALL}  # fmt: skip
    assert made(wh) >= OF_EVENTS - of_large_jobs
    forget_derived(wh)
    damaged = min((wh / "job=j" / "events").iterdir())
    text = damaged.read_bytes()
    # Its end says where everything is: with it the file opens, and its pages do not.
    kept = len(text) // 4 if readable else 0
    damaged.write_bytes(b"PAR1" + b"\xff" * (len(text) - 4 - kept) + text[len(text) - kept :])
    assert not made(wh)
    assert not list((wh / "job=j").glob("_made_*/*"))
    if readable:
        con = doors.open(str(wh)).job("j").con
        assert con.execute("SELECT count(*) > 0 FROM waits").fetchone() == (True,)


@pytest.mark.parametrize("refused", ["pwrite", "preadv"])
def test_a_full_temporary_folder_leaves_to_the_views_what_is_made(
    wh: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    forget_derived(wh)
    monkeypatch.setattr(events, "HELD_ROWS", 5)
    asked = []

    def full(*args: object) -> int:
        asked.append(args)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(scratch.os, refused, full)
        assert not made(wh)
    assert asked
    assert not list((wh / "job=j").glob("_made_*/*"))
    con = doors.open(str(wh)).job("j").con
    assert con.execute("SELECT count(*) > 0 FROM waits").fetchone() == (True,)


def test_no_more_rows_are_held_than_may_be(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifests = Warehouse(whole).manifests("j")[0]
    # What a manifest says of rows may not be so.
    manifests = [
        structs.replace(
            m, tables={"events": [structs.replace(p, rows=1) for p in m.tables["events"]]}
        )
        for m in manifests
    ]

    def ranks() -> list[int]:
        words = events.Words(events.Texts(), events.Texts(), events.Texts())
        opened = slices.of(store.folder(whole / "job=j"))
        return [e.rank for e in events.by_rank(opened, manifests, words)]

    assert ranks() == [0, 1]
    monkeypatch.setattr(events, "MOST_ROWS", 1000)
    assert ranks() == [0, 1]
    monkeypatch.setattr(events, "_with_kernels", lambda *asked: np.array([-1]))
    with pytest.raises(Odd):
        ranks()


def test_what_was_made_of_events_goes_with_them(wh: Path) -> None:
    job = doors.open(str(wh)).job("j")
    views = ("step_breakdown", "idle_gaps", "step_composition", "kernel_stats")
    assert all(job.con.execute(f"FROM {v} LIMIT 1").fetchall() for v in views)
    doors.open(str(wh)).prune(["j"], raw_events=True, dry_run=False)
    pruned = made(wh)
    assert pruned == {"_made_participations", "_made_lateness", "_made_instances"}

    def rows() -> list[list[tuple]]:
        con = doors.open(str(wh)).job("j").con
        return [con.execute(f"FROM {v} ORDER BY ALL").fetchall() for v in views]

    before = rows()
    forget_derived(wh)
    assert made(wh) == pruned
    assert rows() == before


def test_their_files_are_for_views_alone(wh: Path) -> None:
    found = doors.open(str(wh))
    assert not [t for t in found.files("j")["table"] if t.startswith("_")]
    with pytest.raises(UsageError, match="no table '_made_gaps' has files"):
        found.files(table="_made_gaps")


def test_they_are_the_same_however_files_number_their_texts(
    wh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written() -> dict[str, bytes]:
        made(wh)
        return {p.parent.name: p.read_bytes() for p in (wh / "job=j").glob("_made_*/*")}

    def turned(column: pa.ChunkedArray) -> pa.ChunkedArray:
        if not pa.types.is_dictionary(column.type):
            return column
        last = [len(c.dictionary) - 1 for c in column.chunks]
        return pa.chunked_array(
            [
                pa.DictionaryArray.from_arrays(
                    pa.array(
                        n - c.indices.to_numpy(zero_copy_only=False),
                        pa.int32(),
                        mask=c.is_null().to_numpy(zero_copy_only=False),
                    ),
                    c.dictionary[::-1],
                )
                for n, c in zip(last, column.chunks, strict=True)
            ],
            column.type,
        )

    def otherwise(*asked) -> Iterator[pa.Table]:
        for table in pieces(*asked):
            yield pa.table([turned(c) for c in table.columns], schema=table.schema)

    before = written()
    forget_derived(wh)
    pieces = slices.pieces
    monkeypatch.setattr(slices, "pieces", otherwise)
    after = written()
    assert [t for t in before if after.get(t) != before[t]] == []
