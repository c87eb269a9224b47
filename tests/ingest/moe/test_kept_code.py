"""Machine code of routing logs: read without the compiler, and as without any."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from retime.ingest import machine_code
from retime.ingest.moe import (
    counted,
    kept_code,
    plain_blocks,
    plain_blocks_code,
    plain_fast,
    plain_lines,
    tally_fast,
    tally_fast_code,
)

CODES = (tally_fast_code.CODE, plain_blocks_code.CODE)


READ = """
import sys
from pathlib import Path
from retime.ingest import detect
from retime.ingest.moe import kept_code
from retime.ingest.source import LocalFile, Source
kept_code.WORTH_LOADING_BYTES = int(sys.argv[2])
path = Path(sys.argv[1])
source = Source(str(path), path.stat().st_size, LocalFile(str(path)), path)
for table, batch in detect.parser(detect.detect(source)).parse(source):
    if table == "routing":
        print(batch.select(["step", "layer", "expert", "tokens", "weight_sum"]).to_pylist())
from retime.ingest.machine_code import _loaded
print("numba" in sys.modules, len(_loaded))
"""


def write(path: Path, kind: str) -> Path:
    rng = np.random.default_rng(3)
    if kind == "npy":
        np.save(path / "routed_experts.npy", rng.integers(0, 9, (2000, 3, 4)).astype(np.uint8))
        return path / "routed_experts.npy"
    ids = rng.integers(0, 9, (300, 4))
    if kind == "trace":
        call = {"step": 1, "stage": "pre_dispatch", "layer": 3, "rank": 2, "num_tokens": len(ids),
                "topk": 4, "top_indices": ids.tolist()}  # fmt: skip
        (path / "x.jsonl").write_text(json.dumps(call) + "\n")
        return path / "x.jsonl"
    rows = [{"step": 1, "layer": 2, "rank": 0, "token": i, "experts": r, "weights": [0.1, 0.7] * 2}
            for i, r in enumerate(ids.tolist())]  # fmt: skip
    if kind == "jsonl":
        (path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return path / "x.jsonl"
    lines = ["step,layer,rank,token,experts,weights"]
    for r in rows:
        lists = (" ".join(map(str, r[k])) for k in ("experts", "weights"))
        lines.append(f"1,2,0,{r['token']},{','.join(lists)}")
    (path / "x.csv").write_text("\n".join(lines))
    return path / "x.csv"


def test_kept_code_needs_no_compiler_and_gives_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    for name in ("NUMBA_BOUNDSCHECK", "NUMBA_DISABLE_JIT"):
        monkeypatch.delenv(name, raising=False)
    for code in CODES:
        machine_code.make(code)

    def read(path: Path, worth_loading: int) -> list[str]:
        ran = subprocess.run([sys.executable, "-c", READ, str(path), str(worth_loading)],
                             capture_output=True, text=True, check=True)  # fmt: skip
        return ran.stdout.splitlines()

    for kind in ("csv", "jsonl", "trace", "npy"):
        path = write(tmp_path, kind)
        quick, slow = read(path, 0), read(path, 1 << 40)
        assert quick[:-1] == slow[:-1]
        assert len(quick) > 1
        assert (quick[-1], slow[-1]) == ("False 1", "False 0")


@pytest.fixture
def fresh(monkeypatch):
    """As in a process that has read nothing and loaded nothing, of a code that is compiled nowhere;
    gives the code and what was asked of `machine_code` for it."""
    code = machine_code.Code("retime.ingest.moe.nowhere", (), ())
    asked: list[str] = []
    monkeypatch.setattr(kept_code, "_read", defaultdict(int))
    monkeypatch.setattr(kept_code, "_asked_at", defaultdict(int))
    monkeypatch.setattr(machine_code, "plain", lambda: False)
    monkeypatch.setattr(machine_code, "is_loaded", lambda code: False)
    monkeypatch.setattr(machine_code, "load", lambda code: asked.append("load"))
    monkeypatch.setattr(machine_code, "start", lambda code: asked.append("start") or True)
    return code, asked


def test_many_small_logs_are_worth_it_as_one_large(fresh):
    code, asked = fresh
    small = kept_code.WORTH_LOADING_BYTES // 4
    assert [kept_code.functions(code, small) for _ in range(3)] == [None] * 3
    assert asked == []
    kept_code.functions(code, small)
    assert asked == ["load"]
    kept_code.functions(code, small)
    assert asked == ["load"]  # it is not looked for at every line
    kept_code.functions(code, kept_code.WORTH_MAKING_BYTES)
    assert asked == ["load", "load", "start"]


def test_where_nothing_can_be_kept_it_is_made_here(fresh, monkeypatch):
    code, _ = fresh
    monkeypatch.setattr(machine_code, "start", lambda code: False)
    monkeypatch.setattr(kept_code, "_made_here", lambda code: {"here": print})
    assert kept_code.functions(code, kept_code.WORTH_MAKING_BYTES) == {"here": print}


def test_a_thread_waits_for_another_that_loads(fresh, monkeypatch):
    code, _ = fresh
    loaded: list[machine_code.Functions] = []
    begun, go = threading.Event(), threading.Event()

    def load(code):
        if not loaded:
            begun.set()
            assert go.wait(60)
            loaded.append({"f": print})
        return loaded[0]

    monkeypatch.setattr(machine_code, "load", load)
    monkeypatch.setattr(machine_code, "is_loaded", lambda code: bool(loaded))
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(kept_code.functions(code, 1 << 20)))
        for _ in range(2)
    ]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    go.set()
    for t in threads:
        t.join()
    assert found == [{"f": print}] * 2


def test_counts_leave_nothing_behind_for_the_next():
    fast = {f.name: getattr(tally_fast, f.name) for f in tally_fast_code.CODE.functions}
    ids = np.array([[1, 65535], [-1, 4], [-1, -1]])
    weights = np.array([[0.5, 1.0], [0.0, np.inf], [1.0, 1.0]])
    for _ in range(2):
        found = counted._count_fast(fast, ids, weights)
        assert found.experts.tolist() == [1, 4, 65535]
        assert found.tokens.tolist() == [1, 1, 1]
        assert found.weights is not None
        assert found.weights.tolist() == [0.5, 0.0, 1.0]
        assert (found.n_padding, found.n_dropped, found.n_bad_weights) == (1, 1, 1)


FAR = (1 << 63) - 1
FAST = {f.name: getattr(tally_fast, f.name) for f in tally_fast_code.CODE.functions}


def counts(found: counted.Counted) -> list:
    return [None if v is None else np.asarray(v).tolist() for v in found]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("ids", [(FAR,), (-FAR - 1,), (FAR, -FAR - 1)])
def test_ids_at_the_ends_of_64_bits_are_told_and_leave_nothing(monkeypatch, ids, weighted):
    rng = np.random.default_rng(5)
    sound = rng.integers(0, 70, (512, 4))
    odd = sound.copy()
    odd[7, : len(ids)] = ids
    weights = rng.random(odd.shape) if weighted else None
    for given in (odd, sound):
        with monkeypatch.context() as m:
            m.setattr(counted, "functions", lambda *a: FAST)
            quick = counts(counted.count(given, weights))
            m.setattr(counted, "functions", lambda *a: None)
            assert quick == counts(counted.count(given, weights))
        assert sum(quick[1]) == given.size - (len(ids) if given is odd else 0)


def test_a_count_that_fails_between_two_parts_leaves_nothing(monkeypatch):
    monkeypatch.setattr(counted, "COUNT_AT_ONCE", 8)
    monkeypatch.setattr(counted, "functions", lambda *a: FAST)
    ids = np.arange(2048).reshape(-1, 4)
    weights = np.ones(ids.shape)
    want = counts(counted.count(ids % 3, weights))

    def fails(sums, more):
        raise MemoryError

    with monkeypatch.context() as m:
        m.setattr(counted, "added", fails)
        with pytest.raises(MemoryError):
            counted.count(ids, weights)
    assert counts(counted.count(ids % 3, weights)) == want


def defines(node: ast.stmt) -> set[str]:
    """The names that a statement gives a value or changes."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    stored = [n for n in ast.walk(node) if isinstance(getattr(n, "ctx", None), ast.Store)]
    return {n.id for s in stored for n in ast.walk(s) if isinstance(n, ast.Name)}


WHO_COMPILES = ("compile_beside", "compile_turns")
"""Modules that say when something is compiled, not what."""


def follow(module: str, name: str, met: set[tuple[str, str]]) -> None:
    """Adds to `met` a name of a module, and what of the package its definition takes, and so on."""
    if (module, name) in met:
        return
    met.add((module, name))
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            for there in node.names:
                if there.name in WHO_COMPILES:
                    continue
                if (there.asname or there.name) == name:
                    package = module.rsplit(".", node.level)[0]
                    follow(f"{package}.{node.module}", there.name, met)
        elif name in defines(node):
            for taken in ast.walk(node):
                if isinstance(taken, ast.Name):
                    follow(module, taken.id, met)


@pytest.mark.parametrize("code", CODES, ids=lambda c: c.module.rpartition(".")[2])
def test_whatever_is_compiled_in_is_in_the_key(code):
    met: set[tuple[str, str]] = set()
    for function in code.functions:
        follow(code.module, function.name, met)
    needed = {module.removeprefix("retime.ingest.") for module, _ in met}
    assert "moe.text_numbers" in needed
    assert needed - {s.removesuffix(".py").replace("/", ".") for s in code.sources} == set()


def test_experts_are_as_many_as_the_room_given_for_them(monkeypatch):
    """However many there were when the code was made."""
    monkeypatch.setattr(kept_code, "WORTH_LOADING_BYTES", 0)
    monkeypatch.setattr(plain_fast, "MAX_EXPERTS", 8)
    monkeypatch.setattr(plain_fast._rooms, "block", None)
    assert plain_blocks.sum_json
    for expert in (7, 8):
        line = b'{"layer": 1, "rank": 0, "token": 1, "experts": [2, %d]}' % expert
        sums = plain_fast.json_sums(plain_lines.lines_of(line), None)
        assert (sums is None) == (expert == 8)
