"""Dual weights in a store: one array over all rows, written by many workers at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from squeak_dist._typing import Float64Array
from squeak_dist.errors import InvalidParameterError, StoreCorruptedError, StoreError
from squeak_dist.store.failures import damage, store_errors
from squeak_dist.store.groups import check_replaceable, format_header, open_root, read_array
from squeak_dist.store.places import (
    PathLike,
    Place,
    StorageOptions,
    existing,
    locate,
    make_parent,
    opened,
    remove,
)
from squeak_dist.store.plain import strict, to_plain

DUAL_WEIGHTS_FORMAT = "squeak_dist-dual_weights"


@dataclass(frozen=True)
class DualWeightsWriter:
    """Write access to the rows of a stored array; small, and it pickles to workers.

    ``writer[start:stop] = values`` writes whole chunks: ``start`` is a multiple of
    ``chunk_rows``, and so is ``stop`` unless it is the number of rows. Every chunk must
    have one writer, since two that share one overwrite each other's rows without a sign.

    Parameters
    ----------
    array : zarr.Array
        The array, of shape (rows, outputs).
    """

    array: zarr.Array[Any]

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk."""
        return int(self.array.chunks[0])

    def __setitem__(self, rows: slice, values: Float64Array) -> None:
        """Write ``values`` of shape (stop - start, outputs) to the rows start:stop.

        Raises
        ------
        InvalidParameterError
            If the slice does not cover whole chunks, or ``values`` has another shape.
        StoreError
            If the file system fails.
        """
        total, outputs = self.array.shape
        start, stop, step = rows.indices(total)
        starts_whole = start % self.chunk_rows == 0
        ends_whole = stop % self.chunk_rows == 0 or stop == total
        if not (starts_whole and ends_whole and step == 1 and (rows.stop or 0) <= total):
            raise InvalidParameterError(
                f"{rows} is not whole chunks: start and stop must be multiples of "
                f"{self.chunk_rows}, or stop the number of rows, {total}"
            )
        if np.shape(values) != (stop - start, outputs):
            raise InvalidParameterError(
                f"the rows {start}:{stop} need values of shape {(stop - start, outputs)}, got "
                f"{np.shape(values)}"
            )
        with store_errors("write dual weights to", str(self.array.store)):
            self.array[start:stop] = values


def create_dual_weights(
    path: PathLike,
    *,
    rows: int,
    outputs: int,
    chunk_rows: int,
    attributes: Mapping[str, Any] | None = None,
    storage_options: StorageOptions = None,
) -> DualWeightsWriter:
    """Make an empty store of dual weights, which workers fill chunk by chunk.

    Parameters
    ----------
    path : str or path-like
        A directory or fsspec URL that all workers reach. Dual weights that are
        there are replaced; anything else is refused.
    rows, outputs : int
        Shape of the array ``dual_weights`` (float64); at least 1.
    chunk_rows : int
        Rows per chunk, at least 1; a chunk holds all outputs.
    attributes : mapping, optional
        More root attributes, made plain by :func:`to_plain`.
    storage_options : mapping, optional
        For the fsspec file system.

    Returns
    -------
    DualWeightsWriter
        ``writer[start:stop] = values``, then :func:`finish_dual_weights`.

    Raises
    ------
    StoreFormatError
        If there is something at ``path`` that is not dual weights.
    StoreError
        If the file system fails, or for a zip file, which cannot have several writers.
    InvalidParameterError
        For a shape below 1, or attributes named like those of the format.

    Notes
    -----
    Rows not yet written read as NaN. Each chunk carries a CRC-32C of its own, since no
    process sees all of them.
    """
    _check_shape(rows=rows, outputs=outputs, chunk_rows=chunk_rows)
    header = format_header(DUAL_WEIGHTS_FORMAT)
    reserved = sorted({*header, "complete"} & {*(attributes or {})})
    if reserved:
        raise InvalidParameterError(f"attributes named {reserved} belong to the format; rename")
    with store_errors("make dual weights at", path):
        place = locate(path, storage_options)
        if place.zipped:
            raise StoreError(f"{place} is a zip file, which has one writer; give a directory")
        check_replaceable(place, DUAL_WEIGHTS_FORMAT, overwrite=True)
        remove(place)
        make_parent(place)
        root = zarr.create_group(
            place.store(), attributes=strict({**to_plain(attributes or {}), **header})
        )
        array = root.create_array(
            "dual_weights",
            shape=(rows, outputs),
            dtype="float64",
            chunks=(min(chunk_rows, rows), outputs),
            compressors=[ZstdCodec(), Crc32cCodec()],
            fill_value=np.nan,
            config={"write_empty_chunks": True},
        )
        return DualWeightsWriter(array)


def finish_dual_weights(path: PathLike, storage_options: StorageOptions = None) -> None:
    """Mark dual weights as complete, once every chunk is there.

    Parameters
    ----------
    path : str or path-like
        What :func:`create_dual_weights` was given.
    storage_options : mapping, optional
        For the fsspec file system.

    Raises
    ------
    StoreNotFoundError, StoreFormatError
        If there are no dual weights at ``path``.
    StoreCorruptedError
        If chunks were never written; it says how many.
    StoreError
        If the file system fails.
    """
    with store_errors("finish dual weights at", path):
        place = existing(locate(path, storage_options))
        root = open_root(place.store(), place, DUAL_WEIGHTS_FORMAT, complete=False)
        _complete_array(root, "dual_weights", place)
        root.attrs["complete"] = True


def load_dual_weights(path: PathLike, storage_options: StorageOptions = None) -> Float64Array:
    """Load dual weights that were finished.

    Parameters
    ----------
    path : str or path-like
        What :func:`create_dual_weights` was given.
    storage_options : mapping, optional
        For the fsspec file system.

    Returns
    -------
    ndarray of float64, shape (rows, outputs)
        Cost: rows × outputs × 8 bytes of memory; for parts, open the store with zarr.

    Raises
    ------
    StoreNotFoundError, StoreFormatError, StoreCorruptedError, StoreError
        As :func:`load_model`.
    """
    with store_errors("load dual weights from", path):
        place = existing(locate(path, storage_options))
        with opened(place) as store:
            root = open_root(store, place, DUAL_WEIGHTS_FORMAT)
            _complete_array(root, "dual_weights", place)
            return read_array(root, "dual_weights", None, place)


def _check_shape(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise InvalidParameterError(f"{name} must be at least 1, got {size}")


def _complete_array(root: zarr.Group, name: str, place: Place) -> None:
    with damage(f"the array {name!r}", place):
        array = root[name]
        assert isinstance(array, zarr.Array)
        missing = array.nchunks - array.nchunks_initialized
    if missing:
        raise StoreCorruptedError(
            f"{missing} of {array.nchunks} chunks of {name!r} in {place} are missing; every "
            f"worker must write its rows, to a place that all of them share"
        )
