"""A kernel's name taken apart: the words of its function, and of its template arguments."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

MOST_OF_A_NAME = 1000
"""Characters of a name that are looked at."""

_MARK = re.compile(r"[()<> ]")
_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\(anonymous class\))(?:::)?")
_SUFFIX = re.compile(r"(?: \[clone [^\]]*\]|\.kd)+$")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])")
_PART = re.compile(r"L[a-z]n?\d+E|DF\d+[b_x]|[ST][0-9A-Z]*_|(\d+)(?=[A-Za-z_])|.", re.DOTALL)
"""In a mangled name: a literal, a substitution, the length of an identifier, anything else."""

_NOISE = frozenset(
    ("kernel", "kernels", "cuda", "hip", "impl", "triton", "device", "fused", "fwd", "bwd",
     "forward", "backward", "vectorized", "vec")
)  # fmt: skip


class Words(NamedTuple):
    """A name's parts in lower case, with `_` between the words of a CamelCase name.

    `function` is the qualified name without return type, arguments and template arguments,
    `inside` its template arguments, `leaf` the words of the last part of `function` without those
    that say only that it is a kernel.
    """

    function: str
    inside: str
    leaf: str


@lru_cache(maxsize=4096)
def words(name: str) -> Words:
    """The words of a kernel's name, demangled or not; of its first MOST_OF_A_NAME characters."""
    function, inside = _split(name)
    function = _spaced(function)
    last = function.rsplit("::", 1)[-1]
    leaf = "_".join(w for w in re.split(r"[^a-z0-9]+", last) if w and w not in _NOISE)
    return Words(function, _spaced(inside), leaf)


def function_name(name: str) -> str:
    """A name without return type, arguments and template arguments, spelled as it is."""
    return _split(name)[0]


@lru_cache(maxsize=1024)
def _split(name: str) -> tuple[str, str]:
    """The function and the template arguments, as they are spelled."""
    name = _SUFFIX.sub("", name[:MOST_OF_A_NAME].strip())
    return _mangled(name) if name.startswith("_Z") else _demangled(name)


def _spaced(text: str) -> str:
    return _HUMP.sub("_", text).lower()


def _demangled(name: str) -> tuple[str, str]:
    """The function and the text of the template arguments of a name as c++filt writes it.

    Angle brackets count only where they can pair: `(8)>(0)` within round ones is a comparison.
    """
    name = _ANONYMOUS.sub("", name)
    open_marks: list[str] = []
    function, inside, start, opened = "", "", 0, 0
    for mark in _MARK.finditer(name):
        what, at = mark[0], mark.start()
        if what == " ":
            if not open_marks:
                # All before it was a return type.
                function, inside, start = "", "", at + 1
        elif what == "<" or what == "(":
            if not open_marks:
                if what == "(" and (function or at > start):
                    return function + name[start:at], inside
                function += name[start:at]
                opened = at + 1
            open_marks.append(what)
        elif not open_marks:
            continue
        elif what == ")":
            while open_marks and open_marks.pop() != "(":
                pass
            start = at + 1
        elif open_marks[-1] == "<" and name[at - 1] != "-":
            open_marks.pop()
            if not open_marks:
                inside += " " + name[opened:at]
                start = at + 1
    if open_marks:
        return function, f"{inside} {name[opened:]}"
    return function + name[start:], inside


def _mangled(name: str) -> tuple[str, str]:
    """The same of a mangled name, by the lengths before its identifiers: no whole demangler."""
    function: list[str] = []
    inside: list[str] = []
    at = 3 if name.startswith("_ZN") else 2
    into = function
    while at < len(name):
        found = _PART.match(name, at)
        if found is None:
            break
        at = found.end()
        if found[1] is None:
            into = inside
            continue
        word = name[at : at + int(found[1][:4])]
        at += len(word)
        if not word.startswith("_GLOBAL_"):
            into.append(word)
    return "::".join(function), " ".join(inside)
