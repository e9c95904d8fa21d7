"""Values of a fit as strict JSON and numeric arrays, and back to the same bits.

A tree of frozen dataclasses of this package, tuples, lists, mappings, arrays and plain
values becomes JSON in which every list and dict carries its type, so that a value comes
back as what it was: int or numpy scalar, tuple or list, C or Fortran order (which decides
the last bits of a product). No pickles: what cannot be said so is refused.

==================================  ========================================================
JSON                                value
==================================  ========================================================
null, true, 1, 0.5, "text"          the same
``{"float": "nan"}``                a float that JSON does not have
``{"tuple": […]}``, ``{"list"…}``   items in order
``{"dict": [[key, value], …]}``     a mapping, in order; keys need not be text
``{"array": name}``                 a numeric array, stored under that name; ``"fortran"``
                                    where its first axis is the fastest, ``"scalar"`` for a
                                    numpy scalar
``{"text": […]}``                   a one-dimensional array of text and None
``{"dataclass": [class, {…}]}``     ``module:name`` of a dataclass of this package, and its
                                    fields
==================================  ========================================================
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from squeak_dist.errors import CheckpointError
from squeak_dist.store import array_checksum

_PACKAGE = __name__.partition(".")[0]
_NUMERIC = "biuf"

Arrays = dict[str, npt.NDArray[Any]]


def encode(value: Any, where: str = "value") -> tuple[Any, Arrays]:
    """Return a value as strict JSON and the arrays that it names.

    Parameters
    ----------
    value : object
        See the table above.
    where : str, default "value"
        What to call it in an error, and what the names of arrays begin with.

    Raises
    ------
    CheckpointError
        For anything else, saying where it is.
    """
    arrays: Arrays = {}
    return _encode(value, where, arrays), arrays


def fingerprint(value: Any) -> str:
    """Return 32 hexadecimal digits that tell a value from others, in every process.

    Objects that are not of this package count as their class name and attributes.

    Raises
    ------
    CheckpointError
        For an object whose attributes are no plain values either.
    """
    arrays: Arrays = {}
    tree = _encode(value, "value", arrays, objects=True)
    checksums = {name: array_checksum(array) for name, array in arrays.items()}
    text = json.dumps([tree, checksums], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def described(value: Any, where: str) -> Any:
    """Return a value as JSON that can be compared and shown: arrays as lists of numbers.

    Raises
    ------
    CheckpointError
        As :func:`fingerprint`.
    """
    arrays: Arrays = {}
    tree = _encode(value, where, arrays, objects=True)
    return {"json": tree, "arrays": {k: v.tolist() for k, v in arrays.items()}} if arrays else tree


def _encode(value: Any, where: str, arrays: Arrays, objects: bool = False) -> Any:
    if isinstance(value, np.ndarray):
        return _encode_array(value, where, arrays)
    if isinstance(value, np.generic):
        arrays[where] = np.asarray(value)
        return {"scalar": where}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_encode(v, f"{where}/{i}", arrays, objects) for i, v in enumerate(value)]}
    if isinstance(value, Mapping):
        return {"dict": _encode_items(value, where, arrays, objects)}
    if is_dataclass(value) and type(value).__module__.split(".")[0] == _PACKAGE:
        values = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        return {"dataclass": [_class_name(value), _encode_named(values, where, arrays, objects)]}
    if objects and hasattr(value, "__dict__") and not _is_function(value):
        # A class moves between modules (out of a notebook's __main__, say): its name decides.
        named = _encode_named(vars(value), where, arrays, objects)
        return {"object": [type(value).__qualname__, named]}
    raise CheckpointError(
        f"{where.replace('/', '.')} is a {type(value).__name__}, which a checkpoint cannot hold; "
        f"it holds numbers, text, arrays, tuples, lists, mappings and the values of {_PACKAGE}"
    )


def _is_function(value: Any) -> bool:
    """Say whether an object is a function or class, whose attributes do not say what it does."""
    return isinstance(value, type) or hasattr(value, "__code__") or hasattr(value, "__func__")


def _class_name(value: Any) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _encode_named(
    values: Mapping[str, Any], where: str, arrays: Arrays, objects: bool
) -> dict[str, Any]:
    return {name: _encode(v, f"{where}/{name}", arrays, objects) for name, v in values.items()}


def _encode_items(
    value: Mapping[Any, Any], where: str, arrays: Arrays, objects: bool
) -> list[list[Any]]:
    return [
        [_encode(key, f"{where}/key{i}", arrays, objects),
         _encode(item, f"{where}/{i}", arrays, objects)]
        for i, (key, item) in enumerate(value.items())
    ]  # fmt: skip


def _encode_array(array: npt.NDArray[Any], where: str, arrays: Arrays) -> Any:
    if array.dtype == object and array.ndim == 1:
        items = array.tolist()
        if all(item is None or isinstance(item, str) for item in items):
            return {"text": items}
    if array.dtype.kind not in _NUMERIC or array.dtype.itemsize > 8:
        raise CheckpointError(
            f"{where.replace('/', '.')} is an array of dtype {array.dtype}, which a checkpoint "
            f"cannot hold; expected bools, integers, floats of at most 8 bytes, or text"
        )
    arrays[where] = array
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    return {"fortran" if fortran else "array": where}


def decode(tree: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Return the value that :func:`encode` took.

    Parameters
    ----------
    tree : object
        Its JSON.
    arrays : mapping of str to ndarray
        Its arrays, in native byte order.

    Raises
    ------
    CheckpointError
        If the JSON names a class that is no dataclass of this package.
    KeyError, TypeError, ValueError
        If it is not what :func:`encode` returned.
    """
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind in ("array", "fortran", "scalar"):
        return _decode_array(kind, arrays[content])
    if kind in ("tuple", "list"):
        items = [decode(item, arrays) for item in content]
        return tuple(items) if kind == "tuple" else items
    if kind == "dict":
        return {decode(key, arrays): decode(item, arrays) for key, item in content}
    if kind == "float":
        return float(content)
    if kind == "text":
        return np.array([*content, None], dtype=object)[:-1]
    if kind == "dataclass":
        name, named = content
        return _class_of(name)(**{k: decode(v, arrays) for k, v in named.items()})
    raise ValueError(f"unknown kind of value {kind!r}")


def _decode_array(kind: str, array: npt.NDArray[Any]) -> Any:
    if kind == "scalar":
        return array[()]
    return np.asarray(array, order="F" if kind == "fortran" else "C")


def _class_of(name: str) -> type[Any]:
    module, _, qualname = name.partition(":")
    if module.split(".")[0] == _PACKAGE and "." not in qualname:
        found = getattr(importlib.import_module(module), qualname, None)
        if isinstance(found, type) and is_dataclass(found):
            return found
    raise CheckpointError(f"a checkpoint names {name!r}, which is no dataclass of {_PACKAGE}")


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """Return what differs between two values of the same kind, one line each: "path: a → b".

    Floats count as equal within 1e-9 of each other, as they are on another kind of machine.

    Parameters
    ----------
    before, now : object
        As :func:`encode` takes them.
    where : str
        What the paths begin with.
    """
    if is_dataclass(before) and type(before) is type(now):
        pairs = [(f.name, getattr(before, f.name), getattr(now, f.name)) for f in fields(before)]
        return [line for name, a, b in pairs for line in differences(a, b, _joined(where, name))]
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        keys = dict.fromkeys([*before, *now])
        return [
            line
            for key in keys
            for line in differences(
                before.get(key, _NOTHING), now.get(key, _NOTHING), _joined(where, str(key))
            )
        ]
    if isinstance(before, tuple | list) and isinstance(now, tuple | list):
        if len(before) == len(now):
            return [
                line
                for i, (a, b) in enumerate(zip(before, now, strict=True))
                for line in differences(a, b, f"{where}[{i}]")
            ]
    elif _equal(before, now):
        return []
    return [f"{where}: {_shown(before)} → {_shown(now)}"]


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


_NOTHING = _Nothing()


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.dtype.kind == "f":
            return bool(np.allclose(a, b, rtol=1e-9, atol=0, equal_nan=True))
        return bool(np.array_equal(a, b))
    numbers = [v for v in (a, b) if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) == 2:
        return math.isclose(a, b, rel_tol=1e-9) or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and bool(a == b)


def _shown(value: Any) -> str:
    text = " ".join(
        (f"array of {value.dtype} {value.shape} " if isinstance(value, np.ndarray) else "").split()
        + (np.array2string(value, threshold=4, edgeitems=2, precision=6)
           if isinstance(value, np.ndarray) else repr(value)).split()
    )  # fmt: skip
    return text if len(text) <= 120 else text[:117] + "…"
