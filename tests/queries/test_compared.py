"""What is stored of ranks that are compared is what the causes of lateness are worked out from."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from retime.ingest.made import beside, compared, overlap, own
from retime.queries import loader

sys.path.insert(0, str(Path(__file__).parent))

import made_up

BODY = (
    (Path(loader.__file__).parent / "straggler_causes.sql")
    .read_text(encoding="utf-8")
    .partition("CREATE VIEW _causes AS\n")[2]
    .rpartition("\nSELECT\n    x.*")[0]
)
COMPUTING = "FROM excess WHERE class = 'compute' AND explains"
COMMUNICATING = "FROM excess WHERE class IN ('wait', 'comm', 'transfer') AND explains"
CLASSES = ("idle_launch_bound", "idle_data_loading", "garbage_collection")
IDLING = "FROM excess WHERE (class LIKE 'idle%' OR class = 'garbage_collection') AND explains"


def of_blamed(condition: str, class_: str) -> str:
    """The body, in which all ranks that hold others up are of a class."""
    every = f"SELECT job, rank, key, comm AS late_on, '{class_}' AS class FROM blamed"
    return BODY.replace(condition, every)


QUERIES = {
    "sums": f"{BODY} FROM wide",
    # Of all keys, not only of those whose compute stands out.
    "kernels": BODY.replace(COMPUTING, "SELECT DISTINCT job, key, rank, 1 AS ranks FROM stretches")
    + " FROM by_kernel",
    "causes": "FROM _explained",
    "needed": f"{BODY} FROM blamed JOIN needed USING (job, key, rank)",
    "by_comm": f"{of_blamed(COMMUNICATING, 'wait')} FROM by_comm",
    "alike": f"{of_blamed(COMMUNICATING, 'transfer')} FROM alike",
    "beyond": f"{of_blamed(COMMUNICATING, 'transfer')} FROM beyond",
    **{f"gaps {c}": f"{of_blamed(IDLING, c)} FROM gaps" for c in CLASSES},
}


def job(seed: int) -> dict[str, made_up.Rows]:
    """Ranks with devices that meet again and again on two communicators, or by twos."""
    r = random.Random(seed)
    rows = made_up.job(seed)
    base = min((x["start_ns"] for x in rows["ranks"]), default=0)
    n = r.randint(2, 4)
    rows["ranks"] = [
        {"rank": k, "host": "a", "start_ns": base, "end_ns": base + r.randint(100, 400),
         "clock_offset_ns": r.randint(-9, 9), "clock_error_ns": r.choice((0, 0, 3)),
         "clock_drift_ppm": r.choice((0.0, 0.0, 20_000.0, -3_333.3))}
        for k in range(n)
    ]  # fmt: skip
    rows["events"] = [e for e in rows["events"] if e["rank"] < n and e["kind"] != "host_op"]
    for e in rows["events"]:
        if e["kind"] in ("annotation", "python") and r.random() < 0.3:
            e["name"] = r.choice(("Python GC", "enumerate(DataLoader)#x", "gc step"))
    if r.random() < 0.4:
        rows["steps"] = []
    rows["steps"] = [s for s in rows["steps"] if s["rank"] < n]
    for s in rows["steps"]:
        s["host_start_ns"] = r.choice((None, s["start_ns"] - r.randint(-5, 30)))
    rows["collectives"] = []
    paired = r.random() < 0.2
    for k in range(n):
        t = base
        for c in range(8):
            t += r.randint(0, 40)
            long = r.choice((0, 5, 30, 60))
            id = (k << 40) + 20_000 + 2 * c
            rows["events"] += [
                {"rank": k, "event_id": id, "kind": "kernel", "category": "comm", "name": "nccl",
                 "start_ns": t, "dur_ns": long},
                {"rank": k, "event_id": id + 1, "kind": "kernel", "name": r.choice("abc"),
                 "start_ns": t - r.randint(0, 30), "dur_ns": r.choice((0, 9, 40, None)),
                 "grid_blocks": r.choice((8, 8, 8, None))},
            ]  # fmt: skip
            op = r.choice(("send", "recv")) if paired else "all_reduce"
            rows["collectives"].append(
                {"comm": "wwvw"[c % 4], "collective_id": c, "match": "exact", "rank": k, "op": op,
                 "group_size": n, "start_ns": t, "end_ns": t + long, "event_id": id,
                 "source": "kineto", "peer": (k + 1) % n if paired else None, "in_bytes": 8}
            )  # fmt: skip
            if r.random() < 0.05:
                rows["collectives"].pop()
            t += r.choice((0, long, long, long // 2))
    return rows


def pair(tmp_path: Path, rows: dict[str, made_up.Rows]) -> tuple[list[dict], set[str]]:
    """What each query gives from stored rows and from all work; and the tables that are stored."""
    files, made = made_up.written(tmp_path / "j", rows)
    found = []
    for its in ({**files, **made}, files):
        con = loader.connect({"j": its}, threads=1)
        found.append({
            name: sorted(map(str, con.sql(q).project("COLUMNS(*)").fetchall()))
            for name, q in QUERIES.items()
        })  # fmt: skip
    return found, set(made)


@pytest.mark.parametrize("block_rows", [5, 1 << 16])
@pytest.mark.parametrize("seed", range(6))
def test_stored_sums_are_those_of_all_work(tmp_path: Path, monkeypatch, seed: int, block_rows: int):
    monkeypatch.setattr(overlap, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(beside, "LEAST_ROWS", 1)
    (stored, computed), made = pair(tmp_path, job(seed))
    assert {compared.TABLE, compared.KERNELS, own.STRETCHES} <= made
    assert computed["sums"]
    for name in QUERIES:
        assert stored[name] == computed[name], name


def test_a_rank_without_a_device_is_left_to_the_view(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(beside, "LEAST_ROWS", 1)
    rows = job(0)
    rows["events"] = [e for e in rows["events"] if e["rank"] or e["kind"] != "kernel"]
    alone = {"rank": 0, "event_id": 7, "kind": "host_op", "name": "aten::mm", "dur_ns": 9}
    rows["events"].append({**alone, "start_ns": rows["ranks"][0]["start_ns"]})
    (stored, computed), made = pair(tmp_path, rows)
    assert not made & {compared.TABLE, own.STRETCHES, own.GAPS}
    assert stored == computed


def test_too_many_kernels_are_left_to_the_view(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(beside, "LEAST_ROWS", 1)
    monkeypatch.setattr(compared, "MOST_ROWS", 3)
    (stored, computed), made = pair(tmp_path, job(0))
    assert not made & {compared.TABLE, compared.KERNELS, own.STRETCHES, own.GAPS}
    assert {beside.TABLE} <= made
    assert stored == computed
