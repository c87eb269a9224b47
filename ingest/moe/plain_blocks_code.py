"""What of `plain_blocks` is kept as machine code."""

from __future__ import annotations

from ..machine_code import Code, Function

_MODULES = ("blocks", "columns", "fold", "keys", "scan_csv", "scan_json", "tables", "words")
_COLUMNS = "i8:2 i4:2 f8:1 i8:1 i8:1 u1:1 f8:1 i8:1 u1:1 i8:1 i8:1"
_SUMS = "i8:1 i8:2 i8:1 i8:2 i8:1 f8:1 u4:1"

CODE = Code(
    module="retime.ingest.moe.plain_blocks",
    functions=(
        Function("sum_csv", f"u1:1 i8 i8:1 i8:2 {_COLUMNS} {_SUMS}"),
        Function("sum_json", f"u1:1 i8 i8:1 i8:1 i8:2 {_COLUMNS} {_SUMS}"),
        Function("fold", f"{_COLUMNS} {_SUMS}"),
        Function("rehash", "i8:2 i8 i8 i8 i8:1 i8:1", returns=False),
    ),
    sources=(
        *(f"moe/plain_{m}.py" for m in _MODULES),
        "moe/text_numbers.py",
        "compiled.py",
        "values.py",
    ),
)
