"""FLAME-MoE's Parquet traces: columns, types and paths as its dataset card gives them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest.errors import UnusableInput
from retime.ingest.moe import flame

AT_ONCE = 1 << 20


@pytest.fixture
def layer(tmp_path):
    def write(ids, scores, where="actives/iter_5473/layer_02.parquet", fixed=False):
        path = tmp_path / where
        path.parent.mkdir(parents=True, exist_ok=True)
        k = 6 if fixed else -1
        table = pa.table(
            {
                "scores": pa.array([np.array(s, np.float16) for s in scores],
                                   pa.list_(pa.float16(), k)),
                "indices": pa.array(ids, pa.list_(pa.int16(), k)),
            }
        )  # fmt: skip
        pq.write_table(table, path)
        return path

    return write


@pytest.mark.parametrize("fixed", [False, True])
def test_a_layer_becomes_counts_and_score_sums(layer, read, format_of, fixed):
    ids = [[34, 28, 21, 47, 3, 12], [3, 34, 1, 0, 2, 63]]
    scores = [[0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625]] * 2
    path = layer(ids, scores, fixed=fixed)
    got = read(flame, path)
    assert got.rows("expert", "tokens", "weight_sum") == [
        (0, 1, 0.0625), (1, 1, 0.125), (2, 1, 0.03125), (3, 2, 0.53125), (12, 1, 0.015625),
        (21, 1, 0.125), (28, 1, 0.25), (34, 2, 0.75), (47, 1, 0.0625), (63, 1, 0.015625),
    ]  # fmt: skip
    assert set(got.rows("step", "layer", "rank", "token_class")) == {(5473, 2, None, "real")}
    assert got.problems() == {}
    assert format_of(path) == "flame-moe"


def test_large_files_are_streamed_and_found_by_their_footer(layer, read, format_of):
    rng = np.random.default_rng(5)
    n = AT_ONCE // 6 + 1000
    ids = np.argsort(rng.random((n, 64)), axis=1)[:, :6].astype(np.int16)
    scores = rng.random((n, 6)).astype(np.float16)
    path = layer(ids.tolist(), scores)
    assert path.stat().st_size > 65536
    got = read(flame, path)
    assert [t for _, t in got.rows("expert", "tokens")] == np.bincount(ids.ravel()).tolist()
    sums = np.bincount(ids.ravel(), scores.astype(np.float64).ravel())
    assert [w for _, w in got.rows("expert", "weight_sum")] == pytest.approx(sums)
    assert format_of(path) == "flame-moe"


def test_odd_values_are_told(layer, read):
    path = layer([[1, -1], [], [2, 1]], [[0.5, 0.5], [], [float("nan"), 0.25]], "x.parquet")
    got = read(flame, path)
    assert got.rows("token_class", "expert", "tokens", "weight_sum") == [
        ("padding", None, 1, None), ("real", 1, 2, 0.75), ("real", 2, 1, 0.0),
    ]  # fmt: skip
    assert got.problems() == {
        "expert_out_of_range": ("lost", 1), "bad_weight": ("warning", 1),
        "place_unknown": ("warning", 1),
    }  # fmt: skip


def test_other_parquet_is_not_taken(layer, tmp_path, read, format_of):
    path = layer([[1]], [[0.5]])
    assert format_of(path, "/a/other.parquet") is None
    samples = tmp_path / "layer_000.parquet"
    pq.write_table(pa.table({"token_id": pa.array([1, 2], pa.int32())}), samples)
    assert format_of(samples) is None
    for columns in ({"indices": [1], "scores": [0.5]}, {"indices": [["a"]], "scores": [[0.5]]}):
        pq.write_table(pa.table(columns), samples)
        with pytest.raises(UnusableInput, match="column indices"):
            read(flame, samples)
    samples.write_bytes(path.read_bytes()[:-20] + b"\xff" * 16 + b"PAR1")
    with pytest.raises(UnusableInput, match="Parquet"):
        read(flame, samples)
