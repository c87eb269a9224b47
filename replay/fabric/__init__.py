"""The machine that a job's bytes cross: its description, its links, its routes."""

from __future__ import annotations

from . import figures, paths
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
from .rails import auto_rail
from .storage_paths import storage_route

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
    "auto_rail",
    "figures",
    "graph",
    "load",
    "paths",
    "preset",
    "presets",
    "route",
    "storage_route",
]
