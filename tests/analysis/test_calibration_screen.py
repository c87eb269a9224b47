"""The calibration on the terminal: a line a fit, its classes under it, levels and late ranks."""

from __future__ import annotations

import io

from retime.analysis import calibration_screen
from rich.console import Console

ROW = {
    "comm": "0", "dim": "dp", "op": "all_reduce", "algo": "ring", "level": "intra host",
    "n": 8, "alpha_ns": 2_500.0, "alpha_error_ns": 130.0, "bandwidth_bytes_per_s": 295e9,
    "bandwidth_error_bytes_per_s": 12e9, "separated": True, "error_pct": 23.9, "alpha_from": "own",
    "lender": None, "classes": [], "tau_ns": 15_600.0, "tau_error_ns": 900.0,
    "tau_spread_ns": 105_000.0, "tau_p90_ns": 120_000.0, "early_ns": 1.0, "early_p90_ns": 2.0,
    "collectives": 28, "min_bytes": 192, "max_bytes": 150_994_944, "caveat": None,
}  # fmt: skip
SMALL = {
    "min_bytes": 192, "max_bytes": 2304, "up_to_bytes": 5e4, "alpha_ns": 1_000.0,
    "alpha_error_ns": 10.0, "bandwidth_bytes_per_s": 50e9, "bandwidth_error_bytes_per_s": 1e9,
    "instances": 12, "borrowed": "", "bound": "latency",
}  # fmt: skip


def lines(**result):
    out = Console(file=io.StringIO(), width=200)
    calibration_screen.show(out, {"calibration": [], **result})
    assert isinstance(out.file, io.StringIO)
    return [" ".join(line.split()) for line in out.file.getvalue().splitlines()]


def test_a_line_a_fit_with_standard_errors():
    none = {**ROW, "alpha_ns": None, "bandwidth_bytes_per_s": None, "error_pct": None,
            "alpha_from": None, "caveat": "larger ones took no longer"}  # fmt: skip
    found = lines(calibration=[ROW, none])
    assert found[-2] == (
        "all_reduce on 0 dp 8 intra host ring 2.50 us ± 130 ns 295 ± 12 GB/s 192 B to 144 MiB 28 "
        "23.9 % 15.6 us ± 900 ns 120 us"
    )
    assert found[-1].endswith("larger ones took no longer")


def test_what_is_lent_or_assumed_is_said():
    lent = {**ROW, "alpha_from": "lent", "lender": "all_reduce on 2 communicators (on a rail)"}
    found = lines(calibration=[lent, {**ROW, "alpha_from": "assumed", "alpha_error_ns": 0.0}])
    assert found[2].endswith("sizes alike: what they do not tell is lent")
    assert found[3].endswith("sizes alike: alpha assumed")
    assert " 2.50 us 295 ± 12 GB/s" in found[3]
    assert found[4] == "lent: all_reduce on 2 communicators (on a rail)"


def test_classes_of_sizes_are_under_their_fit():
    large = {**SMALL, "min_bytes": 2**20, "max_bytes": 2**27, "bound": "bandwidth",
             "up_to_bytes": None, "instances": 16}  # fmt: skip
    found = lines(calibration=[{**ROW, "classes": [SMALL, large]}])
    assert found[-2] == "latency-bound 1.00 us ± 10 ns 50 ± 1 GB/s 192 B to 2.25 KiB 12"
    assert found[-1] == "bandwidth-bound 1.00 us ± 10 ns 50 ± 1 GB/s 1 MiB to 128 MiB 16"


def test_levels_benchmarks_and_the_latest_ranks():
    level = {**ROW, "level": "on a rail", "comms": 8, "min_n": 2, "max_n": 4}
    late = [
        {"comm": "0", "rank": r, "late_ns": 1e3 * (9 - r), "late_error_ns": 50.0,
         "late_p90_ns": 2e4, "last_pct": 40.0, "last_error_pct": 5.0, "collectives": 28,
         "clock_error_ns": None}
        for r in range(5)
    ]  # fmt: skip
    found = lines(calibration=[ROW], calibration_levels=[level], calibration_curves=[ROW],
                  lateness=late)  # fmt: skip
    at = found.index("Pooled by fabric level")
    assert found[at + 2].startswith("on a rail all_reduce 8 2 to 4 2.50 us ± 130 ns 295 ± 12 GB/s")
    at = found.index("Benchmarks")
    assert found[at + 2].startswith("all_reduce 8 ring 2.50 us")
    at = found.index("Latest ranks, after the first")
    assert found[at + 2] == "0 0 9.00 us ± 50 ns 20.0 us 40 ± 5 % 28 -"
    assert found[-1] == "and 2 more ranks of communicators: --json has all"


def test_names_of_a_megabyte_have_their_middle_left_out():
    name = "x" * 1_000_000
    long = {**ROW, "comm": name, "op": f"{name} {name}", "lender": f"all_reduce on {name}"}
    late = {"comm": name, "rank": 0, "late_ns": 1e3, "late_error_ns": 50.0, "late_p90_ns": 2e4,
            "last_pct": 40.0, "last_error_pct": 5.0, "collectives": 28,
            "clock_error_ns": None}  # fmt: skip
    found = lines(calibration=[long, ROW], lateness=[late])
    # A megabyte would be 5,000 lines of this screen.
    assert len(found) < 20
    assert any(line.startswith("lent: all_reduce on xxx") for line in found)


def test_nothing_to_calibrate_is_one_sentence():
    assert lines()[-1] == "no collective was seen with others"
