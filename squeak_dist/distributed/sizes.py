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

# What every worker needs, once, counts for nothing: else tasks would rather move their rows to the
# worker that made it, and pass over the rows in parts of 5 to 3.
EVERYWHERE = nystrom.NystromMap, conjugate_gradients.ResidualSketch


def register_sizes() -> None:
    """Tell Dask how to size the values that tasks return; on workers by their first import."""
    for module in _MODULES:
        for kind in _dataclasses(module):
            sizeof.register(kind, true_size)
    for kind in EVERYWHERE:
        sizeof.register(kind, _small)


def _dataclasses(module: ModuleType) -> Iterator[type]:
    for value in vars(module).values():
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__:
            yield value


def _small(value: Any) -> int:
    return 64


def true_size(value: Any) -> int:
    """Return the bytes of a dataclass of arrays.

    Parameters
    ----------
    value : dataclass
        Of a type that Dask was told of.
    """
    return 64 + sum(sizeof(getattr(value, f.name)) for f in fields(value))
