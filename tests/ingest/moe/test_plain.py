"""The plain form of docs/routing.md: the same rows from CSV, JSON lines and Parquet."""

import gzip
import json
from collections import Counter

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from retime.ingest.errors import UnusableInput
from retime.ingest.moe import plain, plain_lines, plain_sums

# step, layer, rank, token, experts, weights
TOKENS = [
    (7, 3, 0, 0, [1, 5], [0.75, 0.25]),
    (7, 3, 0, 1, [0, 5], [0.5, 0.5]),
    (7, 3, 1, 0, [5, -1], [1.0, 0.0]),
    (7, 3, 1, 1, [], []),
    (7, 4, None, 0, [2], [1.0]),
]
NAMES = ("step", "layer", "rank", "token", "experts", "weights")
WANT = [
    ("dropped", 3, None, 1, 1, 0.0), ("padding", 3, None, 1, 1, None),
    ("real", 3, 0, 0, 1, 0.5), ("real", 3, 1, 0, 1, 0.75), ("real", 3, 5, 0, 2, 0.75),
    ("real", 3, 5, 1, 1, 1.0), ("real", 4, 2, None, 1, 1.0),
]  # fmt: skip


def written(tmp_path, kind):
    path = tmp_path / f"routing.{kind}"
    if kind == "jsonl":
        lines = [json.dumps(dict(zip(NAMES, r, strict=True))) for r in TOKENS]
        path.write_text("\n".join(lines) + "\n")
    elif kind == "csv":
        text = ",".join(NAMES) + "\r\n"
        for step, layer, rank, token, experts, weights in TOKENS:
            between = ";" if token else " "
            text += f"{step},{layer},{'' if rank is None else rank},{token},"
            text += f"{between.join(map(str, experts))},{between.join(map(str, weights))}\r\n"
        path.write_text(text)
    else:
        kinds = [pl.Int64, pl.Int32, pl.Int16, pl.Int64, pl.List(pl.Int16), pl.List(pl.Float32)]
        pl.DataFrame(TOKENS, dict(zip(NAMES, kinds, strict=True)), orient="row").write_parquet(path)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_tokens_are_summed_by_place_and_expert(tmp_path, read, format_of, kind):
    path = written(tmp_path, kind)
    got = read(plain, path)
    columns = ("token_class", "layer", "expert", "rank", "tokens", "weight_sum")
    assert got.rows(*columns) == WANT
    assert set(got.rows("step", "source")) == {(7, "routing")}
    assert got.rows("rank", "clock", table="ranks") == [(0, "none"), (1, "none")]
    assert got.problems() == {}
    assert format_of(path) == "routing"
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read(plain, packed).rows(*columns) == WANT
    assert format_of(packed) == "routing"


def test_counts_with_every_column(tmp_path, read):
    path = tmp_path / "x.csv"
    path.write_text(
        "step,microbatch,block,layer,rank,expert,physical_expert,expert_rank,count,weight_sum,"
        "token_class\n"
        "1,0,decoder,2,3,4,9,1,100,12.5,real\n"
        "1,0,decoder,2,3,4,9,1,10,2.5,real\n"
        "1,0,decoder,2,3,,,,5,,padding\n"
        "1,0,mtp,2,3,4,NA,,7,,\n"
    )
    got = read(plain, path)
    columns = ("step", "microbatch", "block", "layer", "rank", "expert", "physical_expert",
               "expert_rank", "tokens", "weight_sum", "token_class")  # fmt: skip
    assert got.rows(*columns) == [
        (1, 0, "decoder", 2, 3, 4, 9, 1, 110, 15.0, "real"),
        (1, 0, "decoder", 2, 3, None, None, None, 5, None, "padding"),
        (1, 0, "mtp", 2, 3, 4, None, None, 7, None, "real"),
    ]


def test_a_count_of_tokens_with_the_same_experts_and_physical_ids(tmp_path, read):
    path = tmp_path / "x.jsonl"
    start = '{"step": 0, "layer": 1, "rank": 2, "count": '
    path.write_text(
        f'{start}10, "experts": [3, 4], "id_space": "physical"}}\n{start}5, "experts": 3}}\n'
    )
    got = read(plain, path)
    assert got.rows("expert", "physical_expert", "tokens") == [
        (3, None, 5),
        (None, 3, 10),
        (None, 4, 10),
    ]


def test_rows_of_the_warehouse_can_be_read_again(tmp_path, read):
    first = read(plain, written(tmp_path, "jsonl"))
    path = tmp_path / "again.parquet"
    first.frames["routing"].write_parquet(path)
    again = read(plain, path)
    columns = ("token_class", "layer", "expert", "rank", "tokens", "weight_sum")
    assert again.rows(*columns) == WANT
    assert set(again.rows("source")) == {("routing:routing",)}


def test_what_does_not_fit_is_null_or_left_out_and_told(tmp_path, read):
    path = tmp_path / "x.csv"
    path.write_bytes(
        b"step,layer,rank,token,experts,weights,note\n"
        b"1,2,0,0,1 2,0.5 0.5,hello\n"
        b"1,2,0,1,1 2,0.5,\n"  # a weight less
        b"1,2,0,2,1 x,0.5 inf,\n"
        b"1.5,2,-3,3,7,1,\n"
        b"1,2,0\n"  # too few fields
        b"1,2,0,4,1,1,,9\n"  # too many
        b"1,99999999999999999999,0,5,8,1,\xff\xfe\n"
        b'1,2,0,6,"[1, 2]",0.5|0.5,\n'
    )
    got = read(plain, path)
    columns = ("step", "layer", "rank", "token_class", "expert", "tokens", "weight_sum")
    assert got.rows(*columns) == [
        (1, 2, 0, "dropped", None, 1, None), (1, 2, 0, "real", 1, 4, 1.5),
        (1, 2, 0, "real", 2, 3, 1.0), (1, None, 0, "real", 8, 1, 1.0),
        (None, 2, None, "real", 7, 1, 1.0),
    ]  # fmt: skip
    assert got.problems() == {
        "column_ignored": ("info", 1), "bad_record": ("lost", 2), "lengths_differ": ("warning", 1),
        "wrong_type": ("warning", 4), "value_out_of_range": ("warning", 1),
    }  # fmt: skip


def test_odd_json_lines_are_told_with_their_place(tmp_path, read):
    good = '{"step": 1, "layer": 2, "token": 0, "experts": [3]}\n'
    bad = [
        "x\n",
        '{"step": "1", "layer": 2, "token": 0, "experts": [3]}\n',
        '{"step": 1, "layer": 2, "token": 0, "experts": ["a"]}\n',
        '{"step": 1, "layer": 2, "token": 0, "experts": [1e400]}\n',
        f'{{"step": {2**70}, "layer": 2, "token": 0, "experts": [3]}}\n',
        '{"step": 1, "layer": 2, "token": 0, "experts": [3], "x": '
        + "[" * 3000
        + "]" * 3000
        + "}\n",
    ]
    path = tmp_path / "x.jsonl"
    path.write_text(good + "".join(bad) + good + '{"step": 1, "layer": 2, "token": 0, "exp')
    got = read(plain, path)
    assert got.rows("expert", "tokens") == [(3, 2)]
    assert got.problems() == {"bad_record": ("lost", 7)}
    offsets = dict(got.rows("code", "offset", table="problems"))
    assert offsets["bad_record"] == len(good)


def test_a_row_of_nothing_is_a_token_without_expert(tmp_path, read):
    path = tmp_path / "x.jsonl"
    path.write_text('{"other": 1}\n')
    assert read(plain, path).rows("token_class", "layer", "tokens") == [("padding", None, 1)]


def test_counts_below_nothing_and_impossible_experts(tmp_path, read):
    path = tmp_path / "x.csv"
    path.write_text(
        "rank,layer,expert,count,token_class\n0,1,2,-5,\n0,1,2,,\n0,1,2,x,\n0,1,2,3,fake\n"
        f"0,1,{2**40},4,\n0,1,-9,4,\n0,1,-1,4,\n0,1,2,{2**55},\n"
    )
    got = read(plain, path)
    assert got.rows("token_class", "expert", "tokens") == [("padding", None, 12), ("real", 2, 3)]
    assert got.problems() == {
        "bad_count": ("lost", 4), "wrong_type": ("warning", 1),
        "token_class_unknown": ("warning", 1), "expert_out_of_range": ("lost", 2),
    }  # fmt: skip


def test_sums_stay_small_while_many_rows_stream(tmp_path, read, monkeypatch):
    monkeypatch.setattr(plain_lines, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(plain_sums, "MERGE_ROWS", 100)
    rng = np.random.default_rng(3)
    want = Counter()
    lines = ["step,layer,rank,token,experts"]
    for token, (step, layer, a, b) in enumerate(rng.integers(0, 8, (5000, 4)).tolist()):
        lines.append(f"{step},{layer},0,{token},{a} {b + 8}")
        want.update([(step, layer, a), (step, layer, b + 8)])
    path = tmp_path / "x.csv"
    path.write_text("\n".join(lines))
    got = read(plain, path)
    assert {r[:3]: r[3] for r in got.rows("step", "layer", "expert", "tokens")} == want
    # With room for fewer places than there are, rows repeat and add up.
    monkeypatch.setattr(plain_sums, "MOST_ROWS", 200)
    again = read(plain, path)
    found = Counter()
    for *place, n in again.rows("step", "layer", "expert", "tokens"):
        found[tuple(place)] += n
    assert found == want
    assert again.problems()["partial_sums"][0] == "info"


def test_parquet_of_other_types(tmp_path, read):
    path = tmp_path / "x.parquet"
    table = pa.table(
        {
            "step": pa.array([1.0, 2.5]),
            "layer": pa.array(["3", "x"]).dictionary_encode(),
            "token": pa.array([0, 1], pa.uint64()),
            "experts": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)),
            "weights": pa.array([[b"a"], None], pa.list_(pa.binary())),
        }
    )
    import pyarrow.parquet as pq

    pq.write_table(table, path)
    got = read(plain, path)
    assert got.rows("step", "layer", "expert", "tokens", "weight_sum") == [
        (1, 3, 1, 1, None), (1, 3, 2, 1, None), (None, None, 3, 1, None), (None, None, 4, 1, None),
    ]  # fmt: skip
    assert got.problems()["wrong_type"] == ("warning", 3)


def test_a_line_without_an_end_does_not_hang(tmp_path, read):
    path = tmp_path / "x.csv"
    start = b"step,layer,token,experts\n1,2,0,3\n"
    path.write_bytes(start + b"a" * (20 << 20) + b"\n1,2,1,4\n")
    got = read(plain, path)
    assert got.rows("expert", "tokens") == [(3, 1), (4, 1)]
    assert got.problems() == {"long_line": ("lost", 1)}
    path.write_bytes(start.split(b"\n")[0] + b"\n" + b"a" * (20 << 20))
    with pytest.raises(UnusableInput, match="no usable row"):
        read(plain, path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "layer_id,expert_id,tokens\n1,2,3\n"),
        ("a.csv", "name,layer,count\nx,1,2\n"),
        ("a.csv", "step,layer,loss\n1,2,3\n"),
        ("a.jsonl", '{"step": 1, "layer": 2, "loss": 3}\n'),
        ("a.jsonl", '{"step": 1, "layer": 2, "rank": 0, "top_indices": [[1]]}\n'),
        ("README.md", "The columns are step, layer, rank, token or count, experts, weights.\n"),
        ("a.py", "rows = [(step, layer, token, experts)]\n"),
        ("a.txt", "1\t2\t3\n"),
        ("summary.json", '{"token_scores": 1}'),
        ("a.json", '{"weight": [1, 2], "bias": [3]}'),
        ("eplb.py", "phy2log, log2phy, logcnt = rebalance_experts(weight, 16, 4, 2, 8)\n"),
    ],
)
def test_other_files_are_no_routing(tmp_path, format_of, name, content):
    path = tmp_path / name
    path.write_text(content)
    assert format_of(path) is None
