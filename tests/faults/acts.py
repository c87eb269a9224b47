"""What the processes of these tests do to a warehouse; each gives what JSON can hold."""

import contextlib
import logging
import tempfile
import time
from pathlib import Path

import small_job


def warm_up():
    """Does everything once, so that what is forked from here need not import and compile."""
    logging.getLogger("retime").setLevel(logging.CRITICAL)
    with contextlib.suppress(ImportError):
        import aiobotocore.session  # noqa: F401
        import s3fs  # noqa: F401
    with tempfile.TemporaryDirectory() as folder:
        paths = small_job.write(Path(folder) / "in", range(2))
        warehouse = Path(folder) / "warehouse"
        warehouse.mkdir()
        upload([paths[0]], warehouse, "j", Path(folder) / "spool")
        ingest(warehouse, paths, "j")
        kernels(warehouse, "j", "gemm*", "gemm")
        keep(warehouse, "j")
        count(warehouse, "j")


def ingest(warehouse, paths, job, options=None):
    """The status of each source."""
    from retime.ingest.run import ingest

    report = ingest(warehouse, list(map(str, paths)), job=job, workers=1, **(options or {}))
    return [s.status for s in report.sources]


def derive(warehouse, job):
    """Whether it made anything."""
    from retime.ingest import derive
    from retime.ingest.warehouse import Warehouse

    return derive.derive(Warehouse(warehouse).job_folder(job)) is not None


def upload(paths, to, job, spool, options=None):
    """(states of what was sent, input lost, what was said of each)"""
    from retime.ingest.upload import backoff
    from retime.ingest.upload.run import upload

    backoff.FIRST_S, backoff.MOST_S = 0.01, 0.05
    said = {"to": str(to), "job": job} if paths else {}
    report = upload(list(map(str, paths)), spool=spool, for_s=0, workers=1, **said,
                    **(options or {}))  # fmt: skip
    return [s.state for s in report.sent], report.lost, [s.error for s in report.sent]


def keep(warehouse, job):
    """Keeps what only a replay gives; whether it is kept."""
    import pyarrow as pa
    from retime.ingest import kept
    from retime.ingest.schema import TABLES
    from retime.ingest.warehouse import Warehouse

    store = Warehouse(warehouse)
    rows = [{"rank": 0, "score_ns": 7, "low_ns": 5, "high_ns": 9, "step_ns": 40, "how": "replay"}]
    made = pa.Table.from_pylist(rows, schema=TABLES["replay_scores"].schema)
    key = kept.key(store.job_folder(job), store.snapshot(job).generation)
    return kept.keep(store.job_folder(job), key, {"replay_scores": made})


def kept_rows(warehouse, job):
    """The rows that are kept; None where none are."""
    from retime.ingest import kept
    from retime.ingest.warehouse import Warehouse

    store = Warehouse(warehouse)
    folder = store.job_folder(job)
    key = kept.key(folder, store.snapshot(job).generation)
    found = kept.find(folder, key)
    rows = None if found is None else kept.rows(folder, found, "replay_scores")
    return None if rows is None else rows.to_pylist()


def kernels(warehouse, job, pattern, category):
    """Keeps a rule for a job's kernels; how many there are."""
    from retime.analysis import kernels
    from retime.ingest import settings
    from retime.ingest.warehouse import Warehouse

    folder = Warehouse(warehouse).job_folder(job)
    kernels.say(folder, [settings.KernelRule(pattern, category)])
    return len(settings.read(folder).kernels)


def count(warehouse, job, table="events"):
    """Rows of a table as a reader has them."""
    from retime.analysis.warehouse import Warehouse

    con = Warehouse(str(warehouse)).connect(job)
    return con.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0]


def watch(warehouse, job, ranks):
    """The ranks that a reader sees, look after look, until all are there."""
    from retime.ingest.warehouse import Warehouse
    from whole import rows

    store, seen, until = Warehouse(warehouse), [], time.monotonic() + 120
    while time.monotonic() < until:
        snapshot = store.snapshot(job)
        assert snapshot.problems == []
        found = rows(snapshot)
        assert set(found["events"]) == set(found["collectives"]) == set(found["ranks"])
        assert all(n == 3 for n, _ in found["events"].values())
        seen.append(sorted(found["events"]))
        if len(seen[-1]) == ranks:
            return seen
        time.sleep(0.2)
    raise AssertionError(f"only {seen[-1]} came")


def compact(warehouse, job, options=None):
    """What a compaction says of each job."""
    from retime.analysis.warehouse import Warehouse

    return Warehouse(str(warehouse)).compact([job], **(options or {}))["status"].to_list()


def prune(warehouse, job, options):
    """What a prune says of each job that it looked at."""
    from retime.analysis.warehouse import Warehouse

    jobs = None if job is None else [job]
    return Warehouse(str(warehouse)).prune(jobs, dry_run=False, **options)["status"].to_list()


def tag(warehouse, job, key, value):
    """The job's tags, with one more."""
    from retime.ingest import labels
    from retime.ingest.warehouse import Warehouse

    return labels.tag(Warehouse(warehouse).folder(job), {key: value}).values


def queries(warehouse, job, times):
    """(rows that each query over one connection had, the error that ended them)"""
    import duckdb
    from retime.analysis.warehouse import Warehouse
    from retime.ingest.errors import RetimeError

    told = []
    try:
        con = Warehouse(str(warehouse)).connect(job)
        for _ in range(times):
            rows = [
                con.sql(f"SELECT count(*), count(DISTINCT rank) FROM {t}").fetchall()[0]
                for t in ("events", "collectives")
            ]
            told.append(rows)
            time.sleep(0.05)
    except (RetimeError, duckdb.Error) as e:
        return told, str(e)
    return told, ""
