"""Rows of ESFT's expert weight logs, and of the averages that their authors made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..collect import Collector
from ..errors import UnusableInput
from ..texts import lines, whole
from .counted import count, tell_odd
from .esft import IDS
from .tally import Routing

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

MAX_LINE_BYTES = 32 << 20
MAX_SUMMARY_BYTES = 32 << 20
_FOLDER = re.compile(r"([^/\\!]{1,80})[/\\!](?:rank_(\d{1,6})[/\\!])?[^/\\!]*$")
_WEIGHTS = re.compile(rb"[-+0-9.enaif]{1,24}(?:\t[-+0-9.enaif]{1,24})*")


def log_rows(
    source: Source, layer: int | None, rank: int | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All passes of a log of this layer; see `esft.parse`."""
    c = Collector(source)
    folder = _FOLDER.search(source.name)
    own = rank if rank is not None or not (folder and folder.group(2)) else int(folder.group(2))
    rows = Routing(f"esft:{folder.group(1)}" if folder else "esft")
    if layer is None:
        told = "the name does not say the layer (expert_weights_<layer>.txt); it is null"
        c.odd("layer_unknown", told)
    n = 0
    for at, line, complete in lines(source, c.odd, MAX_LINE_BYTES):
        if not line:
            continue
        first, parted, second = line.partition(b"\t\t")
        ids = weights = np.zeros(0)
        # Checked before they become arrays: those are as wide as the longest text.
        sound = bool(parted and IDS.fullmatch(first) and _WEIGHTS.fullmatch(second))
        try:
            if sound:
                ids = np.array(first.split(b"\t"), "S5").astype(np.int64)
                weights = np.array(second.split(b"\t"), "S24").astype(np.float64)
        except ValueError:
            sound = False
        if not sound:
            code = "bad_record" if complete else "cut_record"
            told = "a line that is not ids, a double tab and as many weights; left out"
            c.odd(code, told, "lost", offset=at)
            continue
        if len(ids) != len(weights):
            # The last weight of a cut line may be cut itself.
            k = min(len(ids), len(weights) - (not complete))
            told = f"{len(ids)} ids and {len(weights)} weights in a line; the first {k} are kept"
            c.odd("lengths_differ", told, "lost", offset=at)
            ids, weights = ids[:k], weights[:k]
        counted = count(ids.reshape(-1, 1), weights.reshape(-1, 1))
        tell_odd(counted, c.odd, offset=at)
        rows.add_counted(counted, step=n, layer=layer, rank=own)
        n += 1
        yield from rows.full()
    if not n:
        raise UnusableInput("no line of it has ids and weights", path=source.name)
    if own is not None:
        c.add("ranks", rank=own, clock="none", source=source.name)
    c.odd("step_is_pass", "step is the number of the forward pass (line) in the file", "info")
    yield from rows.rest()
    yield from c.rest()


def summary_rows(source: Source) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Averages by layer and expert, as counters: shares are no counts of tokens."""
    c = Collector(source)
    try:
        data = json.loads(whole(source, c.odd, MAX_SUMMARY_BYTES))
    except (ValueError, RecursionError) as e:
        raise UnusableInput(f"not JSON to its end: {str(e)[:120]}", path=source.name) from e
    n = 0
    for name, layers in data.items():
        for layer, experts in layers.items() if isinstance(layers, dict) else ():
            for expert, share in experts.items() if isinstance(experts, dict) else ():
                if isinstance(share, bool) or not isinstance(share, int | float):
                    c.odd("wrong_type", "an average that is no number; left out", "lost")
                    continue
                where = f"layer {layer[:20]} expert {expert[:20]}"
                c.add("counters", name=f"esft_{name[:80]}", device=where, value=share)
                n += 1
        yield from c.full()
    if not n:
        raise UnusableInput("a summary without averages", path=source.name)
    told = "averages of the authors over all their tokens: in counters, as they are no counts"
    c.odd("averages_only", told, "info")
    yield from c.rest()
