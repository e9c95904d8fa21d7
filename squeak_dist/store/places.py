"""Where a store is: paths, URLs and zip files as places on file systems of fsspec."""

from __future__ import annotations

import os
import secrets
import shutil
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import fsspec
from fsspec.implementations.local import LocalFileSystem
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, ZipStore

from squeak_dist.errors import SqueakWarning, StoreError, StoreNotFoundError
from squeak_dist.store.failures import damage

PathLike: TypeAlias = "str | os.PathLike[str]"
StorageOptions: TypeAlias = "Mapping[str, Any] | None"


@dataclass(frozen=True)
class Place:
    """Where a store is or will be: a path on a file system of fsspec.

    Parameters
    ----------
    url : str
        The place as the user would name it, with its protocol.
    root : str
        The path on the file system.
    fs : fsspec.AbstractFileSystem
        The file system.
    options : mapping
        Its ``storage_options``.
    zipped : bool
        True where the store is, or will be, one zip file.
    """

    url: str
    root: str
    fs: Any
    options: Mapping[str, Any]
    zipped: bool

    def __str__(self) -> str:
        return self.url

    @property
    def local(self) -> bool:
        """Whether the place is on a local disk, where a rename is atomic."""
        return isinstance(self.fs, LocalFileSystem)

    def sibling(self, word: str) -> Place:
        """Return a new place beside this one: ``<path>.<word>-<hex>``."""
        suffix = f".{word}-{secrets.token_hex(4)}"
        return replace(self, url=self.url + suffix, root=self.root + suffix)

    def exists(self) -> bool:
        """Whether there is anything at the place."""
        self.fs.invalidate_cache()  # zarr writes through another instance
        return bool(self.fs.exists(self.root))

    def store(self, read_only: bool = False) -> Store:
        """Return the place as a directory store of zarr."""
        if self.local:
            return LocalStore(self.root, read_only=read_only)
        return FsspecStore.from_url(self.url, dict(self.options), read_only=read_only)


def locate(path: PathLike, storage_options: StorageOptions) -> Place:
    """Return the place that a path or URL names.

    Raises
    ------
    StoreError
        If the path names no place, or a zip file that is not local.
    """
    url, options = os.fspath(path), dict(storage_options or {})
    fs, root = fsspec.core.url_to_fs(url, **options)
    if not url or not root.strip("/"):
        raise StoreError(f"{url!r} names no place for a store; add a name to it")
    place = Place(url.rstrip("/"), root, fs, options, zipped=root.lower().endswith(".zip"))
    if place.local:
        # A link stays where it is: the store is made, or replaced, where the link leads.
        root = os.path.realpath(root)
        return replace(place, url=root, root=root)
    if place.zipped:
        raise StoreError(f"{place} is a zip file that is not local; copy it, or use a directory")
    return place


def existing(place: Place) -> Place:
    """Return the place; raise StoreNotFoundError if there is nothing at it."""
    if not place.exists():
        raise StoreNotFoundError(f"there is no store at {place}; check the path")
    return place


@contextmanager
def opened(place: Place) -> Iterator[Store]:
    """Give the store at a place for reading, and close it afterwards."""
    if place.zipped and not os.path.isdir(place.root):
        with damage("the list of files", place):
            zipfile.ZipFile(place.root).close()  # a ZipStore that cannot open cannot close
        store: Store = ZipStore(place.root, mode="r", read_only=True)
    else:
        store = place.store(read_only=True)
    try:
        yield store
    finally:
        store.close()


def is_empty_directory(place: Place) -> bool:
    """Return whether the place is a directory with nothing in it."""
    return bool(place.fs.isdir(place.root)) and not place.fs.ls(place.root, detail=False)


def make_parent(place: Place) -> None:
    """Make the directories above a local place."""
    if place.local:  # elsewhere directories are made by writing, and making one makes a bucket
        os.makedirs(os.path.dirname(place.root), exist_ok=True)


def remove(place: Place) -> None:
    """Remove what is at the place, if anything."""
    if not place.exists():
        return
    if place.local:
        shutil.rmtree(place.root) if os.path.isdir(place.root) else os.remove(place.root)
        return
    for file in place.fs.find(place.root):  # fs.rm would take [ and * in a name for a pattern
        place.fs.rm_file(file)


def discard(place: Place) -> None:
    """Remove what is no longer needed; a failure is no reason to fail."""
    try:
        remove(place)
    except Exception as error:
        warnings.warn(f"could not remove {place}: {error}", SqueakWarning, stacklevel=2)
