"""Compiled reading of router calls gives what the decoder gives, or leaves the line to it."""

import json
import random

import numpy as np
import pytest
from retime.ingest.moe import counted, megatron_rows, tally_fast, tally_fast_code

FAST = {f.name: getattr(tally_fast, f.name) for f in tally_fast_code.CODE.functions}


def line(ids, **more):
    head = {"step": 1, "stage": "pre_dispatch", "block": "decoder", "layer": 3, "rank": 2,
            "num_tokens": len(ids), "topk": 2}  # fmt: skip
    return json.dumps({**head, "top_indices": ids, **more}).encode()


def either(text):
    try:
        r, ids = megatron_rows._call(text)
        return r.step, r.layer, r.block, r.num_tokens, ids.tolist()
    except Exception as e:
        return type(e)


def quick(text):
    found = megatron_rows._quick_call(text, FAST)
    told = None if found is None else (*(getattr(found[0], k) for k in
            ("step", "layer", "block", "num_tokens")), found[1].tolist())  # fmt: skip
    counts(text, found)
    return told


def counts(text, found):
    """Choices that are counted as they are read are those that are read, then counted."""
    one = megatron_rows._quick_count(text, FAST)
    assert not counted._scratch().tokens.any()
    if one is None:
        return False
    assert found is not None
    r, n, its = one
    assert (r, n) == (found[0], len(found[1]))
    for a, b in zip(its, counted._count_fast(FAST, found[1], None), strict=True):
        assert (a is None and b is None) or np.array_equal(a, b)
    return True


def test_choices_are_taken_out_of_the_line():
    ids = [[1, 5], [-1, 63], [0, 2]]
    for text in (line(ids), line(ids, more="x"), line(ids).replace(b", ", b",")):
        assert quick(text) == (1, 3, "decoder", 3, ids) == either(text)


@pytest.mark.parametrize(
    "text",
    [
        line([[1], [2, 3]]), line([[1.5]]), line([[]]), line([]), line([[10**18]]), line([[None]]),
        line([[1]])[:-3], line([[1]]).replace(b"[[1]]", b"[[01]]"),
        line([[1]]).replace(b"[[1]]", b"[[1],]"), line([[1]]).replace(b"[[1]]", b"[[1] [2]]"),
        line([[1]]).replace(b"[[1]]", b"[[1,]]"), line([[1]]).replace(b"[[1]]", b"[[-0]]"),
        line([[1]]).replace(b"[[1]]", b"[1]"), line([[1]]).replace(b"[[1]]", b"7"),
        b'{"x": {"top_indices": [[1]]}}', b'{"a\\"top_indices": [[1]]}', b"{}", b"",
        line([[1]], inner={"top_indices": [[2]]}), line([[1]]).replace(b'"step": 1, ', b""),
        line([[1]]).replace(b'"top_indices"', b'"top\\u005findices"'),
        # The key in another spelling, and the plain one elsewhere.
        line([[1]]).replace(b'"top_indices"', b'"top\\u005findices"')[:-1]
        + b', "x": {"top_indices": [[2]]}}',
    ],
)  # fmt: skip
def test_what_is_not_ordinary_is_left(text):
    assert quick(text) is None


def test_experts_that_can_be_are_counted_as_they_are_read():
    def told(ids):
        text = line(ids)
        return counts(text, megatron_rows._quick_call(text, FAST))

    assert all(map(told, ([[1, 5], [5, 63]], [[0]], [[65535, 3]])))
    assert not any(map(told, ([[1, -1]], [[65536]], [[2, 123456]], [[2], [1, 3]], [[]])))


def test_every_cut_and_changed_byte_goes_the_same_way():
    rng = random.Random(5)
    text = line([[1, 5], [12, 63]], note="a")
    texts = [text[:k] for k in range(len(text))]
    for _ in range(3000):
        at = rng.randrange(len(text))
        new = bytes([rng.choice(b'0 19-+.,:"[]{}\\nNe\r\t\x00\xff')])
        texts.append(text[:at] + new + text[at + rng.choice([0, 1]) :])
    taken = 0
    for t in texts:
        found = quick(t)
        taken += found is not None
        assert found is None or found == either(t), t
    assert taken > 100


@pytest.mark.parametrize("weighed", [False, True])
def test_counts_are_those_of_numpy(monkeypatch, weighed):
    rng = np.random.default_rng(1)
    for case in range(30):
        n, k = int(rng.integers(0, 60)), int(rng.integers(1, 5))
        ids = rng.choice([-1, -1, 0, 1, 7, 65535, 65536, -2], (n, k)).astype(np.int64)
        if case % 3 == 0:
            ids[:, 0] = -1
        weights = rng.random((n, k)).astype(np.float32) if weighed else None
        if weights is not None and n:
            weights[0, 0] = np.nan
        monkeypatch.setattr(counted, "COUNT_AT_ONCE", 64)
        slow = _slowly(ids, weights, monkeypatch)
        fast = counted._count_fast(FAST, ids, weights)
        for a, b in zip(slow, fast, strict=True):
            assert (a is None and b is None) or np.array_equal(a, b)


def _slowly(ids, weights, monkeypatch):
    with monkeypatch.context() as m:
        m.setattr(counted, "FEW_IDS", 1 << 40)
        return counted.count(ids, weights)


@pytest.mark.parametrize("in_order", [True, False])
def test_counts_of_bytes_are_those_of_numpy(monkeypatch, in_order):
    ids = np.random.default_rng(2).integers(0, 256, (500, 3, 4)).astype(np.uint8)
    of_layer = np.ascontiguousarray(ids[:, 1]) if in_order else ids[:, 1]
    slow = _slowly(of_layer, None, monkeypatch)
    fast = counted._count_fast(FAST, of_layer, None)
    assert [None if a is None else np.asarray(a).tolist() for a in slow] == [
        None if b is None else np.asarray(b).tolist() for b in fast
    ]


def test_integers_of_any_length_are_read_as_they_stand():
    for ids in ([[0, 12345, 123456], [99999, 7, 100000]], [[5], [65535]], [[10**17, 0]]):
        assert quick(line(ids)) == (1, 3, "decoder", len(ids), ids)
