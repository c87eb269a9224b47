"""Saved arrays: vLLM's expert load, DeepEP's dispatch layout, EPLB's weights, as .npy, .npz, .pt
and JSON, under the names and shapes of `eplb_state.py`, DeepEP's `get_dispatch_layout` and
`eplb.py`."""

import json

import numpy as np
import pytest
from retime.ingest.errors import UnusableInput
from retime.ingest.moe import arrays, deepep, eplb, vllm

LOG = """(APIServer pid=1) INFO 07-29 11:20:01 [api_server.py:42] args: {'enable_eplb': True}
(Worker_DP0 pid=9) INFO 07-29 11:25:33 [eplb_state.py:380] EPLB step: avg_tokens=12.50, max_tokens=20, balancedness=0.6250
(Worker_DP0 pid=9) INFO 07-29 11:25:34 [eplb_state.py:380] EPLB step: 751 for model org/M-1: avg_tokens=16.00, max_tokens=16, balancedness=1.0000, steps until the next rearrangement: 249
(Worker_DP0 pid=9) INFO 07-29 11:25:35 [eplb_state.py:380] EPLB step: 752 for model
"""  # noqa: E501


def test_vllm_log_lines_become_samples(tmp_path, read, format_of):
    path = tmp_path / "server.log"
    path.write_text(LOG)
    got = read(vllm, path)
    assert got.rows("name", "device", "value", "rank", "time_ns", table="counters") == [
        ("vllm_eplb_avg_tokens", "org/M-1", 16.0, None, None),
        ("vllm_eplb_avg_tokens", None, 12.5, None, None),
        ("vllm_eplb_balancedness", "org/M-1", 1.0, None, None),
        ("vllm_eplb_balancedness", None, 0.625, None, None),
        ("vllm_eplb_max_tokens", "org/M-1", 16.0, None, None),
        ("vllm_eplb_max_tokens", None, 20.0, None, None),
        ("vllm_eplb_step", "org/M-1", 751.0, None, None),
        ("vllm_eplb_steps_to_rearrangement", "org/M-1", 249.0, None, None),
    ]
    assert got.problems() == {"bad_line": ("lost", 1), "samples_without_time": ("info", 1)}
    assert format_of(path) == "vllm-eplb"


def test_vllm_log_is_found_where_the_lines_come_late(tmp_path, read, format_of):
    path = tmp_path / "server.log"
    filler = "INFO 07-29 11:20:01 [x.py:1] loading\n" * 4000
    path.write_text(filler + LOG)
    assert format_of(path) == "vllm-eplb"
    path.write_text(filler)
    assert format_of(path) is None
    path.write_text(LOG.split("\n")[0] + "\n")
    with pytest.raises(UnusableInput, match="log_balancedness"):
        read(vllm, path)
    doc = tmp_path / "README.md"
    doc.write_text(LOG)
    assert format_of(doc) is None


def test_vllm_load_window_with_its_map(tmp_path, read, format_of):
    window = np.array([[[1, 2, 3, 4], [0, 0, 0, 5]], [[0] * 4] * 2], np.int32)
    path = tmp_path / "load.npz"
    np.savez(path, expert_load_window=window, ep_size=np.int64(2),
             physical_to_logical_map=np.array([[0, 1, 2, 0], [2, 1, 0, 2]]))  # fmt: skip
    got = read(vllm, path)
    columns = ("step", "layer", "physical_expert", "expert", "expert_rank", "tokens")
    assert got.rows(*columns) == [
        (0, 0, 0, 0, 0, 1), (0, 0, 1, 1, 0, 2), (0, 0, 2, 2, 1, 3), (0, 0, 3, 0, 1, 4),
        (0, 1, 0, 2, 0, 0), (0, 1, 1, 1, 0, 0), (0, 1, 2, 0, 1, 0), (0, 1, 3, 2, 1, 5),
    ]  # fmt: skip
    assert set(got.problems()) == {"layer_among_moe", "buffer_rows"}
    assert format_of(path) == "vllm-eplb"


def test_vllm_load_of_one_pass_alone(tmp_path, read, format_of):
    path = tmp_path / "expert_load_pass.npy"
    np.save(path, np.asfortranarray(np.array([[3, 1]], np.int32)))
    got = read(vllm, path, rank=4)
    assert got.rows("step", "layer", "rank", "physical_expert", "expert", "tokens") == [
        (None, 0, 4, 0, None, 3), (None, 0, 4, 1, None, 1),
    ]  # fmt: skip
    assert format_of(path) == "vllm-eplb"


def test_dense_layers_of_captured_ids_are_not_expert_0(tmp_path, read):
    ids = np.zeros((3, 2, 2), np.int32)
    ids[:, 1] = [[0, 1], [0, 2], [0, 1]]
    path = tmp_path / "routed_experts.npy"
    np.save(path, ids)
    got = read(vllm, path)
    assert got.rows("layer", "expert", "tokens") == [(1, 0, 3), (1, 1, 2), (1, 2, 1)]
    assert got.problems() == {"layers_without_routing": ("info", 1)}


def test_vllm_load_history(tmp_path, read, format_of):
    path = tmp_path / "expert-load.json"
    entries = [{"logical_expert_load": [[1, 2], [0, 0]]}, {"logical_expert_load": [[3]] * 2},
               {"logical_expert_load": "x"}]  # fmt: skip
    path.write_text(json.dumps({"model": "m", "load_history": entries}))
    got = read(vllm, path)
    assert got.rows("step", "layer", "expert", "tokens") == [
        (0, 0, 0, 1), (0, 0, 1, 2), (1, 0, 0, 3), (1, 1, 0, 3),
    ]  # fmt: skip
    assert got.problems()["bad_record"] == ("lost", 1)
    assert format_of(path) == "vllm-eplb"


# 3 tokens of rank 1, top-2 of 4 experts on 2 ranks; token 2 chose nothing, token 1 one expert.
DISPATCH = {
    "topk_idx": [[0, 3], [2, -1], [-1, -1]],
    "topk_weights": [[0.75, 0.25], [0.5, 0.0], [0.0, 0.0]],
    "num_tokens_per_rank": [1, 2],
    "num_tokens_per_expert": [1, 0, 1, 1],
    "layer": 6,
    "step": 40,
}


def saved(tmp_path, data, kind):
    path = tmp_path / f"dispatch_rank1.{kind}"
    if kind == "json":
        path.write_text(json.dumps(data))
    elif kind == "npz":
        np.savez(path, **{k: np.asarray(v) for k, v in data.items()})
    else:
        torch = pytest.importorskip("torch")
        torch.save({k: torch.tensor(v) for k, v in data.items()}, path)
    return path


@pytest.mark.parametrize("kind", ["json", "npz", "pt"])
def test_deepep_choices_by_token(tmp_path, read, format_of, kind):
    path = saved(tmp_path, DISPATCH, kind)
    got = read(deepep, path)
    columns = ("token_class", "physical_expert", "expert", "expert_rank", "tokens", "weight_sum")
    assert got.rows(*columns) == [
        ("dropped", None, None, None, 1, None), ("padding", None, None, None, 1, None),
        ("real", 0, None, 0, 1, 0.75), ("real", 2, None, 1, 1, 0.5), ("real", 3, None, 1, 1, 0.25),
    ]  # fmt: skip
    assert set(got.rows("step", "layer", "rank")) == {(40, 6, 1)}
    assert got.rows("rank", "name", "device", "value", table="counters") == [
        (1, "deepep_tokens_to_rank", "rank 0", 1.0), (1, "deepep_tokens_to_rank", "rank 1", 2.0),
    ]  # fmt: skip
    assert got.rows("rank", table="ranks") == [(1,)]
    assert got.problems() == {"map_missing": ("info", 1)}
    assert format_of(path) == "deepep"


def test_deepep_counts_without_tokens(tmp_path, read, format_of):
    lines = [
        {"rank": 0, "num_tokens_per_expert": [4, 5], "num_tokens_per_rank": [4, 5],
         "phy2log": [1, 0], "num_tokens_per_rdma_rank": None},
        {"rank": 1, "num_tokens_per_rank": [6, 7], "num_tokens_per_rdma_rank": [13]},
        {"rank": 1, "cumulative_local_expert_recv_stats": [8, 9],
         "dispatch_wait_recv_cost_stats": [[0, 5], [0, 0]]},
        {"num_recv_tokens_per_expert_list": [1]},
    ]  # fmt: skip
    path = tmp_path / "layout.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in lines))
    got = read(deepep, path)
    columns = ("rank", "expert", "physical_expert", "expert_rank", "tokens")
    assert got.rows(*columns) == [
        (0, 0, 1, 1, 5), (0, 1, 0, 0, 4),
        (1, None, None, 0, 6), (1, None, None, 1, 7),
        (None, None, 2, 1, 8), (None, None, 3, 1, 9),
    ]  # fmt: skip
    assert (1, "deepep_dispatch_wait_recv_cost", "0 1", 5.0) in got.rows(
        "rank", "name", "device", "value", table="counters"
    )
    problems = got.problems()
    assert problems["rank_unknown"] == ("lost", 1)
    assert problems["received_counts"] == ("info", 1)
    assert format_of(path) == "deepep"


def test_deepep_totals_that_differ_and_what_is_no_tensor(tmp_path, read):
    path = saved(tmp_path, {**DISPATCH, "num_tokens_per_expert": [9, 0, 0, 0], "x": [1]}, "json")
    assert read(deepep, path).problems()["counts_differ"] == ("warning", 1)
    assert read(deepep, path).problems()["not_read"] == ("info", 1)
    for bad in ({"topk_idx": "a"}, {"topk_idx": [[1], [2, 3]]}, {"num_tokens_per_expert": [2**70]}):
        path.write_text(json.dumps(bad))
        with pytest.raises(UnusableInput):
            read(deepep, path)


# Two layers of 3 logical experts on 4 slots of 2 GPUs: expert 0 has two replicas.
WEIGHTS = {
    "weight": [[90, 10, 20], [5, 6, 7]],
    "phy2log": [[0, 1, 0, 2], [0, 1, 0, 2]],
    "logcnt": [[2, 1, 1], [2, 1, 1]],
    "num_gpus": 2,
}


@pytest.mark.parametrize("kind", ["json", "npz", "pt"])
def test_eplb_loads_and_where_the_replicas_are(tmp_path, read, format_of, kind):
    path = saved(tmp_path, WEIGHTS, kind)
    got = read(eplb, path)
    columns = ("layer", "expert", "physical_expert", "expert_rank", "tokens", "token_class")
    assert [r for r in got.rows(*columns) if r[0] == 0] == [
        (0, 0, 0, 0, None, None), (0, 0, 2, 1, None, None), (0, 0, None, None, 90, "real"),
        (0, 1, 1, 0, 10, "real"), (0, 2, 3, 1, 20, "real"),
    ]  # fmt: skip
    assert sum(n or 0 for (n,) in got.rows("tokens")) == 138
    assert set(got.problems()) == {"layer_among_moe"}
    assert format_of(path) == "eplb"


def test_eplb_map_from_logical_to_physical_is_the_same_placement(tmp_path, read):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"log2phy": [[[0, 2], [1, -1], [3, -1]]], "num_gpus": 2}))
    got = read(eplb, path)
    assert got.rows("expert", "physical_expert", "expert_rank", "tokens") == [
        (0, 0, 0, None), (0, 2, 1, None), (1, 1, 0, None), (2, 3, 1, None),
    ]  # fmt: skip


def test_eplb_map_of_experts_that_cannot_be(tmp_path, read):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"phy2log": [[0, 2**31, -5, -1]], "num_gpus": 2}))
    got = read(eplb, path)
    assert got.rows("physical_expert", "expert", "expert_rank") == [
        (0, 0, 0), (1, None, 0), (2, None, 1), (3, None, 1),
    ]  # fmt: skip
    assert got.problems()["map_damaged"] == ("warning", 2)


def test_eplb_matrix_alone(tmp_path, read, format_of):
    csv = tmp_path / "eplb_weight.csv"
    csv.write_text("90,132,40.5\n20,nan,1\n7,8\n")
    got = read(eplb, csv)
    want = [(0, 0, 90), (0, 1, 132), (0, 2, 40), (1, 0, 20), (1, 1, None), (1, 2, 1)]
    assert got.rows("layer", "expert", "tokens") == want
    assert got.problems() == {
        "bad_record": ("lost", 1), "bad_load": ("warning", 1), "load_rounded": ("info", 1),
        "layer_among_moe": ("info", 1),
    }  # fmt: skip
    npy = tmp_path / "eplb.npy"
    np.save(npy, np.array([[90, 132]], np.float32))
    assert read(eplb, npy).rows("expert", "tokens") == [(0, 90), (1, 132)]
    for path in (csv, npy):
        assert format_of(path) == "eplb"
        assert format_of(path, str(path).replace("eplb", "other")) is None


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000, 1000000000), }",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f16', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (1,), }",
        "__import__('os').system('true')",
        "(" * 2000,
    ],
)
def test_a_header_that_lies_is_refused(header):
    text = header.encode() + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"\0" * 16
    with pytest.raises(UnusableInput, match="npy"):
        arrays.npy(data, "x.npy")


def test_texts_among_numbers_are_no_array():
    assert arrays.numbers([1, "a" * 1000], 1) is None
    assert arrays.numbers([[1], [2]], 1) is None
    assert arrays.numbers(np.broadcast_to(np.int64(1), (1 << 20, 1 << 20)), 2) is None
    assert arrays.integers([[1, 2], [3, 4]], 2).tolist() == [[1, 2], [3, 4]]
