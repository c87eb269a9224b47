"""One way to split a model over GPUs: its degrees and choices, and whether they fit together."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from .model import Model

RECOMPUTE = ("none", "selective", "full")
DISPATCH = ("choice", "rank")
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zbv", "v-half", "v-min", "dualpipe")
EQUAL = ("zbv", "v-half", "v-min", "dualpipe")
"""Schedules known for equal stages only."""


class Split(NamedTuple):
    """Degrees of parallelism and what goes with them; the world is dp x tp x pp x cp.

    Expert parallelism lies inside the data and context dimensions (Megatron, DeepSpeed-MoE): `ep`
    divides dp x cp and takes no GPUs of its own.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    micro_batch: int = 1
    """Sequences of a microbatch."""
    batch: int = 1
    """Sequences of a step, all replicas together."""
    recompute: str = "none"
    zero: int = 0
    """ZeRO stage: 1 shards the optimizer, 2 also gradients, 3 also parameters (FSDP)."""
    sequence_parallel: bool = True
    flash: bool = True
    """Attention's scores are never stored."""
    schedule: str = "1f1b"
    chunks: int = 1
    """Model chunks a GPU holds in an interleaved schedule."""
    stages: tuple[int, ...] = ()
    """Layers of each pipeline stage; empty: as even as they can be."""
    context: str = "ring"
    """How context parallelism shares attention: `ring` or `ulysses`."""
    dispatch: str = "choice"
    """Copies of a token to its experts: one a `choice` (Megatron's all-to-all), or one a `rank`
    that holds any of them (DeepEP)."""

    @property
    def world(self) -> int:
        """GPUs."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def microbatches(self) -> int:
        """Microbatches of a step, of one replica."""
        return self.batch // (self.dp * self.micro_batch)

    def layers_by_stage(self, layers: int) -> tuple[int, ...]:
        """Layers of each stage: as given, else as even as they can be, the last stage the fewest
        (it also has the output)."""
        if self.stages:
            return self.stages
        return _even(layers, self.pp)

    def words(self) -> str:
        """In a few words, as people write it."""
        degrees = [f"{k}{getattr(self, k)}" for k in ("dp", "tp", "pp", "cp", "ep")]
        return " ".join(d for d in degrees if not d.endswith("p1")) or "one GPU"


@lru_cache(256)
def _even(layers: int, stages: int) -> tuple[int, ...]:
    """Layers a stage, the first ones with one more; asked for each stage of each split."""
    each, more = divmod(layers, stages)
    return tuple(each + (i < more) for i in range(stages))


MOST = {
    "layers": 1024, "hidden": 1 << 20, "heads": 1 << 14, "ffn": 1 << 22, "sequence": 1 << 27,
    "vocab": 1 << 24, "experts": 1 << 16, "batch": 1 << 24, "degrees": 1 << 20,
}  # fmt: skip
"""Of a model and its splits, an order beyond what there is: tables and runs grow with them."""


def beyond(model: Model, batch: int, gpus: int) -> str:
    """What of a model, a batch or a number of GPUs is more than can be planned; empty: nothing."""
    for name, most in MOST.items():
        have = {"batch": batch, "degrees": gpus}.get(name, getattr(model, name, 0))
        if have > most:
            what = "GPUs are" if name == "degrees" else f"{name} is"
            return f"{what} {have}: at most {most} can be planned"
    return ""


def problems(model: Model, split: Split, gpus: int | None = None) -> list[str]:
    """Why a split of a model cannot be, one sentence each, with what would work; [] if it can."""
    out = []
    s, m = split, model
    low = [n for n in ("dp", "tp", "pp", "cp", "ep", "micro_batch", "batch") if getattr(s, n) < 1]
    if low:
        return [f"{low[0]} is {getattr(s, low[0])}: it is at least 1"]
    far = beyond(m, s.batch, max(s.dp, s.tp, s.pp, s.cp, s.ep, gpus or 1))
    if far:
        return [far]
    if gpus is not None and s.world != gpus:
        out.append(
            f"dp x tp x pp x cp = {s.dp} x {s.tp} x {s.pp} x {s.cp} = {s.world}, not the "
            f"{gpus} GPUs there are{_instead(s, gpus)}"
        )
    if m.heads % s.tp:
        out.append(f"tp={s.tp} does not divide {m.heads} heads: {_divisors(m.heads)} do")
    elif (m.kv_heads or m.heads) % s.tp and s.tp % (m.kv_heads or m.heads):
        out.append(f"tp={s.tp} and {m.kv_heads} key-value heads do not divide each other")
    if s.context == "ulysses" and m.heads % (s.tp * s.cp):
        most = _divisors(m.heads // s.tp) if m.heads % s.tp == 0 else "none"
        out.append(f"cp={s.cp} by Ulysses shares {m.heads} heads with tp={s.tp}: {most} work")
    if m.sequence % (2 * s.cp if s.cp > 1 and s.context == "ring" else s.cp):
        out.append(f"cp={s.cp} cannot cut {m.sequence} tokens evenly: a divisor of them can")
    if s.stages:
        if len(s.stages) != s.pp:
            out.append(f"{len(s.stages)} stages are given for pp={s.pp}: give {s.pp} numbers")
        elif sum(s.stages) != m.layers or min(s.stages) < 0:
            out.append(f"the stages hold {sum(s.stages)} layers, the model has {m.layers}")
    elif s.pp > m.layers:
        out.append(f"pp={s.pp} is more than the model's {m.layers} layers: at most {m.layers}")
    if s.batch % (s.dp * s.micro_batch):
        out.append(
            f"a batch of {s.batch} is no multiple of dp x micro_batch = {s.dp * s.micro_batch}: "
            f"{_near(s.batch, s.dp * s.micro_batch)} would be"
        )
    if s.ep > 1 and not m.experts:
        out.append(f"ep={s.ep}, but the model has no experts: ep is 1")
    elif s.ep > 1 and m.experts % s.ep:
        out.append(f"ep={s.ep} does not divide {m.experts} experts: {_divisors(m.experts)} do")
    elif (s.dp * s.cp) % s.ep:
        out.append(f"ep={s.ep} lies inside dp x cp = {s.dp * s.cp}: {_divisors(s.dp * s.cp)} would")
    if s.schedule in EQUAL and s.stages and len(set(s.stages)) > 1:
        out.append(f"{s.schedule} is known for equal stages only: leave the stages out")
    if s.schedule == "dualpipe" and s.pp % 2:
        out.append(f"dualpipe pairs stages: pp={s.pp} is odd, {s.pp + 1} is not")
    if s.schedule == "interleaved":
        if s.chunks < 2:
            out.append("an interleaved schedule has at least 2 chunks a GPU")
        elif not s.stages and m.layers % (s.pp * s.chunks):
            out.append(f"{m.layers} layers do not fill pp x chunks = {s.pp * s.chunks} evenly")
        elif s.microbatches % s.pp:
            out.append(
                f"interleaving needs microbatches in groups of pp={s.pp}, there are "
                f"{s.microbatches}"
            )
        elif s.stages:
            out.append("an interleaved schedule is known for equal chunks only: leave stages out")
    elif s.chunks > 1:
        out.append(f"chunks={s.chunks} are for the interleaved schedule")
    return out


def _divisors(n: int) -> str:
    return ", ".join(str(d) for d in range(1, n + 1) if n % d == 0)


def _near(batch: int, unit: int) -> str:
    below, above = batch // unit * unit, (batch // unit + 1) * unit
    return f"{below} or {above}" if below else str(above)


def _instead(split: Split, gpus: int) -> str:
    """The dp that would make the world right, if there is one."""
    rest = split.tp * split.pp * split.cp
    return f": dp={gpus // rest} would be" if rest and gpus % rest == 0 else ""
