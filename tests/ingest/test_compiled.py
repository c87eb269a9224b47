"""Compiled functions work where nothing can be kept."""

from __future__ import annotations

import pytest
from retime.ingest import compiled as compiling
from retime.ingest.compiled import compiled


def double(x):
    return 2 * x


def test_a_function_is_compiled_and_lets_go_of_the_interpreter():
    made = compiled(double)
    assert made(4) == 8
    if hasattr(made, "targetoptions"):
        assert made.targetoptions["nogil"]


def test_options_are_those_of_numba():
    made = compiled(error_model="numpy")(double)
    assert made(4) == 8
    if hasattr(made, "targetoptions"):
        assert made.targetoptions["error_model"] == "numpy"


def test_without_a_folder_to_keep_it_in_each_process_compiles(monkeypatch):
    dispatcher = pytest.importorskip("numba.core.dispatcher")
    monkeypatch.setattr(compiling, "_not_kept", [])

    def no_folder(self):
        raise RuntimeError("cannot cache function 'double': no locator available")

    monkeypatch.setattr(dispatcher.Dispatcher, "enable_caching", no_folder)
    assert compiling.is_kept()
    made = compiled(double)
    assert made(21) == 42
    assert compiling.is_kept() == (not hasattr(made, "enable_caching"))


def shifted(x, by):
    return x + by


def test_numbers_that_callers_spell_out_make_no_versions_of_their_own():
    pytest.importorskip("numba")
    helper = compiled(shifted)

    def caller(x):
        return helper(x, 1) + helper(x, 2) + helper(0, x)

    assert compiled(caller)(5) == 18
    if hasattr(helper, "signatures"):
        (types,) = helper.signatures
        assert [str(t) for t in types] == ["int64", "int64"]
        assert helper.targetoptions["no_cfunc_wrapper"]
