"""What of `bytescan` is kept as machine code."""

from __future__ import annotations

from ..machine_code import Code, Function, Functions

_MODULES = (
    "bytescan", "tokens", "gaps", "interning", "declared", "vectors", "scan_tables", "blocks",
    "rawbatch", "rarely",
)  # fmt: skip

CODE = Code(
    module="retime.ingest.kineto.bytescan",
    functions=(
        Function(
            "scan_events",
            "u1:1 i8 i8:1 u1:1 i8:2 i4:2 i4:1 i8:2 i4:2 i8 i4:1 i8:1 u8:1 u1:1 i8:2 i8:2 u1:1 "
            "i8:1 u1:2 i8:1 u8:1 u8:1 i8:1 i8:1 i8:1 i8:1 i8:1",
        ),
        Function("rebuild_slots", "i4:1 u8:1 i8", returns=False),
    ),
    sources=tuple(f"kineto/{m}.py" for m in _MODULES),
)

_TRIED = b'[{"ph":"X","name":"a","ts":1.5,"args":{"stream":7}},{"ph":"C","name":"b"}]'


def check(functions: Functions) -> None:
    """Reads two events and enters their names anew. Raises ValueError for a wrong answer."""
    from . import scanner
    from .rawbatch import BatchBuilder, Envelope, ProblemTally, Symbols

    symbols, builder, tally = Symbols(), BatchBuilder(600), ProblemTally()
    steps = scanner.steps(symbols, builder, tally, functions)
    (batch,) = scanner.read_array(
        _TRIED, Envelope(), lambda problem: None, steps.scan, builder, steps.take, tally, 1 << 12
    )
    names = [symbols.text(c) for c in batch.cols["name"].tolist()]
    found = (batch.cols["ts_ns"][0], batch.cols["stream"][0], bytes(batch.cols["ph"]), names)
    if found != (1500, 7, b"XC", ["a", "b"]):
        raise ValueError(f"the compiled scan reads {found}")
    scanner.SymbolTable(symbols, functions["rebuild_slots"]).grow(1 << 12)
