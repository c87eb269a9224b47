"""Compiled sums of the plain form give what the forgiving way gives, or leave the block to it."""

import contextlib
import json
import random

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest.moe import (
    kept_code,
    plain,
    plain_ahead,
    plain_blocks,
    plain_fast,
    plain_fold,
    plain_frames,
    plain_lines,
    plain_read,
    plain_sums,
    text_numbers,
)

from .conftest import Read, source_of

assert plain_blocks.sum_csv  # compiled here, where no machine code is kept
KINDS = ("csv", "jsonl", "parquet")


@pytest.fixture
def both(monkeypatch):
    """`both(path)`: (compiled, forgiving) readings of a file, and how many blocks were compiled."""

    def read(path, rank=None, threads=1):
        taken = []

        def kept(made):
            def one(*args):
                found = made(*args)
                taken.append(found is not None)
                return found

            return one

        with monkeypatch.context() as m:
            m.setattr(kept_code, "WORTH_LOADING_BYTES", 0)
            for name in ("csv_sums", "json_sums", "batch_sums"):
                m.setattr(plain_fast, name, kept(getattr(plain_fast, name)))
            quick = Read(plain.parse(source_of(path), rank=rank, threads=threads))
        with monkeypatch.context() as m:
            for name in ("csv_sums", "json_sums", "batch_sums"):
                m.setattr(plain_fast, name, lambda *a: None)
            slow = Read(plain.parse(source_of(path), rank=rank))
        return quick, slow, taken

    return read


def same(quick, slow):
    assert set(quick.frames) == set(slow.frames)
    for table, frame in slow.frames.items():
        # Categories are compared as texts: their numbers do not matter.
        a, b = (f.with_columns(pl.col(pl.Categorical).cast(pl.String)) for f in
                (quick.frames[table], frame))  # fmt: skip
        assert a.equals(b, null_equal=True), table
        for name in a.columns:
            if a[name].dtype == pl.Float64:  # to the bit
                assert a[name].to_numpy().tobytes() == b[name].to_numpy().tobytes()


def rows_of(rng, n, odd=0.0):
    """Rows as a job may write them; some with what is odd."""
    out = []
    place = {}
    lists = rng.random() < 0.7
    for i in range(n):
        if not place or rng.random() < 0.3:
            place = {
                "step": rng.choice([None, 3, 4, -7, 10**17]),
                "microbatch": rng.choice([None, 0, 1]),
                "layer": rng.randrange(3),
                "rank": rng.choice([None, 0, 1]),
                "block": rng.choice([None, "decoder", "mtp.0"]),
                "source": rng.choice([None, "x", "a b"]),
                "token_class": rng.choice([None, None, "real", "dropped", "padding"]),
                "id_space": rng.choice([None, None, "logical", "physical"]),
                "expert_rank": rng.choice([None, None, 5]),
            }
        row = dict(place, token=i)
        if rng.random() < 0.3:
            row["count"] = rng.choice([1, 7, 0, 1 << 40])
        if lists:
            k = rng.choice([0, 1, 2, 2, 3])
            row["experts"] = [rng.choice([-1, 0, 1, 5, 60000]) for _ in range(k)]
            if rng.random() < 0.8:
                row["weights"] = [
                    rng.choice([rng.random(), 0.5, 1e-9, 3.0, float(np.float32(rng.random()))])
                    for _ in range(k)
                ]
            if rng.random() < 0.2:
                row["physical_expert"] = rng.choice([4, 9])
        else:
            row["expert"] = rng.choice([None, -1, 0, 7])
            row["physical_expert"] = rng.choice([None, -1, 2])
            row["weight_sum"] = rng.choice([None, 0.25, 1e10, rng.random()])
        if rng.random() < odd:
            name, value = rng.choice([
                ("experts", [1 << 20]), ("experts", [-2]), ("weights", [0.5]), ("rank", -3),
                ("token_class", "fake"), ("id_space", "x"), ("count", -1), ("layer", 1 << 40),
                ("expert", 1 << 17), ("physical_expert", 99999), ("microbatch", -9),
                ("block", 'a"b'), ("source", "é"), ("experts", None), ("expert_rank", 1 << 40),
            ])  # fmt: skip
            row[name] = value
        out.append(row)
    return out


def write(path, rows, kind, rng):
    names = [n for n in plain.COLUMNS if any(n in r for r in rows)]
    if kind == "jsonl":
        lines = []
        for r in rows:
            items = list(r.items())
            if rng.random() < 0.1:
                rng.shuffle(items)
            lines.append(json.dumps(dict(items), ensure_ascii=rng.random() < 0.5))
        path.write_text("\n".join(lines) + rng.choice(["\n", ""]))
    elif kind == "csv":

        def text(v):
            if v is None:
                return rng.choice(["", "", "NA", "null"])
            if isinstance(v, list):
                return rng.choice([" ", ";", "|"]).join(map(repr, v)) if v else "[]"
            return '"' + v.replace('"', '""') + '"' if isinstance(v, str) and '"' in v else str(v)

        end = rng.choice(["\n", "\r\n"])
        lines = [",".join(text(r.get(n)) for n in names) for r in rows]
        path.write_text(end.join([",".join(names), *lines]) + rng.choice([end, ""]), newline="")
    else:
        columns = {n: pl.Series([r.get(n) for r in rows]).to_arrow() for n in names}
        pq.write_table(pa.table(columns), path, row_group_size=50)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("odd", [0.0, 0.02])
def test_random_logs_go_the_same_way(tmp_path, both, monkeypatch, kind, odd):
    monkeypatch.setattr(plain_lines, "BLOCK_BYTES", 1500)
    monkeypatch.setattr(plain_lines, "BLOCK", 700)
    taken = []
    for seed in range(5):
        rng = random.Random(f"{kind} {odd} {seed}")
        path = tmp_path / f"x{seed}.{kind}"
        write(path, rows_of(rng, rng.randrange(1, 120), odd), kind, rng)
        rank = rng.choice([None, 6])
        quick, slow, some = both(path, rank, threads=rng.choice([1, 2]))
        same(quick, slow)
        taken += some
    # Neither way did all of it.
    assert sum(taken) > len(taken) * (0.7 if not odd else 0.2)
    assert odd == 0.0 or not all(taken)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_every_cut_and_every_changed_byte(tmp_path, both, kind):
    rng = random.Random(4)
    rows = [
        {"step": 1, "layer": 2, "rank": 0, "token": i, "experts": [i, 5], "weights": [0.75, 1e-3],
         "block": "a", "note": "x"}
        for i in range(3)
    ]  # fmt: skip
    whole = tmp_path / "whole"
    write(whole, rows, kind, random.Random(1))
    text = whole.read_bytes()
    path = tmp_path / "x"
    taken = []
    start = text.index(b"\n") + 1 if kind == "csv" else 0
    texts = [text[:k] for k in range(start + 8, len(text), 3)]
    for _ in range(60):
        at = rng.randrange(start, len(text))
        new = bytes([rng.choice(b'0 19-+.,;:"[]{}\\nNeE\n\r\tx\x00\xff')])
        texts.append(text[:at] + new + text[at + rng.choice([0, 1, 1]) :])
    for changed in texts:
        path.write_bytes(changed)
        with contextlib.suppress(plain_read.UnusableInput):
            quick, slow, some = both(path)
            same(quick, slow)
            taken += some
    assert any(taken)
    assert not all(taken)


LISTS = ("[1, 2, ]", "[1, 2,]", "[1,2]", "[1,  2]", "[1 ,2]", "[1,\t2]", "[ 1, 2 ]", "[01, 2]",
         "[1, 00]", "[0, 10]", "[1, -1]", "[-0]", "[65535, 65536]", "[123456]", "[99999, 1]",
         "[1, 2.0]", "[1, null]", "[1 2]", "[1,, 2]", "[, 1]", "[]", "[ ]", "[1", "1, 2]", "[1]]",
         "[1e0]", "[1, 2], ", "[1, 2]x")  # fmt: skip
"""Experts of a token: as they are written, and as they should not be."""


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_lists_of_any_form(tmp_path, both, kind):
    path = tmp_path / f"x.{kind}"
    for first in (True, False):
        for listed in (*LISTS, *(x.strip("[]").replace(",", "") for x in LISTS if kind == "csv")):
            if kind == "jsonl":
                order = (f'"experts": {listed}', '"layer": 1, "rank": 0, "token": 1')
                line = "{" + ", ".join(order if first else order[::-1]) + "}"
                text = '{"experts": [3], "layer": 1, "rank": 0, "token": 0}\n' + line
            else:
                names = "experts,layer,rank,token" if first else "layer,rank,token,experts"
                text = f"{names}\n" + (f"{listed},1,0,1" if first else f"1,0,1,{listed}")
            path.write_text(text + "\n")
            with contextlib.suppress(plain_read.UnusableInput):
                same(*both(path)[:2])


@pytest.mark.parametrize("weights", [True, False])
def test_batches_are_put_together_but_where_there_are_weights(tmp_path, both, monkeypatch, weights):
    n = 40_000
    rng = np.random.default_rng(4)
    columns = {"layer": rng.integers(0, 3, n), "step": np.arange(n) // 1000, "token": np.arange(n),
               "experts": rng.integers(-1, 9, (n, 4)).tolist()}  # fmt: skip
    if weights:
        columns["weights"] = rng.random((n, 4)).tolist()
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(columns), path)
    found = {}
    for rows in (1, 20_000, 1 << 40):
        monkeypatch.setattr(plain_read, "TOGETHER_ROWS", rows)
        quick, slow, taken = both(path, threads=rows % 2 + 1)
        same(quick, slow)
        assert all(taken)
        found[rows] = len(taken)
    if weights:
        assert len(set(found.values())) == 1
    else:
        assert found[1] > found[20_000] > found[1 << 40] == 1


def test_a_column_of_nulls_only(tmp_path, both):
    path = tmp_path / "x.parquet"
    rows = {"layer": [1, 1], "step": [0, 0], "rank": [None, None], "token": [0, 1],
            "experts": [[1, 2], [2, 3]], "weights": [None, None]}  # fmt: skip
    pq.write_table(pa.table(rows), path)
    quick, slow, taken = both(path)
    same(quick, slow)
    assert taken == [True]


@given(st.floats(1e-60, 1e50), st.integers(0, 10**19 - 1), st.integers(-80, 60), st.integers(0, 18))
@settings(max_examples=4 * settings.default.max_examples, deadline=None)
def test_a_number_is_the_nearest_double_or_left(value, digits, power, places):
    for text in (repr(value), f"{digits}e{power}", f"{value:.{places}f}", repr(-value)):
        buf = np.frombuffer(f"{text}\n".encode(), np.uint8)
        for strict in (True, False):
            got, end, good = text_numbers.decimal(buf, 0, strict)
            assert not good or (got == float(text) and end == len(text)), text


def test_ordinary_numbers_are_not_left():
    rng = random.Random(2)
    for _ in range(500):
        weight = float(np.float32(rng.random()))
        for text in (repr(weight), f"{weight:.6f}", repr(rng.random()), f"{weight:.3e}"):
            buf = np.frombuffer(f"{text}\n".encode(), np.uint8)
            assert text_numbers.decimal(buf, 0, True) == (float(text), len(text), True)
    for text in ("1.", ".5", "01", "00.5", "-", "1e", "1e+", "--1", "+1", "1e1000", "1" * 20):
        buf = np.frombuffer(f"{text}\n".encode(), np.uint8)
        assert not text_numbers.decimal(buf, 0, True)[2], text


def test_halves_between_two_doubles_are_left_or_right():
    for k in range(2**53 + 1, 2**53 + 400, 2):
        for text in (f"{k}", f"{k}0e-1", f"{k * 5}e-1"):
            buf = np.frombuffer(f"{text}\n".encode(), np.uint8)
            got, _, good = text_numbers.decimal(buf, 0, True)
            assert not good or got == float(text), text


def test_blocks_come_in_order_and_an_error_comes_out():
    blocks = [(i, bytes([i])) for i in range(20)]
    got = list(plain_ahead.ahead(iter(blocks), lambda b: b[0] * 2, 3))
    assert [(a, b) for a, b, _ in got] == blocks
    assert [s for _, _, s in got] == [2 * i for i in range(20)]

    def fails(block):
        raise ValueError(block)

    with pytest.raises(ValueError, match="x00"):
        list(plain_ahead.ahead(iter(blocks), fails, 2))


def test_sums_of_weights_do_not_depend_on_cores():
    rng = np.random.default_rng(3)
    n = 20_000
    rows = pl.DataFrame({
        **{k: np.zeros(n, np.int64) for k in plain_frames.KEYS},
        "expert": rng.integers(0, 5, n), "tokens": np.ones(n, np.int64),
        "weight_sum": rng.random(n) * 10.0 ** rng.integers(-9, 3, n),
    })  # fmt: skip
    got = plain_sums.summed(rows)
    for expert, total in got.select("expert", "weight_sum").rows():
        want = 0.0
        for w in rows.filter(pl.col("expert") == expert)["weight_sum"]:
            want += w
        assert total == want


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_chunks_of_any_size_give_the_same(tmp_path, both, monkeypatch, kind, rows):
    monkeypatch.setattr(plain_fast, "CHUNK_ROWS", rows)
    monkeypatch.setattr(plain_fast._rooms, "block", None)
    some = []
    for seed in range(6):
        rng = random.Random(f"{kind} {rows} {seed}")
        path = tmp_path / f"x{seed}.{kind}"
        of_tokens = [{k: v for k, v in r.items() if seed < 3 or k != "count"}
                     for r in rows_of(rng, 60)]  # fmt: skip
        write(path, of_tokens, kind, rng)
        quick, slow, taken = both(path)
        same(quick, slow)
        some += taken
    # Where a count comes late, rows before it are summed by then.
    assert sum(some) >= 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("listed", [True, False])
def test_room_grows_for_many_places_and_experts(tmp_path, both, kind, listed):
    """More than there is room for at first, rows of a place apart from each other."""
    rng = random.Random(3)
    rows = []
    for i in range(4000):
        row = {"step": rng.randrange(150), "layer": rng.randrange(3), "rank": 0, "token": i}
        experts = [rng.randrange(300), rng.randrange(60000)]
        rows.append({**row, "experts": experts} if listed else {**row, "expert": experts[0]})
    path = tmp_path / f"x.{kind}"
    write(path, rows, kind, random.Random(1))
    for rank in (None, 7):  # the second time in rooms that have grown
        quick, slow, taken = both(path, rank)
        same(quick, slow)
        assert all(taken)
    assert len(quick.frames["routing"]) > 3500


def test_lines_that_begin_as_the_line_before(tmp_path, both):
    lines = [
        '{"step": 1, "layer": 2, "rank": 3, "token": 10, "experts": [1, 2]}',
        '{"step": 1, "layer": 2, "rank": 3, "token": 10, "experts": [1, 2]}',
        '{"step": 1, "layer": 2, "rank": 3, "token": 1, "experts": [1]}',
        '{"step": 1, "layer": 2, "rank": 3,  "token": 1, "experts": [1]}',
        '{"step": 1, "layer": 2, "rank": 34, "token": 1, "experts": [1]}',
        '{"step": 1, "layer": 2, "experts": [1], "rank": 34, "token": 1}',
        '{"step": 1, "layer": 2, "experts": [1], "rank": 35, "token": 1}',
        '{"step": 1, "layer": 2, "experts": [1]}',
        '{"step": null, "layer": 2, "experts": [1], "x": 3, "rank": 1}',
        '{"step": null, "layer": 2, "experts": [1], "x": 4, "rank": 1}',
        '{"step": 5, "x": "a", "block": "b", "source": "s", "layer": 2, "experts": [4], "rank": 1}',
        '{"step": 5, "x": "a", "block": "b", "source": "s", "layer": 3, "experts": [4], "rank": 1}',
        '{"step": 5, "x": "a", "block": "b", "layer": 3, "experts": [4], "rank": 1}',
        '{"layer": 3, "experts": [4], "rank": 1, "token": 2}',
    ]
    path = tmp_path / "x.jsonl"
    for k in range(1, len(lines) + 1):
        for some in (lines[:k], lines[k - 1 :] + lines[:k]):
            path.write_text("\n".join(some))
            quick, slow, taken = both(path)
            same(quick, slow)
            assert taken == [True]


def test_a_count_that_comes_late_is_left(tmp_path, both, monkeypatch):
    """Whether rows are counted is asked of a whole block, and the first chunk is summed by then."""
    monkeypatch.setattr(plain_fast, "CHUNK_ROWS", 2)
    monkeypatch.setattr(plain_fast._rooms, "block", None)
    rows = [{"layer": 1, "rank": 0, "experts": [1], "token": i} for i in range(5)]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(map(json.dumps, [*rows, {**rows[0], "count": 3}])))
    quick, slow, taken = both(path)
    same(quick, slow)
    assert taken == [False]


def test_texts_of_several_batches_are_one(tmp_path, both):
    n = 3000
    names = [f"b{i // 100}" for i in range(n)]
    columns = {"layer": [1] * n, "step": [0] * n, "token": range(n), "block": names,
               "token_class": [("real", "dropped", None)[i % 3] for i in range(n)],
               "experts": [[i % 7] for i in range(n)]}  # fmt: skip
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({k: list(v) for k, v in columns.items()}), path, row_group_size=500)
    quick, slow, taken = both(path)
    same(quick, slow)
    assert taken == [True]


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("threads", [1, 4])
def test_what_came_before_damage_is_kept(tmp_path, both, weights, threads):
    n, group = 20_000, 4000
    columns = {"layer": [1] * n, "step": [i // 1000 for i in range(n)], "token": list(range(n)),
               "experts": [[i % 7, 8] for i in range(n)]}  # fmt: skip
    if weights:
        columns["weights"] = [[0.5, i % 3 / 8] for i in range(n)]
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=group)
    chunk = pq.ParquetFile(path).metadata.row_group(3).column(0)
    with open(path, "r+b") as f:
        f.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
        f.write(b"\xff" * 24)
    quick, slow, taken = both(path, threads=threads)
    same(quick, slow)
    assert taken
    assert all(taken)
    assert set(quick.problems()) == {"truncated"}
    # As many as are read at once at first, then four times that, and again.
    assert sum(quick.frames["routing"]["tokens"]) == 2 * (256 + 1024 + 4096)


def test_blocks_begun_come_before_what_ends_the_file():
    def cut():
        yield from ((i, bytes([i])) for i in range(5))
        raise OSError("the end")

    for threads in (1, 3):
        got = []
        with pytest.raises(OSError, match="the end"):
            got.extend((at, made) for at, _, made in plain_ahead.ahead(cut(), len, threads))
        assert got == [(i, 1) for i in range(5)]


def test_a_long_row_takes_room_for_its_experts_alone(tmp_path, both, monkeypatch):
    """Every expert and none, then one of them very often."""
    monkeypatch.setattr(plain_fast, "MAX_EXPERTS", 3000)
    monkeypatch.setattr(plain_fast._rooms, "block", None)
    experts = [-1, *range(3000), *[5] * 100_000]
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"layer": 1, "rank": 0, "token": 1, "experts": experts}))
    held = []
    longer = plain_fast._longer
    monkeypatch.setattr(plain_fast, "_longer", lambda r, n: held.append(n) or longer(r, n))
    quick, slow, taken = both(path)
    same(quick, slow)
    assert taken == [True]
    assert max(held) <= 2 * (3000 + 2)
    assert len(quick.frames["routing"]) == 3000 + 1


@pytest.mark.parametrize("kind", KINDS)
def test_large_rooms_go_with_their_file(tmp_path, both, monkeypatch, kind):
    monkeypatch.setattr(plain_fast._rooms, "block", None)
    rows = [{"layer": 1, "rank": 0, "token": i, "experts": [i % 3, 7]} for i in range(50)]
    path = tmp_path / f"x.{kind}"
    write(path, rows, kind, random.Random(1))
    both(path)
    kept = plain_fast._rooms.block
    assert kept is not None
    quick, slow, _ = both(path)
    assert plain_fast._rooms.block is kept
    monkeypatch.setattr(plain_fast, "MOST_KEPT_BYTES", 1000)
    again, _, taken = both(path)
    assert plain_fast._rooms.block is None
    assert taken == [True]
    same(again, slow)
    same(quick, slow)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("run", [1, 2, 3])
def test_places_in_turn(tmp_path, both, kind, run):
    """Rows of tokens whose place is another every row or few: nothing is counted elsewhere."""
    rng = random.Random(run)
    rows = [
        {"step": i // 1000, "microbatch": i // run % 2, "layer": i // run % 5, "rank": 0,
         "token": i, "experts": [rng.randrange(-1, 6) for _ in range(rng.randrange(4))]}
        for i in range(3000)
    ]  # fmt: skip
    path = tmp_path / f"x.{kind}"
    write(path, rows, kind, random.Random(1))
    quick, slow, taken = both(path)
    same(quick, slow)
    assert all(taken)
    assert sum(quick.frames["routing"]["tokens"]) >= sum(len(r["experts"]) for r in rows)


@pytest.mark.parametrize("run", [1, 2, 3, 50, 3000])
def test_rows_looked_at_ahead_are_few_for_each_row(monkeypatch, run):
    n, looked = 3000, []
    run_end = plain_fold._run_end

    def counted(row, end, *more):
        looked.append(end - row)
        return run_end(row, end, *more)

    monkeypatch.setattr(plain_fold, "_run_end", counted)
    as_written = getattr(plain_fold.fold, "py_func", plain_fold.fold)
    fast = {"fold": as_written, "rehash": plain_blocks.rehash}
    monkeypatch.setattr(plain_fast, "functions", lambda *a: fast)
    columns = {"layer": [i // run % 5 for i in range(n)], "step": [0] * n, "token": range(n),
               "experts": [[i % 3] for i in range(n)]}  # fmt: skip
    batch = pa.record_batch({k: list(v) for k, v in columns.items()})
    sums = plain_fast.batch_sums([batch], 0)
    assert sums is not None
    assert sums.groups[:, 4].sum() == n
    assert sum(looked) <= 3 * n
    assert len(looked) < 40 or run < 3000  # long runs are looked at in long pieces


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b"  \n"])
def test_blank_blocks_leave_those_before_as_they_are(tmp_path, both, monkeypatch, threads, blank):
    """More of them than are read ahead, behind a block that is read once more."""
    monkeypatch.setattr(plain_lines, "BLOCK_BYTES", 600)
    monkeypatch.setattr(plain_lines, "BLOCK", 200)
    path = tmp_path / "x.csv"
    for n_blank in (1, 599, 900, 2500, 8000, 20_000):
        lines = [b"layer,step,token,experts"]
        lines += [b"%d,0,%d,%d" % (i % 3, i, i % 7) for i in range(200)]
        lines[-50] = b'1,"0",5,6'  # quotes: not ordinary
        text = b"\n".join(lines) + b"\n"
        path.write_bytes((text + blank * (n_blank // len(blank))) + b"2,0,1,4\n" * 90)
        quick, slow, taken = both(path, 0, threads)
        same(quick, slow)
        assert sum(quick.frames["routing"]["tokens"]) == 200 + 90
        assert any(taken)
        assert not all(taken)
