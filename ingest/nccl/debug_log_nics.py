"""What the processes of an NCCL debug log and their hosts call NICs, and a number for that."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Any

from . import debug_log_links as links
from . import debug_log_text as say

MOST_NAMED = 256
"""Ways to call NICs that are told apart at a time."""

_MOST_TEXT = 8192
"""As far as `debug_log_text.nics` reads."""

Device = tuple[str, int]
"""Network and number."""

_NONE: dict[Device, str] = {}


class NicNames:
    """Names of NICs by process and by host, as `Links` keeps them.

    Processes of one `number` call all their NICs alike: what is learnt of one's holds for all.
    """

    def __init__(self) -> None:
        self._own: defaultdict[tuple[str, int], dict[Device, str]] = defaultdict(dict)
        self._of_host: defaultdict[str, dict[Device, str]] = defaultdict(dict)
        self._n_names = 0
        self._known: dict[Any, int] = {}
        self._n_numbers = 0
        self._numbers: defaultdict[str, dict[int, int]] = defaultdict(dict)

    def number(self, host: str, pid: int) -> int:
        """That of what a process and its host call NICs now."""
        number = self._numbers[host].get(pid)
        if number is None:
            own, its = self._own.get((host, pid), _NONE), self._of_host.get(host, _NONE)
            key = frozenset(own.items()), frozenset(its.items())
            number = self._known.get(key)
            if number is None:
                number = self._n_numbers = self._n_numbers + 1
                if len(self._known) >= MOST_NAMED:
                    self._known.clear()
                self._known[key] = number
            self._numbers[host][pid] = number
        return number

    def name(self, host: str, pid: int, net: str, index: int | None) -> str:
        """What a process calls a device of a network."""
        if index is None:
            return net
        device = links.network(net), index
        own, its = self._own.get((host, pid), _NONE), self._of_host.get(host, _NONE)
        return own.get(device) or its.get(device) or f"{net}/{index}"

    def note(self, host: str, pid: int, devices: dict[Device, str]) -> bool | None:
        """Notes names that a process says: whether they are new to its host; None for to nobody."""
        own, its = self._own.get((host, pid), _NONE), self._of_host.get(host, _NONE)
        if devices.items() <= own.items() and devices.items() <= its.items():
            return None
        changed = False
        for device, name in devices.items():
            if self._n_names >= links.MOST_NICS:
                break
            own, its = self._own[host, pid], self._of_host[host]
            self._n_names += device not in own
            changed = changed or its.get(device) != name
            own[device] = its[device] = name
        self._numbers[host].clear() if changed else self._numbers[host].pop(pid, None)
        return changed


def said_nics(text: bytes) -> tuple[str, dict[Device, str], tuple[str, ...]] | None:
    """(network, names by device, all names in order) of a line that names NICs; None for others."""
    return _said(text[:_MOST_TEXT])


@lru_cache(maxsize=256)
def _said(text: bytes) -> tuple[str, dict[Device, str], tuple[str, ...]] | None:
    found = say.nics(text)
    if found is None:
        return None
    net, devices = found
    kind = links.network(net)
    return net, {(kind, i): name for i, name in devices}, tuple(name for _, name in devices)
