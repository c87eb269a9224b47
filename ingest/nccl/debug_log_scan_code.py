"""What of `debug_log_scan` is kept as machine code."""

from __future__ import annotations

from ..machine_code import Code, Function

CODE = Code(
    module="retime.ingest.nccl.debug_log_scan",
    functions=(
        Function("said_lines", "u1:1 i8:1 i8 i8:2"),
        Function(
            "scan",
            "u1:1 i8:1 i8:2 i8:2 i8:1 i8:2 i8:2 i8:2 u1:1 i8:2 i8:2 i8:1 i8:2 i8:1 i8:2 i8:2 i8:2 "
            "i8:2 i8:2 i8:2 i8:2 i4:1 i8:1 i8:1 i8:1 i8:1 i8:1 i8:1 i8:1 i8:1",
        ),
        Function("said_inits", "u1:1 i8:2 i8 i8:2 i8:1", returns=False),
        Function("noted_inits", "i8:2 i8:2 i8 i8 i8:2 i8:1 i8:1 i8:1 i8:1 i8:2 i8:1"),
        Function("told", "i8 i8 i8 i8:2 i4:1 i8:1"),
        Function("intern_all", "u1:1 i8:2 i8:1 i8:1"),
        Function("columns", "i8:2 i8:1 i4:2 i8:2 u1:2 i8:1", returns=False),
        Function("recode", "i4:1 i8:1 i8:1"),
    ),
    sources=(
        "compiled.py",
        "values.py",
        *(
            f"nccl/{m}.py"
            for m in (
                "debug_log_scan",
                "debug_log_scan_calls",
                "debug_log_scan_inits",
                "debug_log_scan_kinds",
                "debug_log_scan_links",
                "debug_log_edges",
                "debug_log_words",
                "debug_log_state",
                "debug_log_told",
                "bytes_at",
                "tables_at",
                "tables_of_texts",
                "columns_at",
                "number_rows",
            )
        ),
    ),
)
