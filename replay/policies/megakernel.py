"""Dispatch, expert GEMMs and combine of an MoE layer in one kernel, tokens in chunks.

T = sum_j(a_j + b_j c) + (K-1) max_j(a_j + b_j c) over chunks of c tokens (`megakernels`):
a_j is a message, or what a GEMM needs to begin; b_j what was recorded, by token. Tokens are pushed
(counts go first, and senders meet at the hot receiver) or pulled (a round trip more); `auto` takes
what is faster in each layer.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from ..moe import exchange
from ..moe.params import KERNELS
from ..moe.tokens import TOKEN_BYTES
from ..overlapped import megakernels, moe_layers
from ..overlapped.megakernels import LEAST_TOKENS, MOST_TOKENS
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, words
from ..quantities import size_bytes, time_ns
from ..retiming import transfers

NEUTRAL = {"mode": "recorded", "tokens": 1}

ASSUMPTIONS = (
    "chunks of tokens are alike, and every chunk of a stage may begin once the one before it and "
    "its own stage before are done",
    "gaps between what was recorded stay, so that launches saved are not in the estimate",
)
NO_LAYER = (
    "no all-to-all is followed by a kernel of experts and another all-to-all on all its ranks "
    "(kernels=part of an expert kernel's name): nothing is fused; record kernels and all-to-alls "
    "of an MoE job"
)


def apply(
    job: ReplayJob,
    *,
    mode: str,
    chunk: int,
    tokens: int,
    token_bytes: int,
    topk: int,
    experts: int,
    fixed: float,
    meta: float | None,
    incast: float,
    kernels: tuple[str, ...],
    comm: tuple[str, ...],
) -> ReplayJob:
    """The job with its MoE layers fused."""
    _checked(chunk, tokens, token_bytes, topk, experts, fixed, meta, incast)
    found = exchange.find(job, comm=comm, dim=exchange.dims(job, "ep", "cp"))
    job = found.job
    if not len(found.rows):
        return job
    graph = job.graph
    layers = moe_layers.find(graph, found.rows, kernels)
    if not layers:
        return job.note(warnings=(NO_LAYER,))
    dur = graph.dur_ns.astype(np.float64)
    chose: Counter[str] = Counter()
    chunks: Counter[int] = Counter()
    kept = 0
    for one in layers:
        count = tokens or _tokens(found, one, token_bytes * topk)
        ends = [_exchange(found, row, incast) for row in (one.dispatch, one.combine)]
        spent = np.array([dur[w].sum() for w in one.work])
        sent = dur[one.transfers]

        def layer(d, g, c, ends=ends, count=count):
            alike = [e._replace(took_ns=float(t)) for e, t in zip(ends, (d, c), strict=True)]
            return megakernels.Layer(alike[0], float(g), alike[1], count)

        given = {"meta_ns": ends[0].alpha_ns if meta is None else meta, "gemm_fixed_ns": fixed,
                 "experts": experts, "topk": topk}  # fmt: skip
        mean = layer(sent[0].mean(), spent.mean(), sent[1].mean())
        best = megakernels.fused(mean, mode, chunk=chunk, **given)
        if best.total_ns >= mean.recorded_ns and mode == "auto":
            kept += 1
            continue
        chose[best.mode] += 1
        chunks[best.chunk] += 1
        for i, work in enumerate(one.work):
            mine = megakernels.fused(
                layer(sent[0, i], spent[i], sent[1, i]), best.mode, chunk=best.chunk, **given
            )
            dur[one.transfers[:, i]] = mine.dispatch_ns, mine.combine_ns
            dur[work] *= mine.gemm_ns / spent[i] if spent[i] > 0 else 1.0
    said = [f"{n} layers {mode}" for mode, n in chose.most_common()]
    sizes = ", ".join(f"{c}" for c, _ in chunks.most_common(3))
    job = job.with_graph(dur_ns=transfers.whole_ns(dur))
    notes = (
        (f"{len(layers)} MoE layers: {', '.join(said)}; chunks of {sizes} tokens",) if said else ()
    )
    if not tokens:
        notes += (f"a token is {topk} copies of {token_bytes} bytes (its count: by bytes sent)",)
    left = (f"{kept} layers would be no faster fused: left as measured",) if kept else ()
    left += exchange.lacking(found, hosts=False)
    return job.note(assumptions=(*notes, *ASSUMPTIONS), warnings=left)


def _checked(chunk, tokens, token_bytes, topk, experts, fixed, meta, incast) -> None:
    if chunk and not LEAST_TOKENS <= chunk <= MOST_TOKENS:
        raise BadParam(
            f"policy megakernel: chunk={chunk}: {LEAST_TOKENS} to {MOST_TOKENS} tokens, 0: the best"
        )
    for name, value in (("token_bytes", token_bytes), ("topk", topk)):
        if value < 1:
            raise BadParam(f"policy megakernel: {name}={value}: 1 or more")
    for name, value in (("tokens", tokens), ("experts", experts), ("fixed", fixed)):
        if value < 0:
            raise BadParam(f"policy megakernel: {name}={value:g}: 0 or more")
    if meta is not None and meta < 0:
        raise BadParam(f"policy megakernel: meta={meta:g}: a time of 0 or more")
    if not 0.01 <= incast <= 1:
        raise BadParam(f"policy megakernel: incast={incast:g}: a part of the pace, from 0.01 to 1")


def _tokens(found: exchange.Found, one: moe_layers.Found, each: int) -> int:
    """Tokens of a rank: what it sends on the mean, over the bytes of a token's copies."""
    matrix = found.exchanges[one.dispatch].demand.matrix
    return max(1, round(float(matrix.sum()) / len(matrix) / each))


def _exchange(found: exchange.Found, row: int, incast: float) -> megakernels.Exchange:
    """An all-to-all's latency, and what pushing loses at its hot receiver; its time to be set."""
    one = found.exchanges[row]
    matrix = one.demand.matrix.copy()
    np.fill_diagonal(matrix, 0)
    hot = float(matrix.sum(axis=0).max(initial=0.0))
    across = one.hosts != 1
    rate = found.speeds.nic_bytes_per_s if across else found.speeds.nvlink_bytes_per_s
    alpha = one.alpha_ns
    return megakernels.Exchange(0.0, alpha, hot * 1e9 / rate * (1 / incast - 1))


POLICY = Policy(
    name="megakernel",
    summary="MoE dispatch and combine fused with the expert GEMMs, in chunks of tokens",
    source="Mixture-of-Kittens; FlashMoE; UniEP (1.03 to 1.38 times); pipeline arithmetic",
    params=(
        Param(
            "mode", str, "auto", "", "how tokens move; recorded: as they did",
            ("auto", "push", "pull", "recorded"),
        ),
        Param("chunk", int, 0, "tokens", "at once, 512 to 32768; 0: the best"),
        Param("tokens", int, 0, "tokens", "of a rank in a layer; 0: by bytes sent"),
        Param("token_bytes", size_bytes, TOKEN_BYTES, "bytes", "of a copy of a token (7168 bf16)"),
        Param("topk", int, 8, "", "copies of a token"),
        Param("experts", int, 0, "", "of a rank: rows fill tiles of 128; 0: not counted"),
        Param("fixed", time_ns, 5_000.0, "ns", "that a GEMM needs to begin a chunk"),
        Param("meta", time_ns, None, "ns", "counts before pushed tokens (default: a message)"),
        Param("incast", float, 0.9, "", "part of its pace that a pushed-to hot receiver keeps"),
        KERNELS,
        Param("comm", words, (), "", "communicators to change, joined by + (default: all)"),
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.SCHEDULE,
    needs=("kernels and all-to-alls of an MoE job", "splits or a routing log, for hot receivers"),
    valid="chunks of 512 to 32768 tokens",
    checked=(
        "32,768 tokens, 5 us a stage, 0.02, 0.05 and 0.02 us a token: best at 2,024 tokens, 1810.3 "
        "us in chunks of 2,048, 2964.1 us unchunked (arithmetic); auto is never slower than push "
        "or pull"
    ),
)  # fmt: skip
