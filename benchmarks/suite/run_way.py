"""One way in this process: `python -m benchmarks.suite.run_way [--profile] MODULE.FUNCTION ...`.

The module is one of `benchmarks.suite.ways`, or of `benchmarks.limits` (`limits.MODULE.FUNCTION`).
What the function returns is printed as one line of JSON. It says itself which part is timed
(`timed`): with `--profile` the head of that part's profile is in the line, too.
"""

from __future__ import annotations

import importlib
import json
import sys


def main(words: list[str]) -> None:
    """Runs it, prints what it says."""
    profiled = words[0] == "--profile"
    name, *given = words[profiled:]
    module, function = name.rsplit(".", 1)
    home = "benchmarks" if module.startswith("limits.") else "benchmarks.suite.ways"
    from . import clock

    clock.PROFILED = profiled
    told = getattr(importlib.import_module(f"{home}.{module}"), function)(*given)
    print(json.dumps({**(told or {}), **clock.KEPT}))


if __name__ == "__main__":
    main(sys.argv[1:])
