"""Where the values of a checkpoint are: one file or object per value, written atomically.

A value is a zarr group in a zip file, ``values/<name>.zarr.zip``, with a checksum per
array and one of the attributes. One file is one object in an object store, where a write
is atomic; on a disk it is written beside its place and renamed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from zarr.storage import ZipStore

from squeak_dist.checkpoint.codec import Arrays, decode, encode
from squeak_dist.errors import CheckpointError, SqueakError, StoreError
from squeak_dist.store import array_checksum
from squeak_dist.store.failures import damage
from squeak_dist.store.groups import (
    checked_array,
    checked_checksums,
    format_header,
    open_root,
    read_array,
    write_group,
)
from squeak_dist.store.places import (
    PathLike,
    Place,
    StorageOptions,
    discard,
    locate,
    make_parent,
    opened,
)
from squeak_dist.store.plain import attributes_checksum, strict

VALUE_FORMAT = "squeak_dist-checkpoint_value"

_VALUES = "values"
_SUFFIX = ".zarr.zip"
_TEMPORARY = ".tmp-"  # in the name of what a process that was killed may leave behind


class UnusableValueError(CheckpointError):
    """A value of a checkpoint is missing or damaged.

    Parameters
    ----------
    message : str
        What was found.
    name : str
        Of the value.
    """

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message, name)
        self.name = name

    def __str__(self) -> str:
        return str(self.args[0])


@contextmanager
def checkpoint_errors(action: str, url: object) -> Iterator[None]:
    """Turn what zarr, fsspec and the system raise into a CheckpointError."""
    try:
        yield
    except SqueakError:
        raise
    except Exception as error:
        raise CheckpointError(f"cannot {action} {url}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Vault:
    """A place of named values; small, and it pickles to workers.

    Parameters
    ----------
    url : str
        Directory or URL of the checkpoint.
    options : mapping
        Passed to fsspec.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def place(self) -> Place:
        """The directory of the checkpoint."""
        return replace(locate(self.url, self.options), zipped=False)

    def _file(self, key: str) -> Place:
        place = self.place
        root, url = f"{place.root}/{key}", f"{place.url}/{key}"
        return replace(place, root=root, url=url, zipped=key.endswith(_SUFFIX))

    def names(self) -> set[str]:
        """Return the names of the values that are there, whole."""
        with checkpoint_errors("list the checkpoint", self.url):
            keys = self.files()
        prefix = f"{_VALUES}/"
        return {
            key[len(prefix) : -len(_SUFFIX)]
            for key in keys
            if key.startswith(prefix) and key.endswith(_SUFFIX)
        }

    def files(self) -> list[str]:
        """Return every file below the place, relative to it."""
        place = self.place
        place.fs.invalidate_cache()  # others write too
        root = place.root.rstrip("/") + "/"
        return sorted(str(path)[len(root) :] for path in place.fs.find(place.root))

    def write(self, name: str, value: Any) -> None:
        """Write a value: whole, or not at all.

        Parameters
        ----------
        name : str
            Of the value; one that is there is replaced.
        value : object
            As :func:`~squeak_dist.checkpoint.codec.encode` takes it.

        Raises
        ------
        CheckpointError
            If the file system fails, or the value has no place in a checkpoint.

        Notes
        -----
        Memory: one chunk of at most 64 MiB. Cost: about 1 ms per MB for the checksums,
        1 ms per array, and the writing.
        """
        tree, arrays = encode(value)
        arrays = {key: checked_array(key, array) for key, array in arrays.items()}
        attributes = strict({**format_header(VALUE_FORMAT), "name": name, "value": tree})
        checksums = {key: array_checksum(array) for key, array in arrays.items()}
        attributes["checksums"] = checksums
        checksums["attributes"] = attributes_checksum(attributes)
        with checkpoint_errors(f"write {name} to the checkpoint", self.url):
            target = self._file(f"{_VALUES}/{name}{_SUFFIX}")
            with _installed(target) as path:
                _write_zip(path, attributes, arrays)

    def read(self, name: str) -> Any:
        """Return a value, to the bits that were written.

        Raises
        ------
        UnusableValueError
            If it is not there, or is damaged.
        CheckpointError
            If the file system fails.
        """
        with checkpoint_errors(f"read {name} from the checkpoint", self.url):
            source = self._file(f"{_VALUES}/{name}{_SUFFIX}")
            try:
                with _local_copy(source) as place, opened(place) as store:
                    root = open_root(store, place, VALUE_FORMAT)
                    checksums = checked_checksums(root, place)
                    arrays = {key: read_array(root, key, sha, place) for key, sha in checksums}
                    if root.attrs["name"] != name:
                        raise StoreError(f"{place} holds the value {root.attrs['name']}")
                    with damage("the value", place):
                        return decode(root.attrs["value"], arrays)
            except FileNotFoundError as error:
                raise UnusableValueError(f"{source} is gone", name) from error
            except StoreError as error:
                raise UnusableValueError(str(error), name) from error

    def remove(self, names: Iterable[str]) -> None:
        """Remove values that are no longer needed, where they are still there."""
        self.remove_keys([f"{_VALUES}/{name}{_SUFFIX}" for name in sorted(names)])

    def remove_keys(self, keys: Iterable[str]) -> None:
        """Remove files by their keys."""
        place = self.place
        paths = [f"{place.root}/{key}" for key in keys]
        if not paths:
            return
        with checkpoint_errors("remove from the checkpoint", self.url):
            if place.local or any(c in place.root for c in "*?["):
                for path in paths:  # fs.rm would take [ and * for a pattern
                    with suppress(FileNotFoundError):
                        place.fs.rm_file(path)
            else:
                with suppress(FileNotFoundError):
                    place.fs.rm(paths)  # many at once, where the store can

    def write_bytes(self, key: str, data: bytes) -> None:
        """Write a file whole, or not at all."""
        with checkpoint_errors("write the checkpoint", self.url):
            target = self._file(key)
            if not target.local:
                target.fs.pipe_file(target.root, data)
                return
            with _installed(target) as path:
                Path(path).write_bytes(data)

    def read_bytes(self, key: str) -> bytes | None:
        """Return the bytes of a file, or None where there is none."""
        with checkpoint_errors("read the checkpoint", self.url):
            source = self._file(key)
            try:
                source.fs.invalidate_cache()
                return bytes(source.fs.cat_file(source.root))
            except FileNotFoundError:
                if source.local or source.fs.exists(source.root.split("/")[0]):
                    return None
                raise  # no such bucket


def _write_zip(path: str, attributes: Mapping[str, Any], arrays: Arrays) -> None:
    store = ZipStore(path, mode="w")
    try:
        write_group(store, attributes, arrays, compressors=None)
    except BaseException:
        with suppress(Exception):  # what cannot be written cannot be closed either
            store.close()
        raise
    store.close()


def vault_at(path: PathLike, storage_options: StorageOptions) -> Vault:
    """Return the vault at a path or URL; a local path is made absolute, as for all workers.

    Raises
    ------
    CheckpointError
        If the path names no place, or its protocol is not known.
    """
    with checkpoint_errors("use the checkpoint", path):
        url, options = os.fspath(path), dict(storage_options or {})
        place = locate(url, options)
        return Vault(place.url if place.local else url, options)


@contextmanager
def _installed(target: Place) -> Iterator[str]:
    """Give a local path to write to; at the end the file is in its place, in one step."""
    if target.local:
        new = target.sibling("tmp")
        make_parent(target)
        try:
            yield new.root
            os.replace(new.root, target.root)
        except BaseException:
            discard(new)
            raise
        return
    with tempfile.TemporaryDirectory(prefix="squeak_dist-") as folder:
        path = os.path.join(folder, "value.zarr.zip")
        yield path
        # put_file ends a multipart upload only when all of it is there.
        target.fs.put_file(path, target.root)


@contextmanager
def _local_copy(source: Place) -> Iterator[Place]:
    """Give the place itself where it is local, or that of a copy."""
    if source.local:
        if not os.path.exists(source.root):
            raise FileNotFoundError(source.root)
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="squeak_dist-") as folder:
        path = os.path.join(folder, "value.zarr.zip")
        source.fs.get_file(source.root, path)
        yield replace(locate(path, None), url=source.url)


def is_temporary(key: str) -> bool:
    """Say whether a file is what a killed process left behind."""
    return _TEMPORARY in key.rpartition("/")[2]


def is_value(key: str) -> bool:
    """Say whether a file is a value, or the beginning of one."""
    folder, _, name = key.rpartition("/")
    return folder == _VALUES and (name.endswith(_SUFFIX) or f"{_SUFFIX}{_TEMPORARY}" in name)
