"""A parser for made-up traces, for tests of what surrounds parsers; also run by workers.

A trace is one line of JSON behind `FAKE `: rank, rows (of events), and what goes wrong: `lost`,
`die` (kills its process), `bug`, `unusable`, `no_peek`, `beyond` (the
start of all its events). A rank of -1 means: the file's name says.
"""

import json
import os
import signal
import zlib

from retime.ingest.errors import UnusableInput
from retime.ingest.schema import TABLES

BATCH = 1000


def looks_like(head, name):
    return head.startswith(b"FAKE ")


def _said(source):
    with source.open() as f:
        said = json.loads(f.read().removeprefix(b"FAKE "))
    if said["rank"] == -1:
        said["rank"] = int(os.path.basename(source.name).partition(".")[0])
    return said


def peek_rank(source):
    said = _said(source)
    return None if said.get("no_peek") else said["rank"]


def parse(source, *, rank=None, threads=1):
    said = _said(source)
    rank = said["rank"] if rank is None else rank
    rows, salt = said.get("rows", 10), said.get("salt", 0)
    for first in range(0, rows, BATCH):
        k = range(first, min(first + BATCH, rows))
        yield (
            "events",
            TABLES["events"].batch(
                {
                    "rank": [rank] * len(k),
                    "event_id": [(rank << 40) | i for i in k],
                    "kind": ["host_op"] * len(k),
                    "name": [f"kernel_{(i * 7 + salt) % 50}" for i in k],
                    "start_ns": [said.get("beyond", 0) or i * 1000 for i in k],
                    "correlation": [zlib.crc32(b"%d" % i) for i in k],
                    "dur_ns": [(i * i + salt) % 997 for i in k],
                }
            ),
        )
        if said.get("unusable"):
            raise UnusableInput("is broken in the middle", path=source.name, offset=first)
        if said.get("bug"):
            raise ZeroDivisionError("a bug")
        if said.get("die"):
            os.kill(os.getpid(), signal.SIGKILL)
    yield (
        "collectives",
        TABLES["collectives"].batch(
            {
                "comm": ["world"] * 3,
                "seq": [0, 1, 2],
                "rank": [rank] * 3,
                "op": ["all_reduce"] * 3,
                "start_ns": [10, 20, 30],
                "end_ns": [15, 25, 35],
            }
        ),
    )
    if said.get("lost"):
        yield (
            "problems",
            TABLES["problems"].batch(
                {
                    "source": [source.name],
                    "severity": ["lost"],
                    "code": ["truncated"],
                    "message": ["cut at byte 5"],
                    "count": [1],
                }
            ),
        )
    yield (
        "ranks",
        TABLES["ranks"].batch(
            {"rank": [rank], "world_size": [said.get("world", 4)], "source": [source.name]}
        ),
    )
