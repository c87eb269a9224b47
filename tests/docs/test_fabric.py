"""The page of fabrics: its example file, its command and its Python print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from retime import cli
from retime.replay.fabric import presets, toml

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "fabric.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)
    return [text for name, text in found if name == kind]


def test_the_example_prints_what_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (file,) = blocks("toml")
    Path("lab.toml").write_text(file)
    command, python = blocks("")
    said, _, shown = command.partition("\n")
    assert said == "$ retime fabric lab.toml"
    assert cli.run(["fabric", "lab.toml"]) == 0
    printed = capsys.readouterr().out
    assert [line.rstrip() for line in printed.strip().splitlines()] == shown.strip().splitlines()
    (code,) = blocks("python")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "docs/fabric.md", "exec"), {})
    assert out.getvalue() == python


def test_every_key_and_preset_is_on_the_page():
    keys = {k for table in (*toml._SECTIONS.values(), *toml._LISTS.values()) for k in table}
    for name in (*toml._SECTIONS, *toml._LISTS, *toml._FABRIC, *keys, *presets()):
        assert re.search(rf"`(\[\[)?{re.escape(name)}(\]\])?`", PAGE), name
