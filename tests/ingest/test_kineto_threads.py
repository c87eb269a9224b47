"""A reader that runs beside the conversion gives the same batches as one that does not."""

from __future__ import annotations

import gzip
from pathlib import Path

from retime.ingest.kineto import parser as kineto
from retime.ingest.sources import find_sources


def test_the_same_batches_with_two_threads(demo_job: Path, tmp_path: Path):
    plain = tmp_path / "rank1.json"
    plain.write_bytes(gzip.decompress((demo_job / "rank1.json.gz").read_bytes()))
    (source,) = find_sources([str(plain)], lambda problem: None)
    one, two = (list(kineto.parse(source, threads=n)) for n in (1, 2))
    assert [table for table, _ in one] == [table for table, _ in two]
    assert all(a.equals(b) for (_, a), (_, b) in zip(one, two, strict=True))
