"""What NCCL's log says of a host by the transports that its channels use."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl


class Transports(NamedTuple):
    """Facts from `link` rows; None where none of them tells."""

    p2p: bool | None
    """GPUs of a host write into each other (P2P); False: by host memory only (SHM)."""
    gpu_direct: bool | None
    """NICs read and write GPU memory (GDRDMA); False: they never do."""


def transports(topology: pl.DataFrame) -> Transports:
    """What the links of a job's topology tell."""
    via = [v for v in _links(topology)["via"].unique().to_list() if v]
    inside = [v for v in via if v.startswith(("P2P", "SHM"))]
    outside = [v for v in via if v.startswith("NET/")]
    return Transports(
        any(v.startswith("P2P") for v in inside) if inside else None,
        any("GDRDMA" in v for v in outside) if outside else None,
    )


def with_nics(topology: pl.DataFrame) -> pl.DataFrame:
    """The topology with a `nic` row for each network device that links name, where none has one."""
    if (topology["kind"].cast(pl.String) == "nic").any():
        return topology
    named = _links(topology).filter(
        pl.col("via").str.starts_with("NET/") & pl.col("device").is_not_null()
    )
    nics = named.select("host", "device", kind=pl.lit("nic")).unique().sort("host", "device")
    return pl.concat(
        [
            topology.with_columns(pl.col("host", "device", "kind").cast(pl.String)),
            nics.select(pl.col("host", "device", "kind").cast(pl.String)),
        ],
        how="diagonal",
    )


def _links(topology: pl.DataFrame) -> pl.DataFrame:
    texts = [
        (pl.col(c) if c in topology.columns else pl.lit(None)).cast(pl.String).alias(c)
        for c in ("host", "device", "via", "kind")
    ]
    return topology.select(texts).filter(pl.col("kind") == "link")
