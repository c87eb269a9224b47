"""Lossless compression of what is moved: how far bf16 shrinks, and when that pays.

Only exponents shrink: sign and mantissa are noise. r = (8 + H) / 16 with H bits of entropy an
exponent (DFloat11, arXiv 2504.11651: 2.6 bits, r = 0.66; DietGPU: 0.67).
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

from ...ingest.errors import UsageError

MOST_SAMPLED_BYTES = 1 << 26
MOST_HEADER_BYTES = 100 << 20


def ratio_of_entropy(bits: float) -> float:
    """Compressed over plain size of bf16 whose exponents hold `bits` of entropy each (0 to 8)."""
    return (8 + bits) / 16


def exponent_entropy(values: np.ndarray) -> float:
    """Entropy of the exponents of bf16 values given as uint16 [k], bits each; 0 for none."""
    counts = np.bincount((np.asarray(values, np.uint16) >> 7) & 0xFF, minlength=256)
    share = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(share * np.log2(share)).sum()) if len(share) else 0.0


def sample(path: str) -> np.ndarray:
    """bf16 values of a file as uint16, at most MOST_SAMPLED_BYTES of them.

    A `.safetensors` file gives its BF16 tensors, any other file is raw little-endian bf16. Nothing
    of it is run. Raises UsageError for a file that cannot be read or holds none.
    """
    file = Path(path)
    try:
        size = file.stat().st_size
        with file.open("rb") as f:
            if file.suffix == ".safetensors":
                return _safetensors(f, size, path)
            raw = f.read(min(size, MOST_SAMPLED_BYTES))
    except OSError as e:
        raise UsageError(f"{path}: cannot be read: {e.strerror or e}") from e
    if len(raw) < 2:
        raise UsageError(f"{path}: holds no bf16 values ({size} bytes)")
    return np.frombuffer(raw[: len(raw) // 2 * 2], "<u2")


def _safetensors(f, size: int, path: str) -> np.ndarray:
    head = f.read(8)
    length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
    if not 2 <= length <= min(MOST_HEADER_BYTES, size - 8):
        raise UsageError(f"{path}: is no safetensors file: its header would have {length} bytes")
    try:
        header = json.loads(f.read(length))
        spans = [
            tuple(map(int, t["data_offsets"]))
            for t in header.values()
            if isinstance(t, dict) and t.get("dtype") == "BF16"
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise UsageError(f"{path}: is no safetensors file: its header does not read") from e
    parts, left = [], MOST_SAMPLED_BYTES
    for a, b in spans:
        if left <= 0 or not 0 <= a < b <= size - 8 - length:
            continue
        f.seek(8 + length + a)
        parts.append(f.read(min(b - a, left) // 2 * 2))
        left -= len(parts[-1])
    if not parts:
        raise UsageError(f"{path}: holds no BF16 tensors")
    return np.frombuffer(b"".join(parts), "<u2")


def all_gather_ns(
    n: int, size_bytes, ratio: float, bandwidth: float, encode: float, decode: float, *,
    pipelined: bool = False,
) -> np.ndarray:  # fmt: skip
    """An all-gather of S compressed: encode the shard, move, decode n-1 shards; bytes/s each.

    T = (S/n)/Ce + (n-1)/n (r S/B + S/Cd) (deduced); pipelined, the longest of the three.
    """
    size = np.asarray(size_bytes, np.float64) * 1e9
    share = (n - 1) / n
    parts = (size / n / encode, share * ratio * size / bandwidth, share * size / decode)
    return np.maximum.reduce(parts) if pipelined else np.add.reduce(parts)


def message_ns(size_bytes, ratio: float, bandwidth: float, encode: float, decode: float, *,
               pipelined: bool = False) -> np.ndarray:  # fmt: skip
    """A message of S compressed, by send and recv: S/Ce + r S/B + S/Cd."""
    size = np.asarray(size_bytes, np.float64) * 1e9
    parts = (size / encode, ratio * size / bandwidth, size / decode)
    return np.maximum.reduce(parts) if pipelined else np.add.reduce(parts)


def break_even_bytes_per_s(n: int, ratio: float, encode: float, decode: float) -> float:
    """Bandwidth of a link below which an all-gather wins: (1-r)/B > 1/Cd + 1/((n-1)Ce)."""
    return (1 - ratio) / (1 / decode + 1 / ((n - 1) * encode))
