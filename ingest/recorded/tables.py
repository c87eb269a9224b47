"""Rows of a file of recorded operations to tables; see `recorded` for what such a file is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from .. import parquet_in, schema
from ..errors import UnusableInput
from .meta import read_meta

if TYPE_CHECKING:
    from ..sources import Source

INTEGERS = ("dp_rank", "stage", "rank", "step", "seq_id")
TIMES = ("start_ts", "duration")
COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id")
"""Columns that a file must have; `mc`, `mb_id` and `gmc` are not needed for any table."""


MAX_STEP = (1 << 31) - 1
"""The highest step: above its number a `seq` has 32 bits for what tells operations apart."""

TIMELINE_S = 9e9
"""The timeline of a job, 285 years of it, fits in int64 ns."""


class Operation(NamedTuple):
    """What an `optype` is: `op` of `collectives` ("" for none) and how its group is found."""

    optype: str
    kind: str
    category: str
    stream: int | None
    op: str = ""
    group: str = ""
    sequence: int = 0
    """Part of `seq` that tells apart operations of one communicator; send and recv share it."""


OPERATIONS = (
    Operation("forward-compute", "kernel", "compute", 0),
    Operation("backward-compute", "kernel", "compute", 0),
    Operation("optimizer", "kernel", "compute", 0),
    Operation("gc", "host_op", "other", None),
    Operation("params-all-gather", "kernel", "comm", 1, "all_gather", "dp", 1),
    Operation("grads-reduce-scatter", "kernel", "comm", 1, "reduce_scatter", "dp", 2),
    Operation("layernorm-grads-all-reduce", "kernel", "comm", 1, "all_reduce", "tp", 3),
    Operation("embedding-grads-all-reduce", "kernel", "comm", 1, "all_reduce", "embedding", 4),
    Operation("optimizer-clip-main-grad", "kernel", "comm", 1, "all_reduce", "world", 5),
    Operation("forward-send", "kernel", "comm", 2, "send", "next", 6),
    Operation("forward-recv", "kernel", "comm", 3, "recv", "previous", 6),
    Operation("backward-send", "kernel", "comm", 4, "send", "previous", 7),
    Operation("backward-recv", "kernel", "comm", 5, "recv", "next", 7),
)
"""The optypes known. `optimizer-clip-main-grad` is the all-reduce of the gradient norm over the
whole job, with the clipping that follows it. The groups: dp = the workers of a stage; tp = the
folded tensor-parallel ranks of one worker; embedding = first and last stage of a dp rank; next
and previous = the worker and its neighbour in the pipeline of its dp rank (a ring, as an
interleaved schedule goes round)."""

DIMS = {"dp": "dp", "tp": "tp", "embedding": "pp", "world": "world", "next": "pp", "previous": "pp"}
DESCRIPTIONS = {
    "dp": "data-parallel workers of a stage",
    "tp": "tensor-parallel ranks folded into one worker",
    "embedding": "first and last stage of a dp rank",
    "world": "all workers of the job",
    "pp": "neighbours in the pipeline of a dp rank",
}


def tables_of(source: Source) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table name, batch); see `recorded.parse`."""
    problems: list[schema.Problem] = []
    frame = _timeline(_usable(_read(source), source.name, problems))
    meta = _meta(source, frame, problems)
    frame = frame.join(_operations(frame, problems), on="optype", how="left")
    frame = frame.join(_neighbours(frame), on=["dp_rank", "stage"], how="left")
    comms = _comms(frame)

    yield "ranks", _ranks(frame, source.name, meta)
    yield "steps", _steps(frame)
    for _, part in frame.group_by("rank", maintain_order=True):
        part = part.sort("start_ns", "row")
        yield "events", _events(part)
        taking_part = part.filter(pl.col("op") != "")
        if len(taking_part):
            yield "collectives", _collectives(taking_part, comms)
    if len(comms):
        yield "comms", _batch("comms", comms.drop("group_key"))
    yield "problems", _problems(problems, source.name)


def _read(source: Source) -> pl.DataFrame:
    # By Arrow: Polars' own reader can end the process on a damaged file.
    rows = parquet_in.table(source, COLUMNS)
    try:
        return pl.DataFrame(pl.from_arrow(rows))
    except (pl.exceptions.PolarsError, pa.ArrowException, ValueError) as e:
        raise UnusableInput(f"not readable as Parquet: {e}", path=source.name) from e


def _usable(frame: pl.DataFrame, name: str, problems: list[schema.Problem]) -> pl.DataFrame:
    """Rows that can be placed in time and in the job, as integers; the others are counted."""
    missing = [c for c in COLUMNS if c not in frame.columns]
    if missing:
        raise UnusableInput(
            f"recorded operations need the columns {', '.join(COLUMNS)}; "
            f"not there: {', '.join(missing)}",
            path=name,
        )
    frame = _typed(frame.select(*COLUMNS).with_row_index("row"), name)
    complete = pl.all_horizontal(
        *(pl.col(c).is_not_null() for c in COLUMNS),
        *(pl.col(c).is_finite() for c in TIMES),
        *(pl.col(c) >= 0 for c in INTEGERS),
    )
    kept = _kept(
        frame,
        complete,
        "incomplete_row",
        "rows without a time, or with a rank, stage, step or seq_id missing or negative",
        problems,
    )
    kept = _kept(
        kept,
        pl.max_horizontal("rank", "stage", "dp_rank") <= schema.MAX_RANK,
        "bad_rank",
        f"rows with a rank, stage or dp_rank above {schema.MAX_RANK}",
        problems,
    )
    kept = _kept(
        kept, pl.col("step") <= MAX_STEP, "bad_step", f"rows with a step above {MAX_STEP}", problems
    )
    # Each step takes at most three such times: before its own start, after it, and a duration.
    limit_s = TIMELINE_S / (3 * max(kept["step"].n_unique(), 1))
    kept = _kept(
        kept,
        pl.col("start_ts").abs().le(limit_s) & pl.col("duration").abs().le(limit_s),
        "bad_time",
        f"rows with a start or a duration beyond {limit_s:.4g} s: more than fits in the timeline",
        problems,
    )
    if kept.is_empty():
        raise UnusableInput("no row with a rank, a step and a time", path=name)
    negative = kept.filter(pl.col("duration") < 0)
    if len(negative):
        problems.append(
            schema.Problem(
                "negative_duration",
                "operations with a negative duration, taken as 0",
                count=len(negative),
                offset=negative["row"][0],
            )
        )
    latest = float((kept["start_ts"] + kept["duration"]).max())  # type: ignore[arg-type]
    resolution_ns = round(float(np.spacing(np.float32(latest))) * 1e9)
    problems.append(
        schema.Problem(
            "float32_time",
            f"times are float32 seconds, up to {latest:.3f} s: they resolve {resolution_ns} ns "
            "there, so shorter intervals and differences are not to be trusted",
            "info",
            len(kept),
        )
    )
    problems.append(
        schema.Problem(
            "steps_placed",
            "times count from each step's own start: the steps are placed one after another, "
            "the time between them is unknown",
            "info",
            kept["step"].n_unique(),
        )
    )
    return kept


def _typed(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """The columns as int64, float64 and text; a number that is none of those becomes null."""

    def number(c: str, kind: type[pl.DataType]) -> pl.Expr:
        exact = pl.col(c)
        if frame.schema[c].is_float() and kind == pl.Int64:
            exact = pl.when(exact == exact.floor()).then(exact)  # a rank of 1.5 is none
        return exact.cast(kind, strict=not frame.schema[c].is_numeric())

    try:
        return frame.with_columns(
            pl.col("row").cast(pl.Int64),
            pl.col("optype").cast(pl.String),
            *(number(c, pl.Int64) for c in INTEGERS),
            *(number(c, pl.Float64) for c in TIMES),
        )
    except pl.exceptions.PolarsError as e:
        raise UnusableInput(f"a column has another type than expected: {e}", path=name) from e


def _kept(
    frame: pl.DataFrame, good: pl.Expr, code: str, what: str, problems: list[schema.Problem]
) -> pl.DataFrame:
    """The rows that are good; the others are counted as lost."""
    marked = frame.with_columns(good=good.fill_null(False))
    kept = marked.filter("good").drop("good")
    if len(kept) < len(frame):
        first = marked.filter(~pl.col("good"))["row"][0]
        problems.append(schema.Problem(code, what, "lost", len(frame) - len(kept), first))
    return kept


def _timeline(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds start_ns and dur_ns on the job's timeline: steps end to end, in-step times kept."""
    ns = frame.with_columns(
        in_step_ns=(pl.col("start_ts") * 1e9).round().cast(pl.Int64),
        dur_ns=(pl.col("duration").clip(lower_bound=0) * 1e9).round().cast(pl.Int64),
    )
    steps = (
        ns.group_by("step")
        .agg(
            before=pl.col("in_step_ns").min().clip(upper_bound=0),
            after=(pl.col("in_step_ns") + pl.col("dur_ns")).max(),
        )
        .sort("step")
        .select("step", base_ns=(pl.col("after") - pl.col("before")).cum_sum() - pl.col("after"))
    )
    return (
        ns.join(steps, on="step")
        .with_columns(start_ns=pl.col("base_ns") + pl.col("in_step_ns"))
        .with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .sort("row")
    )


def _meta(source: Source, frame: pl.DataFrame, problems: list[schema.Problem]) -> dict[str, int]:
    """Degrees from the meta file beside a local source, compared with the rows."""
    meta, name = read_meta(source.mmap_path, problems)
    for size, column in (("dp_size", "dp_rank"), ("pp_size", "stage")):
        seen = frame[column].n_unique()
        if size in meta and meta[size] != seen:
            problems.append(
                schema.Problem(
                    "meta_differs", f"{name} says {size} {meta[size]}, the rows have {seen}"
                )
            )
    return meta


def _operations(frame: pl.DataFrame, problems: list[schema.Problem]) -> pl.DataFrame:
    """OPERATIONS as a frame, with a row for each optype of the file that is not known."""
    known = {o.optype for o in OPERATIONS}
    new = [o for o in frame["optype"].unique().sort().to_list() if o not in known]
    for optype in new:
        rows = frame.filter(pl.col("optype") == optype)
        problems.append(
            schema.Problem(
                "unknown_optype",
                f"operation type {optype!r} is not known: kept as an event, in no class",
                count=len(rows),
                offset=rows["row"][0],
            )
        )
    rows = [*OPERATIONS, *(Operation(o, "other", "other", None) for o in new)]
    return pl.DataFrame(
        [o._asdict() for o in rows],
        schema_overrides={"stream": pl.Int64, "sequence": pl.Int64},
        infer_schema_length=None,
    )


def _neighbours(frame: pl.DataFrame) -> pl.DataFrame:
    """Each worker's stage and rank before and after it in the pipeline of its dp rank."""
    workers = frame.select("dp_rank", "stage", "rank").unique(["dp_rank", "stage"])
    n_stages = int(workers["stage"].max()) + 1  # type: ignore[arg-type]
    at = workers.rename({"stage": "there", "rank": "rank_there"})
    out = workers
    for name, shift in (("next", 1), ("previous", n_stages - 1)):
        out = (
            out.with_columns(((pl.col("stage") + shift) % n_stages).alias("there"))
            .join(at, on=["dp_rank", "there"], how="left")
            .rename({"there": f"{name}_stage", "rank_there": f"{name}_rank"})
        )
    return out.drop("rank")


def _group_key() -> pl.Expr:
    """Name of the communicator of a participation."""
    dp, stage = pl.col("dp_rank"), pl.col("stage")
    return (
        pl.when(pl.col("group") == "dp")
        .then(pl.format("dp/stage{}", stage))
        .when(pl.col("group") == "tp")
        .then(pl.format("tp/rank{}", pl.col("rank")))
        .when(pl.col("group") == "embedding")
        .then(pl.format("embedding/dp{}", dp))
        .when(pl.col("group") == "world")
        .then(pl.lit("world"))
        .when(pl.col("group") == "next")
        .then(pl.format("pp/dp{}/stage{}-{}", dp, stage, pl.col("next_stage")))
        .when(pl.col("group") == "previous")
        .then(pl.format("pp/dp{}/stage{}-{}", dp, pl.col("previous_stage"), stage))
    )


def _comms(frame: pl.DataFrame) -> pl.DataFrame:
    """Communicators with the workers seen in them, in order of stage then rank."""
    members = (
        frame.filter(pl.col("group") != "")
        .with_columns(group_key=_group_key())
        .select("group_key", "group", "stage", "rank")
        .unique(["group_key", "rank"])
        .sort("group_key", "stage", "rank")
    )
    kind = pl.col("group").replace({"next": "pp", "previous": "pp"})
    return (
        members.group_by("group_key", maintain_order=True)
        .agg(ranks=pl.col("rank"), size=pl.len(), group=pl.col("group").first())
        .select(
            "group_key",
            comm="group_key",
            name="group_key",
            description=kind.replace_strict(DESCRIPTIONS),
            ranks="ranks",
            size="size",
            dim=pl.col("group").replace_strict(DIMS),
            dim_source=pl.lit("recorded"),
        )
    )


def _ranks(frame: pl.DataFrame, name: str, meta: dict[str, int]) -> pa.RecordBatch:
    return _batch(
        "ranks",
        frame.group_by("rank")
        .agg(
            stage=pl.col("stage").first(),
            dp_rank=pl.col("dp_rank").first(),
            start_ns=pl.col("start_ns").min(),
            end_ns=pl.col("end_ns").max(),
        )
        .sort("rank")
        .with_columns(
            world_size=pl.lit(meta.get("world_size"), pl.Int32),
            source=pl.lit(name),
            host_source=pl.lit("unknown"),
        ),
    )


def _steps(frame: pl.DataFrame) -> pa.RecordBatch:
    return _batch(
        "steps",
        frame.group_by("rank", "step")
        .agg(start_ns=pl.col("start_ns").min(), end_ns=pl.col("end_ns").max())
        .sort("start_ns", "rank")
        .with_columns(found_by=pl.lit("recorded")),
    )


EVENT_ID = (pl.col("rank") * 2**40 + pl.col("row")).alias("event_id")


def _events(part: pl.DataFrame) -> pa.RecordBatch:
    return _batch(
        "events",
        part.select(
            "rank",
            EVENT_ID,
            "kind",
            "stream",
            "start_ns",
            "dur_ns",
            "category",
            "step",
            name="optype",
            thread=pl.when(pl.col("kind") == "host_op").then(pl.lit("main")),
        ),
    )


def _collectives(part: pl.DataFrame, comms: pl.DataFrame) -> pa.RecordBatch:
    peer = (
        pl.when(pl.col("group") == "next")
        .then(pl.col("next_rank"))
        .when(pl.col("group") == "previous")
        .then(pl.col("previous_rank"))
    )
    position = pl.struct("seq_id", "row").rank("ordinal").over("rank", "step", "optype")
    return _batch(
        "collectives",
        part.with_columns(group_key=_group_key())
        .join(comms.select("group_key", "size"), on="group_key", how="left")
        .select(
            "rank",
            "op",
            "start_ns",
            "end_ns",
            "stream",
            "step",
            EVENT_ID,
            comm="group_key",
            seq=pl.col("step") * 2**32 + pl.col("sequence") * 2**24 + position.cast(pl.Int64) - 1,
            group_size="size",
            peer=peer,
            source=pl.lit("recorded"),
        )
        .sort("start_ns", "event_id"),
    )


def _problems(problems: list[schema.Problem], name: str) -> pa.RecordBatch:
    rows = [{**p._asdict(), "source": name} for p in problems]
    return schema.PROBLEMS.batch({k: [r[k] for r in rows] for k in rows[0]})


def _batch(table: str, frame: pl.DataFrame) -> pa.RecordBatch:
    t = schema.TABLES[table]
    return t.batch({c: frame[c].to_arrow().cast(t.schema.field(c).type) for c in frame.columns})
