"""What was worked out last, kept up to a number of entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any


class Memory(OrderedDict):
    """A dict of at most `most` entries; the oldest go."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def keep(self, key: Hashable, value: Any) -> Any:
        """Stores and returns a value."""
        self[key] = value
        while len(self) > self.most:
            self.popitem(last=False)
        return value
