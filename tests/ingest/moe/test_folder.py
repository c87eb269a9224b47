"""Routing logs of several producers in one folder become one job."""

import json
import re
from pathlib import Path

import duckdb
import numpy as np
import pytest
from retime.ingest.moe import plain
from retime.ingest.run import ingest

DOC = Path(__file__).resolve().parents[3] / "docs" / "routing.md"


def test_a_mixed_folder_is_one_job(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    for rank in (0, 1):
        record = {"step": 5, "stage": "pre_dispatch", "block": "decoder", "layer": 2, "rank": rank,
                  "num_tokens": 2, "topk": 1, "top_indices": [[0], [rank]]}  # fmt: skip
        path = folder / f"router_trace_rank{rank}.jsonl"
        path.write_text(json.dumps(record) + "\n")
    (folder / "logits_rank0.bin").write_bytes(b"\x80\x3f" * 100)
    np.savez(folder / "dispatch_rank1.npz", num_tokens_per_expert=np.array([3, 4]), step=6)
    (folder / "eplb_weight.csv").write_text("90,132\n20,107\n")
    (folder / "mine.csv").write_text("step,layer,rank,expert,count\n7,1,0,2,30\n")
    (folder / "README.md").write_text("step,layer: see docs\n")
    report = ingest(tmp_path / "wh", folder, job="moe", workers=1)
    assert report.exit_code == 0
    found = sorted((Path(s.name).name, s.format, s.status) for s in report.sources)
    assert found == [
        ("dispatch_rank1.npz", "deepep", "new"), ("eplb_weight.csv", "eplb", "new"),
        ("mine.csv", "routing", "new"), ("router_trace_rank0.jsonl", "megatron-router", "new"),
        ("router_trace_rank1.jsonl", "megatron-router", "new"),
    ]  # fmt: skip
    assert {Path(name).name for name, _ in report.problems} == {"logits_rank0.bin", "README.md"}
    parts = [str(p) for p in (tmp_path / "wh").rglob("*.parquet") if "routing" in str(p)]
    rows = duckdb.sql(
        f"select source, rank, sum(tokens) from read_parquet({parts}) group by all order by all"
    ).fetchall()
    assert rows == [
        ("deepep", 1, 7), ("eplb", None, 349), ("megatron-router", 0, 2),
        ("megatron-router", 1, 2), ("routing", 0, 30),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_the_examples_of_the_documentation_are_read(tmp_path, read, format_of, kind):
    blocks = re.findall(rf"```{kind}\n(.*?)```", DOC.read_text(), re.S)
    assert len(blocks) == (2 if kind == "csv" else 1)
    for text in blocks:
        path = tmp_path / "example"
        path.write_text(text)
        assert format_of(path) == "routing"
        got = read(plain, path)
        assert got.problems() == {}
        rows = got.rows("step", "layer", "rank", "expert", "tokens", "weight_sum")
        assert (7, 3, 0, 5, 2, 0.75) in rows or (7, 3, 0, 5, 1, 0.25) in rows
