"""Tables that end where they cannot be read further: what came before is kept, and it is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ..errors import line_of
from .fit import OnOdd


def until_damage(
    batches: Iterable[pa.RecordBatch], table: str, trouble: tuple[type[Exception], ...], odd: OnOdd
) -> Iterator[pa.RecordBatch]:
    """The batches up to one that raises an error of these sorts, which becomes a problem."""
    n = 0
    try:
        for batch in batches:
            n += batch.num_rows
            yield batch
    except trouble as e:
        odd(
            "damaged_table",
            f"{table} cannot be read beyond row {n} ({line_of(e)}); what came before is kept",
            "lost",
            offset=n,
        )
