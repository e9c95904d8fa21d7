"""Samplers by name, and the check of what a user's own returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.dictionary import Dictionary
from squeak_dist.errors import InvalidParameterError
from squeak_dist.kernels import Kernel
from squeak_dist.samplers.baselines import (
    greedy_cholesky,
    k_means,
    pivoted_bytes,
    random_cholesky,
)
from squeak_dist.samplers.columns import (
    two_pass_rls,
    uniform,
)
from squeak_dist.samplers.dense import dense_bytes, exact, rls_sampling
from squeak_dist.samplers.incremental import (
    disqueak,
    ink_estimate,
    squeak_blocks,
    squeak_rows,
)
from squeak_dist.samplers.protocol import Sampler, checked_weights, kept_rows
from squeak_dist.samplers.refining import bless, recursive_rls
from squeak_dist.squeak import SqueakParameters

SAMPLERS: Mapping[str, Callable[..., Dictionary]] = {
    "squeak": squeak_blocks,
    "squeak-by-row": squeak_rows,
    "disqueak": disqueak,
    "disqueak-left-deep": partial(disqueak, tree="left-deep"),
    "disqueak-random": partial(disqueak, tree="random"),
    "exact": exact,
    "uniform": uniform,
    "two-pass-rls": two_pass_rls,
    "ink-estimate": ink_estimate,
    "rls-sampling": rls_sampling,
    "recursive-rls": recursive_rls,
    "bless": bless,
    "greedy-cholesky": greedy_cholesky,
    "random-cholesky": random_cholesky,
    "k-means": k_means,
}

# Those that fit runs as chains and merges of dictionaries, partition by partition.
MERGING = ("squeak", "disqueak", "disqueak-left-deep", "disqueak-random")

# Those that must be told how many rows to choose.
SIZED = frozenset(
    {"uniform", "two-pass-rls", "ink-estimate", "greedy-cholesky", "random-cholesky", "k-means"}
)


def check_sampler(sampler: str | Sampler) -> None:
    """Check that a sampler is a name of :data:`SAMPLERS`, or can be called.

    Raises
    ------
    InvalidParameterError
        With the names.
    """
    if not (callable(sampler) or (isinstance(sampler, str) and sampler in SAMPLERS)):
        raise InvalidParameterError(
            f"sampler must be one of {', '.join(map(repr, SAMPLERS))}, or a function or object "
            f"to call as squeak_dist.samplers.Sampler says; got {sampler!r}"
        )


def sampler_name(sampler: str | Sampler) -> str:
    """Return what a report calls a sampler."""
    if isinstance(sampler, str):
        return sampler
    return str(getattr(sampler, "__qualname__", type(sampler).__qualname__))


def choose_rows(
    sampler: str | Sampler,
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
) -> Dictionary:
    """Call a sampler by name, or the user's own, and check what it returns.

    Parameters
    ----------
    sampler : str or Sampler
        A name of :data:`SAMPLERS`, or what to call.
    X, kernel, parameters, rng, row_weights
        As in :class:`Sampler`.

    Returns
    -------
    Dictionary
        Positions alone become one with selection weights 1.

    Raises
    ------
    InvalidParameterError
        If the user's sampler returns something else, other rows than there are, or more
        than ``max_dictionary``.
    """
    if isinstance(sampler, str):
        return SAMPLERS[sampler](X, kernel, parameters, rng, row_weights)
    weights = checked_weights(X, parameters, row_weights)
    chosen = sampler(X, kernel, parameters, rng, row_weights)
    rows = np.asarray(chosen.indices if isinstance(chosen, Dictionary) else chosen)
    if fault := _fault_of(rows, X, parameters.max_dictionary):
        raise InvalidParameterError(
            f"the sampler {sampler_name(sampler)} must return a Dictionary, or positions of rows "
            f"(integers in 0…{len(X) - 1:,}, each at most once); got {fault}"
        )
    if not isinstance(chosen, Dictionary):
        return kept_rows(X, rows[weights[rows] > 0], parameters.gamma, weights)
    if chosen.points.shape[1] != X.shape[1]:
        raise InvalidParameterError(
            f"the sampler {sampler_name(sampler)} returned points of {chosen.points.shape[1]} "
            f"columns, but the rows have {X.shape[1]}"
        )
    return chosen


def _fault_of(rows: npt.NDArray[Any], X: FloatArray, limit: int | None) -> str:
    """Return what is wrong with positions of rows, or an empty text."""
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        return f"something of dtype {rows.dtype} and shape {rows.shape}"
    outside = rows[(rows < 0) | (rows >= len(X))]
    if len(outside):
        return f"the position {outside[0]:,}"
    if len(np.unique(rows)) < len(rows):
        return "a position twice"
    if limit is not None and len(rows) > limit:
        return f"{len(rows):,} of them, which is more than max_dictionary={limit:,}"
    return ""


def working_bytes(sampler: str | Sampler, n: int, d: int, m: float) -> int:
    """Return the bytes that a sampler holds beside the rows themselves.

    Parameters
    ----------
    sampler : str or Sampler
        Of the user's own nothing is known: 0.
    n, d : int
        Rows and encoded columns.
    m : float
        Most rows that it keeps; n at most.
    """
    m = int(min(m, n))
    if sampler in ("exact", "rls-sampling"):
        return dense_bytes(n)
    if sampler in ("greedy-cholesky", "random-cholesky"):
        return pivoted_bytes(n, m) + 8 * n * d
    if sampler == "k-means":
        return 2 * 8 * n * d
    return dense_bytes(min(math.ceil(1.5 * m), n)) if isinstance(sampler, str) else 0
