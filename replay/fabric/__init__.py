"""The machine that a job's bytes cross: its description, its links, its routes."""

from __future__ import annotations

from . import paths
from .description import (
    Background,
    BadFabric,
    Fabric,
    LinkClass,
    Network,
    Nic,
    Optical,
    Package,
    Pcie,
    ScaleUp,
    Storage,
    TrafficClass,
)
from .links import Block, LinkGraph, graph
from .named import load, preset, presets
from .paths import Routes, route

__all__ = [
    "Background",
    "BadFabric",
    "Block",
    "Fabric",
    "LinkClass",
    "LinkGraph",
    "Network",
    "Nic",
    "Optical",
    "Package",
    "Pcie",
    "Routes",
    "ScaleUp",
    "Storage",
    "TrafficClass",
    "graph",
    "load",
    "paths",
    "preset",
    "presets",
    "route",
]
