"""Large inputs for `tables_in`: routing logs of any number of tokens, and a tiled Nsight export."""

from __future__ import annotations

import gzip
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

N_EXPERTS = 64
TOP_K = 8
CALL_TOKENS = 4096
"""Tokens of one router call: a rank's microbatch."""
LAYERS = 16

NSYS_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS",
)  # fmt: skip
"""Tables of an export that grow with the run: the tiling repeats their rows."""

_OP_ID = re.compile(r"op_id = (\d+)")


def calls(n_tokens: int) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """(step, layer, ids [tokens, k], weights [tokens, k]) of router calls, skewed as in life."""
    rng = np.random.default_rng(8)
    liking = rng.gumbel(0.0, 1.0, (LAYERS, N_EXPERTS)).astype(np.float32)
    pool = rng.gumbel(0.0, 1.0, (CALL_TOKENS, N_EXPERTS)).astype(np.float32)
    for call, at in enumerate(range(0, n_tokens, CALL_TOKENS)):
        step, layer = divmod(call, LAYERS)
        n = min(CALL_TOKENS, n_tokens - at)
        noise = np.roll(pool, (call * 37, call * 11), (0, 1))[:n]
        logits = liking[layer] + noise
        ids = np.argpartition(-logits, TOP_K, 1)[:, :TOP_K].astype(np.int64)
        chosen = np.exp(np.take_along_axis(logits, ids, 1))
        yield step, layer, ids, chosen / chosen.sum(1, keepdims=True)


def _texts(values: np.ndarray, between: str, form: str = "%s") -> list[str]:
    """A text a row of a matrix."""
    known, at = np.unique(values, return_inverse=True)
    words = np.array([form % v for v in known.tolist()], object)[at.reshape(values.shape)]
    return [between.join(r) for r in words.tolist()]


def write_csv(path: Path, n_tokens: int, weights: bool) -> None:
    """Retime's plain form, a row a token."""
    with open(path, "w") as f:
        f.write("step,layer,rank,token,experts" + (",weights" if weights else "") + "\n")
        for step, layer, ids, w in calls(n_tokens):
            rows = _texts(ids, " ")
            if weights:
                rows = [f"{a},{b}" for a, b in zip(rows, _texts(w, " ", "%.6f"), strict=True)]
            f.write("".join(f"{step},{layer},3,{i},{r}\n" for i, r in enumerate(rows)))


def write_jsonl(path: Path, n_tokens: int, weights: bool) -> None:
    """The same as JSON lines."""
    with open(path, "w") as f:
        for step, layer, ids, w in calls(n_tokens):
            rows = [f'"experts": [{r}]' for r in _texts(ids, ", ")]
            if weights:
                more = _texts(w, ", ", "%.6f")
                rows = [f'{a}, "weights": [{b}]' for a, b in zip(rows, more, strict=True)]
            start = f'{{"step": {step}, "layer": {layer}, "rank": 3, "token": '
            f.write("".join(f"{start}{i}, {r}}}\n" for i, r in enumerate(rows)))


def write_parquet(path: Path, n_tokens: int, weights: bool) -> None:
    """The same as Parquet."""
    with _Parquet(path) as out:
        for step, layer, ids, w in calls(n_tokens):
            n = len(ids)
            columns = {
                "step": pa.array(np.full(n, step)),
                "layer": pa.array(np.full(n, layer, np.int32)),
                "rank": pa.array(np.full(n, 3, np.int32)),
                "token": pa.array(np.arange(n)),
                "experts": _lists(ids.astype(np.int32)),
            }
            if weights:
                columns["weights"] = _lists(w)
            out.add(columns)


def write_flame(path: Path, n_tokens: int, weights: bool) -> None:
    """FLAME-MoE's `layer_<NN>.parquet`: it always has scores."""
    with _Parquet(path) as out:
        for _, _, ids, w in calls(n_tokens):
            out.add({"scores": _lists(w.astype(np.float32)), "indices": _lists(ids)})


def write_megatron(path: Path, n_tokens: int, weights: bool) -> None:
    """Megatron-LM's router trace, a line a call."""
    with open(path, "w") as f:
        for step, layer, ids, _ in calls(n_tokens):
            rows = "], [".join(_texts(ids, ", "))
            f.write(
                f'{{"step": {step}, "stage": "pre_dispatch", "block": "decoder", "layer": {layer},'
                f' "rank": 3, "num_tokens": {len(ids)}, "topk": {TOP_K},'
                f' "top_indices": [[{rows}]]}}\n'
            )


def write_esft(path: Path, n_tokens: int, weights: bool) -> None:
    """ESFT's `expert_weights_<layer>.txt`, a line a pass: ids, two tabs, weights."""
    with open(path, "w") as f:
        for _, _, ids, w in calls(n_tokens):
            f.write("\t".join(_texts(ids.reshape(1, -1), "\t")) + "\t\t")
            f.write("\t".join(_texts(w.reshape(1, -1), "\t", "%.6f")) + "\n")


def write_npy(path: Path, n_tokens: int, weights: bool) -> None:
    """vLLM's `routed_experts` [tokens, layers, choices]: a token of it is one in each layer."""
    ids = np.concatenate([c[2] for c in calls(n_tokens)]).astype(np.uint8)
    whole = len(ids) // LAYERS * LAYERS
    np.save(path, ids[:whole].reshape(LAYERS, -1, TOP_K).transpose(1, 0, 2).copy())


def write_deepep(path: Path, n_tokens: int, weights: bool) -> None:
    """DeepEP's `topk_idx` and `topk_weights` as .npz."""
    ids, w = [], []
    for _, _, i, v in calls(n_tokens):
        ids.append(i)
        w.append(v.astype(np.float32))
    arrays = {"topk_idx": np.concatenate(ids)}
    if weights:
        arrays["topk_weights"] = np.concatenate(w)
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]


Form = tuple[str, str, Callable[[Path, int, bool], None], bool, int]
FORMS: tuple[Form, ...] = (
    # (name, file, writer, with weights, most tokens of one file)
    ("routing csv", "routing.csv", write_csv, False, 1 << 40),
    ("routing csv, weights", "routing_weights.csv", write_csv, True, 1 << 40),
    ("routing jsonl", "routing.jsonl", write_jsonl, False, 1 << 40),
    ("routing jsonl, weights", "routing_weights.jsonl", write_jsonl, True, 1 << 40),
    ("routing parquet", "routing.parquet", write_parquet, False, 1 << 40),
    ("routing parquet, weights", "routing_weights.parquet", write_parquet, True, 1 << 40),
    ("megatron-router", "router_trace_rank3.jsonl", write_megatron, False, 1 << 40),
    ("flame-moe", "actives/iter_10/layer_03.parquet", write_flame, True, 1 << 40),
    ("esft", "task/expert_weights_3.txt", write_esft, True, 1 << 40),
    # Arrays are bounded: 256 MiB of one file.
    ("vllm-eplb", "routed_experts.npy", write_npy, False, 1 << 24),
    ("deepep", "deepep_rank3.npz", write_deepep, True, 1 << 21),
)


def packed(path: Path) -> Path:
    """The same file as .gz beside it."""
    out = path.with_name(path.name + ".gz")
    with open(path, "rb") as f, gzip.open(out, "wb", 3) as g:
        while block := f.read(1 << 20):
            g.write(block)
    return out


def _lists(values: np.ndarray) -> pa.Array:
    n, k = values.shape
    ends = pa.array(np.arange(0, n * k + 1, k, dtype=np.int32))
    return pa.ListArray.from_arrays(ends, pa.array(values.reshape(-1)))


class _Parquet:
    """A Parquet file made call by call."""

    def __init__(self, path: Path):
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []

    def __enter__(self) -> _Parquet:
        return self

    def add(self, columns: dict[str, pa.Array]) -> None:
        self._waiting.append(pa.table(columns))
        if len(self._waiting) == 32:
            self._flush()

    def _flush(self) -> None:
        table = pa.concat_tables(self._waiting)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)
        self._waiting = []

    def __exit__(self, *failure) -> None:
        if self._waiting:
            self._flush()
        if self._writer is not None:
            self._writer.close()


def write_nsys(path: Path, small: Path, copies: int) -> int:
    """An export whose run lasts `copies` times as long as the one of `small`; its rows.

    Times, correlation and operator ids of each copy are later ones, and a range `step <n>` spans
    each copy on each thread, so that joins stay one to one.
    """
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path)
    db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")
    db.create_function("later", 2, _later, deterministic=True)
    db.execute("ATTACH DATABASE ? AS small", (f"{small}",))
    for name, made in db.execute(
        "SELECT name, sql FROM small.sqlite_master WHERE type = 'table'"
    ).fetchall():
        db.execute(made)
        if name not in NSYS_TABLES:
            db.execute(f'INSERT INTO main."{name}" SELECT * FROM small."{name}"')
    first, last = db.execute(
        'SELECT min(start), max("end") FROM small.CUPTI_ACTIVITY_KIND_RUNTIME'
    ).fetchone()
    most = db.execute(
        "SELECT max(correlationId) FROM small.CUPTI_ACTIVITY_KIND_RUNTIME"
    ).fetchone()[0]
    threads = db.execute("SELECT DISTINCT globalTid FROM small.NVTX_EVENTS").fetchall()
    span = last - first + 1_000_000
    rows = 0
    for k in range(copies):
        for table in NSYS_TABLES:
            columns = [r[1] for r in db.execute(f"PRAGMA small.table_info({table})")]
            chosen = ", ".join(_shifted(c, k, span, most) for c in columns)
            rows += db.execute(
                f"INSERT INTO main.{table} SELECT {chosen} FROM small.{table}"
            ).rowcount
        for (thread,) in threads:
            db.execute(
                'INSERT INTO main.NVTX_EVENTS (start, "end", eventType, text, globalTid, domainId)'
                " VALUES (?, ?, 59, ?, ?, 0)",
                (first + k * span, first + (k + 1) * span - 1, f"step {k}", thread),
            )
            rows += 1
        db.commit()
    db.close()
    return rows


def _shifted(column: str, k: int, span: int, most: int) -> str:
    name = f'"{column}"'
    if column in ("start", "end"):
        return f"{name} + {k * span}"
    if column == "correlationId":
        return f"{name} + {k * most}"
    return f"later({name}, {k})" if column == "text" and k else name


def _later(text: str | None, k: int) -> str | None:
    if text is None:
        return None
    return _OP_ID.sub(lambda m: f"op_id = {int(m[1]) + 100_000 * k}", text, count=1)
