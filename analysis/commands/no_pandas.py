"""Keeps pandas out of the command line."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from typing import Any, cast


class NoPandas:
    """Makes `import pandas` fail as where it is not installed.

    Where it is, pyarrow imports it at its first conversion; nothing here needs it, and it would be
    a third of the time of a small ingest. (None in sys.modules is no way to say so: compiled
    modules take that for the module.)
    """

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, cast(Any, cls)) if name == "pandas" else None

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        raise ImportError("the command line does without pandas", name=spec.name)

    @staticmethod
    def exec_module(module: object) -> None:
        """Never reached; importlib asks for it."""
