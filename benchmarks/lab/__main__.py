"""`python -m benchmarks.lab`: run pairs, print the table, list what there is, clean up."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from . import fabric, machine, measure, names
from .errors import LabError
from .pairs import Pair, chosen, runs


def main(words: list[str] | None = None) -> int:
    """Exit code 0: done; 1: done, but cores were saturated; 3: the lab cannot run here."""
    asked = _parser().parse_args(words)
    try:
        return asked.do(asked)
    except LabError as e:
        print(f"lab: {e}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("lab: stopped; what is measured is kept, and goes on from there", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks.lab", description=__doc__)
    top.set_defaults(do=_all, pairs=[], repeats=2, again=False, busy=False, words=False,
                     data=Path("lab-results"))  # fmt: skip
    commands = top.add_subparsers(metavar="COMMAND")
    for name, what, do in (
        ("all", "run every pair, then print the table (the default)", _all),
        ("run", "run pairs", _run),
        ("table", "print the table from runs that are there", _table),
        ("list", "the pairs, and what estimates each", _list),
        ("forms", "what all-reduces took against their closed forms", _forms),
        ("shares", "by policy, what the times that changed were off by", _shares),
        ("pack", "put runs into one file, which `table --data` reads, too", _pack),
        ("clean", "remove what crashed runs left", _clean),
    ):
        one = commands.add_parser(name, help=what)
        one.set_defaults(do=do)
        if name == "clean":
            continue
        one.add_argument("--data", type=Path, default=Path("lab-results"), help="folder of runs")
        if name == "pack":
            one.add_argument("to", type=Path, help="the file, a .zip")
            continue
        one.add_argument("pairs", nargs="*", help="kinds or names that pairs begin with")
        if name in ("all", "run"):
            one.add_argument("--repeats", type=int, default=2, help="of every run")
            one.add_argument("--again", action="store_true", help="also what is there already")
            one.add_argument("--busy", action="store_true", help="measure on a busy machine, too")
        if name in ("all", "table"):
            one.add_argument("--words", action="store_true", help="with what estimates say")
    return top


def _chosen(asked: argparse.Namespace) -> tuple[Pair, ...]:
    pairs = chosen(asked.pairs)
    if not pairs:
        raise LabError(
            f"no kind or pair begins with {' or '.join(asked.pairs)}: "
            "python -m benchmarks.lab list prints them"
        )
    return pairs


def _run(asked: argparse.Namespace) -> int:
    pairs = _chosen(asked)
    machine.tools()
    machine.leftovers()
    machine.kernel()
    for said in machine.quiet(patient=asked.busy):
        print(f"lab: {said}: noise will be large", file=sys.stderr)
    said = measure.measure(runs(pairs), asked.data, asked.repeats, asked.again)
    for line in said:
        print(f"lab: {line}: not to be trusted", file=sys.stderr)
    return 1 if said else 0


def _table(asked: argparse.Namespace) -> int:
    from . import archive, clocks, predict, table

    with tempfile.TemporaryDirectory() as scratch:
        data = archive.opened(asked.data, Path(scratch) / "runs")
        found, checks = predict.verdicts(_chosen(asked), data, Path(scratch) / "warehouse")
    if not found:
        raise LabError(f"no runs in {asked.data}: python -m benchmarks.lab run makes them")
    print("\n".join([*table.lines(found, asked.words), *clocks.lines(checks)]))
    return 0


def _forms(asked: argparse.Namespace) -> int:
    from . import archive, closed

    with tempfile.TemporaryDirectory() as scratch:
        data = archive.opened(asked.data, Path(scratch))
        found = [h for r in runs(_chosen(asked)).values() for h in closed.held(r, data)]
    print("\n".join(closed.lines(found)))
    return 0


def _shares(asked: argparse.Namespace) -> int:
    from . import archive, shares

    with tempfile.TemporaryDirectory() as scratch:
        data = archive.opened(asked.data, Path(scratch) / "runs")
        print("\n".join(shares.lines(_chosen(asked), data, Path(scratch) / "warehouse")))
    return 0


def _pack(asked: argparse.Namespace) -> int:
    from . import archive

    print(archive.pack(asked.data, asked.to))
    return 0


def _all(asked: argparse.Namespace) -> int:
    trouble = _run(asked)
    return _table(asked) or trouble


def _list(asked: argparse.Namespace) -> int:
    for pair in _chosen(asked):
        how = " + ".join(pair.policies) + (" with the fabric" if pair.fabric else "")
        print(f"{pair.kind}: {pair.name}: {pair.before.name} -> {pair.after.name}: {how}")
    return 0


def _clean(asked: argparse.Namespace) -> int:
    dead, alive = names.by_owner()
    for name in dead:
        fabric.remove(name)
    print(f"{len(dead)} namespaces of crashed runs removed"
          + (f"; {len(alive)} are of a run that goes on" if alive else ""))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
