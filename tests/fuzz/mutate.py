"""Mutations of a file's bytes: blind ones, and ones that know numbers, strings and brackets."""

from __future__ import annotations

import random
import re

NUMBERS = (
    b"0", b"-1", b"1e999", b"NaN", b"Infinity", b"9223372036854775807", b"9223372036854775808",
    b"18446744073709551616", b"-9223372036854775809", b"0x7fffffffffffffff", b"1.5", b"-0.0",
    b"4294967296", b"1" * 400, b"null", b"true", b'"7"', b"[]", b"{}", b"",
)  # fmt: skip
TEXTS = (
    b'""', b'"' + b"\xff\xfe" + b'"', b'"\\ud800"', b'"../../etc/passwd"', b'"<script>"', b"null",
    b"7", b"[1, 2]", b'{"a": 1}', b'"' + b"A" * 5000 + b'"', b'"\\u0000"', b"[0, 1, ..., 9]",
)  # fmt: skip
WORDS = (
    b"\0" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"\x80", b"{", b"}", b"[", b"]", b",", b'"', b"\n",
    b"\r\n", b"[" * 3000, b'{"a":' * 2000, b"<a>" * 1000, b"\xf0\x9f", b"...", b"-", b"\t\t",
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_TEXT = re.compile(rb'"[^"\n]{0,200}"')


def mutate(data: bytes, seed: int) -> bytes:
    """`data` with one to eight mutations, the same ones for the same seed."""
    rng = random.Random(seed)
    out = data
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        out = rng.choice(_KINDS)(out, rng)
    return out


def _place(data: bytes, rng: random.Random) -> int:
    # Headers and footers matter most and are smallest.
    n = len(data)
    where = rng.random()
    if where < 0.25:
        return rng.randrange(min(n, 256) + 1)
    if where < 0.4:
        return n - rng.randrange(min(n, 256) + 1)
    return rng.randrange(n + 1)


def _flip(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    at = min(_place(data, rng), len(data) - 1)
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _byte(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    at = min(_place(data, rng), len(data) - 1)
    return data[:at] + bytes([rng.choice((0, 1, 127, 128, 255, 10, 34, 92))]) + data[at + 1 :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: _place(data, rng)]


def _drop(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + rng.choice((1, 2, 4, 8, 50, 500)) :]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    piece = data[at : at + rng.choice((1, 4, 16, 100, 1000))]
    return data[:at] + piece * rng.choice((2, 3, 20)) + data[at + len(piece) :]


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.choice(WORDS) + data[at:]


def _random(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    n = rng.choice((1, 4, 8, 64))
    return data[:at] + rng.randbytes(n) + data[at + n :]


def _swap(data: bytes, rng: random.Random) -> bytes:
    a, b = sorted((_place(data, rng), _place(data, rng)))
    n = rng.choice((4, 16, 200))
    return data[:a] + data[b : b + n] + data[a + n : b] + data[a : a + n] + data[b + n :]


def _token(pattern: re.Pattern[bytes], others: tuple[bytes, ...]):
    def change(data: bytes, rng: random.Random) -> bytes:
        found = pattern.search(data, max(0, _place(data, rng) - 1))
        if found is None:
            found = pattern.search(data)
        if found is None:
            return _random(data, rng)
        return data[: found.start()] + rng.choice(others) + data[found.end() :]

    return change


_KINDS = (
    _flip, _flip, _byte, _cut, _drop, _repeat, _insert, _random, _swap, _token(_NUMBER, NUMBERS),
    _token(_NUMBER, NUMBERS), _token(_TEXT, TEXTS), _token(_TEXT, TEXTS),
)  # fmt: skip
