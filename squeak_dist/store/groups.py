"""Zarr groups with a format, a version and checksums: written as files, checked when read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.store import Store
from zarr.errors import ContainsArrayError
from zarr.storage import MemoryStore

from squeak_dist._version import __version__
from squeak_dist.errors import StoreCorruptedError, StoreError, StoreFormatError
from squeak_dist.store.failures import damage
from squeak_dist.store.places import Place, is_empty_directory, opened
from squeak_dist.store.plain import array_checksum, attributes_checksum
from squeak_dist.store.swap import root_last

FORMAT_VERSION = 3  # 2 had no sample of rows; 1 no linear part and no posterior

_CHUNK_BYTES = 1 << 26  # one object per array up to 64 MiB, far below the codecs' 2 GiB


def format_header(kind: str) -> dict[str, Any]:
    """Return the root attributes that every store of ours begins with."""
    return {"format": kind, "format_version": FORMAT_VERSION, "squeak_dist_version": __version__}


def store_files(
    attributes: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    zarr_format: Literal[2, 3],
) -> dict[str, bytes]:
    """Return a complete store as its files: key → bytes, the root's own at the end."""
    files: dict[str, Any] = {}
    write_group(MemoryStore(files), attributes, arrays, zarr_format)
    return {key: files[key].to_bytes() for key in root_last(files)}


def write_group(
    store: Store,
    attributes: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    zarr_format: Literal[2, 3] = 3,
    compressors: Literal["auto"] | None = "auto",
) -> None:
    """Write attributes and arrays, with ``complete`` among the attributes.

    Parameters
    ----------
    store : zarr.abc.store.Store
        Where nothing is yet.
    attributes : mapping
        Strict JSON.
    arrays : mapping of str to ndarray
        Path in the group → values.
    zarr_format : {3, 2}, default 3
        Version of the zarr specification.
    compressors : "auto" or None
        None: as they are, for numbers that would not shrink.
    """
    root = zarr.create_group(
        store, zarr_format=zarr_format, attributes={**attributes, "complete": True}
    )
    for name, values in arrays.items():
        array = root.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            chunks=_chunks(values),
            compressors=compressors,
            fill_value=_fill_value(values.dtype),
            config={"write_empty_chunks": True},  # a chunk of fill values is data, too
        )
        array[...] = values


def checked_array(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array in native byte order; raise StoreError for a type that has no place."""
    array = np.asarray(array)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise StoreError(
            f"the array {name!r} has the type {array.dtype}; a store holds bools, integers and "
            f"floats of at most 8 bytes"
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _chunks(array: npt.NDArray[Any]) -> tuple[int, ...]:
    if array.ndim == 0:
        return ()
    row_bytes = max(1, array.nbytes // max(1, len(array)))
    rows = min(len(array), max(1, _CHUNK_BYTES // row_bytes))
    return tuple(max(1, size) for size in (rows, *array.shape[1:]))


def _fill_value(dtype: np.dtype[Any]) -> Any:
    """Return what a missing chunk reads as: something that cannot pass for data."""
    if dtype.kind == "f":
        return np.nan
    return False if dtype.kind == "b" else np.iinfo(dtype).max


def open_root(store: Store, place: Place, kind: str, *, complete: bool = True) -> zarr.Group:
    """Return the root group of a store of the given kind, of a version that we read.

    Parameters
    ----------
    store : zarr.abc.store.Store
        Opened for reading, or for writing too.
    place : Place
        Where it is, for the messages.
    kind : str
        What its attribute ``format`` must be.
    complete : bool, default True
        Refuse a store that was not finished.

    Raises
    ------
    StoreFormatError
        If it is something else, or of a newer version.
    StoreCorruptedError
        If it cannot be read, or is incomplete.
    """
    root = open_group(store, place)
    found, version = root.attrs.get("format"), root.attrs.get("format_version")
    if found != kind:
        raise StoreFormatError(
            f"{place} is a zarr group, but not a {kind} store: its attribute 'format' is {found!r}"
        )
    if not isinstance(version, int) or version < 1:
        raise StoreCorruptedError(
            f"{place} has the format_version {version!r}; expected 1 or more"
        )
    if version > FORMAT_VERSION:
        raise StoreFormatError(
            f"{place} has format_version {version}, written by squeak_dist "
            f"{root.attrs.get('squeak_dist_version')}; this squeak_dist {__version__} reads up to "
            f"{FORMAT_VERSION}: upgrade squeak_dist"
        )
    if complete and root.attrs.get("complete") is not True:
        raise StoreCorruptedError(
            f"{place} is incomplete: its writer was stopped before the end; write it again"
        )
    return root


def open_group(store: Store, place: Place) -> zarr.Group:
    """Return the root group of any zarr store; raise StoreFormatError where there is none."""
    try:
        with damage("the metadata", place):
            return zarr.open_group(
                store, mode="r" if store.read_only else "r+", use_consolidated=False
            )
    except (FileNotFoundError, ContainsArrayError) as error:
        raise StoreFormatError(
            f"{place} is not a squeak_dist store: there is no zarr group"
        ) from error


def checked_checksums(root: zarr.Group, place: Place) -> list[tuple[str, str]]:
    """Return the checksums of the arrays, after checking that of the attributes."""
    attributes: dict[str, Any] = dict(root.attrs)
    with damage("the attributes", place):
        checksums = attributes["checksums"] = dict(attributes["checksums"])
        expected = checksums.pop("attributes")
        del attributes["complete"]
        actual = attributes_checksum(attributes)
    if actual != expected:
        raise StoreCorruptedError(
            f"the attributes of {place} are not those that were saved (their checksum differs); "
            f"restore the store from a copy, or save the model again"
        )
    return sorted(checksums.items())


def read_array(
    root: zarr.Group, name: str, checksum: str | None, place: Place
) -> npt.NDArray[Any]:
    """Return an array of a group, in native byte order.

    Parameters
    ----------
    root : zarr.Group
        The group.
    name : str
        Path of the array in it.
    checksum : str, optional
        What :func:`array_checksum` gave when it was saved; not checked where None.
    place : Place
        Where it is, for the messages.

    Raises
    ------
    StoreCorruptedError
        If it cannot be read, or is not what was saved.
    """
    with damage(f"the array {name!r}", place):
        values = np.asarray(root[name][...])  # type: ignore[index]
    if checksum is not None and array_checksum(values) != checksum:
        raise StoreCorruptedError(
            f"the array {name!r} of {place} is damaged: its checksum is not the one that was "
            f"saved; restore the store from a copy, or save the model again"
        )
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def check_replaceable(place: Place, kind: str, overwrite: bool) -> None:
    """Raise unless there is nothing at the place, or a store of that kind to replace."""
    if not place.exists() or is_empty_directory(place):
        return
    try:
        with opened(place) as store:
            found = open_group(store, place).attrs.get("format")
    except (StoreFormatError, StoreCorruptedError):
        found = None
    if found != kind:
        raise StoreFormatError(
            f"{place} exists and is not a {kind} store, so it is left as it is; choose another "
            f"path, or remove it yourself"
        )
    if not overwrite:
        raise StoreError(f"{place} exists; pass overwrite=True to replace it, or another path")
