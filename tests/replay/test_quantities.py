"""Times, sizes and bandwidths as they are typed."""

from __future__ import annotations

import pytest
from retime.replay import quantities


@pytest.mark.parametrize(
    ("text", "ns"), [("0.822us", 822), ("3 ms", 3e6), ("7", 7), ("1e-3s", 1e6), ("2µs", 2000)]
)
def test_times(text, ns):
    assert quantities.time_ns(text) == pytest.approx(ns)


@pytest.mark.parametrize(
    ("text", "size"), [("80MiB", 83_886_080), ("1GB", 10**9), ("4096", 4096), ("10 KiB", 10240)]
)
def test_sizes(text, size):
    assert quantities.size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "rate"),
    [("450GB/s", 450e9), ("100Gb/s", 12.5e9), ("400Gbps", 50e9), ("1e9", 1e9), ("5GiB/s", 5 << 30)],
)
def test_bandwidths(text, rate):
    assert quantities.bandwidth_bytes_per_s(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "1.2.3us", "5 furlongs", "-3us", "nan"])
def test_what_is_none_of_these(text):
    for read in (quantities.time_ns, quantities.size_bytes, quantities.bandwidth_bytes_per_s):
        with pytest.raises(ValueError, match="unit"):
            read(text)


def test_bandwidth_is_more_than_zero():
    with pytest.raises(ValueError, match="more than 0"):
        quantities.bandwidth_bytes_per_s("0GB/s")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (quantities.time_ns, "1e300s"),
        (quantities.time_ns, "101e9s"),
        (quantities.size_bytes, "1e300GB"),
        (quantities.size_bytes, "1e19"),
        (quantities.bandwidth_bytes_per_s, "1e308GB/s"),
        (quantities.bandwidth_bytes_per_s, "1e-300GB/s"),
    ],
)
def test_what_would_overflow_later_is_refused(read, text):
    with pytest.raises(ValueError, match=r"at most|is from"):
        read(text)


@pytest.mark.parametrize("text", ["5", "400", "0.5"])
def test_a_bandwidth_without_its_unit(text):
    with pytest.raises(ValueError, match="give a unit, such as 5GB/s"):
        quantities.bandwidth_bytes_per_s(text)
