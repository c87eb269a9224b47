"""`retime fabric`: presets and figures, as a call, as JSON and on a terminal."""

import io
import json

import pytest
import retime
from retime import cli
from retime.analysis import fabric, fabric_screen
from retime.ingest.errors import UsageError
from rich.console import Console


def shown(facts, show=fabric_screen.show) -> str:
    out = Console(file=io.StringIO(), width=140, highlight=False, markup=False)
    show(out, facts)
    return out.file.getvalue()


def test_figures_of_1024_h100():
    facts = retime.fabric("h100", gpus=1024)
    assert (facts["gpus"], facts["hosts"], facts["segments"], facts["pods"]) == (1024, 128, 4, 1)
    # Radix 64: 4 segments x 8 rails leaves; 32 uplinks each, a spine an uplink.
    assert facts["switches"] == {"leaves": 32, "spines": 32}
    # Half of 1024 NICs of 48.5 GB/s.
    assert facts["bisection_bytes_per_s"] == pytest.approx(512 * 48.5e9)
    # 1016 of the 1023 others are on other hosts.
    assert facts["all_to_all_bytes_per_s"] == pytest.approx(48.5e9 * 1023 / 1016)
    nic = next(r for r in facts["links"] if r["class"] == "nic")
    assert (nic["links"], nic["least_bytes_per_s"]) == (2048, pytest.approx(48.5e9))
    assert nic["blocks"] == ["nic_tx", "nic_rx"]
    assert sum(r["links"] for r in facts["links"]) == sum(
        {"nvlink": 2048, "pcie": 2048, "pcie_switch": 1024, "socket": 256, "nic": 2048,
         "leaf": 64}.values()
    )  # fmt: skip


def test_oversubscription_is_felt():
    # A third of a leaf of 16 hosts goes up: 16 x 11.75 GB/s / 3 over 128 GPUs.
    facts = fabric.facts("pcie-consumer", 256)
    assert facts["oversubscription"] == 3
    assert facts["all_to_all_limit"] == "leaf_up"
    crossing = 128 / 255
    assert facts["all_to_all_bytes_per_s"] == pytest.approx(16 * 11.75e9 / 3 / 128 / crossing)


def test_presets_are_listed():
    rows = retime.fabric()
    by = {r["preset"]: r for r in rows}
    assert by["gb200-nvl72"]["domain_gpus"] == 72
    assert by["hpn"]["planes"] == 2
    assert by["pcie-consumer"]["nic_bytes_per_s"] == 12.5e9 / 8
    assert by["wafer"]["nic_bytes_per_s"] is None
    text = shown(rows, fabric_screen.show_presets)
    assert all(r["preset"] in text for r in rows)
    with pytest.raises(UsageError, match="name a preset"):
        retime.fabric(gpus=8)


def test_a_screen_of_each_preset():
    for row in retime.fabric():
        facts = fabric.facts(row["preset"])
        text = shown(facts)
        assert row["preset"] in text.splitlines()[0]
        assert all(r["class"] in text for r in facts["links"])
        assert "even all-to-all of all GPUs: at most" in text
        assert "None" not in text
        assert "nan" not in text


def test_the_command_is_the_call(capsys):
    assert cli.run(["fabric", "multi-plane", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(json.dumps(retime.fabric("multi-plane")))
    assert found["switches"] == {"leaves": 512, "spines": 256}


def test_the_command_says_what_is_wrong(capsys):
    assert cli.run(["fabric", "h101"]) == 2
    said = capsys.readouterr().err
    assert "h100" in said
    assert said.count("\n") == 1


def test_assumptions_are_shown():
    from dataclasses import replace

    from retime.replay.fabric import preset

    odd = replace(preset("h100"), assumptions=("a\x1b[31m thing",))
    text = shown(fabric.facts(odd))
    assert "assumes: a\\x1b[31m thing" in text
