"""Where a command writes: never onto its own input, and never half."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import fsspec
import pandas as pd
from fsspec.core import has_magic
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import glob_translate

from squeak_dist.errors import InvalidParameterError
from squeak_dist.store.failures import store_errors
from squeak_dist.store.places import Place, discard, locate, make_parent
from squeak_dist.store.swap import swap


def check_apart(option: str, out: str, *inputs: str) -> None:
    """Check that nothing is written where something is read, in whatever spelling.

    Parameters
    ----------
    option : str
        Name of the option that ``out`` was given to, for the message.
    out : str
        Path or URL to write.
    *inputs : str
        Files, directories, globs or URLs that are read.

    Raises
    ------
    InvalidParameterError
        If ``out`` is, holds, or lies in an input, or is a place that an input's glob
        would match.
    StoreError
        If a file system is not known or does not answer.

    Notes
    -----
    On a local disk a directory is known by its inode, so neither links nor mounts nor
    the case of letters hide it. Elsewhere the paths are compared. Cost: one listing of
    each input.
    """
    place = _directory_place(option, out)
    for given in inputs:
        with store_errors("look at", given):
            overlap = _overlaps(place, given)
        if overlap:
            raise InvalidParameterError(
                f"{option} {out} overlaps {given}, which is read: writing would destroy it, or "
                f"mix with it; name another place for {option}"
            )


def check_free(out: str, *, overwrite: bool) -> None:
    """Check that a directory of predictions can be put at a place.

    Parameters
    ----------
    out : str
        Directory or URL to write.
    overwrite : bool
        Whether earlier predictions may be replaced.

    Raises
    ------
    InvalidParameterError
        If something is there that may not be replaced: without ``overwrite`` anything
        but an empty directory, with it all but a directory of parquet files.
    """
    place = _directory_place("--out", out)
    with store_errors("look at", out):
        if not place.exists():
            return
        is_file = place.fs.isfile(place.root)
        files = [] if is_file else place.fs.find(place.root)
    if is_file:
        raise InvalidParameterError(
            f"--out {out} is a file, but predictions are a directory of parquet files; name "
            f"another place"
        )
    if not all(file.endswith(".parquet") for file in files):
        raise InvalidParameterError(
            f"--out {out} is not a directory of parquet files alone, so it is not replaced; name "
            f"another place, or remove it yourself"
        )
    if files and not overwrite:
        raise InvalidParameterError(f"there is something at {out}; pass --overwrite to replace it")


def name_index(part: pd.DataFrame, columns: Sequence[Hashable]) -> pd.DataFrame:
    """Return a partition whose index has a name, which Dask would otherwise make up.

    Parameters
    ----------
    part : pandas.DataFrame
        Predictions.
    columns : sequence of hashable
        Names that are taken.
    """
    if part.index.name is not None or part.index.nlevels > 1:
        return part
    name = "index"
    while name in columns:
        name = f"_{name}"
    return part.rename_axis(name)


@contextmanager
def replacing(out: str, *, overwrite: bool) -> Iterator[str]:
    """Yield a temporary sibling to write to; it takes the place of ``out`` at the end.

    Parameters
    ----------
    out : str
        Directory or URL. What is there stays whole until the new one is; nothing
        is left behind if the block fails or is interrupted.
    overwrite : bool
        Whether earlier predictions may be replaced.

    Raises
    ------
    InvalidParameterError
        As :func:`check_free`, before the block and after it: another process may have
        written to ``out`` meanwhile.
    StoreError
        If nothing can be written there.
    """
    check_free(out, overwrite=overwrite)
    target = _directory_place("--out", out)
    new = target.sibling("tmp")
    with store_errors("write to", out):
        make_parent(target)
    try:
        yield new.url
        check_free(out, overwrite=overwrite)
        swap(new, target)
    finally:
        discard(new)


def _directory_place(option: str, out: str) -> Place:
    if "::" in out:
        raise InvalidParameterError(
            f"{option} {out} is a chain of file systems, which is only read; name the place itself"
        )
    with store_errors("write to", out):
        return locate(out, None)


def _overlaps(place: Place, given: str) -> bool:
    # Of a chain (simplecache::s3://…) the last link is what the others read.
    fs, root = fsspec.core.url_to_fs(given.rpartition("::")[2])
    if not (type(fs) is type(place.fs) or (place.local and isinstance(fs, LocalFileSystem))):
        return False
    if _would_match(place, root):
        return True
    above_out = _identities(place, place.root)
    for source in _read_from(place, fs, root):
        above_source = _identities(place, source)
        if above_out[0] in above_source or above_source[0] in above_out:
            return True
    return False


def _read_from(place: Place, fs: fsspec.AbstractFileSystem, root: str) -> set[str]:
    """Return the files and directories that reading ``root`` reads, links followed."""
    tops = [root, *(fs.glob(root) if has_magic(root) else ())]
    found = {str(path) for top in tops for path in (top, *fs.find(top))}
    return {os.path.realpath(path) for path in found} if place.local else found


def _would_match(place: Place, root: str) -> bool:
    """Return whether a glob would take what is written for data the next time."""
    if not has_magic(root):
        return False
    fixed = os.path.dirname(re.split(r"[*?\[]", root, maxsplit=1)[0])
    if place.local:
        root = os.path.realpath(fixed).rstrip("/") + root[len(fixed.rstrip("/")) :]
    pattern = re.compile(glob_translate(root))
    return any(pattern.match(path) for path in (place.root, f"{place.root}/part.0.parquet"))


def _identities(place: Place, path: str) -> list[Hashable]:
    """Return what tells a path from others, then the same of each directory above it."""
    if not place.local:
        whole = PurePosixPath(path)
        return [str(above) for above in (whole, *whole.parents)]
    real = Path(path)
    return [_inode(above) for above in (real, *real.parents)]


def _inode(path: Path) -> Hashable:
    try:
        status = path.stat()
    except OSError:
        return str(path)  # not there yet
    return status.st_dev, status.st_ino
