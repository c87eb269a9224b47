"""The helper module of this room, as a fixture: tests are imported without their folder."""

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def nsys():
    """`nsys_reports`: makes reports, carries real ones over to other carriers, reads sources."""
    spec = importlib.util.spec_from_file_location("nsys_reports", HERE / "nsys_reports.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
