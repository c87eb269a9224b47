"""Arrow's compute functions: they are made at run time, so that type checkers do not know them."""

from __future__ import annotations

from typing import Any

import pyarrow.compute

compute: Any = pyarrow.compute
