"""Numbers on screen: the unit, the digits, and nothing that was not measured."""

from __future__ import annotations

import pytest
from retime.analysis import units


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (1, "1 ns"),
        (850, "850 ns"),
        (1_000, "1.00 us"),
        (12_345, "12.3 us"),
        (999_949, "1.00 ms"),
        (999_400, "999 us"),
        (4_560_000, "4.56 ms"),
        (1_234_567_890, "1.23 s"),
        (61_000_000_000, "61.0 s"),
        (-4_560_000, "-4.56 ms"),
        (None, "-"),
        (float("nan"), "-"),
    ],
)
def test_time(ns: float | None, text: str) -> None:
    assert units.time(ns) == text


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (12_310_000, 12_280_000, 12_400_000, "12.31 ms (12.28 to 12.40)"),
        (168_123_456, 167_000_000, 170_000_000, "168.1 ms (167.0 to 170.0)"),
        (5_000_000, 5_000_000, 5_000_000, "5.00 ms (5.00 to 5.00)"),
        (2_213_573_000, 2_213_213_000, 2_213_922_000, "2.2136 s (2.2132 to 2.2139)"),
        (400, 300, 500, "400 ns (300 to 500)"),
        (5_000_000, None, None, "5.00 ms"),
        (None, None, None, "-"),
    ],
)
def test_interval(value: int, low: int, high: int, text: str) -> None:
    assert units.interval(value, low, high) == text


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 B"), (512, "512 B"), (1536, "1.5 KiB"), (192 * 2**20, "192 MiB"), (None, "-")],
)
def test_size(n: int | None, text: str) -> None:
    assert units.size(n) == text


@pytest.mark.parametrize(
    ("n", "text"),
    [(None, "-"), (0, "0 B"), (999, "999 B"), (1000, "1 KB"), (80e9, "80 GB"), (1 << 30, "1.07 GB"),
     (999_999_999, "1 GB"), (2.5e12, "2.5 TB"), (float("nan"), "-")],
)  # fmt: skip
def test_decimal_size(n: float | None, text: str) -> None:
    assert units.decimal_size(n) == text


def test_rate_percent_count() -> None:
    assert units.rate(38.24) == "38.2 GB/s"
    assert units.rate(381.6) == "382 GB/s"
    assert units.rate(0.01) == "0.010 GB/s"
    assert units.percent(0.973) == "97.3 %"
    assert units.percent(0.0042) == "0.42 %"
    assert units.percent(1.0) == "100 %"
    assert units.percent(None) == "-"
    assert units.percent(0.0) == "0 %"
    assert units.percent(0.00001) == "<0.01 %"
    assert units.counted(1, "host") == "1 host"
    assert units.counted(1024, "host") == "1,024 hosts"
    assert units.count(27104) == "27,104"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("wait_ns", 1_500, "1.50 us"),
        ("ns", 1_500, "1.50 us"),
        ("bytes", 2048, "2 KiB"),
        ("algbw_gbps", 12.5, "12.5 GB/s"),
        ("tau_share", 0.5, "50.0 %"),
        ("rank", 3, "3"),
        ("is_last", True, "yes"),
        ("created_at_ns", 1_700_000_000_000_000_000, "1700000000000000000"),
        ("op", "all_reduce", "all_reduce"),
        ("slope", 0.123456, "0.1235"),
        ("rank", None, "-"),
    ],
)
def test_a_column_is_formatted_by_its_own_name(name: str, value: object, text: str) -> None:
    assert units.of(name, value) == text
