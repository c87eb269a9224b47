"""Every file of a folder is shown to every format: what shows it to them must import little."""

import json
import subprocess
import sys

from retime.ingest.detect import FORMATS

HEAVY = {"numba", "polars", "pyarrow.parquet", "duckdb", "msgspec", "google.protobuf",
         "adbc_driver_manager", "yaml"}  # fmt: skip
FRONTS = sorted({f.module for name, f in FORMATS.items() if name != "kineto"})
_IMPORT = """
import importlib, json, sys
known, new = set(sys.modules), {}
for name in sys.argv[1:]:
    importlib.import_module(name)
    new[name] = sorted(set(sys.modules) - known)
    known |= set(sys.modules)
print(json.dumps(new))
"""


def newly_imported(names: list[str]) -> dict[str, set[str]]:
    """What each module, imported after those before it in a fresh process, imports with it."""
    command = [sys.executable, "-c", _IMPORT, *names]
    done = subprocess.run(command, capture_output=True, check=True)
    return {name: set(new) for name, new in json.loads(done.stdout).items()}


def test_a_front_imports_nothing_heavy():
    found = newly_imported(FRONTS)
    assert {name: new & HEAVY for name, new in found.items() if new & HEAVY} == {}
    assert set().union(*found.values()).issuperset(FRONTS)


def test_fronts_of_graphs_and_routing_import_the_standard_library_only():
    ours = [f for f in FRONTS if ".graphs." in f or ".moe." in f]
    assert len(ours) == 13
    not_light = {*HEAVY, "numpy", "pyarrow", "retime.ingest.schema"}
    found = newly_imported(ours)
    assert {name: new & not_light for name, new in found.items() if new & not_light} == {}


def test_a_heavy_import_is_seen():
    rows = "retime.ingest.moe.megatron_rows"
    assert newly_imported([rows])[rows] >= {rows, "msgspec", "numpy", "pyarrow"}


def test_sqlite_is_read_without_what_its_driver_would_import():
    reader = "retime.ingest.nsys.sqlite"
    new = newly_imported([reader])[reader]
    assert new & {"polars", "adbc_driver_manager"} == {"adbc_driver_manager"}
