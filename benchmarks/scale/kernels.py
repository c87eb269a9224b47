"""The kernels of the made-up job: names and durations as measured in real traces.

    python -m benchmarks.scale.kernels FOLDER > benchmarks/scale/kernels.tsv

makes the table again from a folder of Kineto traces of modded-nanogpt (KellerJordan, MIT licence;
`records/track_1_short/*/profiler-example-traces` there and the ones of 2025-10-31): 8 H100 of one
host. A row is a kernel at its most frequent launch shape: how often it was seen there, its grid
and block, seven quantiles of its duration (ns), and what names and launch shape leave open: half
the distance of the 16th and the 84th percentile over the median.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

TABLE = Path(__file__).with_name("kernels.tsv")
QUANTILES = (1, 5, 25, 50, 75, 95, 99)

PLACES = {
    "norm": "triton_red_fused__fused_rms_norm__unsafe_view_add_cat_mul_neg_slice_split_unsqu",
    "qkv": "nvjet_tst_128x160_64x5_2x4_v_bz_NTT",
    "rope": "triton_poi_fused__unsafe_view_add_embedding_split_view_4",
    "attention": "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwd",
    "gate": "triton_poi_fused__unsafe_view_mul_sigmoid_view_6",
    "projection": "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
    "residual": "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add",
    "norm_2": "triton_per_fused__fused_rms_norm__unsafe_view_add_13",
    "router": "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16",
    "permute": "triton_poi_fused_select_backward_12",
    "cast": "triton_poi_fused__to_copy_t_8",
    "expert_up": "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "activation": "triton_poi_fused__unsafe_view_pow_relu_view_9",
    "expert_down": "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
    "attention_bwd_pre": "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess",
    "attention_bwd": "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnBwd",
    "attention_bwd_post": "void cutlass::device_kernel<flash::FlashAttnBwdPostprocess",
    "weights": "nvjet_tst_96x64_64x8_2x4_v_bz_NTN",
    "norm_bwd": "triton_red_fused__fused_rms_norm__fused_rms_norm_backward__unsafe_view_add_cat_",
    "optimizer": "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namesp",
}
"""Which kernel takes which place in a layer, by the beginning of its name."""


class Kernel(NamedTuple):
    """A row of the table: quantiles are durations (ns), `spread` is relative."""

    place: str
    count: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    quantiles_ns: tuple[int, ...]
    spread: float
    name: str

    def at(self, share: float) -> float:
        """The duration (ns) that this share of the kernel's runs did not exceed."""
        return float(np.interp(100 * share, QUANTILES, self.quantiles_ns))


def table() -> dict[str, Kernel]:
    """The kernels by their place."""
    rows = [line.split("\t") for line in TABLE.read_text().splitlines() if line[:1] != "#"]
    out = {}
    for place, count, grid, block, *quantiles, spread, name in rows[1:]:
        out[place] = Kernel(
            place, int(count), _three(grid), _three(block), tuple(map(int, quantiles)),
            float(spread), name,
        )  # fmt: skip
    return out


def _three(text: str) -> tuple[int, int, int]:
    x, y, z = map(int, text.split("x"))
    return x, y, z


def measured(folder: Path) -> list[Kernel]:
    """The table's rows from the traces below a folder."""
    runs: defaultdict[str, list[tuple[float, tuple, tuple]]] = defaultdict(list)
    for path in sorted(folder.rglob("*.json.gz")):
        with gzip.open(path) as f:
            events = json.load(f)["traceEvents"]
        for e in events:
            if e.get("cat") == "kernel":
                args = e["args"]
                runs[e["name"]].append((e["dur"], tuple(args["grid"]), tuple(args["block"])))
    out = []
    for place, beginning in PLACES.items():
        # Of several names that begin so, the one seen most.
        name = max((n for n in runs if n.startswith(beginning)), key=lambda n: len(runs[n]))
        (grid, block), count = Counter(r[1:] for r in runs[name]).most_common(1)[0]
        ns = 1000 * np.array([d for d, *shape in runs[name] if tuple(shape) == (grid, block)])
        low, middle, high = np.percentile(ns, [16, 50, 84])
        quantiles = tuple(round(q) for q in np.percentile(ns, QUANTILES))
        spread = (high - low) / 2 / middle
        out.append(Kernel(place, count, grid, block, quantiles, round(spread, 3), name))
    return out


def main() -> None:
    """Print the table."""
    print("# Kernels of an 8x H100 job, from the traces of modded-nanogpt (KellerJordan), MIT")
    print("# licence. Made by `python -m benchmarks.scale.kernels FOLDER`; columns there.")
    heads = [f"p{q}_ns" for q in QUANTILES]
    print("\t".join(["place", "count", "grid", "block", *heads, "spread", "name"]))
    for k in measured(Path(sys.argv[1])):
        sizes = ["x".join(map(str, s)) for s in (k.grid, k.block)]
        print(*[k.place, k.count, *sizes, *k.quantiles_ns, k.spread, k.name], sep="\t")


if __name__ == "__main__":
    main()
