"""Where a command writes: never onto its own input, and never half."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import fsspec
from fsspec.core import has_magic

from squeak_dist.errors import InvalidParameterError
from squeak_dist.store.places import Place, discard, locate, make_parent
from squeak_dist.store.swap import swap


def check_output(out: str, data: str, *, overwrite: bool) -> None:
    """Check that predictions can be written before any are made.

    Parameters
    ----------
    out : str
        Directory or URL to write.
    data : str
        File, directory, glob or URL that is read.
    overwrite : bool
        Whether an earlier output may be replaced.

    Raises
    ------
    InvalidParameterError
        If ``out`` is, holds, or lies among the data, in whatever spelling; or if
        something is there that may not be replaced.
    """
    place = locate(out, None)
    fs, root = fsspec.core.url_to_fs(data)
    if type(fs) is type(place.fs):
        for source in _places_of(fs, root):
            real = os.path.realpath(source) if place.local else source.rstrip("/")
            if _within(place.root, real) or _within(real, place.root):
                raise InvalidParameterError(
                    f"--out {out} overlaps the data at {data}: writing would destroy what is "
                    f"read, or mix with it; name another place for the predictions"
                )
    if not place.exists():
        return
    if not overwrite:
        raise InvalidParameterError(f"there is something at {out}; pass --overwrite to replace it")
    if place.fs.isfile(place.root):
        raise InvalidParameterError(
            f"--out {out} is a file, but predictions are a directory of parquet files; name "
            f"another place"
        )
    if not all(f.endswith(".parquet") for f in place.fs.find(place.root)):
        raise InvalidParameterError(
            f"--out {out} is not a directory of parquet files alone, so it is not replaced; name "
            f"another place, or remove it yourself"
        )


def _places_of(fs: fsspec.AbstractFileSystem, root: str) -> list[str]:
    """Return the files and directories that reading ``root`` may touch."""
    if not has_magic(root):
        return [root]
    files = [str(f) for f in fs.glob(root)]
    fixed = root[: min(root.index(c) for c in "*?[" if c in root)]
    return [*files, os.path.dirname(fixed)]


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


@contextmanager
def replacing(out: str) -> Iterator[str]:
    """Yield a temporary sibling to write to; it takes the place of ``out`` at the end.

    Parameters
    ----------
    out : str
        Directory or URL. What is there stays whole until the new one is; nothing
        is left behind if the block fails or is interrupted.
    """
    target = locate(out, None)
    new: Place = target.sibling("tmp")
    make_parent(target)
    try:
        yield new.url
        swap(new, target)
    finally:
        discard(new)
