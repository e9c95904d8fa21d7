"""How large the values of a fit are: what Dask must know to place tasks and to bound memory.

Without it a dataclass counts as 56 bytes, whatever arrays it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

from dask.sizeof import sizeof

from squeak_dist import (
    column_profile,
    conjugate_gradients,
    dictionary,
    encoding,
    feature_model,
    label_counts,
    model,
    moments,
    nystrom,
    principal,
    profile,
    row_sample,
    solvers,
    squeak,
    table,
)
from squeak_dist.stages import dictionaries, features, iterating, solving, streaming, tuning

_MODULES = (
    column_profile, conjugate_gradients, dictionary, encoding, feature_model, label_counts, model,
    moments, nystrom, principal, profile, row_sample, solvers, squeak, table,
    dictionaries, features, iterating, solving, streaming, tuning,
)  # fmt: skip


def register_sizes() -> None:
    """Tell Dask how to size the values that tasks return; on workers by their first import."""
    for module in _MODULES:
        for kind in _dataclasses(module):
            sizeof.register(kind, _size)


def _dataclasses(module: ModuleType) -> Iterator[type]:
    for value in vars(module).values():
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__:
            yield value


def _size(value: Any) -> int:
    return 64 + sum(sizeof(getattr(value, f.name)) for f in fields(value))
