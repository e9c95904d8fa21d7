"""Values as strict JSON, and checksums of arrays and attributes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from squeak_dist.errors import StoreError


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


def strict(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes exactly as they will be read back; unlike to_plain, lose nothing."""
    plain = {}
    for name, value in attributes.items():
        try:
            plain[name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise StoreError(f"the attribute {name!r} is not strict JSON: {error}") from error
    return plain


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


def attributes_checksum(attributes: Mapping[str, Any]) -> str:
    """Return the SHA-256 of attributes as JSON, with sorted keys and without spaces."""
    text = json.dumps(attributes, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
