"""With the shortcuts numba makes the same code, and is as it was afterwards."""

from __future__ import annotations

import gc
import importlib.util
import inspect
import re
import sys

import numpy as np
import pytest
from retime.ingest import compile_shortcuts as shortcuts
from retime.ingest.compiled import compiled

numba = pytest.importorskip("numba")
pytestmark = [
    pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled"),
    pytest.mark.skipif(
        not numba.__version__.startswith(shortcuts.NUMBAS), reason="a numba that has none"
    ),
]


def mixed(rows, table, wide, ratio, out):
    total, share = 0, 0.0
    for i in range(len(rows)):
        at = rows[i] % 7
        total += table[at, i & 1] // 3 - (wide[i] << 1)
        share += ratio * rows[i] / 2
        out[i] = total if not (at < 3 or wide[i] == -1) else ~total
    found = np.zeros(len(rows), np.int32)
    found[1:] = rows[:-1]
    return found.sum() + share


ARGUMENTS = (
    np.arange(9, dtype=np.int32),
    np.arange(14, dtype=np.int64).reshape(7, 2),
    np.arange(9, dtype=np.uint8),
    0.5,
)


def code(made) -> str:
    """The machine code of its one version, without the numbers that make names unique."""
    (text,) = made.inspect_asm().values()
    text = "\n".join(line for line in text.splitlines() if not re.match(r"\s*\.(size|asci)", line))
    named: dict[str, str] = {}

    def name(found: re.Match) -> str:
        return named.setdefault(found[0], f"name{len(named)}")

    return re.sub(r"_ZN[\w$.]+|\.L[\w$.]+|NRT_\w+|\b[.]?const[\w.$<>]*", name, text)


def compiled_by(taken: bool):
    made = numba.njit(mixed)
    out = np.zeros(9, np.int64)
    if taken:
        with shortcuts.taken():
            result = made(*ARGUMENTS, out)
    else:
        result = made(*ARGUMENTS, out)
    return made, result, out


def test_the_code_is_the_same_to_the_byte():
    long, result, out = compiled_by(False)
    short, result_short, out_short = compiled_by(True)
    assert result == result_short
    assert out.tolist() == out_short.tolist()
    assert code(long) == code(short)


def test_an_operator_is_resolved_once_for_its_types(monkeypatch):
    from numba.core.types.functions import BaseFunction

    longer, asked = BaseFunction.get_call_type, []

    def counted(self, context, args, kws):
        asked.append((self.typing_key, tuple(args)))
        return longer(self, context, args, kws)

    monkeypatch.setattr(shortcuts, "_resolved", {})
    monkeypatch.setattr(BaseFunction, "get_call_type", counted)
    compiled_by(True)
    of_items = [key for key in asked if key[0] in shortcuts._OF_NUMBERS]
    assert of_items
    assert len(of_items) == len(set(of_items))


def test_numba_is_as_it_was_afterwards():
    owned = [(owner, name, vars(owner)[name]) for owner, name, _ in shortcuts._shortcuts()]
    assert len(owned) == 3
    assert gc.isenabled()
    failed = compiled(lambda: shortcuts.taken().nothing)
    with shortcuts.taken():
        assert not gc.isenabled()
        assert all(vars(owner)[name] is not was for owner, name, was in owned)
    assert gc.isenabled()
    assert all(vars(owner)[name] is was for owner, name, was in owned)
    with pytest.raises(numba.TypingError):
        failed()
    assert gc.isenabled()
    assert all(vars(owner)[name] is was for owner, name, was in owned)


def test_a_compiled_function_is_compiled_with_them(monkeypatch, tmp_path):
    # Its machine code is kept beside it: none is, where it has just been written.
    path = tmp_path / "just_written.py"
    path.write_text("import numpy as np\n\n\n" + inspect.getsource(mixed))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(shortcuts, "_resolved", {})
    compiled(module.mixed)(*ARGUMENTS, np.zeros(9, np.int64))
    assert shortcuts._resolved


@pytest.mark.parametrize("version", ["0.61.2", "0.69.0", "1.0"])
def test_another_numba_is_left_as_it_is(monkeypatch, version):
    monkeypatch.setattr(numba, "__version__", version)
    assert shortcuts._shortcuts() == []


def test_a_method_that_is_not_there_is_not_made(monkeypatch):
    class Other:
        pass

    monkeypatch.setattr(
        shortcuts, "_shortcuts", lambda: [(Other, "get_call_type", lambda was: was)]
    )
    with shortcuts.taken():
        assert not hasattr(Other, "get_call_type")
