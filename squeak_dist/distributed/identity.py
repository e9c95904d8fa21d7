"""What tells data from other data, before any of it is read by a task.

====================  ====================================================================
data                  told apart by
====================  ====================================================================
a path or URL         names, sizes and ETags (or times of change) of the files
frames, arrays in     a hash of the values of each partition
memory
Dask collections      columns, types and the number of partitions; the names that Dask
                      gives the partitions, where these are the same in every process;
                      otherwise by the profile, which a second fit then does again
====================  ====================================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fsspec
import numpy as np
import pandas as pd
from fsspec.core import has_magic

from squeak_dist.checkpoint import Opened, Vault, described, fingerprint, open_checkpoint
from squeak_dist.distributed.schema import Source
from squeak_dist.errors import CheckpointError, InvalidParameterError
from squeak_dist.parameter_table import PARAMETERS
from squeak_dist.stages import FitParameters
from squeak_dist.table import TableSchema, column_positions


@dataclass(frozen=True)
class Files:
    """The files at a path or URL.

    Parameters
    ----------
    path : str
        A file, a directory, a glob or a URL.
    options : mapping
        Passed to fsspec.
    """

    path: str
    options: Mapping[str, Any]

    def marks(self) -> dict[str, str]:
        """Return size and ETag, or time of change, of each file, by its name.

        Raises
        ------
        CheckpointError
            If they cannot be listed.
        """
        try:
            fs, root = fsspec.core.url_to_fs(self.path, **self.options)
            tops = fs.glob(root) if has_magic(root) else [root]
            infos = {n: info for top in tops for n, info in fs.find(top, detail=True).items()}
        except (OSError, ValueError, ImportError) as error:
            raise CheckpointError(f"cannot list the files of {self.path}: {error}") from error
        base = os.path.commonpath([os.path.dirname(root), *infos]) if infos else root
        return {os.path.relpath(name, base): _mark(infos[name]) for name in sorted(infos)}


def _mark(info: Mapping[str, Any]) -> str:
    for key in ("ETag", "md5Hash", "content_md5", "mtime", "LastModified", "created"):
        if info.get(key):
            return f"{info['size']:,} bytes, {key} {str(info[key]).strip(chr(34))}"
    return f"{info['size']:,} bytes"


def open_for(source: Source, parameters: FitParameters, vault: Vault) -> Opened:
    """Make or open the checkpoint of a fit.

    Parameters
    ----------
    source : Source
        The data.
    parameters : FitParameters
        All parameters.
    vault : Vault
        Where the checkpoint is, or will be.

    Raises
    ------
    CheckpointError, CheckpointMismatchError
        See :func:`~squeak_dist.checkpoint.open_checkpoint`; also where parameters or
        column labels are objects that cannot be told from others.
    """
    given = {
        name: described(_plain(getattr(parameters, table.field)), name)
        for name, table in PARAMETERS.items()
    }
    exact, names = _pieces(source)
    return open_checkpoint(vault, given, _shape(source) | {"pieces": exact}, names)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _shape(source: Source) -> dict[str, Any]:
    schema = source.schema
    used = {*schema.features, *schema.targets, schema.weight}
    types = {str(k): str(v) for k, v in source.dtypes.items() if k in used}
    return {
        "partitions": len(source.tables),
        "features": [_label(label) for label in schema.features],
        "targets": list(schema.target_names),
        "sample_weight": None if schema.weight is None else schema.weight_name,
        "dtypes": types,
    }


def _label(label: Any) -> Any:
    return described(label, f"the column label {label!r}")


def _pieces(source: Source) -> tuple[dict[str, str], list[str]]:
    """Return what must be the same, by name, and Dask's names, which may differ."""
    exact: dict[str, str] = {}
    names: list[str] = []
    if not source.origins:
        raise InvalidParameterError(
            "a checkpoint cannot tell these data from others; pass a path, a frame, or arrays"
        )
    for i, origin in enumerate(source.origins):
        if isinstance(origin, Files):
            exact |= origin.marks()
        elif isinstance(origin, pd.DataFrame):
            exact[f"partition {i}"] = "values " + _hash(origin, source.schema)
        else:
            names.append(fingerprint([str(part.key) for part in _listed(origin)]))
    return exact, names


def _listed(origin: Any) -> Sequence[Any]:
    return origin if isinstance(origin, tuple | list) else [origin]


def _hash(frame: pd.DataFrame, schema: TableSchema) -> str:
    needed = [*schema.features, *schema.targets]
    needed += [] if schema.weight is None else [schema.weight]
    used = frame.iloc[:, column_positions(list(frame.columns), needed)]
    try:
        values = pd.util.hash_pandas_object(used, index=False).to_numpy()
    except TypeError as error:
        raise CheckpointError(
            f"a column holds objects that cannot be hashed ({error}), so a checkpoint cannot tell "
            f"the data from others; make them numbers or text"
        ) from error
    return fingerprint(values)[:16]
