"""The published runs: estimates of some pairs of every kind, made anew from the files.

The runs do not change, so neither do errors but with the models. No network is built.
"""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from benchmarks.lab import __main__ as lab
from benchmarks.lab import archive, pairs, predict
from benchmarks.lab.errors import LabError

OF_A_KIND = 2
"""Pairs of each kind that are replayed: its first and its last."""

MEDIAN_PCT = 8.0
"""The median error of a kind's pairs (5 % is aimed at, of all of them)."""

LOST_PACKETS = {"waves instead of incast": 25.0}
"""Where a median is looser: what lost packets cost is fitted from a few exchanges."""

CLEAR_PCT = 5.0
"""Gains and losses from here on have the right sign."""


def some() -> dict[str, list[pairs.Pair]]:
    """The first and the last pair of each kind."""
    kinds: dict[str, list[pairs.Pair]] = {}
    for pair in pairs.every():
        kinds.setdefault(pair.kind, []).append(pair)
    return {kind: those[:: max(len(those) - 1, 1)][:OF_A_KIND] for kind, those in kinds.items()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder of runs."""
    if not archive.PUBLISHED.exists():
        pytest.skip(
            f"{archive.PUBLISHED.name} is not there: python -m benchmarks.lab pack makes it"
        )
    return archive.opened(archive.PUBLISHED, tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    return tmp_path_factory.mktemp("warehouse")


@pytest.mark.parametrize("kind", list(some()))
def test_estimates_of_a_kind(runs, warehouse, kind: str):
    found, _ = predict.verdicts(tuple(some()[kind]), runs, warehouse)
    assert len(found) == OF_A_KIND, "runs of these pairs are missing"
    off = np.median([abs(v.error_pct) for v in found])
    assert off <= LOST_PACKETS.get(kind, MEDIAN_PCT)
    wrong = [v.name for v in found if abs(v.gain_pct) >= CLEAR_PCT and v.sign == "wrong"]
    assert not wrong


def test_every_run_of_every_pair_is_there(runs):
    missing = [n for n in pairs.runs(pairs.every()) if not (runs / n / "0" / "truth.json").exists()]
    assert not missing


def test_the_table_reads_the_file(runs, capsys):
    """The pair that docs/lab.md works through."""
    assert lab.main(["table", "nic-rate-1-to-2", "--data", str(archive.PUBLISHED)]) == 0
    (row,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("| nic-rate-1-to-2")]
    assert "| right |" in row


def test_what_is_packed_is_unpacked(tmp_path):
    run = tmp_path / "runs" / "some-run" / "0"
    run.mkdir(parents=True)
    (run / "truth.json").write_text("{}")
    (run / "rank0.jsonl.gz").write_bytes(b"x")
    to = tmp_path / "lab.zip"
    assert archive.pack(tmp_path / "runs", to).startswith("1 runs in ")
    first = to.read_bytes()
    archive.pack(tmp_path / "runs", to)
    assert to.read_bytes() == first
    back = archive.opened(to, tmp_path / "back")
    assert (back / "some-run" / "0" / "rank0.jsonl.gz").read_bytes() == b"x"
    assert archive.opened(tmp_path / "runs", tmp_path / "no") == tmp_path / "runs"


def test_files_that_are_none_of_ours(tmp_path):
    text = tmp_path / "a.zip"
    text.write_text("hello")
    with pytest.raises(LabError, match="neither a folder of runs nor a zip"):
        archive.opened(text, tmp_path / "1")
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as z:
        z.writestr("readme.txt", "no runs")
    with pytest.raises(LabError, match="holds no runs"):
        archive.opened(other, tmp_path / "2")
    bad = tmp_path / "bad.zip"
    with zipfile.ZipFile(bad, "w") as z:
        z.writestr("a/0/truth.json", "{}" * 99)
    data = bytearray(bad.read_bytes())
    data[60] ^= 0xFF
    bad.write_bytes(bytes(data))
    with pytest.raises(LabError, match="is damaged"):
        archive.opened(bad, tmp_path / "3")
