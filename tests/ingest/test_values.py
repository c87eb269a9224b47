"""Values that a stranger wrote: what is taken as a number, a rank or a text, and what is not."""

import json

import pytest
from retime.ingest.values import MAX_RANK, as_int, as_size, exact, integer, printable, scaled


@pytest.mark.parametrize("value", [0, -1, 2**63 - 1, -(2**63)])
def test_integers_of_64_bits_are_taken_as_they_are(value):
    assert integer(value) == value


def test_what_is_no_integer_of_64_bits_is_none():
    given = [True, "1", 1.0, None, [1], {}, 2**63, -(2**63) - 1, 10**5000]
    assert [integer(v) for v in given] == [None] * len(given)


def test_text_and_whole_floats_are_integers_where_that_is_asked():
    given = ["7", " 7 ", 7.0, 7, 2**70, 7.5, "7.5", True, None, [7], "x", float("inf"), "1" * 5000]
    assert [as_int(v) for v in given] == [7, 7, 7, 7, 2**70] + [None] * 8
    given = [0, 1, MAX_RANK + 1, MAX_RANK + 2, "8", -3]
    assert [as_size(v) for v in given] == [None, 1, MAX_RANK + 1, None, 8, None]


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        ("1.5", 1500), (" 1.5\n", 1500), ("-1.5", -1500), ("+.5", 500), ("5.", 5000), ("0", 0),
        ("1e3", 1_000_000), ("1.5E-3", 2), ("0.0005", 0), ("0.0015", 2), ("0.0025", 2),
        ("1753182437123456.789", 1_753_182_437_123_456_789), ("1e-900000", 0),
        (1753182437123456, 1_753_182_437_123_456_000), (0.25, 250), (1e15, 10**18),
        ("9223372036854775.807", 2**63 - 1), ("-9223372036854775.808", -(2**63)),
        ("0." + "0" * 100_000 + "1", 0), ("1." + "0" * 100_000 + "1", 1000),
    ],
)  # fmt: skip
def test_microseconds_become_nanoseconds_without_a_float(value, ns):
    assert scaled(value, 3) == ns


def test_what_is_no_number_of_64_bits_has_no_nanoseconds():
    given = ["", "x", "1,5", "1.5us", "0x10", "nan", "inf", "1e", ".", "--1", "1_000", "\u0661",
             "9223372036854775.808", "1e900000", "1" * 200_000 + "x", "1e" + "9" * 50,
             2**62, 10**5000, float("nan"), float("inf"), None, True, [1], b"1"]  # fmt: skip
    assert [scaled(v, 3) for v in given] == [None] * len(given)


def test_exact_reaches_beyond_64_bits():
    assert exact("18446744073709551615", 0) == 2**64 - 1
    assert exact(str(10**21), 0) is None


def test_a_text_for_a_message_is_short_and_has_no_control_characters():
    given = json.loads('"rank\\u001b[31m\\n\\u202eé\\ud800"')
    assert printable(given, 80) == "rank?[31m??é?"
    assert printable("x" * 500, 80) == "x" * 80
