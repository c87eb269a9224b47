"""Two lines where there are two protocols, one where there is one: of known truth, with noise."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from retime.replay import models
from retime.replay.calibration import hockney
from retime.replay.calibration.size_classes import split_bytes

N = 8
SIZES = 2.0 ** np.arange(10, 28)
LL = (1_000.0, 40e9)
"""alpha (ns) and bandwidth: a protocol of low latency and half the bandwidth."""
SIMPLE = (5_000.0, 300e9)


def ring(size, alpha, bandwidth):
    return models.time_ns("all_reduce", "ring", N, size, alpha, bandwidth)


def rows_of(size, took):
    return pl.DataFrame(
        {
            "comm": ["c"] * len(size),
            "op": ["all_reduce"] * len(size),
            "n": [N] * len(size),
            "bytes": np.asarray(size, np.int64),
            "transfer_ns": took,
        }
    )


def noisy(size, took, seed, sigma, outliers=0.0):
    random = np.random.default_rng(seed)
    factor = np.exp(random.normal(0, sigma, len(size)))
    factor[random.random(len(size)) < outliers] *= 8
    return rows_of(size, took * factor)


@pytest.mark.parametrize("outliers", [0.0, 0.1])
def test_two_protocols_are_two_lines(outliers):
    size = np.tile(SIZES, 12)
    took = np.minimum(ring(size, *LL), ring(size, *SIMPLE))
    fit = hockney.fit(noisy(size, took, 1, 0.05, outliers), "ring")
    small, large = fit.classes
    # Equally long where 14 messages of 4 us more make up for 14/8 sizes of 21.7 us less a MB.
    crossing = 14 * 4_000 / (14 / 8 * (1 / 40 - 1 / 300))
    assert crossing / 2 < small.up_to_bytes < crossing * 2
    assert small.max_bytes < small.up_to_bytes < large.min_bytes
    for found, truth in ((small, LL), (large, SIMPLE)):
        assert found.alpha_ns == pytest.approx(truth[0], rel=0.1)
        assert found.bandwidth_bytes_per_s == pytest.approx(truth[1], rel=0.1)
        assert abs(found.alpha_ns - truth[0]) < 4 * found.alpha_error_ns
        assert abs(found.bandwidth_bytes_per_s - truth[1]) < 4 * found.bandwidth_error_bytes_per_s
    assert (small.bound, large.bound) == ("latency", "bandwidth")
    alpha, bandwidth = fit.at([1_000.0, 1e8])
    assert list(alpha) == [small.alpha_ns, large.alpha_ns]
    assert list(bandwidth) == [small.bandwidth_bytes_per_s, large.bandwidth_bytes_per_s]
    assert "by size: up to" in fit.words()


@pytest.mark.parametrize("sigma", [0.0, 0.02, 0.1, 0.3])
def test_one_protocol_is_seldom_two_lines(sigma):
    # A criterion of two standard errors: by chance one in forty, less what LEAST_GAIN forbids.
    split = 0
    for seed in range(60):
        size = np.tile(SIZES[:: 1 + seed % 3], 1 + seed % 4)
        one = noisy(size, ring(size, 3_000.0, 200e9), seed, sigma)
        split += bool(hockney.fit(one, "ring").classes)
    assert split <= 4


def test_few_sizes_are_one_line():
    size = np.tile(SIZES[::4], 10)
    assert len(np.unique(size)) == 5
    took = np.minimum(ring(size, *LL), ring(size, *SIMPLE))
    assert split_bytes(14, 14 / 8, size, took) is None


def test_a_class_whose_sizes_are_alike_takes_over_what_they_do_not_tell():
    # Large ones of one size and its half: no alpha of their own. Small ones over a wide range.
    size = np.tile(np.r_[2.0 ** np.arange(10, 20), 2.0**27, 2.0**28], 10)
    took = np.where(size < 2**20, ring(size, 2_000.0, 20e9), ring(size, 2_000.0, 200e9))
    fit = hockney.fit(noisy(size, took, 3, 0.02), "ring")
    small, large = fit.classes
    assert (small.borrowed, large.borrowed) == ("", "alpha")
    assert large.alpha_ns == small.alpha_ns
    assert large.alpha_error_ns == 0
    assert large.bandwidth_bytes_per_s == pytest.approx(200e9, rel=0.05)


def test_many_different_sizes_are_binned():
    random = np.random.default_rng(5)
    size = np.exp(random.uniform(np.log(1e3), np.log(1e8), 3_000))
    took = np.minimum(ring(size, *LL), ring(size, *SIMPLE))
    fit = hockney.fit(noisy(size, took, 6, 0.1), "ring")
    assert [c.alpha_ns for c in fit.classes] == pytest.approx([1_000, 5_000], rel=0.1)


def test_errors_shrink_with_samples_and_two_collectives_tell_none():
    few, many = (
        hockney.fit(noisy(np.tile(SIZES, k), ring(np.tile(SIZES, k), *SIMPLE), 2, 0.1), "ring")
        for k in (2, 50)
    )
    assert many.alpha_error_ns < few.alpha_error_ns / 2.5
    two = hockney.fit(rows_of([1e3, 1e8], ring(np.array([1e3, 1e8]), *SIMPLE)), "ring")
    assert np.isnan(two.alpha_error_ns)
    assert "too few to tell errors" in two.words()


def test_standard_errors_are_as_wide_as_fits_differ():
    size = np.tile(SIZES, 4)
    fits = [hockney.fit(noisy(size, ring(size, *SIMPLE), seed, 0.1), "ring") for seed in range(80)]
    apart = np.array([f.alpha_ns - SIMPLE[0] for f in fits])
    said = np.array([f.alpha_error_ns for f in fits])
    # 95 % within two of them; of 80 at least 68 (a chance of 1e-4 less).
    assert (np.abs(apart) < 2 * said).sum() >= 68
    assert np.median(said) == pytest.approx(apart.std(), rel=0.35)


def test_errors_of_few_are_as_wide_as_students_t():
    size = np.array([1e4, 1e6, 1e8, 1e9])
    fits = [hockney.fit(noisy(size, ring(size, *SIMPLE), s, 0.1), "ring") for s in range(300)]
    apart = np.array([f.alpha_ns - SIMPLE[0] for f in fits])
    said = np.array([f.alpha_error_ns for f in fits])
    # Two degrees of freedom: a normal's two errors would hold 82 %.
    assert (np.abs(apart) < 2 * said).mean() > 0.85


def test_large_ones_alone_do_not_make_alpha_sure():
    # 14 messages of 5 us are 0.3 % of what 4 GiB take, and the noise is 1 %.
    size = np.tile(2.0 ** np.arange(32, 37), 10)
    fit = hockney.fit(noisy(size, ring(size, *SIMPLE), 4, 0.01), "ring")
    assert fit.alpha_error_ns > 0.2 * SIMPLE[0]
    assert abs(fit.alpha_ns - SIMPLE[0]) < 3 * fit.alpha_error_ns


def test_small_ones_that_vary_more_do_not_make_the_rest_sure():
    # Small ones by half, large ones by 1 %: alpha's error is that of the small ones.
    size = np.tile(np.r_[1e3, 2e3, 4e3, 1e8, 1.5e8], 20)
    random = np.random.default_rng(8)
    factor = np.exp(random.normal(0, np.where(size < 1e6, 0.5, 0.01)))
    fit = hockney.fit(rows_of(size, ring(size, *SIMPLE) * factor), "ring")
    assert fit.alpha_error_ns > 0.03 * SIMPLE[0]
    assert fit.bandwidth_error_bytes_per_s < 0.03 * SIMPLE[1]
