"""A fabric file (TOML) as a Fabric: every key known, every value with its unit and in range."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from . import parts
from . import values as v
from .description import BadFabric, Fabric
from .links import graph

MAX_BYTES = 1 << 20
"""A fabric is described in a page."""

MOST_DOTS = 200
"""In a line: values have one each, and keys one or two."""

Keys = Mapping[str, Callable[[Any], Any]]

_COST: Keys = {
    "link": v.text,
    "efficiency": v.number(1e-6, 1),
    "alpha": v.time,
    "incast_gamma": v.number(0, 1e6),
    "incast_free": v.number(0, 1e6),
    "messages_per_s": v.number(1, 1e12),
    "connections": v.number(0, 1e9),
    "crowded_connections": v.number(0, 1e9),
    "crowded_loss": v.number(0, 0.999),
}
_LINK: Keys = {**_COST, "bandwidth": v.bandwidth}
_FABRIC: Keys = {
    "name": v.text,
    "device": v.text,
    "hosts": v.count(1),
    "gpus": v.count(1),
    "gpus_per_host": v.count(1),
}
_SECTIONS: Mapping[str, Keys] = {
    "scale_up": {**_LINK, "domain": v.count(2), "shape": v.choice("switch", "full")},
    "package": {
        **_LINK,
        "rows": v.count(1),
        "columns": v.count(1),
        "shape": v.choice("mesh", "tree", "full"),
        "fanout": v.count(2),
    },
    "pcie": {
        **_LINK,
        "sockets": v.count(1, 64),
        "switches": v.count(0, 1024),
        "p2p": v.flag,
        "gpu_direct": v.flag,
    },
    "pcie.switch": _LINK,
    "pcie.socket": _LINK,
    "pcie.memory": _LINK,
    "nic": {
        **_LINK,
        "count": v.count(1, 1024),
        "rails": v.count(1, 1024),
        "serves": v.counts,
        "at": v.counts,
        "planes": v.count(1, 64),
    },
    "network": {
        "wiring": v.choice("rail", "tor"),
        "hosts_per_leaf": v.count(1),
        "uplinks": v.count(1, 4096),
        "oversubscription": v.number(0.1, 1000),
        "isolated_rails": v.flag,
        "hosts_per_pod": v.count(0),
        "core_oversubscription": v.number(0.1, 1000),
        "radix": v.count(2, 1 << 16),
        "ecmp": v.choice("spray", "hash"),
    },
    "network.leaf": _COST,
    "network.core": _COST,
    "optical": {
        **_LINK,
        "switches": v.count(1, 4096),
        "reconfigure": v.time,
        "hold": v.time,
        "schedule": v.choice("ready", "rotor", "bvn"),
    },
    "storage": {**_LINK, "attach": v.choice("shared", "own")},
    "storage.server": _LINK,
    "storage.staging": _LINK,
}
_LISTS: Mapping[str, Keys] = {
    "background": {"of": v.text, "share": v.number(0, 0.999)},
    "traffic": {"name": v.text, "share": v.number(0, 1)},
}


def parse(text: str, *, where: str = "fabric", gpus: int | None = None) -> Fabric:
    """The fabric that a file's text describes; `gpus` sets the number of hosts anew.

    `where` names the file in errors. Raises BadFabric, one sentence with file and key, for text
    that is not TOML, unknown keys, values out of range or without unit, and parts that do not fit.
    """
    if len(text) > MAX_BYTES:
        raise BadFabric(f"{where}: {len(text)} characters; a fabric has at most {MAX_BYTES}")
    for number, line in enumerate(text.split("\n"), 1):
        # A table inside of tables costs the parser the square of how deep it is.
        if line.count(".") > MOST_DOTS and not line.lstrip().startswith("#"):
            raise BadFabric(
                f"{where}: more than {MOST_DOTS} dots in line {number}: tables are two deep at most"
            )
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as e:
        said = " ".join(str(e).split())[:160] or "nested too deep"
        raise BadFabric(f"{where}: not TOML: {said}") from e
    try:
        fabric = parts.fabric(_Reader(where).read(found), gpus)
        if fabric.background:
            graph(fabric)  # of links that it has
        return fabric
    except BadFabric as e:
        raise e if str(e).startswith(f"{where}: ") else BadFabric(f"{where}: {e}") from e


class _Reader:
    """Checks tables against their keys; knows the file's name for what it says."""

    def __init__(self, where: str) -> None:
        self.where = where

    def bad(self, said: str) -> BadFabric:
        return BadFabric(f"{self.where}: {said}")

    def read(self, found: dict[str, Any]) -> dict[str, Any]:
        """The file's tables by dotted name, "" for the top; parsed values."""
        tables = {"": dict(found)}
        for name in _SECTIONS:
            above, _, last = name.rpartition(".")
            if last in tables.get(above, {}):
                table = tables[above].pop(last)
                if not isinstance(table, dict):
                    raise self.bad(f"{name} is no table: write [{name}] and its keys below")
                tables[name] = dict(table)
        out: dict[str, Any] = {}
        for name in _LISTS:
            rows = tables[""].pop(name, [])
            if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
                raise self.bad(f"{name} is a list of tables: write [[{name}]] and its keys below")
            if len(rows) > 1000:
                raise self.bad(f"{name}: {len(rows)} of them; at most 1000 would work")
            out[name] = [self.table(f"[{name}]", r, _LISTS[name]) for r in rows]
            for row in out[name]:
                for key in _LISTS[name]:
                    self.needed(row, f"[{name}]", key)
        for name, table in tables.items():
            keys = _SECTIONS[name] if name else _FABRIC
            out[name] = self.table(name and f"{name}.", table, keys)
        return out

    def table(self, prefix: str, table: dict[str, Any], keys: Keys) -> dict[str, Any]:
        name = prefix.strip("[].")
        below = [s.rpartition(".")[2] for s in _SECTIONS if s.rpartition(".")[0] == name]
        known = [*keys, *below, *(() if name else _LISTS)]
        spaced = prefix + " " if prefix.endswith("]") else prefix
        out = {}
        for key, value in table.items():
            if key not in keys:
                close = difflib.get_close_matches(key, known, 1, 0.5)
                hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
                raise self.bad(f"unknown key {spaced}{key[:60]!r}: {hint}")
            try:
                out[key] = keys[key](value)
            except v.Wrong as e:
                raise self.bad(f"{spaced}{key} {e}") from e
        return out

    def needed(self, table: dict[str, Any], name: str, key: str) -> None:
        if key not in table:
            raise self.bad(f"{name} has no {key}: add one")
