"""What of `tally_fast` is kept as machine code."""

from __future__ import annotations

from ..machine_code import Code, Function

CODE = Code(
    module="retime.ingest.moe.tally_fast",
    functions=(
        Function("used_columns", "i8:2 u1:1"),
        Function("dropped", "i8:2 u1:1"),
        Function("count_into", "i8:2 f8:2 i8:1 f8:1 i8:1", returns=False),
        Function("count_bytes", "u1:2A i8:1", returns=False),
        Function("rows", "u1:1 i8 i8:1 i8:1"),
        Function("count_rows", "u1:1 i8 i8:1 i8:1"),
    ),
    sources=("moe/tally_fast.py", "moe/text_numbers.py", "compiled.py"),
)
