"""The walk over large JSON: what is opened, what is broken, where it stops."""

import io
import json

import pytest
from retime.ingest.source import Source
from retime.ingest.stacks import jsonwalk
from retime.ingest.stacks.jsonwalk import Opened, walk


def run(text, opens=lambda path: False):
    data = text if isinstance(text, bytes) else text.encode()
    odd = []
    source = Source("x.json", len(data), lambda: io.BytesIO(data))
    found = list(walk(source, opens, lambda code, *a, **k: odd.append((code, k["offset"]))))
    return [(p, v) for p, v in found if not isinstance(v, Opened)], odd


def test_opened_containers_give_their_members_others_come_whole():
    text = '{"a": {"b": [{"c": 1}, 2], "d": {"e": 3}}, "f": "x"}'
    found, odd = run(text, lambda path: path in (("a",), ("a", "b")))
    assert found == [
        (("a", "b", "*"), {"c": 1}),
        (("a", "b", "*"), 2),
        (("a", "d"), {"e": 3}),
        (("f",), "x"),
    ]
    assert odd == []


def test_fractions_stay_text_and_no_numbers_are_none():
    assert run("[1.50, 1e3, NaN, -Infinity, 12345678901234567890]")[0] == [
        (("*",), "1.50"),
        (("*",), "1e3"),
        (("*",), None),
        (("*",), None),
        (("*",), 12345678901234567890),
    ]


def test_missing_last_bracket_of_an_array_is_not_a_loss():
    assert run('[{"a": 1}, {"a": 2}') == (
        [(("*",), {"a": 1}), (("*",), {"a": 2})],
        [("unclosed", 19)],
    )
    assert run('[{"a": 1},\n')[1] == [("unclosed", 11)]


@pytest.mark.parametrize("cut", ['{"t": [{"a": 1}', '{"t": [{"a": 1}]', '{"t": [{"a": 1}],'])
def test_missing_end_of_an_object_is_a_loss(cut):
    found, odd = run(cut, lambda path: True)
    assert found == [(("t", "*", "a"), 1)]
    assert [code for code, _ in odd] == ["truncated"]


def test_number_at_the_end_of_a_cut_text_is_not_believed():
    assert run('{"a": 1, "b": 23')[0] == [(("a",), 1)]


def test_broken_item_is_left_out_and_the_next_is_read():
    found, odd = run('[{"a": 1}, {"a": "in "quotes""}, {"a": 3}]')
    assert found == [(("*",), {"a": 1}), (("*",), {"a": 3})]
    assert odd == [("lost_event", 11)]


def test_broken_member_ends_the_walk():
    found, odd = run('{"a": 1, b: 2, "c": 3}')
    assert found == [(("a",), 1)]
    assert odd == [("malformed", 9)]


def test_items_over_block_borders_are_the_same(monkeypatch):
    items = [{"name": "ä" * (k % 50), "n": k, "x": [[k]]} for k in range(3000)]
    text = json.dumps(items, ensure_ascii=False)
    whole = run(text)
    monkeypatch.setattr(jsonwalk, "_READ_BYTES", 61)
    assert run(text) == whole
    assert [v for _, v in whole[0]] == items


def test_an_item_beyond_the_limit_is_left_out(monkeypatch):
    monkeypatch.setattr(jsonwalk, "MAX_VALUE_CHARS", 1000)
    monkeypatch.setattr(jsonwalk, "_READ_BYTES", 100)
    text = json.dumps([{"a": 1}, {"a": "x" * 5000}, {"a": 3}])
    found, odd = run(text)
    assert [v["a"] for _, v in found] == [1, 3]
    assert odd == [("lost_event", 11)]


@pytest.mark.parametrize(
    "text",
    ["", " ", "x", '"', "a" * 100_000, '"' * 100_000, "[" * 100_000, '[{"a":' + "[" * 100_000,
     '[{"a":' + "9" * 100_000 + "}", b"\xff\xfe[", b"\xef\xbb\xbf[", '[{"\\ud800": 1', "[,,,",
     "{]"],
)  # fmt: skip
def test_nonsense_ends_in_a_problem(text):
    found, odd = run(text)
    assert found == []
    assert len(odd) in (1, 2) or text == "{]"
