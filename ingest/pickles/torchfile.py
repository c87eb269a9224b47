"""Files of `torch.save`: telling one from an archive, and reading it as plain values and arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import UnusableInput
from .zips import first_member, members_where

if TYPE_CHECKING:
    from ..source import Source

_LEGACY = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
"""The pickled number that PyTorch's files before 1.6 begin with."""


def is_torch_head(head: bytes) -> bool:
    """Whether a zip's first bytes are those of a file of `torch.save`, which holds its pickle
    (`NAME/data.pkl`) first."""
    name = first_member(head)
    return name.count(b"/") == 1 and name.endswith(b"/data.pkl")


def is_torch_zip(path: str) -> bool:
    """Whether a local zip is one file of `torch.save` and not an archive of sources: all members
    are in one folder, `data.pkl` and `version` among them. False where it cannot be read."""
    names = members_where(path, is_torch_head)
    folder = names[0].split("/", 1)[0] if names else ""
    return f"{folder}/version" in names and all(n.startswith(f"{folder}/") for n in names)


def load(source: Source) -> Any:
    """The plain value in a file of `torch.save` (the zip form), with tensors as NumPy arrays.

    Arrays are read-only views of the mapped file; bfloat16 becomes float32. torch.Size becomes a
    tuple, torch.device and torch.dtype their text (`cuda:0`, `torch.int64`), a Parameter its
    array. The rest is as `safe_pickle.loads` gives it. Raises UnusableInput for the older form,
    for a compressed, encrypted, missing or damaged member, for a tensor that reaches outside its
    storage, and for whatever `safe_pickle.loads` refuses.
    """
    if source.head(len(_LEGACY)) == _LEGACY:
        raise UnusableInput(
            "a file of torch.save in the form before PyTorch 1.6, which is not read: load it "
            "with torch.load and save it again",
            path=source.name,
        )
    from .torch_storages import load_zip

    with source.as_file() as path:
        return load_zip(path, source.name)
