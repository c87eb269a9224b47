"""Lossless compression of all-gathers and messages: fewer bytes, for the time of a codec.

An all-gather of S on n ranks: (S/n)/Ce + (n-1)/n (r S/B + S/Cd) against (n-1)/n S/B, and the
messages of the algorithm that ran. Decoding dominates: it runs on n-1 shards. A reduce-scatter
decodes and encodes at each of its n-1 hops. Below the codec's least useful size nothing changes.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from ..costs import compression
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, words
from ..quantities import bandwidth_bytes_per_s, size_bytes
from ..retiming import by_group, transfers

NEUTRAL = {"ratio": 1.0, "encode": 1e30, "decode": 1e30}

MESSAGES = ("send", "recv", "send_recv")
OPS = ("all_gather", "reduce_scatter", *MESSAGES)
DEFAULT_RATIO = 0.67

ASSUMPTIONS = (
    "what is moved is bf16, whose exponents compress alike in every collective",
    "the codec has the GPU's units to itself (give them back with sm-budget)",
)


def apply(
    job: ReplayJob,
    *,
    op: tuple[str, ...],
    ratio: float | None,
    entropy: float | None,
    sample: str,
    encode: float,
    decode: float,
    least: int,
    pipelined: bool,
    dim: tuple[str, ...] = (),
    comm: tuple[str, ...] = (),
) -> ReplayJob:
    """The job with chosen collectives compressed."""
    for one in op:
        if one not in OPS:
            raise BadParam(f"policy compress: no model of {one!r}; there are of {', '.join(OPS)}")
    r, origin = _ratio(ratio, entropy, sample)
    job, rows = transfers.chosen(job, op=op, dim=dim, comm=comm)
    if not len(rows):
        return job
    large = rows.filter(pl.col("bytes") >= least)
    if len(large) < len(rows):
        said = f"{len(rows) - len(large)} of {len(rows)} are under {least} bytes: left plain"
        job = job.note(assumptions=(said,))
    if not len(large):
        return job
    losing: dict[str, str] = {}

    def price(group: by_group.Group) -> np.ndarray:
        found, B = group.link, group.link.bandwidth_bytes_per_s
        plain = group.time_ns()
        messages = group.time_ns(bandwidth=np.inf)
        if group.op in MESSAGES:
            coded = compression.message_ns(
                group.size_bytes, r, B, encode, decode, pipelined=pipelined
            )
        else:
            n = group.n
            passes = n - 1 if group.op == "reduce_scatter" else 1
            if passes > 1:
                # A hop moves a shard, and codes it twice.
                shard = group.size_bytes / n
                coded = passes * compression.message_ns(
                    shard, r, B, encode, decode, pipelined=pipelined
                )
            else:
                coded = compression.all_gather_ns(
                    n, group.size_bytes, r, B, encode, decode, pipelined=pipelined
                )
        after = messages + coded
        if after.sum() > plain.sum():
            losing[group.label] = (
                f"{group.label}: compression loses ({after.sum() / plain.sum():.2f} times the "
                f"time): at {found.bandwidth_bytes_per_s / 1e9:.3g} GB/s the codec costs more than "
                "the bytes that it saves"
            )
            if group.op == "all_gather" and not pipelined:
                edge = compression.break_even_bytes_per_s(group.n, r, encode, decode)
                losing[group.label] += f"; it wins below {edge / 1e9:.3g} GB/s"
        return after / plain

    job, scale = by_group.ratios(job, large, price)
    less = np.full(len(large), r)
    job = transfers.scaled(job, large, scale, bytes_ratio=less)
    return job.note(
        assumptions=(*ASSUMPTIONS, f"bytes shrink to {r:.3f} ({origin})"),
        warnings=tuple(losing.values()),
    )


def _ratio(ratio: float | None, entropy: float | None, sample: str) -> tuple[float, str]:
    given = [x for x in (ratio, entropy, sample or None) if x is not None]
    if len(given) > 1:
        raise BadParam("policy compress: give one of ratio, entropy and sample, not several")
    if ratio is not None:
        if not 0 < ratio <= 1:
            raise BadParam(f"policy compress: ratio={ratio:g}: compressed over plain, 0 to 1")
        return ratio, "as given"
    if entropy is not None:
        if not 0 <= entropy <= 8:
            raise BadParam(f"policy compress: entropy={entropy:g}: bits an exponent, 0 to 8")
        return compression.ratio_of_entropy(entropy), f"{entropy:g} bits an exponent"
    if sample:
        values = compression.sample(sample)
        bits = compression.exponent_entropy(values)
        said = f"{bits:.2f} bits an exponent, measured on {len(values)} values"
        return compression.ratio_of_entropy(bits), said
    return DEFAULT_RATIO, "assumed, as of published bf16 weights: give ratio, entropy or sample"


POLICY = Policy(
    name="compress",
    summary="lossless compression of all-gathers, reduce-scatters and messages",
    source="CIERA; DFloat11 (arXiv 2504.11651) and DietGPU for ratios and codecs",
    params=(
        Param("op", words, ("all_gather",), "", "operations to change, joined by +"),
        Param("ratio", float, None, "", "compressed over plain size (default: 0.67, bf16)"),
        Param("entropy", float, None, "bit", "of an exponent, instead of ratio: (8 + H) / 16"),
        Param("sample", str, "", "", "a file of bf16 (.safetensors or raw) to measure it on"),
        Param("encode", bandwidth_bytes_per_s, 400e9, "bytes/s", "of the encoder (400GB/s)"),
        Param("decode", bandwidth_bytes_per_s, 400e9, "bytes/s", "of the decoder (400GB/s)"),
        Param("least", size_bytes, 2_000_000, "bytes", "size under which nothing is compressed"),
        Param("pipelined", bool, False, "", "encoding, moving and decoding at once"),
        *transfers.WHERE,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.VOLUME,
    needs=("collectives with sizes, seen on all their ranks",),
    valid="bf16 data; codecs of 250 to 600 GB/s were measured on A100 (DietGPU), from 512 KiB on",
    checked=(
        "n 8, r 0.669, 50 GB/s: codecs of 400 GB/s gain 1.232 times, of 250 1.114; at 450 GB/s "
        "0.51, a loss; break-even where codec time equals the bytes saved (arithmetic)"
    ),
)
