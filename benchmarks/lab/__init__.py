"""The lab: a small real network on one machine, and what-ifs held against it.

Hosts are network namespaces, links are veth pairs with rates of their own (`tc tbf`), ranks are
processes that move real bytes over TCP. Every pair of `pairs` runs before and after a change; the
estimate is made from the traces of the run before alone. `python -m benchmarks.lab --help`.
"""
