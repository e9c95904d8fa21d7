"""The systems of Table 1 of the paper, and baselines: rows and a kernel to a dictionary.

Each is a function ``sampler(X, kernel, parameters, rng, row_weights=None)`` as
:class:`Sampler` says, and a name for ``fit(..., sampler=name)``. So all share encoding,
Nyström map, solver and store. A function or object of your own is given in the same
place.

=======================  =====================================================================
name                     system
=======================  =====================================================================
``squeak``               SQUEAK; in ``fit`` chains over partitions, and a balanced tree
``squeak-by-row``        SQUEAK as it is printed, row by row
``disqueak``             one dictionary per partition, merged in a balanced tree
``disqueak-left-deep``   the same, merged one after the other
``disqueak-random``      the same, merged in a random tree
``exact``                every row
``uniform``              m rows with equal chances (Bach 2013)
``two-pass-rls``         RLS approximated on a first draw (Alaoui & Mahoney 2014)
``ink-estimate``         INK-Estimate (Calandriello et al. 2016)
``rls-sampling``         by exact RLS: the oracle
``recursive-rls``        Musco & Musco 2017
``bless``                Rudi et al. 2018
``greedy-cholesky``      the largest residual, m times
``random-cholesky``      residuals as probabilities, m times
``k-means``              the centres of m clusters
=======================  =====================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

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
    uniform_positions,
    uniformly_kept,
)
from squeak_dist.samplers.dense import dense_bytes, exact, rls_sampling
from squeak_dist.samplers.incremental import (
    TREES,
    disqueak,
    ink_estimate,
    squeak_blocks,
    squeak_rows,
)
from squeak_dist.samplers.protocol import Sampler, kept_rows
from squeak_dist.samplers.refining import bless, recursive_rls
from squeak_dist.squeak import SqueakParameters

SAMPLERS: Mapping[str, Sampler] = {
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
        If the user's sampler returns something else, or other rows than there are.
    """
    if isinstance(sampler, str):
        return SAMPLERS[sampler](X, kernel, parameters, rng, row_weights)  # type: ignore[return-value]
    chosen = sampler(X, kernel, parameters, rng, row_weights)
    if isinstance(chosen, Dictionary):
        rows, shape = chosen.indices, chosen.points.shape[1:]
        if shape != X.shape[1:]:
            raise InvalidParameterError(
                f"the sampler {sampler_name(sampler)} returned points of {shape[0]} columns, but "
                f"the rows have {X.shape[1]}"
            )
    else:
        rows = np.asarray(chosen)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not _are_positions(rows, len(X)):
        raise InvalidParameterError(
            f"the sampler {sampler_name(sampler)} must return a Dictionary, or positions of rows "
            f"(integers in 0…{len(X) - 1:,}, each at most once); got "
            f"{type(chosen).__name__} of dtype {rows.dtype} and shape {rows.shape}"
        )
    if isinstance(chosen, Dictionary):
        return chosen
    weights = np.ones(len(X)) if row_weights is None else row_weights
    return kept_rows(X, rows[weights[rows] > 0], parameters.gamma, weights)


def _are_positions(rows: np.ndarray, n: int) -> bool:
    return bool(np.all((rows >= 0) & (rows < n))) and len(np.unique(rows)) == len(rows)


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


__all__ = [
    "MERGING",
    "SAMPLERS",
    "SIZED",
    "TREES",
    "Sampler",
    "bless",
    "check_sampler",
    "choose_rows",
    "disqueak",
    "exact",
    "greedy_cholesky",
    "ink_estimate",
    "k_means",
    "random_cholesky",
    "recursive_rls",
    "rls_sampling",
    "sampler_name",
    "squeak_blocks",
    "squeak_rows",
    "two_pass_rls",
    "uniform",
    "uniform_positions",
    "uniformly_kept",
    "working_bytes",
]
