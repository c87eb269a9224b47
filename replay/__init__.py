"""Task graphs, cost models, the engine and the policies.

The module itself can be called: `retime.replay(job, policies=[...])` is `replay.run.replay`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Door(ModuleType):
    """A package that is also the call of its own name, imported only when it is made."""

    def __call__(self, job: Any, policies: Any = (), **options: Any) -> dict[str, Any]:
        from .run import replay

        return replay(getattr(job, "snapshot", job), policies, **options)


sys.modules[__name__].__class__ = _Door
