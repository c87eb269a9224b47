"""What of `inspector_scan` is kept as machine code."""

from __future__ import annotations

from ..machine_code import Code, Function

CODE = Code(
    module="retime.ingest.nccl.inspector_scan",
    functions=(
        Function("header_lines", "u1:1 i8:1 i8:1 i8:2 i8:1"),
        Function(
            "scan",
            "u1:1 i8:1 i8:2 i8:2 i8:2 i8:2 i8:2 i8:2 i8:2 i8:2 i8:1 i8:2 i8:2 i8:1 i8:1 i8:1 i8:1 "
            "i8:1 i8:2 i8:2",
        ),
        Function("kept", "i8 i8 i8 i8:2 i8:2"),
        Function("keep", "i8 i8 i8 i8 i8:2 i8:2", returns=False),
        Function("columns", "i8:2 i8:1 i4:2 i8:2 u1:2 i8:1", returns=False),
        Function("recode", "i4:1 i8:1 i8:1"),
    ),
    sources=(
        "compiled.py",
        *(
            f"nccl/{m}.py"
            for m in (
                "inspector_scan",
                "inspector_state",
                "inspector_said",
                "inspector_said_proxy",
                "inspector_filled",
                "json_bytes",
                "bytes_at",
                "tables_at",
                "tables_of_texts",
                "columns_at",
                "number_rows",
            )
        ),
    ),
)
