"""What of `bytescan` is kept as machine code."""

from __future__ import annotations

from ..machine_code import Code, Function

CODE = Code(
    module="retime.ingest.kineto.bytescan",
    functions=(
        Function(
            "scan_events",
            "u1:1 i8 i8:1 u1:1 i8:2 i4:2 i8 i4:1 i8:1 u8:1 u1:1 i8:2 "
            "i8:1 u1:2 i8:1 u8:1 u8:1 i8:1 i8:1 i8:1",
        ),
        Function("rebuild_slots", "i4:1 u8:1 i8", returns=False),
    ),
    sources=tuple(f"kineto/{m}.py" for m in ("bytescan", "scan_tables", "blocks", "rawbatch")),
)
