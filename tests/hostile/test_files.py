"""What is written and suggested: notebooks, exports, settings, paths, commands to paste."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import retime
from retime.analysis import dims
from retime.analysis.notebooks import opening, source, verdicts, words
from retime.analysis.notebooks.build import READY
from retime.ingest import kernel_rules, settings
from retime.ingest.errors import UsageError
from retime.ingest.graphs.chakra_wire import fields
from retime.ingest.warehouse import check_job_id, job_id_from

from ..analysis.export.conftest import _decode
from . import corpus
from .conftest import ACTS, Called, Made, call, ran

SETTINGS = ("WAREHOUSE", "JOB", "BASELINE")
Cleaned = Callable[[Called], str]


class _Unset(ast.NodeTransformer):
    """Takes the values of a notebook's settings out of its tree."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        [target] = node.targets
        if isinstance(target, ast.Name) and target.id in SETTINGS:
            assert isinstance(node.value, ast.Constant)
            self.values[target.id] = node.value.value
            node.value = ast.Constant(None)
        return node


def unset(code: str) -> tuple[str, dict[str, Any]]:
    """The tree of a code without its settings, and these."""
    taker = _Unset()
    return ast.dump(taker.visit(ast.parse(code))), taker.values


PLACES = [
    n for k, n in corpus.SHORT.items()
    if n.strip() and k not in ("null", "surrogate", "up", "absolute")
]  # fmt: skip
"""Names as a part of a warehouse's path."""


@pytest.mark.parametrize("name", source.NAMES)
def test_a_notebook_is_its_template_with_texts_as_settings(tmp_path: Path, name: str) -> None:
    shipped, _ = unset((READY / f"{name}.py").read_text(encoding="utf-8"))
    cells = json.loads((READY / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    for n, place in enumerate(PLACES):
        at = opening.Point(f"/x/{place}", None if n % 2 else place, place)
        paths, _ = opening.write([name], tmp_path / str(n), at)
        python, jupyter = (next(p for p in paths if p.suffix == s) for s in (".py", ".ipynb"))
        text = python.read_text(encoding="utf-8")
        tree, values = unset(text)
        assert tree == shipped
        assert values["WAREHOUSE"] == f"/x/{place}"
        assert ACTS.search(text) is None
        document = json.loads(jupyter.read_text(encoding="utf-8"))
        assert [c["cell_type"] for c in document["cells"]] == [c["cell_type"] for c in cells]
        for made, there in zip(document["cells"], cells, strict=True):
            if "WAREHOUSE = " in "".join(there["source"]):
                assert unset("".join(made["source"]))[0] == unset("".join(there["source"]))[0]
            else:
                assert made == there


@pytest.mark.parametrize("job", ["kineto", "plain", "logs"])
def test_perfetto_has_the_names_whole(made: Made, job: str) -> None:
    file = made.out / f"{job}.perfetto-trace"
    said = made.run("export", job, "-o", str(file))
    assert said.code == 0, said.err
    trace = _decode(file)
    names = {s.name for s in trace.slices}
    # Perfetto shows names as text: they are not changed, but for their length.
    wanted = {n for k, n in corpus.SHORT.items() if k not in ("surrogate", "empty")}
    assert len(wanted & names) >= (50 if job != "plain" else 40), wanted - names
    assert file.stat().st_size < 20_000_000


@pytest.mark.parametrize("job", ["kineto", "plain"])
def test_chakra_is_a_file_a_rank_and_reads_back(made: Made, job: str) -> None:
    folder = made.out / f"{job}-chakra"
    said = made.run("export", job, "--to", "chakra", "-o", str(folder))
    assert said.code == 0, said.err
    assert sorted(p.name for p in folder.iterdir()) == ["trace.0.et", "trace.1.et"]
    data = (folder / "trace.0.et").read_bytes()
    nodes, at = 0, 0
    while at < len(data):
        size, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        for number, _, value in fields(data[at : at + size]):
            if number == 2 and isinstance(value, bytes) and nodes:
                value.decode()
        at += size
        nodes += 1
    assert nodes > 100
    assert at == len(data)


def test_a_job_id_names_a_folder_or_is_refused(made: Made, cleaned: Cleaned) -> None:
    trace = next((made.root / "traces-plain").iterdir())
    before = sorted(os.listdir(made.url))
    for name in corpus.JOB_IDS:
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", name):
            continue  # what may be one
        with pytest.raises(UsageError):
            check_job_id(name)
        said = made.run("ingest", str(trace), f"--job={name}")
        text = cleaned(said)
        assert said.code == 2, (name, text)
    assert sorted(os.listdir(made.url)) == before


def test_a_job_id_made_of_a_name_is_one(made: Made) -> None:
    for name in corpus.NAMES.values():
        id = check_job_id(job_id_from(name))
        assert "/" not in id
        assert ".." not in (id,)
        assert id.isascii()


def test_rules_of_hostile_patterns_are_taken_or_refused_in_a_sentence(
    made: Made, cleaned: Cleaned, tmp_path: Path
) -> None:
    url = str(tmp_path / "w")
    traces = str(made.root / "traces-plain")
    assert call("ingest", traces, "--job", "j", "--warehouse", url, "--workers", "1").code == 0
    at = ("j", "--warehouse", url)
    count = "SELECT count(*) AS n FROM events"
    n = json.loads(call("sql", count, "--warehouse", url, "--json").out)
    for command, value, parse in (("dims", "tp", dims.parse_rules),
                                  ("kernels", "gemm", kernel_rules.parse)):  # fmt: skip
        taken, refused = [], 0
        for name in corpus.SHORT.values():
            with contextlib.suppress(UsageError):
                settings.check_text(name, "a pattern")
                assert len(parse([f"{name}={value}"])) == 1
                taken.append(f"--set={name}={value}")
                continue
            refused += 1
            said = call(command, *at, f"--set={name}={value}")
            text = cleaned(said)
            assert said.code == 2, (command, name, text)
            assert "(unexpected" not in text
            assert text.count("\n") == 1
        assert refused
        assert len(taken) > 40
        # All that may be taken in one command: it tells each of them.
        said = call(command, *at, *taken)
        text = cleaned(said)
        assert said.code == 0, (command, text)
        assert "(unexpected" not in text
    assert json.loads(call("sql", count, "--warehouse", url, "--json").out) == n
    cleaned(call("show", *at))
    assert ran(tmp_path) == []


@pytest.mark.parametrize("kind", ["glob", "sql", "shell", "markdown", "lines", "bidi", "formula"])
def test_a_warehouse_lies_in_any_folder(made: Made, tmp_path: Path, kind: str) -> None:
    url = str(tmp_path / corpus.NAMES[kind].replace("/", "_"))
    traces = str(made.root / "traces-logs" / "entities.xml")
    routing = min(p for p in (made.root / "traces-logs").iterdir() if p.name.startswith("@SUM"))
    said = call("ingest", str(routing), traces, "--job", "j", "--warehouse", url)
    assert said.code == 1, said.err
    rows = json.loads(call("sql", "SELECT sum(tokens) AS n FROM routing", "--warehouse", url,
                           "--json").out)  # fmt: skip
    assert rows[0]["n"] > 0
    assert os.listdir(tmp_path) == [os.path.basename(url)]


def suggested(text: str) -> list[str]:
    """The commands of a verdict."""
    return [line for line in text.splitlines() if line.startswith("retime ")]


def test_suggested_commands_can_be_pasted(tmp_path: Path) -> None:
    """`sh` takes the path of the warehouse as one word, and runs nothing of it."""
    for place in PLACES:
        if not place.isprintable() or words.clean(place) != place:
            continue  # a path that is written out, and so is no longer that path
        url = f"/x/{place}"
        job: Any = retime.open(url)
        of: Any = type("J", (), {"id": "a-job", "warehouse": job})()
        said = words.verdict(["x"], of, ["show {job}", "export {job}"])
        for line in suggested(said.text):
            assert shlex.split(line)[3:] == ["--warehouse", url]
            script = f"retime() {{ printf '%s\\0' \"$@\"; }}\n{line}"
            done = subprocess.run(["sh", "-c", script], capture_output=True, cwd=tmp_path,
                                  check=True, timeout=60)  # fmt: skip
            assert done.stdout.decode().split("\0")[2:4] == ["--warehouse", url]
    assert list(tmp_path.iterdir()) == []
    assert verdicts  # the module whose verdicts these are


def test_nothing_is_written_beside_what_was_named(made: Made) -> None:
    assert sorted(os.listdir(made.root)) == sorted(
        ["here", "out", Path(made.url).name, *(f"traces-{j}" for j in made.ingested)]
    )
    assert os.listdir(made.root / "here") == []
    jobs = {f"job={j}" for j in made.ingested}
    assert {n for n in os.listdir(made.url) if not n.startswith("_")} == jobs
