"""Inspector's Prometheus text: averages of an interval, as counters."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..collect import Collector
from ..errors import UnusableInput
from ..texts import lines
from .comm_places import Places, comm_of_cut_hex

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_LINE = re.compile(r"(nccl_\w{1,60})\{([^}]{0,2000})\} ([-+0-9.eE]{1,40}|\+?Inf|-Inf|NaN)\s*\Z")
_LABEL = re.compile(r'(\w{1,40})="([^"]{0,256})"')
_STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z\Z")
_ELSEWHERE = {"version", "slurm_job", "slurm_job_id", "node", "hostname", "gpu", "gpu_device_id",
              "timestamp", "rank", "coll_sn"}  # fmt: skip


def tables_of(source: Source, rank: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields `counters`: a metric's name keeps the labels that tell its series apart.

    Only the first generation says a rank and a time; of the second both are null, but for a rank
    that is given.
    """
    collector = Collector(source)
    places = Places()
    found: list[tuple[int, str, dict[str, str], float]] = []
    for offset, line, _ in lines(source, collector.odd, 65536):
        text = line[:8192].decode("utf-8", "replace").strip()
        if not text or text.startswith("#"):
            continue
        m = _LINE.match(text)
        if m is None:
            collector.odd("not_a_metric", "a line that is no metric of Inspector; it is left out",
                          "lost", offset=offset)  # fmt: skip
            continue
        labels = dict(_LABEL.findall(m[2]))
        comm = comm_of_cut_hex(labels.get("comm_id", ""))
        if comm is not None and (place := _whole(labels.get("rank"))) is not None:
            places.add(comm, place, _whole(labels.get("nranks", labels.get("n_ranks"))))
        try:
            value = float(m[3])
        except ValueError:
            value = float("nan")
        found.append((offset, m[1], labels, value))
        if len(found) >= 1_000_000:
            collector.odd("too_many_metrics", "more than a million metrics; the rest is left out",
                          "lost", offset=offset)  # fmt: skip
            break
    if not found:
        raise UnusableInput("no metric of Inspector can be read", path=source.name)
    if places.known:
        places.settle(rank, source.name, collector)
    collector.odd(
        "averages",
        "Prometheus files hold averages of an interval and no single operation; without "
        "NCCL_INSPECTOR_PROM_DUMP Inspector writes each as a JSON line",
        "info",
    )
    for _, name, labels, value in found:
        comm, place = comm_of_cut_hex(labels.get("comm_id", "")), _whole(labels.get("rank"))
        whose = rank
        if comm is not None and place is not None:
            whose = places.rank_of(comm, place)
        kept = ",".join(f"{k}={v}" for k, v in labels.items() if k not in _ELSEWHERE)
        collector.add(
            "counters",
            rank=whose,
            host=labels.get("node", labels.get("hostname")),
            device=labels.get("gpu", labels.get("gpu_device_id")),
            name=f"{name}{{{kept}}}" if kept else name,
            time_ns=_stamp(labels.get("timestamp", "")),
            value=value,
        )
    if places.known:
        for of in places.write(collector):
            collector.add("ranks", rank=of, host=_host(found), clock="none", source=source.name,
                          host_source="recorded" if _host(found) else "unknown")  # fmt: skip
    yield from collector.rest()


def _host(found: list[tuple[int, str, dict[str, str], float]]) -> str | None:
    return next((h for _, _, labels, _ in found if (h := labels.get("hostname"))), None)


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None


def _stamp(text: str) -> int | None:
    """Nanoseconds of the epoch of a UTC time; None where it is none."""
    m = _STAMP.match(text)
    if m is None:
        return None
    try:
        moment = datetime.datetime(*(int(g) for g in m.groups()), tzinfo=datetime.UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1_000_000_000
