"""SGLang's expert distribution recorder.

The dumps are saved by torch itself, with the keys, shapes and types of `expert_distribution.py`:
stat [buffer, layers, logical] int32; records of a rank with [layers, physical] counts, ids by
token filled up to 8 columns with -1, and the map at the time of the dump.
"""

import numpy as np
import pytest
from retime.ingest.errors import UnusableInput
from retime.ingest.moe import sglang

torch = pytest.importorskip("torch")


@pytest.fixture
def dump(tmp_path):
    def write(data, name="expert_distribution_recorder_1754000000.25_1.pt"):
        path = tmp_path / name
        torch.save(data, path)
        return path

    return write


def stat(counts, rate=None):
    return {"rank": 0, "logical_count": torch.tensor(counts, dtype=torch.int32),
            "average_utilization_rate_over_window": rate}  # fmt: skip


def test_stat_is_a_sum_over_ranks_by_row_of_the_buffer(dump, read, format_of):
    path = dump(
        stat([[[0, 0], [3, 0], [1, 2]], [[0, 0], [0, 0], [4, 4]], [[0, 0]] * 3], 0.75),
        "expert_distribution_recorder_1754000000.25.pt",
    )
    assert format_of(path) == "sglang-experts"
    got = read(sglang, path)
    columns = ("step", "layer", "expert", "tokens", "rank", "physical_expert")
    assert got.rows(*columns) == [
        (0, 1, 0, 3, None, None), (0, 1, 1, 0, None, None),
        (0, 2, 0, 1, None, None), (0, 2, 1, 2, None, None),
        (1, 1, 0, 0, None, None), (1, 1, 1, 0, None, None),
        (1, 2, 0, 4, None, None), (1, 2, 1, 4, None, None),
    ]  # fmt: skip
    assert got.rows("name", "value", table="counters") == [
        ("sglang_average_utilization_rate_over_window", 0.75)
    ]
    assert "ranks" not in got.frames
    assert set(got.problems()) == {"buffer_rows", "layers_without_routing"}
    assert "2 of 3 rows" in got.message("buffer_rows")
    assert "1 layers" in got.message("layers_without_routing")


def test_a_full_buffer_may_have_wrapped(dump, read):
    got = read(sglang, dump(stat([[[1, 2]]])))
    assert "may wrap" in got.message("buffer_rows")


# Two logical experts on 4 physical ones; layer 1 has its own order.
MAP = torch.tensor([[0, 1, 1, 0], [1, 0, 0, 1]])


def record(forward, counts, rank=1, key="primary", **more):
    return {"forward_pass_id": forward, "rank": rank, "gatherer_key": key, **more,
            "global_physical_count": torch.tensor(counts, dtype=torch.int32)}  # fmt: skip


def test_counts_of_a_pass_are_physical_and_mapped_by_the_last_map(dump, read, format_of):
    data = {
        "records": [record(12, [[5, 0, 1, 2], [0, 0, 0, 8]]),
                    record(13, [[1, 1, 1, 1], [0, 0, 0, 0]], key="child_b")],
        "last_physical_to_logical_map": MAP,
    }  # fmt: skip
    path = dump(data)
    assert format_of(path) == "sglang-experts"
    got = read(sglang, path)
    columns = ("step", "microbatch", "layer", "rank", "physical_expert", "expert", "tokens")
    assert got.rows(*columns) == [
        (12, None, 0, 1, 0, 0, 5), (12, None, 0, 1, 1, 1, 0),
        (12, None, 0, 1, 2, 1, 1), (12, None, 0, 1, 3, 0, 2),
        (12, None, 1, 1, 0, 1, 0), (12, None, 1, 1, 1, 0, 0),
        (12, None, 1, 1, 2, 0, 0), (12, None, 1, 1, 3, 1, 8),
        (13, 1, 0, 1, 0, 0, 1), (13, 1, 0, 1, 1, 1, 1),
        (13, 1, 0, 1, 2, 1, 1), (13, 1, 0, 1, 3, 0, 1),
    ]  # fmt: skip
    assert got.rows("rank", "clock", table="ranks") == [(1, "none")]
    assert got.problems() == {"last_map": ("info", 1)}


def test_counts_in_the_own_slice_are_what_arrived_at_the_rank(dump, read):
    data = {
        "records": [record(1, [[0, 0, 7, 2], [0, 0, 0, 3]])],
        "last_physical_to_logical_map": MAP,
    }
    got = read(sglang, dump(data))
    columns = ("layer", "rank", "physical_expert", "expert", "expert_rank", "tokens")
    assert got.rows(*columns) == [
        (0, None, 2, 1, 1, 7), (0, None, 3, 0, 1, 2), (1, None, 2, 0, 1, 0), (1, None, 3, 1, 1, 3),
    ]  # fmt: skip
    assert got.problems()["own_slice"] == ("info", 1)
    assert got.rows("rank", table="ranks") == [(1,)]


def test_ids_by_token_set_padding_and_dropped_choices_apart(dump, read):
    ids = np.full((2, 4, 8), -1, np.int32)
    # Layer 0 is dense. In layer 1 two columns are used; token 2 has one choice, token 3 none.
    ids[1, :3, :2] = [[0, 3], [0, 2], [1, -1]]
    data = {
        "records": [record(
            5, [[0, 0, 0, 0], [2, 1, 1, 1]], rank=0, input_ids=[7, 8, 9, 0], positions=[0, 1, 2, 3],
            extend_seq_lens=[4], forward_mode=1, topk_ids_of_layer=torch.tensor(ids),
            misc_objects=[{"layer_id": 1, "num_tokens_per_rank": [3, 2],
                           "num_tokens_per_rdma_rank": [3], "num_tokens_per_expert": [2, 1, 1, 1]}],
        )],
        "last_physical_to_logical_map": MAP,
    }  # fmt: skip
    got = read(sglang, dump(data))
    columns = ("token_class", "layer", "physical_expert", "expert", "expert_rank", "tokens")
    assert got.rows(*columns) == [
        ("dropped", 1, None, None, None, 1), ("padding", 1, None, None, None, 1),
        ("real", 1, 0, 1, 0, 2), ("real", 1, 1, 0, 0, 1), ("real", 1, 2, 0, 1, 1),
        ("real", 1, 3, 1, 1, 1),
    ]  # fmt: skip
    assert set(got.rows("step", "rank")) == {(5, 0)}
    assert got.problems() == {
        "last_map": ("info", 1), "counted_twice": ("info", 1),
        "layers_without_routing": ("info", 1),
    }  # fmt: skip


def test_wrong_types_in_every_field_are_rows_or_problems(dump, read):
    data = {
        "records": [
            3,
            {"rank": "x", "forward_pass_id": 2.5, "global_physical_count": "no"},
            record(2**70, [[1, 2]], rank=-4, key=[1]),
            record(1, [[1, 2]], topk_ids_of_layer=torch.zeros(3)),
        ],
        "last_physical_to_logical_map": torch.zeros(2, 2),
    }
    got = read(sglang, dump(data))
    assert got.rows("step", "rank", "physical_expert", "expert", "tokens") == [
        (1, 1, 0, None, 1), (1, 1, 1, None, 2), (None, None, 0, None, 1), (None, None, 1, None, 2),
    ]  # fmt: skip
    assert got.problems()["bad_record"] == ("lost", 2)
    assert got.problems()["map_missing"] == ("warning", 1)
    for unusable in ({"records": [3]}, {"x": 1}, [1], {"logical_count": torch.zeros(2, 2)}):
        with pytest.raises(UnusableInput):
            read(sglang, dump(unusable))


CSV = "layer_id,expert_id,count\n3,0,24990\n3,18,39249\n4,18,7\n"


def test_the_csv_of_early_versions(tmp_path, read, format_of):
    path = tmp_path / "expert_distribution_rank2_timestamp1744347750.37.csv"
    path.write_text(CSV)
    got = read(sglang, path)
    assert got.rows("layer", "expert", "tokens", "rank", "step") == [
        (3, 0, 24990, 2, None), (3, 18, 39249, 2, None), (4, 18, 7, 2, None),
    ]  # fmt: skip
    assert got.rows("rank", table="ranks") == [(2,)]
    assert format_of(path) == "sglang-experts"
    assert got.problems() == {}


def test_odd_lines_of_the_csv_are_told(tmp_path, read):
    path = tmp_path / "x.csv"
    path.write_text(CSV + f"a,1,2\n1,2\n1,2,{10**20}\n-1,2,3\n1,{2**30},3\n4,19,12")
    got = read(sglang, path)
    assert got.rows("expert", "tokens") == [(0, 24990), (18, 7), (18, 39249), (19, 12)]
    assert got.problems() == {
        "bad_record": ("lost", 5), "cut_record": ("warning", 1), "rank_unknown": ("warning", 1),
    }  # fmt: skip
