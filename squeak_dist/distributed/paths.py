"""What a path or URL holds, opened lazily: parquet, a zarr array, a zarr group."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import dask.array as da
import dask.dataframe as dd
import fsspec
import pyarrow.parquet as pq
from dask.utils import natural_sort_key
from fsspec.core import has_magic

from squeak_dist.errors import DataError

_PARQUET_FILES = (".parquet", ".parq", ".pq")
_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
_BLOCK_ROWS = 65_536  # small chunks of a zarr array share a partition up to this size


def read_path(
    path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Any:
    """Open a path or URL: a Dask DataFrame, a Dask array or an xarray Dataset.

    Parameters
    ----------
    path : str or path
        Parquet (a file, a directory, or a glob of either), a zarr array, or a zarr group as xarray
        writes it, which needs xarray.
    storage_options : mapping, optional
        Passed to fsspec for a URL.

    Raises
    ------
    DataError
        If it is not there, or is something else.
    """
    name = os.fspath(path)
    if _is_zarr(name, storage_options):
        return _read_zarr(name, storage_options)
    return read_parquet(name, storage_options)


def read_parquet(
    path: str | os.PathLike[str] | list[str], storage_options: Mapping[str, Any] | None = None
) -> Any:
    """Open a path or URL of parquet, or a list of them, as a Dask DataFrame.

    A RangeIndex that has a name is left out: Dask would look for it among the columns.

    Raises
    ------
    DataError
        If it is not there, or is not parquet.
    """
    places = path if isinstance(path, list) else os.fspath(path)
    name = repr(places) if isinstance(places, str) else ", ".join(map(repr, places))
    try:
        files = _files(places, storage_options)
        index = {"index": False} if _has_named_range(files, storage_options) else {}
        return dd.read_parquet(files, storage_options=_as_dict(storage_options), **index)
    except FileNotFoundError as error:
        raise DataError(
            f"nothing found at {name}; expected a parquet file, a directory of them, "
            f"a glob or a URL"
        ) from error
    except (OSError, ValueError, IndexError, ImportError) as error:
        why = str(error).rpartition("Original Message: ")[2]  # without what Dask says before it
        raise DataError(
            f"cannot read {name} as parquet: {why}. Open other files yourself, "
            f"e.g. dask.dataframe.read_csv(path), and pass the frame"
        ) from error


def _as_dict(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return options as Dask and xarray take them."""
    return None if options is None else dict(options)


def _has_named_range(places: Any, storage_options: Mapping[str, Any] | None) -> bool:
    """Say whether the first file has, in words of pandas, a RangeIndex with a name."""
    fs, _, found = fsspec.get_fs_token_paths(places, storage_options=storage_options)
    files = [place for place in found if fs.isfile(place)] or [
        name for place in found for name in fs.find(place) if name.endswith(_PARQUET_FILES)
    ]
    if not files:
        return False
    with fs.open(files[0]) as file:
        known = pq.read_schema(file).pandas_metadata or {}
    return any(isinstance(c, dict) and c.get("name") for c in known.get("index_columns", ()))


def _files(places: str | list[str], storage_options: Mapping[str, Any] | None) -> Any:
    """Return what Dask reads: directories of a list or a glob it would refuse, or read as none."""
    if isinstance(places, str) and not has_magic(places):
        return places
    listed = [places] if isinstance(places, str) else places
    found = [path for place in listed for path in _matches(place, storage_options)]
    if not any(is_directory for _, is_directory in found):
        return places
    files = (path for path, is_directory in found if not is_directory)
    inside = (
        file
        for path, is_directory in found
        if is_directory
        for file, _ in _matches(f"{path}/**/*.parquet", storage_options)
    )
    return sorted({*files, *inside}, key=natural_sort_key)


def _matches(place: str, storage_options: Mapping[str, Any] | None) -> Iterator[tuple[str, bool]]:
    """Yield the URLs that a path or a glob names, and whether each is a directory."""
    fs, root = fsspec.core.url_to_fs(place, **(storage_options or {}))
    for path in fs.glob(root) if has_magic(root) else [root]:
        yield fs.unstrip_protocol(path), fs.isdir(path)


def _is_zarr(path: str, storage_options: Mapping[str, Any] | None) -> bool:
    if path.rstrip("/").endswith((".zarr", ".zarr.zip")):
        return True
    if has_magic(path):
        return False
    try:
        fs, root = fsspec.core.url_to_fs(path, **(storage_options or {}))
        return any(fs.exists(f"{root.rstrip('/')}/{name}") for name in _ZARR_FILES)
    except (OSError, ValueError, ImportError):
        return False  # the reader of parquet says what is wrong


def _read_zarr(path: str, storage_options: Mapping[str, Any] | None) -> Any:
    try:
        return read_zarr_array(path, storage_options)
    except DataError as failure:
        try:
            xarray = importlib.import_module("xarray")
        except ImportError:
            raise failure from None
        try:
            dataset = xarray.open_zarr(path, storage_options=_as_dict(storage_options))
        except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
            raise failure from error
        if not dataset.data_vars:
            raise failure
        return dataset


def read_zarr_array(source: Any, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Open a zarr array, or the path of one, as a Dask array that the workers read.

    Parameters
    ----------
    source : zarr.Array, str
        Of rows; its chunks along the rows are kept together up to 65,536 rows.
    storage_options : mapping, optional
        Passed to fsspec for a URL.

    Raises
    ------
    DataError
        If there is no zarr array.
    """
    name = repr(source) if isinstance(source, str) else f"the zarr {type(source).__name__}"
    options = {"storage_options": _as_dict(storage_options)} if isinstance(source, str) else {}
    try:
        array = da.from_zarr(source, **options)
    # zarr's own errors derive from these; others come of its stores.
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise DataError(
            f"{name} is no zarr array ({error}); pass the path of an array of shape (n, d), of a "
            f"group that xarray wrote (with xarray installed), or parquet"
        ) from error
    if not array.ndim or not array.shape[0]:
        return array
    rows = max(1, _BLOCK_ROWS // max(1, array.chunks[0][0])) * array.chunks[0][0]
    return array.rechunk({0: rows, **dict.fromkeys(range(1, array.ndim), -1)})
