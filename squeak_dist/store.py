"""Fitted models and dual weights as zarr stores: saved atomically, verified when loaded.

A store is a zarr group (version 3 when written, 2 or 3 when read) that zarr alone can
read: no pickles, no object arrays, attributes in strict JSON. Each array of a model has a
checksum among the root attributes, and the attribute ``complete`` is written last.

====================================  ====================================================
``dictionary/points``                 (m, d): the encoded rows
``dictionary/indices``                (m,) int64: their global row numbers
``dictionary/probabilities``          (m,) float64: p
``dictionary/multiplicities``         (m,) int64: Q
``dictionary/row_weights``            (m,) float64: sample weights
``coefficients``                      (m, n_outputs) float64: c
``linear_coefficients``               (n_features, n_outputs) float64: the baseline
``target_mean``                       (n_outputs,) float64
``encoding/<name>``                   what the encoding of the columns needs
====================================  ====================================================

A prediction is k(x, points) @ coefficients + target_mean for an encoded row x. The checksum
of an array is the SHA-256 of :func:`array_checksum`; that of the attributes, under the name
``attributes``, is over the JSON, with sorted keys and without spaces, of all of them but
itself and ``complete``.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

import fsspec
import numpy as np
import numpy.typing as npt
import zarr
from fsspec.implementations.local import LocalFileSystem
from zarr.abc.store import Store
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.errors import ContainsArrayError
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ZipStore

from squeak_dist._typing import Float64Array
from squeak_dist._version import __version__
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoding import FeatureEncoding
from squeak_dist.errors import (
    InvalidKernelError,
    InvalidParameterError,
    SqueakError,
    SqueakWarning,
    StoreCorruptedError,
    StoreError,
    StoreFormatError,
    StoreNotFoundError,
)
from squeak_dist.kernels import Kernel, kernel_config, kernel_from_config
from squeak_dist.model import FittedModel

PathLike: TypeAlias = "str | os.PathLike[str]"
StorageOptions: TypeAlias = "Mapping[str, Any] | None"

MODEL_FORMAT = "squeak_dist-model"
DUAL_WEIGHTS_FORMAT = "squeak_dist-dual_weights"
FORMAT_VERSION = 1

_CHUNK_BYTES = 1 << 26  # one object per array up to 64 MiB, far below the codecs' 2 GiB
_DICTIONARY_ARRAYS = ("points", "indices", "probabilities", "multiplicities", "row_weights")
_MODEL_ARRAYS = ("coefficients", "linear_coefficients", "target_mean")
_MODEL_PARTS = ("kernel", "dictionary", "encoding", "report")
_MODEL_SCALARS = tuple(  # names, numbers and switches: each is an attribute of its own
    f.name for f in fields(FittedModel) if f.name not in (*_MODEL_ARRAYS, *_MODEL_PARTS)
)
# What zarr, its codecs and zipfile raise on bytes that are not what they should be.
_DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
)


# ---------------------------------------------------------------------------- models


def save_model(
    model: FittedModel,
    path: PathLike,
    *,
    storage_options: StorageOptions = None,
    zarr_format: Literal[2, 3] = 3,
    overwrite: bool = True,
) -> None:
    """Save a model, so that there is at every moment a whole store at ``path``, or none.

    Parameters
    ----------
    model : FittedModel
        The model to save. Its report may hold numpy scalars, arrays and
        non-finite numbers: see :func:`to_plain`.
    path : str or path-like
        A directory (``model.zarr``), a local zip file (``model.zarr.zip``) or
        any fsspec URL (``s3://bucket/model.zarr``). Missing local parent
        directories are made.
    storage_options : mapping, optional
        For the fsspec file system: credentials, endpoints.
    zarr_format : {3, 2}, default 3
        Version of the zarr specification to write.
    overwrite : bool, default True
        Replace a model that is there. Anything but a model is never replaced.

    Raises
    ------
    StoreFormatError
        If there is something at ``path`` that is not a squeak_dist model.
    StoreError
        If it exists and ``overwrite`` is false, if the model holds something
        that has no place in a store, or if the file system fails. An earlier
        model at ``path`` is then still there.
    InvalidParameterError
        For another ``zarr_format``.

    Notes
    -----
    The store is written to a sibling ``<path>.tmp-<hex>`` and then swapped in:
    by two renames on a local disk (one for a zip file), by copies elsewhere,
    where the earlier model waits at ``<path>.old-<hex>`` meanwhile. A process
    killed in between leaves such a sibling behind. Cost: m (d + n_outputs)
    numbers and about thirty files; twice that on object stores.
    """
    if zarr_format not in (2, 3):
        raise InvalidParameterError(f"zarr_format must be 2 or 3, got {zarr_format!r}")
    with _store_errors("save to", path):
        place = _locate(path, storage_options)
        _check_replaceable(place, MODEL_FORMAT, overwrite)
        _install(place, _store_files(*_model_contents(model), zarr_format))


def load_model(
    path: PathLike, *, storage_options: StorageOptions = None, kernel: Kernel | None = None
) -> FittedModel:
    """Load a model and verify every checksum.

    Parameters
    ----------
    path : str or path-like
        As in :func:`save_model`.
    storage_options : mapping, optional
        For the fsspec file system.
    kernel : Kernel, optional
        Needed for a model with a kernel of your own, which the store knows by
        its class only: give it the parameters it had. For a built-in kernel
        leave it out.

    Returns
    -------
    FittedModel
        It predicts the same bits as the model saved.

    Raises
    ------
    StoreNotFoundError
        If there is nothing at ``path``.
    StoreFormatError
        If it is not a squeak_dist model, or one of a newer format.
    StoreCorruptedError
        If it is incomplete, damaged or was edited.
    StoreError
        If the file system fails, or the protocol is unknown.
    InvalidKernelError
        If the kernel is not built in and ``kernel`` is missing, or is of
        another class.
    """
    with _store_errors("load", path):
        place = _existing(_locate(path, storage_options))
        with _opened(place) as store:
            root = _open_root(store, place, MODEL_FORMAT)
            checksums = _checked_checksums(root, place)
            arrays = {name: _read_array(root, name, sha, place) for name, sha in checksums}
            attributes = dict(root.attrs)
        return _restored_model(attributes, arrays, kernel)


def _model_contents(model: FittedModel) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return the root attributes and the arrays of a model, both checked."""
    encoding, encoding_arrays = model.encoding.to_config()
    arrays: dict[str, npt.NDArray[Any]] = {
        **{f"dictionary/{name}": getattr(model.dictionary, name) for name in _DICTIONARY_ARRAYS},
        **{name: getattr(model, name) for name in _MODEL_ARRAYS},
        **{f"encoding/{name}": array for name, array in encoding_arrays.items()},
    }
    arrays = {name: _checked_array(name, array) for name, array in arrays.items()}
    attributes = _strict(_model_attributes(model, encoding))
    checksums = {name: array_checksum(array) for name, array in arrays.items()}
    attributes["checksums"] = checksums
    checksums["attributes"] = _attributes_checksum(attributes)
    return attributes, arrays


def _model_attributes(model: FittedModel, encoding: Mapping[str, Any]) -> dict[str, Any]:
    report = to_plain(model.report, "report")
    scalars = {name: getattr(model, name) for name in _MODEL_SCALARS}
    scalars |= {"gamma": model.dictionary.gamma, "qbar": model.dictionary.qbar}
    return {
        **_header(MODEL_FORMAT),
        **{k: v.item() if isinstance(v, np.generic) else v for k, v in scalars.items()},
        "kernel": kernel_config(model.kernel),
        "task": report.get("task"),
        "classes": report.get("classes"),
        "feature_names": list(model.encoding.feature_names),
        "encoding": encoding,
        "report": report,
    }


def _restored_model(
    attributes: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], kernel: Kernel | None
) -> FittedModel:
    parts: dict[str, Any] = {name: arrays[name] for name in _MODEL_ARRAYS}
    for name in _MODEL_SCALARS:
        value = attributes[name]
        parts[name] = tuple(value) if isinstance(value, list) else value
    columns = {name: arrays[f"dictionary/{name}"] for name in _DICTIONARY_ARRAYS}
    encoding_arrays = {
        name.removeprefix("encoding/"): array
        for name, array in arrays.items()
        if name.startswith("encoding/")
    }
    return FittedModel(
        **parts,
        kernel=_restored_kernel(attributes["kernel"], kernel),
        dictionary=Dictionary(**columns, gamma=attributes["gamma"], qbar=attributes["qbar"]),
        encoding=FeatureEncoding.from_config(attributes["encoding"], encoding_arrays),
        report=attributes["report"],
    )


def _restored_kernel(config: Mapping[str, Any], kernel: Kernel | None) -> Kernel:
    if kernel is None:
        return kernel_from_config(config)
    given = kernel_config(kernel)
    if _kernel_identity(given) != _kernel_identity(config):
        raise InvalidKernelError(
            f"the model was fitted with the kernel {config}, but kernel= is {given}; pass a "
            f"kernel of that class, or leave kernel= out for a built-in one"
        )
    return kernel


def _kernel_identity(config: Mapping[str, Any]) -> Any:
    # A class moves between modules (out of a notebook's __main__, say), so its name decides.
    return config["class"].rpartition(".")[2] if config["name"] == "custom" else dict(config)


# ---------------------------------------------------------------------- dual weights


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
        with _store_errors("write dual weights to", str(self.array.store)):
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
    header = _header(DUAL_WEIGHTS_FORMAT)
    reserved = sorted({*header, "complete"} & {*(attributes or {})})
    if reserved:
        raise InvalidParameterError(f"attributes named {reserved} belong to the format; rename")
    with _store_errors("make dual weights at", path):
        place = _locate(path, storage_options)
        if place.zipped:
            raise StoreError(f"{place} is a zip file, which has one writer; give a directory")
        _check_replaceable(place, DUAL_WEIGHTS_FORMAT, overwrite=True)
        _remove(place)
        _make_parent(place)
        root = zarr.create_group(
            place.store(), attributes=_strict({**to_plain(attributes or {}), **header})
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
    with _store_errors("finish dual weights at", path):
        place = _existing(_locate(path, storage_options))
        root = _open_root(place.store(), place, DUAL_WEIGHTS_FORMAT, complete=False)
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
    with _store_errors("load dual weights from", path):
        place = _existing(_locate(path, storage_options))
        with _opened(place) as store:
            root = _open_root(store, place, DUAL_WEIGHTS_FORMAT)
            _complete_array(root, "dual_weights", place)
            return _read_array(root, "dual_weights", None, place)


def _check_shape(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise InvalidParameterError(f"{name} must be at least 1, got {size}")


def _complete_array(root: zarr.Group, name: str, place: _Place) -> None:
    with _damage(f"the array {name!r}", place):
        array = root[name]
        assert isinstance(array, zarr.Array)
        missing = array.nchunks - array.nchunks_initialized
    if missing:
        raise StoreCorruptedError(
            f"{missing} of {array.nchunks} chunks of {name!r} in {place} are missing; every "
            f"worker must write its rows, to a place that all of them share"
        )


# ---------------------------------------------------------------------- plain values


def to_plain(value: Any, where: str = "value") -> Any:
    """Return a value as strict JSON can hold it.

    Parameters
    ----------
    value : object
        Strings, numbers, bools, None, numpy scalars and arrays, and mappings,
        tuples and lists of them.
    where : str
        What to call it in an error.

    Returns
    -------
    object
        numpy values as Python's; tuples and arrays as lists; keys as strings;
        NaN and infinities, which JSON does not have, as None.

    Raises
    ------
    StoreError
        For anything else, saying where it is.
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): to_plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise StoreError(
        f"{where} is a {type(value).__name__}, which JSON cannot hold; expected numbers, "
        f"strings, bools, None, or lists and dicts of them"
    )


def _strict(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes exactly as they will be read back; unlike to_plain, lose nothing."""
    plain = {}
    for name, value in attributes.items():
        try:
            plain[name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise StoreError(f"the attribute {name!r} is not strict JSON: {error}") from error
    return plain


def _header(kind: str) -> dict[str, Any]:
    return {"format": kind, "format_version": FORMAT_VERSION, "squeak_dist_version": __version__}


# ------------------------------------------------------------------------- checksums


def array_checksum(array: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of an array's type, shape and values.

    Parameters
    ----------
    array : ndarray
        Of any shape and order, of bools or numbers.

    Returns
    -------
    str
        64 hexadecimal digits. Hashed are the bytes of ``["<f8", [3, 2]]`` (numpy's name
        of the little-endian type and the shape, as JSON), then the values, little-endian
        in C order. Cost: about 1 ms per MB.
    """
    array = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
    digest = hashlib.sha256(json.dumps([array.dtype.str, list(array.shape)]).encode())
    digest.update(array.data)
    return digest.hexdigest()


def _attributes_checksum(attributes: Mapping[str, Any]) -> str:
    text = json.dumps(attributes, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _checked_checksums(root: zarr.Group, place: _Place) -> list[tuple[str, str]]:
    """Return the checksums of the arrays, after checking that of the attributes."""
    attributes: dict[str, Any] = dict(root.attrs)
    with _damage("the attributes", place):
        checksums = attributes["checksums"] = dict(attributes["checksums"])
        expected = checksums.pop("attributes")
        del attributes["complete"]
        actual = _attributes_checksum(attributes)
    if actual != expected:
        raise StoreCorruptedError(
            f"the attributes of {place} are not those that were saved (their checksum differs); "
            f"restore the store from a copy, or save the model again"
        )
    return sorted(checksums.items())


def _checked_array(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array = np.asarray(array)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise StoreError(
            f"the array {name!r} has the type {array.dtype}; a store holds bools, integers and "
            f"floats of at most 8 bytes"
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)


# ------------------------------------------------------------------ writing and reading


def _store_files(
    attributes: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    zarr_format: Literal[2, 3],
) -> dict[str, bytes]:
    """Return a complete store as its files: key → bytes, the root's own at the end."""
    files: dict[str, Any] = {}
    root = zarr.create_group(
        MemoryStore(files), zarr_format=zarr_format, attributes={**attributes, "complete": True}
    )
    for name, values in arrays.items():
        array = root.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            chunks=_chunks(values),
            fill_value=_fill_value(values.dtype),
            config={"write_empty_chunks": True},  # a chunk of fill values is data, too
        )
        array[...] = values
    return {key: files[key].to_bytes() for key in _root_last(files)}


def _root_last(keys: Iterable[str]) -> list[str]:
    # The attributes, with "complete", are in the very last: zarr.json, or .zattrs in version 2.
    return sorted(keys, key=lambda key: (key.count("/"), key), reverse=True)


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


def _open_root(store: Store, place: _Place, kind: str, *, complete: bool = True) -> zarr.Group:
    """Return the root group of a store of the given kind, of a version that we read."""
    root = _open_group(store, place)
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


def _open_group(store: Store, place: _Place) -> zarr.Group:
    try:
        with _damage("the metadata", place):
            return zarr.open_group(
                store, mode="r" if store.read_only else "r+", use_consolidated=False
            )
    except (FileNotFoundError, ContainsArrayError) as error:
        raise StoreFormatError(
            f"{place} is not a squeak_dist store: there is no zarr group"
        ) from error


def _read_array(
    root: zarr.Group, name: str, checksum: str | None, place: _Place
) -> npt.NDArray[Any]:
    with _damage(f"the array {name!r}", place):
        values = np.asarray(root[name][...])  # type: ignore[index]
    if checksum is not None and array_checksum(values) != checksum:
        raise StoreCorruptedError(
            f"the array {name!r} of {place} is damaged: its checksum is not the one that was "
            f"saved; restore the store from a copy, or save the model again"
        )
    return values.astype(values.dtype.newbyteorder("="), copy=False)


# ------------------------------------------------------------------------------ places


@dataclass(frozen=True)
class _Place:
    """Where a store is or will be: a path on a file system of fsspec.

    ``root`` is the path there, ``url`` the same with its protocol.
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
        return isinstance(self.fs, LocalFileSystem)

    def sibling(self, word: str) -> _Place:
        suffix = f".{word}-{secrets.token_hex(4)}"
        return replace(self, url=self.url + suffix, root=self.root + suffix)

    def exists(self) -> bool:
        self.fs.invalidate_cache()  # zarr writes through another instance
        return bool(self.fs.exists(self.root))

    def store(self, read_only: bool = False) -> Store:
        if self.local:
            return LocalStore(self.root, read_only=read_only)
        return FsspecStore.from_url(self.url, dict(self.options), read_only=read_only)


def _locate(path: PathLike, storage_options: StorageOptions) -> _Place:
    url, options = os.fspath(path), dict(storage_options or {})
    fs, root = fsspec.core.url_to_fs(url, **options)
    if not url or not root.strip("/"):
        raise StoreError(f"{url!r} names no place for a store; add a name to it")
    place = _Place(url.rstrip("/"), root, fs, options, zipped=root.lower().endswith(".zip"))
    if place.local:
        # A link stays where it is: the store is made, or replaced, where the link leads.
        root = os.path.realpath(root)
        return replace(place, url=root, root=root)
    if place.zipped:
        raise StoreError(f"{place} is a zip file that is not local; copy it, or use a directory")
    return place


def _existing(place: _Place) -> _Place:
    if not place.exists():
        raise StoreNotFoundError(f"there is no store at {place}; check the path")
    return place


@contextmanager
def _opened(place: _Place) -> Iterator[Store]:
    """Give the store at a place for reading, and close it afterwards."""
    if place.zipped and not os.path.isdir(place.root):
        with _damage("the list of files", place):
            zipfile.ZipFile(place.root).close()  # a ZipStore that cannot open cannot close
        store: Store = ZipStore(place.root, mode="r", read_only=True)
    else:
        store = place.store(read_only=True)
    try:
        yield store
    finally:
        store.close()


def _check_replaceable(place: _Place, kind: str, overwrite: bool) -> None:
    """Raise unless there is nothing at the place, or a store of that kind to replace."""
    if not place.exists() or _is_empty_directory(place):
        return
    if not overwrite:
        raise StoreError(f"{place} exists; pass overwrite=True to replace it, or another path")
    try:
        with _opened(place) as store:
            found = _open_group(store, place).attrs.get("format")
    except (StoreFormatError, StoreCorruptedError):
        found = None
    if found != kind:
        raise StoreFormatError(
            f"{place} exists and is not a {kind} store, so it is left as it is; choose another "
            f"path, or remove it yourself"
        )


def _is_empty_directory(place: _Place) -> bool:
    return bool(place.fs.isdir(place.root)) and not place.fs.ls(place.root, detail=False)


# ------------------------------------------------------------------- atomic replacement


def _install(target: _Place, files: Mapping[str, bytes]) -> None:
    """Write the files of a store beside its place, then swap them in."""
    new = target.sibling("tmp")
    _make_parent(target)
    try:
        if target.zipped:
            _write_zip(new.root, files)
            os.replace(new.root, target.root)
        else:
            _write_tree(new, files)
            _swap(new, target)
    finally:
        _discard(new)


def _write_zip(path: str, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for key, data in files.items():
            archive.writestr(key, data)


def _write_tree(place: _Place, files: Mapping[str, bytes]) -> None:
    *others, last = ((f"{place.root}/{key}", data) for key, data in files.items())
    if place.local:
        for folder in {os.path.dirname(path) for path, _ in others}:
            os.makedirs(folder, exist_ok=True)
    place.fs.pipe(dict(others))
    place.fs.pipe_file(*last)


def _swap(new: _Place, target: _Place) -> None:
    """Put ``new`` in the place of ``target``; if that fails, what was there is put back."""
    old = target.sibling("old")
    replaced = target.exists()
    if replaced:
        _set_aside(target, old)
    try:
        _remove(target)
        _transfer(new, target)
    except BaseException:
        _put_back(old if replaced else None, target)
        raise
    _discard(old)


def _set_aside(target: _Place, old: _Place) -> None:
    try:
        _transfer(target, old)
    except BaseException:
        if target.exists():
            _discard(old)  # at most a part of a copy
        else:
            _put_back(old, target)  # interrupted between a rename and its return
        raise


def _put_back(old: _Place | None, target: _Place) -> None:
    try:
        _remove(target)
        if old is not None:
            _transfer(old, target)
    except Exception as error:
        rescue = "" if old is None else f"; what was there is whole at {old}: move it by hand"
        raise StoreError(f"{target} could not be replaced{rescue}") from error
    if old is not None:
        _discard(old)


def _transfer(source: _Place, target: _Place) -> None:
    """Rename a tree on a local disk; copy it elsewhere, where the source then stays."""
    if source.local:
        os.rename(source.root, target.root)
        return
    source.fs.invalidate_cache()
    files = _root_last(source.fs.find(source.root))
    copies = [target.root + file[len(source.root) :] for file in files]
    # Lists on both sides, so that fsspec neither globs nor guesses at directories.
    source.fs.copy(files[:-1], copies[:-1])
    source.fs.copy(files[-1:], copies[-1:])


def _remove(place: _Place) -> None:
    if not place.exists():
        return
    if place.local:
        shutil.rmtree(place.root) if os.path.isdir(place.root) else os.remove(place.root)
        return
    for file in place.fs.find(place.root):  # fs.rm would take [ and * in a name for a pattern
        place.fs.rm_file(file)


def _discard(place: _Place) -> None:
    """Remove what is no longer needed; a failure is no reason to fail."""
    try:
        _remove(place)
    except Exception as error:
        warnings.warn(f"could not remove {place}: {error}", SqueakWarning, stacklevel=2)


def _make_parent(place: _Place) -> None:
    if place.local:  # elsewhere directories are made by writing, and making one makes a bucket
        os.makedirs(os.path.dirname(place.root), exist_ok=True)


# ------------------------------------------------------------------------------ errors


@contextmanager
def _store_errors(action: str, path: object) -> Iterator[None]:
    """Turn what zarr, fsspec and the system raise into a StoreError."""
    try:
        yield
    except SqueakError:
        raise
    except Exception as error:
        raise StoreError(f"cannot {action} {path}: {type(error).__name__}: {error}") from error


@contextmanager
def _damage(what: str, place: _Place) -> Iterator[None]:
    """Turn the errors of bytes that cannot be decoded into a StoreCorruptedError."""
    try:
        yield
    except (OSError, ContainsArrayError, SqueakError):
        raise  # the file system's, not the bytes'
    except _DAMAGE as error:
        raise StoreCorruptedError(
            f"{what} of {place} cannot be read, so it is damaged or missing: "
            f"{type(error).__name__}: {error}"
        ) from error
