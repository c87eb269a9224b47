"""`retime model`: its object, its screen, its plots and what it refuses."""

from __future__ import annotations

import io
import itertools
import json
from types import SimpleNamespace

import pytest
from retime.analysis import line_chart, model_plot, model_screen, units
from retime.analysis.model import model
from retime.ingest.errors import UsageError
from rich.console import Console

GIVEN = {"alpha": "0.822us", "bandwidth": "450GB/s"}


def row(result, algo, protocol=None):
    return next(r for r in result["algorithms"] if (r["algo"], r["protocol"]) == (algo, protocol))


def screen(result, width=80) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, emoji=False, markup=False)
    model_screen.show(console, result)
    return out.getvalue()


def test_ring_and_tree_cross_at_680_kib():
    result = model("all_reduce", 8, **GIVEN)
    # aB (2(n-1) - 2 lg n) / (2 lg n - 2(n-1)/n): arithmetic on the forms.
    assert result["crossover_bytes"] == pytest.approx(696_282, abs=1)
    assert result["crossover_of"] == ["ring", "tree"]
    assert (result["source"], result["model"]) == ("given", "alpha-beta")


@pytest.mark.parametrize(("size", "best"), [("10KiB", "tree"), ("80MiB", "ring"), (1e12, "ring")])
def test_of_ring_and_tree_small_ones_favour_the_tree(size, best):
    result = model("all_reduce", 8, bytes=size, algo=["ring", "tree"], **GIVEN)
    assert result["best"] == best
    assert [r["algo"] for r in result["ranges"]] == ["tree", "ring"]
    assert result["ranges"][0]["to_bytes"] == pytest.approx(696_282, rel=1e-5)
    assert row(model("all_reduce", 8, bytes="10KiB", **GIVEN), "ring")["time_ns"] == pytest.approx(
        11_548, abs=1
    )


def test_what_needs_special_hardware_is_not_compared():
    result = model("all_reduce", 8, **GIVEN)
    assert {r["algo"] for r in result["algorithms"] if not r["compared"]} == {
        "direct", "nvls", "parameter-server",
    }  # fmt: skip
    named = model("all_reduce", 8, algo=["nvls", "ring"], **GIVEN)
    assert [r["algo"] for r in named["ranges"]] == ["nvls"]
    assert named["crossover_bytes"] is None


def test_a_large_ring_over_100_gbit():
    # 2 * 255/256 * 1e9 / 12.5e9 = 159.4 ms, and 510 * 20 us more with alpha.
    for alpha, ms in (("0us", 159.4), ("20us", 169.6)):
        result = model("all_reduce", 256, bytes="1GB", alpha=alpha, bandwidth="100Gb/s")
        assert row(result, "ring")["time_ns"] / 1e6 == pytest.approx(ms, abs=0.05)


def test_a_parameter_server_has_two_figures():
    result = model("all_reduce", 8, bytes=1000, **GIVEN)
    assert result["parameter_server"]["worker_bytes"] == 2000
    assert result["parameter_server"]["server_in_bytes"] == 7000
    assert result["parameter_server"]["server_out_bytes"] == 7000


def test_several_nodes_add_levels_and_slow_flat_algorithms():
    result = model(
        "all_reduce", 16, bytes=192 << 20, nodes=2, alpha=1000, bandwidth=450e9,
        inter_alpha=5000, inter_bandwidth=50e9,
    )  # fmt: skip
    m = 192 << 20
    levels = 14_000 + 14 / 8 * m / 450 + 10_000 + m / 8 / 50
    assert row(result, "hierarchical")["time_ns"] == pytest.approx(levels)
    assert row(result, "ring")["time_ns"] == pytest.approx(150_000 + 30 / 16 * m / 50)
    assert result["best"] == "hierarchical"


def test_a_fabric_says_the_links():
    link = SimpleNamespace(alpha_ns=700.0, usable_bytes_per_s=300e9)
    nic = SimpleNamespace(link=SimpleNamespace(alpha_ns=3000.0, usable_bytes_per_s=45e9), count=8)
    fabric = SimpleNamespace(
        name="lab", gpus_per_host=8, domain_gpus=8, package=None, pcie=None, network=None,
        scale_up=SimpleNamespace(link=link), nic=nic,
    )  # fmt: skip
    result = model("all_reduce", 16, fabric=fabric)
    assert (result["source"], result["n_nodes"]) == ("fabric", 2)
    assert (result["alpha_ns"], result["bandwidth_bytes_per_s"]) == (1000, 300e9)
    assert (result["inter_alpha_ns"], result["inter_bandwidth_bytes_per_s"]) == (5700, 45e9)
    with pytest.raises(UsageError, match="do not fill hosts of 8"):
        model("all_reduce", 13, fabric=fabric)


def test_nothing_given_is_assumed_and_says_so():
    result = model("all_gather", 8)
    assert result["source"] == "assumed"
    assert "assumed" in result["assumptions"][0]


def test_nccls_choice_by_size():
    result = model("all_reduce", 6, machine="h100", bytes="256MiB")
    assert (result["best"], result["model"]) == ("nvls Simple", "nccl")
    # Six H100: as NCCL 2.29.2 printed it, 12.6 us and 84.6 GB/s for a ring by LL.
    ring = row(result, "ring", "LL")
    assert ring["latency_ns"] == pytest.approx(12_600)
    assert ring["asymptotic_bytes_per_s"] == pytest.approx(84.6e9)
    spans = [(r["from_bytes"], r["to_bytes"]) for r in result["ranges"]]
    assert (spans[0][0], spans[-1][1]) == (0, None)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))


def test_ranges_are_where_the_curve_is_least():
    result = model("all_reduce", 48, **GIVEN)
    curve = result["curve"]
    compared = [r["algo"] for r in result["algorithms"] if r["compared"]]
    for r in result["ranges"]:
        for i, size in enumerate(curve["sizes_bytes"]):
            if r["from_bytes"] < size < (r["to_bytes"] or float("inf")):
                least = min(curve["times_ns"][a][i] for a in compared)
                assert curve["times_ns"][r["algo"]][i] == pytest.approx(least)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"bytes": "80XB"}, "unknown unit"),
        ({"alpha": "fast"}, "number with its unit"),
        ({"alpha": -1.0}, "alpha is 0 or more"),
        ({"nodes": 3}, "8 ranks do not divide over 3 nodes"),
        ({"algo": ["star"]}, "all_reduce works with ring, tree"),
        ({"machine": "tpu"}, "v100, a100, h100"),
        ({"machine": "h100", "alpha": 1.0}, "leave out alpha"),
        ({"channels": 4}, "say which machine"),
        ({"machine": "h100", "algo": ["bruck"]}, "NCCL offers none of bruck"),
    ],
)
def test_bad_input_is_a_sentence(options, why):
    with pytest.raises(UsageError, match=why):
        model("all_reduce", 8, **options)
    with pytest.raises(UsageError, match="there are models of all_reduce"):
        model("all_shuffle", 8)
    with pytest.raises(UsageError, match="not defined for 6"):
        model("all_gather", 6, algo=["halving-doubling"])


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("machine", [None, "h100"])
def test_the_screen_keeps_to_the_terminal(width, machine):
    text = screen(model("all_reduce", 8, bytes="10KiB", machine=machine), width)
    assert "Best by size" in text
    drawn = [line for line in text.splitlines() if "│" in line or "┤" in line]
    assert len(drawn) == model_screen.HEIGHT
    assert all(len(line) <= width for line in drawn)


def test_the_screen_of_eight_ranks():
    text = screen(model("all_reduce", 8, **GIVEN))
    assert "alpha 0.822 us, bandwidth 450 GB/s (given)" in text
    assert "ring and tree cross at 680 KiB" in text
    assert "from 867 KiB              halving-doubling" in text


def test_names_are_whole_on_eighty_columns():
    result = model("all_reduce", 64, nodes=8, bytes="192MiB")
    text = screen(result)
    assert "parameter-server *" in text
    assert "not fit" not in text
    assert "hierarchical" in text


def test_one_rank_has_a_screen_without_curves():
    assert "Time by size" not in screen(model("all_reduce", 1))


def test_a_chart_of_two_lines():
    drawn = line_chart.lines(
        [64, 1024, 16384],
        {"flat": [100.0] * 3, "steep": [10.0, 100.0, 1000.0]},
        width=60, height=5, x_word=units.size, y_word=units.time, utf8=False,
    )  # fmt: skip
    text = [line.plain for line in drawn]
    assert text[0].startswith("  1 us +") or text[0].startswith("1.00 us +")
    assert text[4].lstrip().startswith("10 ns +x")
    # The flat one, drawn first, hides the other where they meet.
    assert set(text[2].split("+")[1].strip()) == {"o"}
    assert "o flat   x steep" in text[-1]


@pytest.mark.parametrize("ending", ["html", "svg", "png"])
def test_plots_stand_alone(tmp_path, ending):
    path = tmp_path / f"cost.{ending}"
    model_plot.save(model("all_reduce", 8, **GIVEN), path)
    data = path.read_bytes()
    if ending == "png":
        assert data.startswith(b"\x89PNG")
        return
    text = data.decode()
    assert "halving-doubling" in text
    assert "<script src=" not in text
    assert "@import" not in text


def test_a_plot_of_another_kind_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"ends in \.html, \.svg, \.png"):
        model_plot.save(model("all_reduce", 8), tmp_path / "cost.pdf")


def test_the_object_is_json():
    from retime.analysis.terminal import to_json

    for machine in (None, "a100"):
        result = json.loads(to_json(model("all_reduce", 8, machine=machine)))
        assert result["n_ranks"] == 8
        assert "NaN" not in json.dumps(result)
