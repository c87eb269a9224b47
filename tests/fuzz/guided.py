"""Coverage-guided mutations of one fixture, where atheris is installed (`pip install atheris`).

`python tests/fuzz/guided.py FIXTURE -runs=10000` (further flags are libFuzzer's). Ends at the first
input that gives neither rows nor a clean refusal, which is left in the working folder.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    """Runs the fuzzer on the fixture named first."""
    name, *flags = sys.argv[1:]
    # The unchanged file is read inside: parsers import what they need only when they parse.
    with atheris.instrument_imports(include=["retime.ingest"]):
        import fixtures
        import harness
        from retime.ingest.errors import RetimeError

        fixture = next(f for f in fixtures.load() if f.name == name)
        harness.read_all(fixture.format, harness.source_of(name, fixture.files), fixture.rank)
    inner = sorted(fixture.files)[0]

    def once(data: bytes) -> None:
        files = {**fixture.files, inner: data}
        try:
            harness.read_all(fixture.format, harness.source_of(name, files), fixture.rank)
        except RetimeError:
            return

    with tempfile.TemporaryDirectory() as corpus:
        (Path(corpus) / "seed").write_bytes(fixture.files[inner])
        limits = ["-timeout=10", "-rss_limit_mb=2048", f"-max_len={2 * len(fixture.files[inner])}"]
        atheris.Setup([sys.argv[0], *limits, *flags, corpus], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
