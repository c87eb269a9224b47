"""Protobuf's wire format: the examples of its documentation, and every number read back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from retime.analysis.export import wire
from retime.ingest.graphs.chakra_wire import fields, varint


def test_known_bytes():
    assert wire.varint(150) == b"\x96\x01"
    assert wire.number(1, 150) == b"\x08\x96\x01"
    assert wire.text(2, "testing") == b"\x12\x07testing"
    assert wire.packed(6, [3, 270, 86942]) == b"\x32\x06\x03\x8e\x02\x9e\xa7\x05"
    assert wire.double(1, 1.0) == b"\x09" + bytes(6) + b"\xf0\x3f"
    assert wire.number(4, -1) == b"\x20" + b"\xff" * 9 + b"\x01"
    assert wire.packed(5, []) == b""


def test_texts_are_cut_and_half_characters_replaced():
    assert wire.text(1, "abcdef", 4) == b"\x0a\x06abc\xe2\x80\xa6"
    assert wire.text(1, "a\ud800") == b"\x0a\x02a?"


@given(st.integers(0, 2**64 - 1))
def test_numbers_come_back(n):
    assert varint(wire.varint(n), 0) == (n, len(wire.varint(n)))


@given(st.lists(st.tuples(st.integers(1, 1000), st.binary(max_size=300)), max_size=5))
def test_messages_come_back(given_fields):
    message = b"".join(wire.data(f, v) for f, v in given_fields)
    assert [(f, v) for f, _, v in fields(message)] == given_fields
