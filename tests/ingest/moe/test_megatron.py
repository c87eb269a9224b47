"""Megatron's router trace and tokens-per-expert log.

The records are built as `router_trace.py` and `activation_logging.py` of Megatron-LM write them:
key order, one line a router call, `top_indices` last, `mtp_idx` and side-file keys only where they
apply; layers as in the module names.
"""

import gzip
import json
from collections import Counter

import numpy as np
import pytest
from retime.ingest.errors import RankUnknown, UnusableInput
from retime.ingest.moe import counted, megatron, megatron_counts


def call(step, layer, ids, rank=3, block="decoder", **more):
    record = {"step": step, "stage": "pre_dispatch", "block": block, "layer": layer, "rank": rank,
              "num_tokens": len(ids), "topk": len(ids[0]) if ids else 2, **more}  # fmt: skip
    return json.dumps({**record, "top_indices": ids}) + "\n"


@pytest.fixture
def trace(tmp_path):
    def write(*lines, name="router_trace_rank3.jsonl"):
        path = tmp_path / name
        path.write_bytes("".join(lines).encode())
        return path

    return write


def test_a_call_becomes_counts_by_expert_and_calls_of_a_step_are_numbered(trace, read):
    path = trace(
        call(7, 3, [[1, 5], [0, 5], [2, 5]]),
        call(7, 4, [[0, 1], [0, 1], [0, 1]]),
        call(7, 3, [[5, 6]]),
        call(8, 3, [[0, 1]]),
    )
    got = read(megatron, path)
    assert got.rows("step", "microbatch", "layer", "expert", "tokens") == [
        (7, 0, 3, 0, 1), (7, 0, 3, 1, 1), (7, 0, 3, 2, 1), (7, 0, 3, 5, 3),
        (7, 0, 4, 0, 3), (7, 0, 4, 1, 3),
        (7, 1, 3, 5, 1), (7, 1, 3, 6, 1),
        (8, 0, 3, 0, 1), (8, 0, 3, 1, 1),
    ]  # fmt: skip
    assert set(got.rows("rank", "block", "token_class", "source", "weight_sum")) == {
        (3, "decoder", "real", "megatron-router", None)
    }
    assert got.rows("rank", "clock", table="ranks") == [(3, "none")]
    assert {c: s for c, (s, _) in got.problems().items()} == {
        "layer_local_to_chunk": "info", "microbatch_by_order": "info",
    }  # fmt: skip
    assert "up to 2 calls" in got.message("microbatch_by_order")


def test_heads_of_a_predictor_are_blocks_of_their_own_and_side_files_are_named(trace, read):
    path = trace(
        call(0, 1, [[4, 9]], logit_offset=0, logit_bytes=64, logit_shape=[1, 32]),
        call(0, 1, [[4, 8]], block="mtp", mtp_idx=0),
        call(0, 1, [[4, 7]], block="mtp", mtp_idx=1, hs_offset=0, hs_bytes=2, hs_shape=[1, 1]),
    )
    got = read(megatron, path)
    assert got.rows("block", "microbatch", "expert") == [
        ("decoder", 0, 4), ("decoder", 0, 9), ("mtp.0", 0, 4), ("mtp.0", 0, 8),
        ("mtp.1", 0, 4), ("mtp.1", 0, 7),
    ]  # fmt: skip
    assert "hidden_states_rank3.bin, logits_rank3.bin" in got.message("side_files")


def test_tokens_without_any_expert_are_padding_and_single_ones_dropped(trace, read):
    path = trace(call(0, 0, [[1, 2], [-1, -1], [3, -1], [-1, -1]]))
    got = read(megatron, path)
    assert got.rows("token_class", "expert", "tokens") == [
        ("dropped", None, 1), ("padding", None, 2), ("real", 1, 1), ("real", 2, 1), ("real", 3, 1),
    ]  # fmt: skip


def test_calls_of_no_tokens_and_of_no_choices(trace, read):
    got = read(megatron, trace(call(0, 0, []), call(0, 1, [[], []]), call(0, 2, [[4]])))
    assert got.rows("layer", "token_class", "expert", "tokens") == [
        (1, "padding", None, 2), (2, "real", 4, 1),
    ]  # fmt: skip


def test_what_is_no_call_is_told_with_its_place_and_the_rest_is_kept(trace, read):
    good = call(0, 0, [[1, 2]])
    bad = [
        "[1, 2]\n",
        call(0, 0, [[1, 2]]).replace('"layer": 0', '"layer": "x"'),
        call(0, 0, [[1, 2]]).replace('"layer": 0', f'"layer": {10**30}'),
        call(0, 0, [[1, 2], [3]]),
        '{"step": 1, "x": ' + "[" * 5000 + "]" * 5000 + "}\n",
        "\udc80\n".encode("utf-8", "replace").decode() + "\n",
    ]
    cut = call(0, 0, [[1, 2]])[:-10]
    got = read(megatron, trace(good, *bad, good, cut))
    assert got.rows("microbatch", "expert", "tokens") == [
        (0, 1, 1),
        (0, 2, 1),
        (1, 1, 1),
        (1, 2, 1),
    ]
    problems = got.problems()
    assert problems["bad_record"] == ("lost", len(bad))
    assert problems["cut_record"] == ("lost", 1)
    offsets = dict(got.rows("code", "offset", table="problems"))
    assert offsets["bad_record"] == len(good)


def test_absurd_ids_are_left_out_and_a_wrong_number_of_tokens_is_told(trace, read):
    line = call(0, 0, [[1, 2**40], [1, -7]]).replace('"num_tokens": 2', '"num_tokens": 9')
    got = read(megatron, trace(line))
    assert got.rows("expert", "tokens") == [(1, 2)]
    assert got.problems()["expert_out_of_range"] == ("lost", 2)
    assert got.problems()["token_count_differs"] == ("warning", 1)


def test_counts_agree_with_a_count_of_the_lines_themselves(trace, read):
    lines = [
        call(s, layer, [[(7 * t + s + layer) % 16, (3 * t + layer) % 16 + 16] for t in range(50)])
        for s in range(4) for _ in range(3) for layer in range(5)
    ]  # fmt: skip
    path = trace(*lines)
    path.with_suffix(".gz").write_bytes(gzip.compress(path.read_bytes()))
    want = Counter()
    for line in lines:
        r = json.loads(line)
        for ids in r["top_indices"]:
            want.update((r["step"], r["layer"], e) for e in ids)
    for p in (path, path.with_suffix(".gz")):
        found = Counter()
        for s, layer, e, n in read(megatron, p).rows("step", "layer", "expert", "tokens"):
            found[(s, layer, e)] += n
        assert found == want


def test_a_file_without_a_call_is_refused(trace, read):
    with pytest.raises(UnusableInput, match="router call"):
        read(megatron, trace('{"a": 1}\n'))


def test_the_trace_is_found_by_content_and_says_its_rank(trace, format_of):
    path = trace(call(0, 0, [[1, 2]], rank=11), name="whatever.txt")
    assert format_of(path) == "megatron-router"
    from retime.ingest.detect import peek_rank
    from retime.ingest.source import LocalFile, Source

    source = Source("router_trace_rank3.jsonl", path.stat().st_size, LocalFile(str(path)), path)
    assert peek_rank(source, "megatron-router") == 11


COUNTS = (
    '{"iter": 100, "block": "decoder", "layer": 3, "tpe": [[128, 0], [96, 80]]}\n'
    '{"iter": 100, "block": "mtp", "mtp_idx": 0, "layer": 1, "tpe": [[50, 51]]}\n'
)


def test_local_experts_are_places_on_their_rank(tmp_path, read, format_of):
    path = tmp_path / "tokens_per_expert" / "rank5.jsonl"
    path.parent.mkdir()
    path.write_text(COUNTS)
    got = read(megatron_counts, path)
    columns = ("step", "microbatch", "block", "layer", "rank", "expert", "physical_expert",
               "expert_rank", "tokens")  # fmt: skip
    assert got.rows(*columns) == [
        (100, 0, "decoder", 3, None, None, 10, 5, 128),
        (100, 0, "decoder", 3, None, None, 11, 5, 0),
        (100, 0, "mtp.0", 1, None, None, 10, 5, 50),
        (100, 0, "mtp.0", 1, None, None, 11, 5, 51),
        (100, 1, "decoder", 3, None, None, 10, 5, 96),
        (100, 1, "decoder", 3, None, None, 11, 5, 80),
    ]
    assert got.rows("rank", table="ranks") == [(5,)]
    assert set(got.problems()) == {"local_experts", "layer_local_to_chunk"}
    assert format_of(path) == "megatron-counts"


def test_counts_need_a_rank_and_keep_to_numbers_of_tokens(tmp_path, read):
    path = tmp_path / "counts.jsonl"
    bad = (
        COUNTS + '{"iter": 1, "layer": 0, "tpe": [[-1]]}\n{"iter": 1, "layer": 0, "tpe": [[1.5]]}\n'
    )
    path.write_text(bad)
    with pytest.raises(RankUnknown, match="--rank"):
        read(megatron_counts, path)
    got = read(megatron_counts, path, rank=2)
    assert sum(n for (n,) in got.rows("tokens")) == 128 + 96 + 80 + 50 + 51
    assert got.problems()["bad_record"] == ("lost", 2)


def test_many_choices_are_counted_in_pieces_as_at_once(monkeypatch):
    rng = np.random.default_rng(2)
    ids = rng.integers(-1, 40, (500, 4))
    ids[:, 2] = np.where(ids[:, 2] < 0, -1, ids[:, 2] + 60_000)
    ids[rng.random(500) < 0.1] = -1
    weights = rng.random((500, 4))
    monkeypatch.setattr(counted, "COUNT_AT_ONCE", 64)
    got = counted.count(ids, weights)
    want = Counter(int(e) for e in ids.ravel() if e >= 0)
    assert dict(zip(got.experts.tolist(), got.tokens.tolist(), strict=True)) == want
    sums = {e: weights[ids == e].sum() for e in want}
    assert dict(zip(got.experts.tolist(), got.weights.tolist(), strict=True)) == pytest.approx(sums)
    empty = (ids == -1).all(axis=1)
    assert got.n_padding == empty.sum() > 0
    assert got.n_dropped == (ids[~empty] == -1).sum() > 0
