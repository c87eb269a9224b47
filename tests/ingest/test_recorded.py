"""Recorded operations to tables: exact rows of a small file, oddities, and the two real jobs."""

import io
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from retime.ingest import recorded, schema, source
from retime.ingest.errors import UnusableInput, UsageError


def Source(path: Path | None = None, data: bytes = b"") -> source.Source:
    """A source of a local file, or of bytes without a path."""
    if path is not None:
        return source.Source(path.name, path.stat().st_size, source.LocalFile(str(path)), path)
    return source.Source("bytes", len(data), lambda: io.BytesIO(data))


COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id")
# Two stages of one dp rank with tensor parallelism 2 (so ranks 0 and 2), one microbatch.
ROWS = [
    (0, 0, 0, 7, "params-all-gather", 0.0, 0.25, 0),
    (0, 0, 0, 7, "forward-compute", 0.25, 0.5, 0),
    (0, 0, 0, 7, "forward-send", 0.75, 0.125, 0),
    (0, 1, 2, 7, "forward-recv", 0.5, 0.375, 0),
    (0, 1, 2, 7, "forward-compute", 0.875, 1.0, 0),
    (0, 0, 0, 9, "gc", 0.5, 0.25, 0),
    (0, 1, 2, 9, "optimizer-clip-main-grad", 0.0, 2.0, 0),
]


def file_of(rows, *, drop=(), **overrides) -> bytes:
    types = {"optype": pl.String, "start_ts": pl.Float32, "duration": pl.Float32, **overrides}
    frame = pl.DataFrame(
        rows, schema={c: types.get(c, pl.Int64) for c in COLUMNS}, orient="row"
    ).drop(drop)
    out = io.BytesIO()
    frame.write_parquet(out)
    return out.getvalue()


def tables(given, **kwargs) -> dict[str, pl.DataFrame]:
    batches = defaultdict(list)
    for name, batch in recorded.parse(given, **kwargs):
        assert batch.schema == schema.TABLES[name].schema
        if name == "events":
            start = batch.column("start_ns").to_numpy()
            assert (np.diff(start) >= 0).all()
        batches[name].append(batch)
    return {name: pl.DataFrame(pa.Table.from_batches(b)) for name, b in batches.items()}


def rows(frame: pl.DataFrame, *columns: str) -> list[tuple]:
    return frame.select(columns).rows()


def test_a_small_job_row_by_row():
    got = tables(Source(data=file_of(ROWS)))
    s = 1_000_000_000
    assert rows(got["steps"], "rank", "step", "start_ns", "end_ns", "found_by") == [
        (0, 7, 0, 875_000_000, "recorded"),
        (2, 7, 500_000_000, 1_875_000_000, "recorded"),
        # Step 9 begins where the longest rank of step 7 ended.
        (2, 9, 1_875_000_000, 3_875_000_000, "recorded"),
        (0, 9, 2_375_000_000, 2_625_000_000, "recorded"),
    ]
    events = got["events"].sort("event_id")
    assert rows(events, "rank", "event_id", "kind", "name", "stream", "category", "step") == [
        (0, 0, "kernel", "params-all-gather", 1, "comm", 7),
        (0, 1, "kernel", "forward-compute", 0, "compute", 7),
        (0, 2, "kernel", "forward-send", 2, "comm", 7),
        (0, 5, "host_op", "gc", None, "other", 9),
        (2, 2 * 2**40 + 3, "kernel", "forward-recv", 3, "comm", 7),
        (2, 2 * 2**40 + 4, "kernel", "forward-compute", 0, "compute", 7),
        (2, 2 * 2**40 + 6, "kernel", "optimizer-clip-main-grad", 1, "comm", 9),
    ]
    assert events["start_ns"].to_list() == [
        0, s // 4, s * 3 // 4, 2_375_000_000, s // 2, 875_000_000, 1_875_000_000,
    ]  # fmt: skip
    assert events["dur_ns"].to_list() == [
        s // 4, s // 2, s // 8, s // 4, 375_000_000, s, 2 * s,
    ]  # fmt: skip
    collectives = got["collectives"].sort("event_id")
    assert rows(collectives, "event_id", "comm", "op", "group_size", "peer", "step", "source") == [
        (0, "dp/stage0", "all_gather", 1, None, 7, "recorded"),
        (2, "pp/dp0/stage0-1", "send", 2, 2, 7, "recorded"),
        (2 * 2**40 + 3, "pp/dp0/stage0-1", "recv", 2, 0, 7, "recorded"),
        (2 * 2**40 + 6, "world", "all_reduce", 1, None, 9, "recorded"),
    ]
    send, recv = collectives["seq"][1], collectives["seq"][2]
    assert send == recv == 7 * 2**32 + 6 * 2**24
    assert collectives["collective_id"].null_count() == 4
    assert rows(got["comms"], "comm", "ranks", "size", "dim", "dim_source") == [
        ("dp/stage0", [0], 1, "dp", "recorded"),
        ("pp/dp0/stage0-1", [0, 2], 2, "pp", "recorded"),
        ("world", [2], 1, "world", "recorded"),
    ]
    assert rows(got["ranks"], "rank", "stage", "dp_rank", "world_size", "start_ns", "end_ns") == [
        (0, 0, 0, None, 0, 2_625_000_000),
        (2, 1, 0, None, 500_000_000, 3_875_000_000),
    ]
    assert rows(got["problems"], "code", "severity", "count") == [
        ("float32_time", "info", 7),
        ("steps_placed", "info", 2),
        ("no_meta", "info", 1),
    ]


def test_float32_seconds_become_the_nearest_ns():
    # 2.68833 as float32 is 2.6883299350738525...
    got = tables(Source(data=file_of([(0, 0, 0, 1, "optimizer", 2.68833, 0.1, 0)])))
    assert rows(got["events"], "start_ns", "dur_ns") == [(2_688_329_935, 100_000_001)]
    assert "238 ns" in got["problems"]["message"][0]


def test_a_local_file_takes_its_degrees_from_the_meta_file_beside_it(tmp_path):
    path = tmp_path / "trace-tiny.parquet"
    path.write_bytes(file_of(ROWS))
    (tmp_path / "meta-tiny.yaml").write_text("dp_size: 1\npp_size: 4\ntp_size: 2\nworld_size: 8\n")
    got = tables(Source(path))
    assert got["ranks"]["world_size"].to_list() == [8, 8]
    differs = got["problems"].filter(pl.col("code") == "meta_differs")
    assert differs["message"].to_list() == ["meta-tiny.yaml says pp_size 4, the rows have 2"]


@pytest.mark.parametrize(
    ("text", "world_size", "said"),
    [
        ("dp_size: [1\n", None, ""),
        ("when: 2001-13-45\nworld_size: 8\n", 8, None),
        ("[" * 20_000, None, "nested too deeply"),
        ("a: " + "x" * 70_000, None, "larger than 65536 bytes"),
        ("world_size: " + "9" * 5_000, None, "world_size is not a number of ranks"),
        ("world_size: [8]", None, "world_size is not a number of ranks"),
        ("world_size: !!python/name:os.system x", None, "world_size is not a number"),
        ("world_size: \0", None, ""),
        ("\ud800", None, ""),
        ("- 8\n", None, None),
    ],
    ids=range(10),
)
def test_a_broken_meta_file_is_a_problem_not_an_end(tmp_path, text, world_size, said):
    path = tmp_path / "trace-tiny.parquet"
    path.write_bytes(file_of(ROWS))
    (tmp_path / "meta-tiny.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    got = tables(Source(path))
    assert got["ranks"]["world_size"].to_list() == [world_size, world_size]
    assert len(got["events"]) == len(ROWS)
    bad = got["problems"].filter(pl.col("code") == "bad_meta")
    if said is None:
        assert bad.is_empty()
    else:
        assert bad["severity"].to_list() == ["warning"]
        assert said in bad["message"][0]
        assert len(bad["message"][0]) < 400


def test_odd_rows_are_counted_never_dropped_in_silence():
    odd = [
        *ROWS,
        (0, 0, 0, 9, "optimizer", float("nan"), 0.5, 0),
        (0, 0, None, 9, "optimizer", 0.5, 0.5, 0),
        (0, 0, 0, 9, "optimizer", 1.0, -0.5, 0),
        (0, 0, 0, 9, "quantum-leap", 1.5, 0.5, 0),
    ]
    got = tables(Source(data=file_of(odd)))
    assert rows(got["problems"], "code", "severity", "count", "offset")[:2] == [
        ("incomplete_row", "lost", 2, 7),
        ("negative_duration", "warning", 1, 9),
    ]
    assert ("unknown_optype", "warning", 1, 10) in rows(
        got["problems"], "code", "severity", "count", "offset"
    )
    last = got["events"].filter(pl.col("event_id").is_in([9, 10])).sort("event_id")
    assert rows(last, "kind", "name", "dur_ns", "stream") == [
        ("kernel", "optimizer", 0, 0),
        ("other", "quantum-leap", 500_000_000, None),
    ]


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        ("start_ts", 1e18, "bad_time"),
        ("start_ts", -1e18, "bad_time"),
        ("start_ts", 3e9, "bad_time"),  # alone it would fit, after another step it would not
        ("duration", 1e18, "bad_time"),
        ("duration", float("inf"), "incomplete_row"),
        ("rank", 2**33, "bad_rank"),
        ("rank", 2**23, "bad_rank"),
        ("stage", 2**40, "bad_rank"),
        ("dp_rank", 2**62, "bad_rank"),
        ("step", 2**31, "bad_step"),
        ("step", 2**63 - 1, "bad_step"),
        ("seq_id", -1, "incomplete_row"),
    ],
)
def test_one_absurd_row_is_lost_and_no_other(column, value, code):
    row = (0, 0, 0, 9, "gc", 0.5, 0.25, 0)
    absurd = tuple(value if c == column else v for c, v in zip(COLUMNS, row, strict=True))
    whole = tables(Source(data=file_of(ROWS)))
    got = tables(Source(data=file_of([*ROWS, absurd])))
    lost = got["problems"].filter(pl.col("severity") == "lost")
    assert rows(lost, "code", "count", "offset") == [(code, 1, 7)]
    for name in ("ranks", "steps", "events", "collectives", "comms"):
        assert rows(got[name], *got[name].columns) == rows(whole[name], *whole[name].columns)


def test_the_highest_numbers_still_fit():
    s = 10**9
    top = (0, 0, 2**23 - 1, 2**31 - 1, "forward-send", 1.5e9, 1.0e9, 2**63 - 1)
    got = tables(Source(data=file_of([(0, 0, 2**23 - 1, 0, "gc", -1.25e9, 1.0e9, 0), top])))
    assert set(got["problems"]["severity"]) == {"info"}
    # Exact as float32 says it: 1e9, 1.25e9 and 1.5e9 are multiples of 128.
    assert rows(got["events"], "start_ns", "dur_ns") == [
        (0, 10**9 * s),
        (2_500_000_000 * s, 10**9 * s),  # from the end of the step before it
    ]
    assert got["events"]["event_id"].to_list() == [(2**23 - 1) << 40, ((2**23 - 1) << 40) + 1]
    assert got["collectives"]["seq"].to_list() == [((2**31 - 1) << 32) + (6 << 24)]


def test_a_rank_that_no_integer_column_can_hold_loses_its_row_only():
    for kind, bad in ((pl.UInt64, 2**64 - 1), (pl.Float64, float("nan")), (pl.Float64, 1.5)):
        got = tables(Source(data=file_of([*ROWS, (0, 0, bad, 9, "gc", 0.5, 0.25, 0)], rank=kind)))
        assert rows(got["problems"], "code", "severity", "count")[0] == (
            "incomplete_row",
            "lost",
            1,
        )
        assert got["ranks"]["rank"].to_list() == [0, 2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PAR1 and no more", "not readable as Parquet"),
        (b"", "not readable as Parquet"),
        (file_of(ROWS, drop=("duration", "stage")), "not there: stage, duration"),
        (file_of([]), "no row with a rank"),
        (file_of([(0, 0, 0, 7, "gc", "soon", 1.0, 0)], start_ts=pl.String), "another type"),
    ],
)
def test_what_is_not_recorded_operations_is_refused(data, message):
    with pytest.raises(UnusableInput, match=message):
        tables(Source(data=data))


def test_a_rank_cannot_be_given_to_a_file_that_names_its_own():
    with pytest.raises(UsageError, match="drop --rank"):
        tables(Source(data=file_of(ROWS)), rank=3)


def test_detection(tmp_path):
    data = file_of(ROWS)
    assert recorded.looks_like(data, "anything")
    # Longer than a head, its columns are looked for at its end; a cut one is believed its name.
    for name, content, found in (("x.bin", data, True), ("trace-X.parquet", data[:100], True),
                                 ("trace-X.bin", data[:100], False)):  # fmt: skip
        assert not recorded.looks_like(content[:100], name)
        path = tmp_path / name
        path.write_bytes(content)
        assert recorded.looks_like_further(Source(path)) is found
    assert not recorded.looks_like(file_of(ROWS, drop=("optype",)), "x.parquet")
    assert not recorded.looks_like(b'{"traceEvents": []}', "x.parquet")


# Oracle: the raw columns of the source file, in plain SQL, by the definition of DESIGN section 4.
WAIT_SHARE = """
with g as (
  select duration::double d, optype, start_ts::double s,
         max(start_ts::double) over (partition by step, stage, optype, seq_id) ready
  from read_parquet('{path}') where optype = '{optype}'
)
select sum(least(greatest(ready - s, 0), d)) / sum(d) from g
"""


@pytest.mark.parametrize(
    ("job", "optype", "published"),
    [
        ("AR", "grads-reduce-scatter", 0.973),
        ("AR", "params-all-gather", 0.042),
        ("ST", "grads-reduce-scatter", 0.104),
        ("ST", "params-all-gather", 0.003),
    ],
)
def test_wait_shares_of_the_real_jobs(retime_traces, job, optype, published):
    path = retime_traces / "straggler" / "StragglerAnalysis" / f"trace-{job}.parquet"
    raw = duckdb.sql(WAIT_SHARE.format(path=path, optype=optype)).fetchall()[0][0]
    got = tables(Source(path))
    named = got["events"].filter(pl.col("name").cast(pl.String) == optype).select("event_id")
    part = got["collectives"].join(named, on="event_id")
    ready = pl.col("start_ns").max().over("comm", "seq")
    dur = pl.col("end_ns") - pl.col("start_ns")
    wait = pl.min_horizontal(ready - pl.col("start_ns"), dur)
    share = part.select(wait.sum() / dur.sum()).item()
    assert share == pytest.approx(raw, abs=1e-6)
    assert round(share, 3) == published


@pytest.mark.parametrize(
    ("job", "n_rows", "n_steps", "ranks"),
    [("AR", 117_216, 44, list(range(0, 64, 4))), ("ST", 6_784, 32, list(range(8)))],
)
def test_the_real_jobs_whole(retime_traces, job, n_rows, n_steps, ranks):
    path = retime_traces / "straggler" / "StragglerAnalysis" / f"trace-{job}.parquet"
    got = tables(Source(path))
    assert len(got["events"]) == n_rows
    assert got["events"]["event_id"].n_unique() == n_rows
    assert got["ranks"]["rank"].to_list() == ranks
    assert len(got["steps"]) == n_steps * len(ranks)
    assert set(got["problems"]["severity"]) == {"info"}
    # Every instance of a group is complete, and sequence numbers do not repeat on a rank.
    seen = got["collectives"].group_by("comm", "seq").agg(pl.len(), pl.col("group_size").first())
    assert (seen["len"] == seen["group_size"]).all()
    assert got["collectives"].select(pl.struct("rank", "comm", "seq").n_unique()).item() == len(
        got["collectives"]
    )
    # Steps of a rank never overlap.
    spans = got["steps"].sort("rank", "start_ns")
    gap = spans.select((pl.col("start_ns") - pl.col("end_ns").shift().over("rank")).min()).item()
    assert gap >= 0


def test_detection_does_not_wait_for_polars():
    code = "import retime.ingest.detect as d, sys; [d.parser(f) for f in d.FORMATS]"
    code += "; sys.exit('polars' in sys.modules or 'yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
