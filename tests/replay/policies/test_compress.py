"""Lossless compression: published ratios and codecs, break-even, and what a file measures."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from retime.ingest.errors import UsageError
from retime.replay.costs import compression
from retime.replay.graph import Kind
from retime.replay.policy import BadParam


def gain(bandwidth, codec, ratio=0.669, n=8):
    plain = (n - 1) / n * 1e9 * 1e9 / bandwidth
    return plain / compression.all_gather_ns(n, 1e9, ratio, bandwidth, codec, codec)


def test_gains_by_codec():
    assert gain(50e9, 400e9) == pytest.approx(1.232, abs=5e-4)
    assert gain(50e9, 250e9) == pytest.approx(1.114, abs=5e-4)
    assert gain(450e9, 400e9) == pytest.approx(0.51, abs=5e-3)


def test_break_even():
    edge = compression.break_even_bytes_per_s(8, 0.669, 400e9, 400e9)
    assert gain(edge, 400e9) == pytest.approx(1, rel=1e-9)
    assert gain(edge * 0.99, 400e9) > 1 > gain(edge * 1.01, 400e9)
    # Send and recv, r = 2/3 at 50 GB/s: a codec of 150 GB/s both ways together.
    both = compression.message_ns(1e9, 2 / 3, 50e9, 300e9, 300e9)
    assert both == pytest.approx(1e9 * 1e9 / 50e9, rel=1e-9)


def test_pipelined_it_takes_the_longest_of_the_three():
    # S = 1 GB, n = 8: encode 0.3125 ms, send 7/8 x 0.669 / 50 = 11.7, decode 2.1875.
    parts = (1e9 / 8 / 400, 7 / 8 * 0.669e9 / 50, 7 / 8 * 1e9 / 400)
    together = compression.all_gather_ns(8, 1e9, 0.669, 50e9, 400e9, 400e9, pipelined=True)
    assert together == pytest.approx(max(parts))
    assert compression.all_gather_ns(8, 1e9, 0.669, 50e9, 400e9, 400e9) == pytest.approx(sum(parts))


@pytest.mark.parametrize(("bits", "ratio"), [(2.6, 0.6625), (2.7, 0.669)])
def test_published_entropies(bits, ratio):
    """DFloat11 (arXiv 2504.11651) and DietGPU's README."""
    assert compression.ratio_of_entropy(bits) == pytest.approx(ratio, abs=5e-4)


def test_entropy_of_exponents():
    uniform = (np.arange(256, dtype=np.uint16) << 7) | 3
    assert compression.exponent_entropy(uniform) == pytest.approx(8)
    assert compression.exponent_entropy(np.full(10, 0x3F80, np.uint16)) == 0
    weights = np.random.default_rng(0).normal(0, 0.02, 200_000).astype(np.float32)
    bf16 = (weights.view(np.uint32) >> 16).astype(np.uint16)
    # A normal distribution's exponents hold 2.5 to 2.6 bits: what is published of LLM weights.
    assert 2.4 < compression.exponent_entropy(bf16) < 2.8


def test_files_are_measured(tmp_path):
    values = np.array([0x3F80, 0x4000, 0x3F80, 0x4000], "<u2")
    raw = tmp_path / "weights.bin"
    raw.write_bytes(values.tobytes())
    assert compression.exponent_entropy(compression.sample(str(raw))) == 1
    header = json.dumps(
        {
            "w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]},
            "f": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]},
            "beyond": {"dtype": "BF16", "shape": [4], "data_offsets": [8, 1 << 40]},
        }
    ).encode()
    file = tmp_path / "w.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header + values.tobytes() + b"\0" * 4)
    assert compression.sample(str(file)).tolist() == values.tolist()


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 8, struct.pack("<Q", 5) + b"[1,2]", struct.pack("<Q", 2) + b"{}"]
)
def test_damaged_files(tmp_path, content):
    file = tmp_path / "w.safetensors"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="safetensors"):
        compression.sample(str(file))


def test_no_file(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        compression.sample(str(tmp_path / "none"))


def test_a_job_between_hosts_gains(rings):
    job = rings.job(op="all_gather", sizes=(1 << 30,), alpha_ns=0.0, bandwidth=50e9)
    after = rings.under(job, "compress:ratio=0.669")
    assert rings.took_us(job, 1 << 30) / rings.took_us(after, 1 << 30, job) == pytest.approx(
        1.232, abs=2e-3
    )
    assert not [w for w in after.warnings if "loses" in w]
    moved = after.graph.bytes[after.graph.kind == Kind.TRANSFER]
    assert moved.max() == pytest.approx(0.669 * (1 << 30), rel=1e-6)


def test_on_nvlink_it_loses_and_says_so(rings):
    job = rings.job(op="all_gather", sizes=(1 << 30,), alpha_ns=0.0, bandwidth=450e9, hosts=1)
    after = rings.under(job, "compress:ratio=0.669")
    assert rings.took_us(after, 1 << 30, job) > rings.took_us(job, 1 << 30)
    # (1 - r) / (1/Cd + 1/(7 Ce)) = 0.331 x 350 GB/s.
    assert any("compression loses" in w and "below 116 GB/s" in w for w in after.warnings)


def test_a_reduce_scatter_codes_every_hop(rings):
    # n - 1 = 7 hops of a shard of 128 MiB, each encoded, sent and decoded: at 50 GB/s
    # 7 (1/400 + 0.669/50 + 1/400) of it for 7/50: 0.919 times, where a gather takes 0.812.
    took = {}
    for op in ("reduce_scatter", "all_gather"):
        rings.tables.rows.clear()
        job = rings.job(op=op, sizes=(1 << 30,), alpha_ns=0.0, bandwidth=50e9)
        after = rings.under(job, f"compress:op={op},ratio=0.669")
        took[op] = rings.took_us(after, 1 << 30, job) / rings.took_us(job, 1 << 30)
    assert took["reduce_scatter"] == pytest.approx(0.669 + 50 * 2 / 400, abs=2e-3)
    assert took["all_gather"] == pytest.approx(1 / 1.232, abs=2e-3)


def test_small_ones_stay_plain(rings):
    job = rings.job(op="all_gather", sizes=(1 << 20,))
    after = rings.under(job, "compress")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("left plain" in a for a in after.assumptions)


def test_a_ratio_of_one_and_a_free_codec_change_nothing(rings):
    job = rings.job(op="all_gather", sizes=(10 << 20, 80 << 20))
    after = rings.under(job, "compress:ratio=1,encode=1e30,decode=1e30")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("ratio=0", "compressed over plain"),
        ("ratio=1.5", "compressed over plain"),
        ("entropy=9", "0 to 8"),
        ("ratio=0.5,entropy=2", "give one"),
        ("op=all_reduce", "no model"),
    ],
)
def test_out_of_range(rings, spec, said):
    with pytest.raises(BadParam, match=said):
        rings.under(rings.job(op="all_gather"), f"compress:{spec}")
