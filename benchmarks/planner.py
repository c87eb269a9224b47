"""How well the planner's step times agree with published ones: error, ranks and what it picks.

    python benchmarks/planner.py [--curves FOLDER] [--single FILE] [--multi FILE] [--seeds N]

Efficiencies are fitted on a random tenth of the configurations and tested on the rest, for several
seeds; then with one model size left out of the fit at a time. Both files are vTrain's, beside the
tests (see the README there); with a folder of its all-reduce curves (AR_GPU2…csv) those fix what
collectives cost, and fewer efficiencies are fitted. Results do not depend on the machine; it takes
a minute or two.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "replay" / "planner" / "data"


def cases(file: Path, vocab: int, recompute: str) -> list[Any]:
    """The file's configurations, through the warehouse as any job's would be."""
    import retime
    from retime.replay.planner import fit

    with tempfile.TemporaryDirectory() as folder:
        warehouse = retime.open(folder)
        warehouse.ingest(str(file), job="measured")
        rows = warehouse.job("measured").sql("FROM configurations")
    return fit.cases(rows, vocab=vocab, recompute=recompute)


def points(folder: Path) -> list[tuple[int, float, float]]:
    """Ranks, bytes and ns of the all-reduce curves in a folder, in place."""
    import retime

    with tempfile.TemporaryDirectory() as made:
        warehouse = retime.open(made)
        warehouse.ingest(sorted(str(f) for f in folder.glob("AR_GPU*.csv")), job="curves")
        rows = warehouse.job("curves").sql(
            "SELECT n_ranks, bytes, time_ns FROM cost_curves WHERE op = 'all_reduce' AND in_place"
        )
    return [(int(n), float(size), float(took)) for n, size, took in rows.rows()]


def judged(
    given: Sequence[Any], train: np.ndarray, test: np.ndarray, machine: Any, known: Any = None
) -> dict:
    """Fitted on some cases, tested on others: efficiencies, errors, picks, and error by degree.

    `known` are `collective_ns` and `link`, where all-reduce curves tell them."""
    from retime.replay.planner import agreement, fit, step

    start, keep = step.Efficiencies(), ()
    if known is not None:
        start, keep = start._replace(**known), tuple(known)
    efficiencies = fit.fit([given[i] for i in train], machine, start=start, keep=keep)
    rest = [given[i] for i in test]
    estimated = fit.predict(rest, machine, efficiencies)
    measured = np.array([c.step_ns for c in rest])
    off = np.abs(estimated / measured - 1)
    return {
        "fitted_on": len(train),
        "efficiencies": efficiencies._asdict(),
        **agreement.score(estimated, measured)._asdict(),
        "picks": agreement.picks(rest, estimated)._asdict(),
        "by": {
            name: _by(off, [get(c) for c in rest])
            for name, get in DEGREES.items()
        },
        "ratio": (measured / estimated).tolist(),
    }  # fmt: skip


DEGREES: dict[str, Callable[[Any], int]] = {
    "tp": lambda c: c.split.tp,
    "pp": lambda c: c.split.pp,
    "dp": lambda c: c.split.dp,
    "micro_batch": lambda c: c.split.micro_batch,
    "hidden": lambda c: c.model.hidden,
}


def _by(off: np.ndarray, values: Sequence[int]) -> dict[int, tuple[int, float, float]]:
    """By value: rows, median and p90 error."""
    which = np.array(values)
    return {
        int(v): (
            int((which == v).sum()),
            float(np.median(off[which == v])),
            float(np.quantile(off[which == v], 0.9)),
        )
        for v in np.unique(which)
    }


def affine(given: Sequence[Any]) -> tuple[int, float]:
    """Series of configurations that differ in microbatches alone: how many have three points, and
    how far the worst point is from its straight line, ns."""
    series: dict[Any, list[tuple[int, float]]] = {}
    for c in given:
        split = c.split._replace(batch=0)
        series.setdefault((c.model, split), []).append((c.split.microbatches, c.step_ns))
    worst, n = 0.0, 0
    for points in series.values():
        m, t = np.array(sorted(points)).T
        if len(m) > 2:
            n += 1
            slope = (t[-1] - t[0]) / (m[-1] - m[0])
            worst = max(worst, float(np.abs(t[0] + slope * (m - m[0]) - t).max()))
    return n, worst


def folds(given: Sequence[Any], machine: Any, k: int = 10) -> np.ndarray:
    """Measured over estimated of every case, each tenth predicted from the other nine."""
    order = np.random.default_rng(0).permutation(len(given))
    out = np.zeros(len(given))
    for i in range(k):
        test = order[i::k]
        out[test] = judged(given, np.setdiff1d(order, test), test, machine)["ratio"]
    return out


def run(single: Path, multi: Path, curves: Path | None, seeds: int) -> dict[str, Any]:
    """Everything that is printed."""
    from retime.replay.planner import fit, fitted
    from retime.replay.planner.platform import named

    # One host: the published model's output layer has 50,257 columns, which are not padded.
    one = cases(single, 50257, "none")
    host = named("A100")
    many = cases(multi, fitted.VOCAB, "full")
    cluster = fitted.a100_cluster()
    out: dict[str, Any] = {}
    for name, given, machine in (("single", one, host), ("multi", many, cluster)):
        n, worst = affine(given)
        out[name] = {
            "cases": len(given),
            "series": n,
            "series_off_line_ns": worst,
            "tenth": [judged(given, *fit.tenth(len(given), s), machine) for s in range(seeds)],
        }
    if curves is not None:
        of = points(curves)
        collective_ns, link = fit.collectives(of, host)
        known = {"collective_ns": collective_ns, "link": min(link, 1.0)}
        out["curves"] = {"points": len(of), **known}
        out["single_curves"] = [
            judged(one, *fit.tenth(len(one), s), host, known) for s in range(seeds)
        ]
    sizes = sorted({c.model.hidden for c in many})
    every = np.arange(len(many))
    out["left_out"] = {}
    for size in sizes:
        test = np.array([i for i in every if many[i].model.hidden == size])
        out["left_out"][size] = judged(many, np.setdiff1d(every, test), test, cluster)
    ratio = folds(many, cluster)
    out["folds"] = {
        "median_error": float(np.median(np.abs(1 / ratio - 1))),
        "measured_over_estimated": np.quantile(ratio, [0.05, 0.5, 0.95]).tolist(),
    }
    out["all_rows"] = judged(many, every, every, cluster)
    return out


def show(found: dict[str, Any]) -> None:
    """Prints it."""
    for name in ("single", "multi"):
        part = found[name]
        print(f"{name}: {part['cases']} configurations")
        if part["series"]:
            print(
                f"  {part['series']} series that differ in microbatches alone have three points or "
                f"more: at most {part['series_off_line_ns']:.1e} ns off a straight line"
            )
        print("  fitted on a tenth, tested on the rest:")
        _seeds(part["tenth"])
        first = part["tenth"][0]
        for degree, values in first["by"].items():
            each = "; ".join(f"{v}: {m:.1%}, {p:.1%} ({n})" for v, (n, m, p) in values.items())
            print(f"  seed 0 by {degree} (median, p90, rows): {each}")
        print("  seed 0:", _words(first["efficiencies"]))
    if "curves" in found:
        c = found["curves"]
        print(
            f"single, collectives from {c['points']} points of all-reduce curves: collective_ns "
            f"{c['collective_ns']:.4g}, link {c['link']:.3f}; the rest fitted on a tenth:"
        )
        _seeds(found["single_curves"])
        print("  seed 0:", _words(found["single_curves"][0]["efficiencies"]))
    print("multi, one size left out of the fit:")
    for size, r in found["left_out"].items():
        print(
            f"  hidden {size}: median {r['median_error']:.1%}, p90 {r['p90_error']:.1%}, "
            f"kendall {r['kendall']:.3f} ({r['rows']} rows)"
        )
    f = found["folds"]
    low, mid, high = f["measured_over_estimated"]
    print(
        f"multi, ten folds: median error {f['median_error']:.1%}; measured over estimated: "
        f"5 % {low:.3f}, median {mid:.3f}, 95 % {high:.3f}"
    )
    r = found["all_rows"]
    print(f"multi, all rows: median error {r['median_error']:.1%},", _words(r["efficiencies"]))


def _seeds(results: list[dict]) -> None:
    print("  seed  rows  median   p90    mean  kendall spearman   best  within 5%  picks lose")
    for seed, r in enumerate(results):
        p = r["picks"]
        print(
            f"  {seed:4} {r['rows']:5}  {r['median_error']:6.1%} {r['p90_error']:6.1%} "
            f"{r['mean_error']:6.1%}  {r['kendall']:6.3f}   {r['spearman']:6.3f}  "
            f"{p['best']}/{p['groups']}  {p['within']}/{p['groups']}     {p['mean_loss']:.1%}"
        )


def _words(efficiencies: dict[str, float]) -> str:
    return ", ".join(f"{k} {v:.4g}" for k, v in efficiencies.items())


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--single", type=Path, default=DATA / "ground_truth_single.csv")
    parser.add_argument("--multi", type=Path, default=DATA / "ground_truth_multi.csv")
    parser.add_argument("--curves", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = run(args.single, args.multi, args.curves, args.seeds)
    if args.json:
        print(json.dumps(found))
    else:
        show(found)


if __name__ == "__main__":
    main()
