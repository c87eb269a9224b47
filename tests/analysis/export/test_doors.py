"""`retime export` and `Job.export`: what is printed, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path

from retime.cli import run


def test_one_object_on_stdout(bundled, decode, tmp_path, capsys):
    url, out = bundled.warehouse.url, tmp_path / "t.perfetto-trace.gz"
    args = ["export", "demo", "--warehouse", url, "--json", "-o", str(out)]
    code = run([*args, "--step", "11", "--step", "12", "--ranks", "0-1", "--no-host"])
    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert set(told) == {
        "path", "format", "slices", "tracks", "flows", "samples", "bytes", "shift_ns", "warnings",
    }  # fmt: skip
    trace = decode(out)
    assert told["slices"] == len(trace.slices)
    assert {s.name for s in trace.slices if s.track == "steps"} == {"step 11", "step 12"}
    assert {s.process.split(" on ")[0] for s in trace.slices} == {"rank 0", "rank 1"}
    assert told["path"] == str(out)


def test_chakra_in_a_folder(bundled, tmp_path, capsys):
    out = tmp_path / "et"
    args = ["export", "demo", "--warehouse", bundled.warehouse.url, "--to", "chakra"]
    assert run([*args, "-o", str(out), "--ranks", "3", "--step", "11"]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert [p.name for p in out.iterdir()] == ["trace.3.et"]


def test_exit_codes(bundled, tmp_path, capsys):
    args = ["export", "demo", "--warehouse", bundled.warehouse.url, "-o", str(tmp_path / "t")]
    assert run([*args, "--ranks", "8"]) == 2
    assert "no rank 8; it has 0 to 7" in capsys.readouterr().err
    assert run([*args, "--kinds", "counter"]) == 3
    assert "nothing to show" in capsys.readouterr().err
    assert not Path(tmp_path / "t").exists()
