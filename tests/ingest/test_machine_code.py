"""Machine code that is kept: made once, called without the compiler, never trusted blindly."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from retime.ingest import machine_code
from retime.ingest.kineto import bytescan_code, quick, scanner
from retime.ingest.kineto import readers as kineto_readers
from retime.ingest.kineto.bytescan_code import CODE
from retime.ingest.kineto.rawbatch import Envelope


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of caches with the scan's code in it."""
    folder = tmp_path_factory.mktemp("caches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        machine_code.make(CODE, check=bytescan_code.check)
    return folder


@pytest.fixture
def caches(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Here a process that has loaded nothing finds them; the folder of the code."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(made))
    monkeypatch.setattr(machine_code, "_loaded", {})
    monkeypatch.setattr(machine_code, "_makers", {})
    for name in ("NUMBA_BOUNDSCHECK", "NUMBA_DISABLE_JIT"):
        monkeypatch.delenv(name, raising=False)
    return made / "retime"


def kept(folder: Path) -> Path:
    (path,) = folder.glob("code-bytescan-*")
    return path


EVENTS = [
    b'{"ph":"X","cat":"c%d","name":"n%d","ts":%d.%03d,"dur":1,"args":{"stream":%d,"grid":[2,%d,1]}}'
    % (i % 3, i % 700, i, i % 1000, i % 5, i % 9)
    for i in range(9000)
]
TRACE = b'{"schemaVersion":1,"traceEvents":[' + b",\n".join(EVENTS) + b"]}"


def columns(read_events, **options) -> list[tuple[list[int], list[list], list[str]]]:
    """Batches as (sizes, integers, texts), for one reader."""
    found = []
    for b in read_events(TRACE, Envelope(), print, batch_rows=2000, block_bytes=1 << 16, **options):
        texts = [
            [b.symbols.text(c) if c >= 0 else None for c in b.cols[n].tolist()]
            for n in ("cat", "name")
        ]
        found.append((b.n, [b.cols[n].tolist() for n in ("ts_ns", "stream", "grid")], texts))
    return found


def test_kept_code_reads_as_the_reader_without_any(caches: Path) -> None:
    assert machine_code.load(CODE) is not None
    assert columns(scanner.read_events) == columns(quick.read_events)


def test_it_needs_no_compiler(caches: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_bytes(TRACE)
    code = (
        "import sys; from retime.ingest.kineto import scanner; "
        "from retime.ingest.kineto.rawbatch import Envelope; "
        f"read = scanner.read_events(open({str(trace)!r}, 'rb'), Envelope(), print); "
        "print(sum(b.n for b in read), 'numba' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "9000 False\n"


@pytest.mark.parametrize("after", [0, 1, 3, 99])
def test_reading_goes_on_with_the_code_when_it_is_there(caches: Path, after: int) -> None:
    asked = []

    def ready() -> bool:
        asked.append(1)
        return len(asked) > after

    assert columns(kineto_readers.read_both, ready=ready) == columns(quick.read_events)


def test_another_process_makes_it_once(caches: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    started = []

    class Popen:
        def __init__(self, command: list[str], **options: object) -> None:
            started.append(command)

        def poll(self) -> int | None:
            return None

    monkeypatch.setattr(machine_code.subprocess, "Popen", Popen)
    assert machine_code.start(CODE)
    assert machine_code.start(CODE)
    assert machine_code.is_making(CODE)
    monkeypatch.setattr(machine_code, "_makers", {})  # another process, at the same time
    assert machine_code.start(CODE)
    assert len(started) == 1
    (mark,) = (tmp_path / "retime").iterdir()
    assert machine_code.is_making(CODE)
    mark.unlink()  # it failed, or was killed long ago
    assert not machine_code.is_making(CODE)
    mark.touch()
    old = time.time() - 2 * machine_code.STALE_S
    os.utime(mark, (old, old))
    monkeypatch.setattr(machine_code, "_makers", {})
    assert machine_code.start(CODE)
    assert len(started) == 2


def test_where_no_process_can_be_begun_nobody_waits_for_it(
    caches: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def refused(*_: object, **options: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(machine_code.subprocess, "Popen", refused)
    assert not machine_code.start(CODE)
    assert not machine_code.is_making(CODE)
    assert not list((tmp_path / "retime").iterdir())


def test_a_maker_that_fails_is_known(caches: Path, monkeypatch) -> None:
    class Failed:
        def poll(self) -> int:
            return 1

    monkeypatch.setattr(machine_code, "_makers", {CODE: Failed()})
    assert not machine_code.start(CODE)
    assert not machine_code.is_making(CODE)


def test_a_damaged_file_is_not_run(caches: Path) -> None:
    path = kept(caches)
    whole = path.read_bytes()
    try:
        for damaged in (b"", whole[:-1], whole[:200], whole[:-20] + bytes(20), b"{}\n", b"[]\n"):
            path.write_bytes(damaged)
            assert machine_code.load(CODE) is None
    finally:
        path.write_bytes(whole)
    assert machine_code.load(CODE) is not None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners of files here")
def test_a_file_or_folder_that_others_may_write_to_is_not_run(caches: Path) -> None:
    for place in (kept(caches), caches):
        mode = place.stat().st_mode
        place.chmod(mode | 0o022)
        assert machine_code.load(CODE) is None
        place.chmod(mode)
    assert machine_code.load(CODE) is not None


def test_checked_runs_use_the_functions_as_they_are(caches: Path, monkeypatch) -> None:
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    assert machine_code.load(CODE) is None
    assert not machine_code.start(CODE)


def test_arrays_of_another_kind_are_refused(caches: Path) -> None:
    functions = machine_code.load(CODE)
    assert functions is not None
    slots, hashes = np.full(8, -1, np.int32), np.arange(3, dtype=np.uint64)
    functions["rebuild_slots"](slots, hashes, 3)
    assert slots.tolist() == [0, 1, 2, -1, -1, -1, -1, -1]
    for wrong in (slots.astype(np.int64), slots.reshape(2, 4), slots[::2]):
        with pytest.raises(TypeError, match="rebuild_slots"):
            functions["rebuild_slots"](wrong, hashes, 3)


def test_each_call_gets_the_arrays_it_is_given(caches: Path) -> None:
    functions = machine_code.load(CODE)
    assert functions is not None
    hashes = np.arange(3, dtype=np.uint64)
    one, other = (np.full(size, -1, np.int32) for size in (8, 4))
    for slots in (one, other, one[:4], one):
        slots[:] = -1
        functions["rebuild_slots"](slots, hashes, 3)
        assert slots.tolist() == [0, 1, 2, *[-1] * (len(slots) - 3)]
    for size in (4, 8, 16, 32):  # an array that is gone may have had the place of the next
        slots = np.full(size, -1, np.int32)
        functions["rebuild_slots"](slots, hashes, 3)
        assert slots.tolist()[:4] == [0, 1, 2, -1]
        del slots


def test_where_nothing_can_be_kept_nothing_is_begun(
    caches: Path, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert machine_code.load(CODE) is None
    assert not machine_code.start(CODE)


def test_code_of_another_compiler_is_not_called(caches: Path, tmp_path: Path, monkeypatch) -> None:
    for version in ("1", "2"):
        folder = tmp_path / version
        folder.mkdir()
        (folder / "numba.py").touch()
        (folder / "_version.py").write_text(version)
    names = [machine_code._path(CODE)]
    for version in ("1", "2"):
        monkeypatch.setattr(
            machine_code.importlib.util, "find_spec",
            lambda name, of=version: SimpleNamespace(origin=str(tmp_path / of / "numba.py")),
        )  # fmt: skip
        names.append(machine_code._path(CODE))
        assert machine_code.load(CODE) is None
    (tmp_path / "2" / "_version.py").unlink()  # then the installed package says which
    names.append(machine_code._path(CODE))
    assert len(set(names)) == len(names)


def test_an_array_that_is_not_as_declared_is_refused() -> None:
    rows = np.zeros((4, 4), np.uint8)
    in_order = machine_code._caller(0, machine_code.Function("f", "u1:2"))
    of_any_strides = machine_code._caller(0, machine_code.Function("f", "u1:2A f8:1"))
    for call, given in (
        (in_order, [rows[:, :2]]),
        (in_order, [rows.astype(np.int8)]),
        (in_order, [rows[0]]),
        (of_any_strides, [rows[:, :2], np.zeros(3, np.float32)]),
    ):
        with pytest.raises(TypeError, match="not an array of"):
            call(*given)


def test_who_waits_has_what_others_make(caches: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not machine_code.wait()  # nothing was begun
    path = machine_code._path(CODE)
    path.parent.mkdir()

    class Maker:
        done = 0

        def poll(self) -> int | None:
            return 0 if self.done else None

        def wait(self) -> None:
            self.done += 1
            path.touch()

    maker = Maker()
    monkeypatch.setattr(machine_code, "_makers", {CODE: maker})
    assert machine_code.wait()
    assert not machine_code.wait()
    assert maker.done == 1
    path.unlink()
    mark = machine_code._making(path)  # of another process, which then fails
    mark.touch()
    monkeypatch.setattr(machine_code, "_makers", {CODE: None})
    monkeypatch.setattr(machine_code.time, "sleep", lambda s: mark.unlink())
    assert machine_code.wait()
