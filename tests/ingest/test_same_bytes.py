"""Every way of reading a Kineto file writes the same files: to the byte, problems included."""

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import settings
from retime.ingest import detect, moments
from retime.ingest.errors import UnusableInput
from retime.ingest.kineto import lenient, parser, quick, scanner
from retime.ingest.sources import find_sources
from retime.ingest.writer import PartWriter

BLOCK_BYTES = 10_007

EVENT = (
    '{"ph": "X", "cat": "%s", "name": "%s", "pid": %d, "tid": %d, "ts": %d.%03d, "dur": %d.5,'
    ' "args": {"External id": %d, "stream": 7, "device": 0, "correlation": %d, "grid": [2, 3, 4],'
    ' "Input Dims": [[1, 2], ["}", []]], "Collective name": "all_reduce", "x": 1.5e-3}}'
)
NAMES = (
    "ncclDevKernel_AllReduce", "aten::mm", "cudaLaunchKernel", "k%d", "gloo:all_reduce",
    "nccl:all_gather", "c10d::allreduce_", "record_param_comms",
)  # fmt: skip
ODDITIES = (
    b"NaN", b"-Infinity", b"1e3", b"2.5E-1", b"18446744073709551615", b"9223372036854775808",
    b"123456789012345678901234567890", b"-0", b"1.0005", b'"0x1f"', b"true", b"null", b"[]",
    b"{}", b'"a\\u00e9\\n"', b'"\\ud800"', b'"\xff"', b'"\x01"', b'"a" "b"', b",", b"}", b"]", b'"',
    b'"ts": 5, ', b'"name": "again", ', b'"args": {}, ', b"\\", b"\x00", b"  \n", b"",
)  # fmt: skip


def written(source, folder: Path, read_events, threads: int = 1) -> dict[str, str] | str:
    """Digest by file of what a source becomes, or why it is nothing."""
    folder.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "reader", lambda source: (read_events, True))
        writer = PartWriter(folder)
        try:
            for table, batch in parser.parse(source, rank=0, threads=threads):
                writer.write(table, moments.sound(table, batch)[0])
        except UnusableInput as e:
            writer.abort()
            return str(e)
        return {w.file: w.sha256 for w in writer.close()}


def one(path: Path):
    return next(iter(find_sources([str(path)], lambda name, problem: None)))


def small_blocks(*given, **wanted):
    return scanner.read_events(*given, **wanted, block_bytes=BLOCK_BYTES)


def whole_rows(*given, **wanted):
    return lenient.read_events(*given, **wanted)


WAYS = {
    "two threads": (scanner.read_events, 2),
    "small blocks": (small_blocks, 1),
    "msgspec": (quick.read_events, 1),
    "event by event": (whole_rows, 1),
}


def events(rng: random.Random, n: int) -> list[bytes]:
    """Events as a writer writes them: the same keys again and again, or in another order."""
    out = []
    for i in range(n):
        cat = rng.choice(("kernel", "cpu_op", "cuda_runtime", "ac2g"))
        name = rng.choice(NAMES).replace("%d", str(i))
        numbers = (rng.randint(0, 9), rng.randint(0, 9), 10**12 + 7 * i, rng.randint(0, 999))
        text = EVENT % (cat, name, *numbers, rng.randint(0, 99), i, i)
        if rng.random() < 0.1:
            head, _, tail = text.partition(', "args"')
            text = f'{{"args"{tail[:-1]}, {head[1:]}}}'
        out.append(text.encode())
    return out


def fuzzed(seed: int) -> bytes:
    """A trace with a few oddities, somewhere."""
    rng = random.Random(seed)
    text = bytearray(b'{"schemaVersion": 1, "traceEvents": [\n' + b",\n".join(events(rng, 60)))
    text += b'\n], "traceName": "t.json"}'
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(40, len(text))
        # In a value's place, mostly: elsewhere all readers agree that it is no JSON.
        colon = text.find(b": ", at)
        if colon > 0 and rng.random() < 0.7:
            end = min(i for i in (text.find(b, colon) for b in (b",", b"}")) if i > 0)
            text[colon + 2 : end] = rng.choice(ODDITIES)
        else:
            text[at : at + rng.choice((0, 1, 5))] = rng.choice(ODDITIES)
    if rng.random() < 0.2:
        del text[rng.randrange(40, len(text)) :]
    return bytes(text)


SEEDS = settings.default.max_examples // 2


@pytest.fixture(scope="module")
def oddly(tmp_path_factory):
    """(path, what it becomes) of each fuzzed trace, read in the ordinary way."""
    folder, found = tmp_path_factory.mktemp("oddly"), []
    for seed in range(SEEDS):
        path = folder / f"{seed}" / "rank0.json"
        path.parent.mkdir()
        path.write_bytes(fuzzed(seed))
        found.append((path, written(one(path), folder / f"fast{seed}", scanner.read_events)))
    return found


@pytest.mark.parametrize("way", WAYS)
def test_fuzzed_traces(oddly, tmp_path, way):
    for seed, (path, expected) in enumerate(oddly):
        expected = dict(expected) if isinstance(expected, dict) else expected
        found = written(one(path), tmp_path / f"other{seed}", *WAYS[way])
        if way == "msgspec" and isinstance(found, dict) and isinstance(expected, dict):
            # It takes the last of two equal keys as the others do, and cannot tell that it did.
            found.pop("problems-000.parquet", None)
            expected.pop("problems-000.parquet", None)
        assert found == expected, seed


def test_a_compressed_file(tmp_path):
    for seed in range(6):
        plain, packed = tmp_path / f"{seed}" / "rank0.json", tmp_path / f"{seed}z" / "rank0.json"
        for path, text in ((plain, fuzzed(seed)), (packed, gzip.compress(fuzzed(seed)))):
            path.parent.mkdir()
            path.write_bytes(text)
        expected = written(one(plain), tmp_path / f"plain{seed}", scanner.read_events)
        for threads in (1, 2):
            folder = tmp_path / f"packed{seed}-{threads}"
            found = written(one(packed), folder, scanner.read_events, threads)
            if isinstance(expected, dict) and isinstance(found, dict):
                # The row of the rank names the file, and it is the same name only in this test.
                expected.pop("ranks-000.parquet", None)
                found.pop("ranks-000.parquet", None)
                expected.pop("problems-000.parquet", None)
                found.pop("problems-000.parquet", None)
            assert isinstance(found, dict) == isinstance(expected, dict)
            assert not isinstance(found, dict) or found == expected


@pytest.fixture(scope="module")
def real(retime_traces, tmp_path_factory):
    """(source, what it becomes) of each real trace, read in the ordinary way."""
    folder, found = tmp_path_factory.mktemp("real"), []
    for source in find_sources([str(retime_traces / "kineto")], lambda name, problem: None):
        try:
            if detect.detect(source) != "kineto":
                continue
        except UnusableInput:
            continue
        fast = written(source, folder / f"fast{len(found)}", scanner.read_events)
        found.append((source, fast))
    assert found
    return found


@pytest.mark.parametrize("way", ["two threads", "small blocks", "msgspec"])
def test_real_traces(real, tmp_path, way):
    for n, (source, expected) in enumerate(real):
        assert written(source, tmp_path / f"other{n}", *WAYS[way]) == expected, source.name
