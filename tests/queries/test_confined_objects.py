"""A connection over objects of an S3 server: it reads those, and no credentials through SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import retime
from retime.analysis import connecting, query
from retime.ingest import store
from retime.ingest.errors import StoreBusy
from retime.ingest.schema import TABLES
from retime.ingest.store import reading

KEY = "what-nobody-is-to-see"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, demo_job: Path) -> retime.Warehouse:
    wh = retime.open(tmp_path_factory.mktemp("objects") / "warehouse")
    wh.ingest([demo_job / "rank0.json.gz", demo_job / "rank1.json.gz"], job="two")
    return wh


@pytest.fixture
def proxy(s3_server: Any, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A proxy before the server, which counts; the credentials are in the environment."""
    proxy = s3_server.Proxy(s3_url)
    for name, value in s3_server.credentials(proxy.url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    yield proxy
    proxy.close()


@pytest.fixture
def snapshot(s3_server: Any, proxy: Any, local: retime.Warehouse, tmp_path: Path) -> Any:
    """The job's snapshot, its files being objects."""
    stands = local.store.snapshot("two")
    folder = store.folder(f"s3://{s3_server.BUCKET}/{tmp_path.name}/job=two")
    files = {}
    for table, paths in stands.files.items():
        files[table] = []
        for path in paths:
            name = f"{table}/{Path(path).name}"
            folder.put(name, Path(path))
            files[table].append(folder.address(name))
    said = {"manifests": stands.manifests, "generation": stands.generation, "kernels": ()}
    return SimpleNamespace(job="two", files=files, **said)


@pytest.fixture
def con(snapshot: Any) -> duckdb.DuckDBPyConnection:
    con = connecting.open_snapshots([snapshot], 1 << 30, 2)
    connecting.confine(con, [snapshot])
    return con


def test_objects_are_read_as_files_are(con, local: retime.Warehouse) -> None:
    here = local.connect("two")
    for ask in (
        "SELECT count(*), sum(hash(e)) FROM events e",
        "FROM waits ORDER BY ALL",
        "FROM step_breakdown ORDER BY ALL",
    ):
        assert con.execute(ask).fetchall() == here.execute(ask).fetchall()


@pytest.fixture
def large(s3_server: Any, proxy: Any, tmp_path: Path) -> Any:
    """A job of one object of some megabytes: numbers that no compression makes smaller."""
    numbers = np.random.default_rng(7).integers(0, 2**44, (3, 200_000))
    columns = dict(zip(("event_id", "start_ns", "dur_ns"), numbers, strict=True))
    ranks = np.repeat(np.arange(4, dtype=np.int32), 50_000)
    batch = TABLES["events"].batch({"rank": ranks, **columns})
    path = tmp_path / "0123456789abcdef-000.parquet"
    pq.write_table(pa.Table.from_batches([batch]), path, row_group_size=50_000)
    folder = store.folder(f"s3://{s3_server.BUCKET}/{tmp_path.name}/job=large")
    name = f"events/{path.name}"
    folder.put(name, path)
    part = SimpleNamespace(file=name, bytes=path.stat().st_size)
    manifest = SimpleNamespace(parts=[part])
    return SimpleNamespace(
        job="large", files={"events": [folder.address(name)]}, manifests=[manifest],
        generation=SimpleNamespace(parts=[]), kernels=(), bytes=part.bytes,
        sum_ns=int(numbers[2][ranks == 3].sum()),
    )  # fmt: skip


def test_columns_and_row_groups_that_nobody_asks_for_are_not_fetched(
    large: Any, proxy: Any
) -> None:
    con = connecting.open_snapshots([large], 1 << 30, 2)
    connecting.confine(con, [large])
    before = proxy.sent()
    ask = "SELECT sum(dur_ns)::BIGINT FROM events WHERE rank = 3"
    assert con.execute(ask).fetchall() == [(large.sum_ns,)]
    fetched = proxy.sent() - before
    # One of the three columns that have a size, in one of the four groups of rows; a part of it
    # came with the file's end when that was opened.
    assert large.bytes / 16 < fetched < large.bytes / 6
    # What was fetched once is not fetched again while there is room for it.
    assert con.execute(ask).fetchall() == [(large.sum_ns,)]
    assert proxy.sent() - before == fetched


def test_no_size_is_asked_of_the_store(con, proxy: Any) -> None:
    asked = [done.request.op for done in proxy.log]
    before = len(asked)
    con.execute("SELECT count(*), sum(hash(e)) FROM events e").fetchall()
    asked = [done.request.op for done in proxy.log][before:]
    assert set(asked) == {"GET"}
    assert len(asked) < 20


def test_nothing_of_the_store_is_within_reach(con, snapshot: Any) -> None:
    url = snapshot.files["events"][0]
    for statement in (
        f"FROM read_parquet('{url}')",
        f"FROM read_blob('{url}')",
        f"FROM glob('{url.rpartition('/')[0]}/*')",
        f"COPY (SELECT 1 a) TO '{url}' (FORMAT parquet, USE_TMP_FILE false)",
        "LOAD httpfs",
    ):
        with pytest.raises(duckdb.Error, match=r"disabled (by|through) configuration") as refused:
            con.execute(statement).fetchall()
        assert KEY not in str(refused.value)
    part = con.execute("SELECT current_setting('allowed_paths')[1]").fetchone()[0]
    with pytest.raises(duckdb.Error, match="nothing is written, moved or removed"):
        con.execute(f"COPY (SELECT 1 a) TO '{part}' (FORMAT csv, USE_TMP_FILE false)")
    for source in ("duckdb_settings()", "duckdb_secrets()", "duckdb_views()", "duckdb_logs",
                   "duckdb_external_file_cache()"):  # fmt: skip
        seen = str(con.execute(f"FROM {source}").fetchall())
        assert KEY not in seen
        assert "s3://" not in seen


def test_an_object_that_is_gone_or_refused_is_one_sentence(con, snapshot: Any) -> None:
    gone = snapshot.files["events"][0]
    reading._ends.clear()  # a small object is held whole from its opening on
    store.folder(gone.rpartition("/")[0]).remove([gone.rpartition("/")[2]])
    with pytest.raises(query.BadQuery) as refused:
        query.run(con, "SELECT sum(dur_ns) FROM events")
    said = str(refused.value)
    assert "\n" not in said
    assert "is no longer there: the job has changed" in said
    assert KEY not in said


def test_a_store_that_does_not_answer_is_one_sentence_without_its_address(
    con, snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(url: str, *_: int) -> bytes:
        raise StoreBusy(f"{url}: cannot be read now (SlowDown), after 8 tries")

    reading._ends.clear()
    monkeypatch.setattr(reading, "fetched", busy)
    with pytest.raises(query.BadQuery) as refused:
        query.run(con, "SELECT sum(dur_ns) FROM events")
    address = r"retime://two/events/\w+-000\.parquet"
    said = rf"the query cannot run: {address}: cannot be read now \(SlowDown\), after 8 tries"
    assert re.fullmatch(said, str(refused.value))
