"""A warehouse that somebody else wrote: folders, links, lists and Parquet are input like any."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from . import corpus
from .conftest import Called, call

Cleaned = Callable[[Called], str]
PATIENCE_S = 100
"""Far longer than any of these takes; a pipe that is waited for is longer still."""


@pytest.fixture(autouse=True)
def _not_for_ever() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError("something was waited for")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small warehouse of one job of two ranks, shown once, so that its tables are derived."""
    folder = tmp_path_factory.mktemp("shared")
    for rank in range(2):
        lines: list[dict[str, Any]] = [
            {"table": "ranks", "rank": rank, "world_size": 2, "host": "h"},
            {"table": "comms", "comm": "w", "name": "w", "ranks": [0, 1], "size": 2},
        ]
        for step in range(2):
            at = 1000 + 10_000 * step
            lines += [
                {"table": "events", "name": "gemm", "start_ns": at, "dur_ns": 5000, "step": step,
                 "kind": "kernel", "stream": 7, "category": "gemm"},
                {"table": "collectives", "comm": "w", "seq": step, "op": "all_reduce",
                 "start_ns": at + 5000 + rank, "end_ns": at + 8000, "step": step, "stream": 8},
                {"table": "steps", "step": step, "start_ns": at, "end_ns": at + 9000},
            ]  # fmt: skip
        (folder / f"rank{rank}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    url = folder / "w"
    paths = [str(folder / f"rank{r}.jsonl") for r in range(2)]
    assert call("ingest", *paths, "--job", "j", "--warehouse", str(url)).code == 0
    assert call("show", "j", "--warehouse", str(url)).code == 0
    shutil.rmtree(url / "job=j" / "_kept", ignore_errors=True)
    return url


@pytest.fixture
def shared(sound: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoilt: the job's folder."""
    shutil.copytree(sound, tmp_path / "w")
    return tmp_path / "w" / "job=j"


def manifests(job: Path) -> list[Path]:
    return sorted(p for p in (job / "_manifests").glob("*.json") if "derived" not in p.name)


def events_part(job: Path) -> Path:
    return sorted((job / "events").glob("*.parquet"))[0]


def restated(job: Path, part: Path) -> None:
    """Makes the manifests say that a part is as it stands now."""
    for path in (job / "_manifests").glob("*.json"):
        said = json.loads(path.read_text())
        for tables in (said["tables"], said.get("views", {})):
            for of_table in tables.values():
                for p in of_table:
                    if p["file"] == str(part.relative_to(job)):
                        p["bytes"] = os.stat(part).st_size
        path.write_text(json.dumps(said))


def asked(job: Path, cleaned: Cleaned) -> tuple[list[int], str]:
    """Exit codes of what reads a job, and all that it said; nothing is a surprise."""
    at = ("--warehouse", str(job.parent))
    codes, texts = [], []
    for command in (
        ("jobs",),
        ("problems", "j"),
        ("sql", "SELECT count(name) FROM events"),
        ("sql", "FROM step_breakdown"),
    ):
        said = call(*command, *at)
        texts.append(cleaned(said))
        codes.append(said.code)
        assert "(unexpected" not in said.err, (command, said.err)
        assert said.code in (0, 1, 2, 3), command
        if said.code:
            assert said.err.count("\n") == 1, (command, said.err)
    return codes, "\n".join(texts)


def test_it_is_sound_before(shared: Path, cleaned: Cleaned) -> None:
    codes, _ = asked(shared, cleaned)
    assert codes == [0] * 4


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def _device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _huge(path: Path) -> None:
    os.truncate(path, 1 << 40)


def _deep(path: Path) -> None:
    path.write_text("[" * 1_000_000)


def _edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        said = json.loads(path.read_text())
        change(said)
        path.write_text(json.dumps(said))

    return edit


MANIFESTS: dict[str, Callable[[Path], None]] = {
    "a pipe": _pipe,
    "a link": _link,
    "a device": _device,
    "a loop": _loop,
    "a folder": _folder,
    "huge": _huge,
    "deep": _deep,
    "names": _edited(lambda m: m.update(name=corpus.NAMES["escape"] + corpus.NAMES["script"])),
    "a long name": _edited(lambda m: m.update(name=corpus.NAMES["long"])),
    "a format": _edited(lambda m: m.update(format=corpus.NAMES["escape"])),
    "ranks": _edited(lambda m: m.update(ranks=[-(2**62), 2**62], world_sizes=[2**62, -1])),
    "times": _edited(lambda m: m.update(created_at_ns=-(2**62))),
    "files": _edited(
        lambda m: m["tables"]["events"][0].update(file="../../../../../../etc/passwd")
    ),
    "a table": _edited(lambda m: m["tables"].update({corpus.NAMES["escape"]: []})),
    "remarks": _edited(
        lambda m: m.update(
            remarks=[{"place": n, "severity": n, "code": n, "message": n, "count": 2**62}
                     for n in corpus.SHORT.values() if n != corpus.NAMES["surrogate"]]
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_manifest_is_not_believed(shared: Path, cleaned: Cleaned, kind: str) -> None:
    MANIFESTS[kind](manifests(shared)[0])
    _, text = asked(shared, cleaned)
    assert "root:" not in text


def _schema(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        pq.write_table(change(pq.ParquetFile(path).read()), path)

    return edit


def _column(name: str, values: Callable[[int], pa.Array]) -> Callable[[Path], None]:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        return table.set_column(at, name, values(len(table)))

    return _schema(change)


def _rubbish(path: Path) -> None:
    path.write_bytes(b"PAR1" + os.urandom(path.stat().st_size - 8) + b"PAR1")


def _footer(path: Path) -> None:
    """A footer that says that it is longer than the file."""
    data = bytearray(path.read_bytes())
    data[-8:-4] = (2**31 - 1).to_bytes(4, "little")
    path.write_bytes(data)


PARTS: dict[str, Callable[[Path], None]] = {
    "a pipe": _pipe,
    "a link": _link,
    "a device": _device,
    "a loop": _loop,
    "a folder": _folder,
    "rubbish": _rubbish,
    "a footer": _footer,
    "empty": lambda p: os.truncate(p, 0),
    "no name": _schema(lambda t: t.drop_columns(["name"])),
    "more columns": _schema(lambda t: t.append_column("x'); --", pa.array(["a"] * len(t)))),
    "number for text": _column("name", lambda n: pa.array(range(n))),
    "text for number": _column("start_ns", lambda n: pa.array(["x"] * n)),
    "list for number": _column("dur_ns", lambda n: pa.array([[1]] * n)),
    "numbers beyond": _column("start_ns", lambda n: pa.array([2**63 - 1] * n)),
    "negative": _column("dur_ns", lambda n: pa.array([-(2**62)] * n)),
    "nulls": _column("rank", lambda n: pa.array([None] * n, pa.int32())),
    "no UTF-8": _column("name", lambda n: pa.array([b"\xff\x1b[31m"] * n, pa.binary())),
    "names": _column(
        "name", lambda n: pa.array([corpus.NAMES["escape"] + corpus.NAMES["bidi"]] * n)
    ),
    "no rows": _schema(lambda t: t.slice(0, 0)),
}


@pytest.mark.parametrize("kind", PARTS)
def test_a_part_is_not_believed(shared: Path, cleaned: Cleaned, kind: str) -> None:
    part = events_part(shared)
    PARTS[kind](part)
    if os.path.exists(part):
        restated(shared, part)
    codes, text = asked(shared, cleaned)
    assert "root:" not in text
    if kind in ("rubbish", "footer", "a link", "empty"):
        assert codes[2] != 0 or "\n1\n" not in text


def test_a_part_that_is_another_folders_is_not_read(shared: Path, tmp_path: Path) -> None:
    """A link must not bring a reader's own files into a page that is handed on."""
    part = events_part(shared)
    secret = tmp_path / "private.parquet"
    table = pq.ParquetFile(part).read()
    named = table.set_column(
        table.schema.get_field_index("name"), "name", pa.array(["my secret"] * len(table))
    )
    pq.write_table(named, secret)
    part.unlink()
    part.symlink_to(secret)
    restated(shared, part)
    said = call("sql", "SELECT DISTINCT name FROM events", "--warehouse", str(shared.parent))
    assert "my secret" not in said.out + said.err


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A folder of the reader's own, as old as to be taken for what a dead process left."""
    home = tmp_path / "home"
    (home / "thesis").mkdir(parents=True)
    for path in (
        home / "notes",
        home / "thesis" / "text",
        home / "derived-0123456789abcdef.parquet",
    ):
        path.write_text("years of work")
    for path in (*home.rglob("*"), home):
        os.utime(path, (1e9, 1e9))
    return home


ROOMS = ("_kept", "_incoming", "_labels", "_staged/ranks", "_quarantine", "_extra", "jobs", "ranks")


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_is_written_or_removed_through_a_link(
    shared: Path, private: Path, cleaned: Cleaned, room: str
) -> None:
    """Who reads a warehouse derives in it and tidies it up: behind a link lies anything."""
    shutil.rmtree(shared / room, ignore_errors=True)
    (shared / room).symlink_to(private)
    for path in (shared / "_manifests").glob("derived-*"):
        path.unlink()  # the first to read it makes them anew
    before = sorted(private.rglob("*"))
    asked(shared, cleaned)
    at = ("--warehouse", str(shared.parent))
    for command in (
        ("verify", "--repair"), ("compact", "--grace", "0s"), ("tag", "j", "a=b"),
        ("note", "j", "text"), ("analyse",), ("prune", "j", "--raw-events", "--yes"),
        ("prune", "j", "--yes", "--grace", "0s"), ("prune", "j", "--yes", "--grace", "0s"),
    ):  # fmt: skip
        said = call(*command, *at)
        assert "(unexpected" not in said.err, (command, said.err)
    assert sorted(private.rglob("*")) == before


SETTINGS: dict[str, Callable[[Path], Any]] = {
    "a pipe": _pipe,
    "a device": _device,
    "a link": _link,
    "deep": _deep,
    "huge": _huge,
    "rules": lambda p: p.write_text(
        json.dumps({"kernels": [{"pattern": n, "category": n} for n in corpus.SHORT.values()],
                    "dims": [{"pattern": n, "dim": n} for n in corpus.SHORT.values()],
                    "degrees": dict.fromkeys(corpus.SHORT.values(), -1),
                    "step_annotation": corpus.NAMES["regex"]})
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SETTINGS)
def test_settings_are_not_believed(shared: Path, cleaned: Cleaned, kind: str) -> None:
    path = shared / "_settings.json"
    path.write_text("{}")
    SETTINGS[kind](path)
    _, text = asked(shared, cleaned)
    assert "root:" not in text


def test_folders_of_no_job_are_no_jobs(shared: Path, cleaned: Cleaned) -> None:
    for name in corpus.FILE_NAMES.values():
        os.mkdir(os.fsencode(shared.parent) + b"/job=" + name)
    (shared.parent / "job=").mkdir()
    (shared.parent / "job=file").write_text("")
    (shared.parent / "job=loop").symlink_to("job=loop")
    said = call("jobs", "--warehouse", str(shared.parent), "--json")
    assert [r["job"] for r in json.loads(said.out)] == ["j"]
    cleaned(said)


def test_frames_have_names_as_they_were(shared: Path) -> None:
    import retime

    PARTS["names"](events_part(shared))
    restated(shared, events_part(shared))
    frame = retime.open(str(shared.parent)).job("j").sql("SELECT DISTINCT name FROM events")
    assert isinstance(frame, pl.DataFrame)
    assert corpus.NAMES["escape"] + corpus.NAMES["bidi"] in frame["name"].to_list()
