"""Atomic replacement: at every moment there is a whole store at a place, or none."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping

from squeak_dist.errors import StoreError
from squeak_dist.store.places import Place, discard, make_parent, remove


def install(target: Place, files: Mapping[str, bytes]) -> None:
    """Write the files of a store beside its place, then swap them in."""
    new = target.sibling("tmp")
    make_parent(target)
    try:
        if target.zipped:
            _write_zip(new.root, files)
            os.replace(new.root, target.root)
        else:
            _write_tree(new, files)
            swap(new, target)
    finally:
        discard(new)


def _write_zip(path: str, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for key, data in files.items():
            archive.writestr(key, data)


def _write_tree(place: Place, files: Mapping[str, bytes]) -> None:
    *others, last = ((f"{place.root}/{key}", data) for key, data in files.items())
    if place.local:
        for folder in {os.path.dirname(path) for path, _ in others}:
            os.makedirs(folder, exist_ok=True)
    place.fs.pipe(dict(others))
    place.fs.pipe_file(*last)


def swap(new: Place, target: Place) -> None:
    """Put ``new`` in the place of ``target``; if that fails, what was there is put back."""
    old = target.sibling("old")
    replaced = target.exists()
    if replaced:
        _set_aside(target, old)
    try:
        remove(target)
        _transfer(new, target)
    except BaseException:
        _put_back(old if replaced else None, target)
        raise
    discard(old)


def _set_aside(target: Place, old: Place) -> None:
    try:
        _transfer(target, old)
    except BaseException:
        if target.exists():
            discard(old)  # at most a part of a copy
        else:
            _put_back(old, target)  # interrupted between a rename and its return
        raise


def _put_back(old: Place | None, target: Place) -> None:
    try:
        remove(target)
        if old is not None:
            _transfer(old, target)
    except Exception as error:
        rescue = "" if old is None else f"; what was there is whole at {old}: move it by hand"
        raise StoreError(f"{target} could not be replaced{rescue}") from error
    if old is not None:
        discard(old)


def _transfer(source: Place, target: Place) -> None:
    """Rename a tree on a local disk; copy it elsewhere, where the source then stays."""
    if source.local:
        os.rename(source.root, target.root)
        return
    source.fs.invalidate_cache()
    files = root_last(source.fs.find(source.root))
    copies = [target.root + file[len(source.root) :] for file in files]
    # Lists on both sides, so that fsspec neither globs nor guesses at directories.
    source.fs.copy(files[:-1], copies[:-1])
    source.fs.copy(files[-1:], copies[-1:])


def root_last(keys: Iterable[str]) -> list[str]:
    """Return the files of a store in the order to write them: the deepest first.

    The attributes, with ``complete``, are in the very last: zarr.json, or .zattrs in version 2.
    """
    return sorted(keys, key=lambda key: (key.count("/"), key), reverse=True)
