"""One message, one cost: by a device's name, by a described fabric, by simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.analysis.model import model
from retime.replay import fabric as fabrics
from retime.replay import models
from retime.replay.calibration import link_sources, machines, messages
from retime.replay.fabric.cost import collective_time_ns
from retime.replay.planner import platform
from retime.replay.traced import build as kineto

ALPHAS = (machines.INTRA_ALPHA_NS, machines.INTER_ALPHA_NS)


@pytest.mark.parametrize("name", ["h100", "a100", "b200", "h800", "h20"])
def test_crossings_and_software_are_what_a_message_takes(name):
    # NVLink 0.7 + 0.3 = 1 us; InfiniBand 1.3 + 2.7 = 4 us, end to end (3 to 6 in use).
    fabric = fabrics.preset(name, 16)
    assert (messages.inside_ns(fabric), messages.outside_ns(fabric, 2)) == (1_000, 4_000) == ALPHAS
    wires = fabrics.graph(fabric)
    found = messages.alphas_ns(wires, fabrics.route(wires, [0, 0], [1, 8]))
    assert found == pytest.approx(ALPHAS)
    assert [messages.software_ns(fabric, g) for g in ([0, 1], [0, 8])] == [300, 2_700]


def test_beyond_a_leaf_a_spine_is_crossed_too():
    fabric = fabrics.preset("h100", 64 * 8)
    wires = fabrics.graph(fabric)
    far = messages.alphas_ns(wires, fabrics.route(wires, 0, 40 * 8))
    assert messages.outside_ns(fabric, 64) == pytest.approx(float(far[0])) == 4_900


def test_the_doors_agree():
    fabric = fabrics.preset("h100", 16)
    # By form with the device's figures, and flow by flow on the fabric.
    for gpus, alpha, rate in (([0, 1], ALPHAS[0], 370.8e9), ([0, 8], ALPHAS[1], 48.5e9)):
        for size in (1 << 10, 1 << 26):
            form = float(models.time_ns("send", "direct", 2, size, alpha, rate))
            software = messages.software_ns(fabric, gpus)
            took = collective_time_ns(fabric, "send", "direct", gpus, size, launch_ns=software)
            assert took == pytest.approx(form, rel=1e-6)
    priced = model("all_reduce", 16, fabric=fabric)
    assert (priced["alpha_ns"], priced["inter_alpha_ns"]) == ALPHAS
    bare = platform.named("H100")
    assert platform.of_fabric(fabric, bare)._replace(name="H100") == bare


def test_a_job_prices_its_messages_alike_with_and_without_a_fabric(tables):
    for rank in (0, 1):
        tables.part(rank, "all_reduce", 0, 50, instance=0, stream=7, step=0)
        tables.step(rank, 0, 0, 60)
    frames = tables.frames()
    frames["ranks"] = frames["ranks"].with_columns(
        device_name=pl.lit("NVIDIA H100"),
        host=pl.Series(["a", "b"]),
        host_source=pl.lit("recorded"),
    )
    job = kineto.build(frames, "two")
    there = replace(job, facts={**job.facts, "fabric": fabrics.preset("h100", 16)})
    by_name = link_sources.machine(job, "inter host")
    by_fabric = link_sources.fabric(there, np.array([0, 1]))
    assert by_fabric is not None
    assert by_name[:2] == pytest.approx(by_fabric[:2])
    assert by_name[0] == machines.INTER_ALPHA_NS


def test_ideal_links_and_dies_have_no_software():
    ideal = fabrics.Fabric(
        "ideal", 2, 2, scale_up=fabrics.ScaleUp(fabrics.LinkClass("nvlink", 450e9), 2),
        nic=fabrics.Nic(fabrics.LinkClass("nic", 50e9), 2, (0, 1), (0, 0)),
        network=fabrics.Network("rail", 2, 2),
    )  # fmt: skip
    assert (messages.inside_ns(ideal), messages.outside_ns(ideal, 2)) == (0, 0)
    assert messages.software_ns(ideal, [0, 2]) == messages.software_ns(ideal, [0, 1]) == 0
    wafer = fabrics.preset("wafer")
    assert wafer.package is not None
    assert messages.inside_ns(wafer) == wafer.package.link.alpha_ns
