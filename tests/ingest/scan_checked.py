"""Reads fuzzed bytes with bounds checks on every load; run with NUMBA_BOUNDSCHECK=1."""

import random
import sys
from pathlib import Path

import numpy as np
from retime.ingest.errors import UnusableInput
from retime.ingest.kineto import bytescan, scanner
from retime.ingest.kineto.rawbatch import Envelope

sys.path.insert(0, str(Path(__file__).parent))
from test_scanner import SMALL, SNIPPETS

assert bytescan.CHECKED
rng = random.Random(5)


def read(data: bytes, block: int) -> None:
    try:
        for batch in scanner.read_events(
            data, Envelope(), lambda p: None, block_bytes=block, batch_rows=50
        ):
            for codes in (v[:] for v in batch.cols.values() if v.dtype == np.int32):
                assert codes.min() >= -1
                assert codes.max() < len(batch.symbols)
    except UnusableInput:
        pass


array = SMALL.index(b"[\n  {\n") + 1
for cut in range(array, len(SMALL)):
    read(SMALL[:cut], 4096)
    read(SMALL[array - 1 : cut], cut)
for _ in range(3000):
    data = bytearray(SMALL[array - 1 :])
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(1, len(data))
        data[at : at + rng.choice((0, 1, 9))] = rng.choice(SNIPPETS)
    read(bytes(data), rng.choice((1, 16, 64, 100, 333, 4096)))
for _ in range(500):
    read(b"[{" + rng.randbytes(rng.randint(0, 300)), 1 << rng.randint(0, 9))
    read(b'[{"' + bytes(rng.choices(b'{}[]",:\\ \n0ets-', k=300)), 1 << rng.randint(0, 9))
    # A string table that grows under it.
    read(b"[" + b",".join(b'{"name":"%d"}' % rng.getrandbits(50) for _ in range(10)) + b"]", 64)
read(b"[" + b",".join(b'{"name":"%d"}' % i for i in range(9000)) + b"]", 4096)
print("checked")
