"""What the compiled pass over an NCCL debug log knows of links: writers, ways, what was told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import collect
from . import debug_log_links as links
from . import debug_log_state as of
from . import debug_log_text as say
from .debug_log_known import Known
from .debug_log_lines import Writer
from .debug_log_nics import NicNames, said_nics
from .debug_log_told import edge_key, link_key, moved_key, nic_key
from .line_blocks import PAD
from .number_rows import MOST_WORDS, NULL, NumberRows, Words
from .tables_of_texts import Triples

if TYPE_CHECKING:
    from ..collect import Collector
    from .debug_log_lines import Message
    from .debug_log_places import Places

_MOST_WRITERS = 1 << 16
_MOST_CODES = 1 << 16
_MOST_OWNERS = 1 << 18
_MOST_AT_ONCE = 1 << 15
_MOST_SAID = 2048
_SOURCE = "nccl-log"


class CompiledLinks(links.Links):
    """`Links` whose rows, and what was told, are where compiled code has them too.

    `state` is the scan's; `arrays` and `tables` are what it is called with.
    """

    def __init__(
        self,
        c: Collector,
        places: Places,
        passed_over: Counter[str],
        functions: dict[str, Callable[..., Any]],
        state: np.ndarray,
    ):
        words = self._words = Words()
        for text in of.EDGE_TEXTS:
            words.code(text)

        def rows(table: str, columns: tuple[str, ...], constants: dict[str, Any]) -> NumberRows:
            return NumberRows(c, table, columns, (), {"source": _SOURCE, **constants},
                              functions, lambda *_: None, words)  # fmt: skip

        self.edges = rows("topology", of.EDGE_COLUMNS, {})
        derived = {"traffic_class": "collective", "measured": False}
        self.moved = rows("transfers", of.MOVED_COLUMNS, derived)
        super().__init__(c, places, passed_over, self.edges.add, self.moved.add)
        self._told, self._state = functions["told"], state
        state[of.MOST_EDGES], state[of.NIC_TURN] = collect.BATCH_ROWS, 1
        state[of.SEED] = int.from_bytes(np.random.default_rng().bytes(7), "little")
        most = links.MOST_SEEN
        self._told_rows = np.empty((most, 3), np.int64)
        self._told_slots = np.zeros((1 << (2 * most - 1).bit_length()) // 4 * 5, np.int32)
        self._nics_told: tuple[int, set[tuple[Any, ...]]] = (0, set())
        self._said = np.zeros(_MOST_SAID, np.int64)
        self._known: Known | None = None
        self._owners: dict[tuple[str, int], int] = {}
        self._threads: dict[tuple[str, int, int], int] = {}
        self._writers = np.zeros((_MOST_WRITERS, of.WRITER_COLUMNS), np.int64)
        # Codes of writers by host, then by process.
        self._writers_of: defaultdict[str, defaultdict[int, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._names = NicNames()
        self._intern_all, self._learnt_all = functions["intern_all"], False
        self._n_namings = 0
        self._route_codes, self._pointer_codes = Triples(_MOST_CODES), Triples(_MOST_CODES)
        self._routes = np.zeros((_MOST_CODES, of.ROUTE_COLUMNS), np.int64)
        self._pointers = np.zeros((_MOST_CODES, of.POINTER_COLUMNS), np.int64)

    @property
    def known(self) -> Known:
        """Who is who; made when the first link asks."""
        if self._known is None:
            self._known = Known(self.places, self._words)
        return self._known

    def arrays(self) -> tuple[np.ndarray, ...]:
        """What `scan` is given of links."""
        known = _NOBODY if self._known is None else self._known
        return (self.edges.matrix, self.moved.matrix, self._said, self._writers, known.lists,
                known.comms, known.name_bounds, known.members, known.hosts, self._routes,
                self._pointers, self._told_rows, self._told_slots, self._route_codes.table,
                self._pointer_codes.table)  # fmt: skip

    def clear(self) -> None:
        """Makes room: what is seen again is learnt again."""
        for table in (self._route_codes, self._pointer_codes):
            table.clear()
        for learnt in (self._writers, self._routes, self._pointers):
            learnt[:] = 0
        self._writers_of.clear()

    # --- what is learnt ------------------------------------------------------------------------

    def learn_writer(self, code: int, writer: Writer) -> None:
        """Whose the lines of a writer are."""
        row = self._row_of(writer)
        if row is None:
            self._writers[code, of.W_HOW] = of.BY_HAND
            return
        self._writers[code] = row
        self._writers_of[writer.host][writer.pid].append(code)

    def learn_writers(self, code: int, table: np.ndarray) -> bool:
        """The same of all threads that made communicators, once; whether `code` is one of them.

        `table` is that of the texts of writers. To learn them as they come takes as long as to
        read what they wrote.
        """
        if self._learnt_all:
            return False
        found, made = self.places.found, self.places.found.comms.of_thread
        threads = {t: k for t, k in found.comms.threads.items() if len(made.of(k))}
        if len(threads) > _MOST_AT_ONCE:
            return False
        self._learnt_all = True
        process = found.comms.column(of.Q_PROCESS)
        firsts = process[made.order[made.ends[list(threads.values())]]].tolist()
        writers = [
            Writer(*thread, found.in_order[first].device)
            for thread, first in zip(threads, firsts, strict=True)
        ]
        texts = [b"%s:%d:%d [%d]" % (w.host.encode(), *w[1:]) for w in writers]
        ends = np.cumsum([0, *map(len, texts)])
        bounds, codes = np.stack([ends[:-1], ends[1:]], axis=1), np.zeros(len(texts), np.int64)
        joined = np.frombuffer(b"".join(texts) + bytes(PAD), np.uint8)
        n = self._intern_all(joined, bounds, table, codes)
        for known, writer in zip(codes[:n].tolist(), writers, strict=False):
            row = self._row_of(writer)
            if row is not None and self._writers[known, of.W_HOW] == of.UNKNOWN:
                self._writers[known] = row
                self._writers_of[writer.host][writer.pid].append(known)
        return bool(self._writers[code, of.W_HOW] != of.UNKNOWN)

    def _row_of(self, writer: Writer) -> tuple[int, ...] | None:
        """A writer as compiled code knows it; None where there are too many."""
        host, pid, tid, _ = writer
        try:
            owner, at = _numbered(self._owners, (host, pid)), _numbered(self._threads, writer[:3])
            host_code = self._code(host)
        except _TooMany:
            return None
        known, process = self.known, self.places.process(writer)
        rank = None if process is None else process.rank
        comms = self.places.found.comms
        making = known.of_thread(comms.threads.get((host, pid, tid), -1))
        made = known.comms[known.lists[slice(*making)], of.C_MADE]
        in_order = bool((made[1:] >= made[:-1]).all())
        return (
            of.ROW, *making, *known.of_process(-1 if process is None else process.number),
            NULL if rank is None else rank, host_code, owner, at, self._names.number(host, pid),
            making[0] if in_order else -1,
        )  # fmt: skip

    def learn_pointer(self, code: int, writer: Writer) -> None:
        """Which communicators a pointer means in the writer's process, one after another."""
        value = self._pointer_codes.numbers(code)[1] & ((1 << 64) - 1)
        key = writer.host, writer.pid, b"0x%x" % value
        its = self.places.found.comms.pointers.get(key, -1)
        self._pointers[code] = of.ROW, *self.known.of_pointer(its)

    def learn_route(self, code: int, message: Message, writer: Writer) -> None:
        """The transport and the NIC of a way that links of the writer's process go."""
        link = say.link(message.text)
        self._routes[code] = of.BY_HAND, 0, 0
        if link is None or len(self._words) >= MOST_WORDS:
            return
        nic = None if link.net is None else self.nic(writer, link.net, link.index)
        self._routes[code] = of.ROW, self._words.code(link.via), self._words.code(nic)

    def nic(self, writer: Writer, net: str, index: int | None) -> str:
        return self._names.name(writer.host, writer.pid, net, index)

    def nics(self, text: bytes, writer: Writer) -> bool:
        found = said_nics(text)
        if found is None:
            return False
        net, devices, names = found
        host = writer.host
        changed = self._names.note(host, writer.pid, devices)
        if changed is not None:
            self._state[of.NIC_TURN] += 1
            processes = self._writers_of[host]
            for pid in list(processes) if changed else [writer.pid]:
                if pid in processes:
                    self._writers[processes[pid], of.W_NAMES] = self._names.number(host, pid)
        state = self._state
        if self._nics_told[0] != state[of.CLEARED]:
            self._nics_told = int(state[of.CLEARED]), set()
        told, line = self._nics_told, ("nics", host, net, names)
        if line in told[1]:
            return True
        for name in names:
            if self.is_new(("nic", host, net, name)):
                self._add(host=host, device=name, kind="nic", via=f"NET/{net}", source=_SOURCE)
        if told[0] == state[of.CLEARED] and len(names) <= 64 and len(told[1]) < _MOST_CODES:
            told[1].add(line)
        return True

    # --- what was told -------------------------------------------------------------------------

    def is_new(self, key: tuple[Any, ...]) -> bool:
        state = self._state
        if not state[of.SEEN_ELSEWHERE]:
            self._seen.clear()
        if self._nics_told[0] != state[of.CLEARED]:
            self._nics_told = int(state[of.CLEARED]), set()
        if key in self._nics_told[1]:
            return False
        if key[0] == "nic":  # each process tells them again
            self._nics_told[1].add(key)
        numbers = self._numbers(key)
        if numbers is not None:
            found = bool(self._told(*numbers, self._told_rows, self._told_slots, state))
            if not state[of.SEEN_ELSEWHERE]:
                self._seen.clear()
            return found
        if key in self._seen:
            return False
        if state[of.N_SEEN] + len(self._seen) >= links.MOST_SEEN:
            self._seen.clear()
            self._told_slots[:] = 0
            state[of.N_SEEN] = 0
            state[of.CLEARED] += 1
        self._seen.add(key)
        state[of.SEEN_ELSEWHERE] = len(self._seen)
        return True

    def _numbers(self, key: tuple[Any, ...]) -> tuple[int, int, int] | None:
        """What stands for `key` in compiled code; None where nothing does."""
        try:
            return self._three(*key)
        except _TooMany:
            return None

    def _three(self, kind: str, *said: Any) -> tuple[int, int, int]:
        code = self._code
        if kind == "link":
            host, pid, name, channel, me, peer, via, nic = said
            owner, nic = _numbered(self._owners, (host, pid)), -1 if nic is None else code(nic)
            return link_key(owner, self._name(name), channel, me, peer, code(via), nic)
        if kind == "transfer":
            rank, nic, channel, peer, direction, via = said
            way = of.K_SEND if direction == "send" else of.K_RECV
            peer = NULL if peer is None else peer
            return moved_key(way, rank, code(nic), channel, peer, code(via))
        if kind == "nic":
            return nic_key(*map(code, said))
        whose, channel, low, high = said
        named = isinstance(whose, str)
        number = self._name(whose) if named else ~_numbered(self._threads, whose)
        return edge_key(of.K_RING if kind == "ring" else of.K_TREE, number, channel, low, high)

    def _code(self, text: str) -> int:
        if text not in self._words and len(self._words) >= MOST_WORDS:
            raise _TooMany
        return self._words.code(text)

    def _name(self, name: str | None) -> int:
        return -1 if name is None else self.places.members.codes[name]


class _TooMany(Exception):
    """More texts or writers than there are numbers for."""


def _numbered(known: dict[Any, int], key: Any) -> int:
    """The number of a key, a new one if need be. Raises _TooMany."""
    if key not in known and len(known) >= _MOST_OWNERS:
        raise _TooMany
    return known.setdefault(key, len(known))


class _Nobody:
    lists = np.zeros(1, np.int64)
    comms = np.zeros((1, of.COMM_COLUMNS), np.int64)
    name_bounds = np.zeros((1, of.NAME_COLUMNS), np.int64)
    members = hosts = np.zeros((1, 2), np.int64)


_NOBODY = _Nobody()
