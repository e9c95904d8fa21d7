"""What users would ask for beside Table 1: pivoted Cholesky, and k-means centres."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray, IntArray
from squeak_dist.dictionary import Dictionary
from squeak_dist.kernels import Kernel, kernel_block, kernel_diag
from squeak_dist.linalg import single_openmp_thread
from squeak_dist.nystrom import residual_rounding
from squeak_dist.samplers.protocol import budget, check_fits, checked_weights, kept_rows
from squeak_dist.squeak import SqueakParameters


def greedy_cholesky(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
) -> Dictionary:
    """Pivoted Cholesky, m times: keep the row that the rows so far explain least.

    Parameters are those of :class:`~squeak_dist.samplers.Sampler`.

    Raises
    ------
    InvalidParameterError
        Without a budget, or for one above n.
    InsufficientMemoryError
        If n × m numbers do not fit this machine, with their bytes.

    Notes
    -----
    Rows have selection weight 1, so ``effective_dimension_`` is that of the rows kept.
    It ends early where nothing is left but rounding. Cost: n m², memory n m. Guarantee:
    the largest residual falls at every step; the trace error may be 4^m times the best.
    Fine & Scheinberg, "Efficient SVM training using low-rank kernel representations"
    (JMLR 2001); Harbrecht, Peters & Schneider (2012).
    """

    def largest(residual: Float64Array) -> int:
        return int(np.argmax(residual))

    return _pivoted(X, kernel, parameters, row_weights, largest)


def random_cholesky(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
) -> Dictionary:
    """Randomly pivoted Cholesky, m times: draw a row in proportion to what is not explained.

    Parameters are those of :class:`~squeak_dist.samplers.Sampler`.

    Raises
    ------
    InvalidParameterError, InsufficientMemoryError
        As :func:`greedy_cholesky`.

    Notes
    -----
    Rows have selection weight 1, as in :func:`greedy_cholesky`. Cost: n m², memory n m.
    Guarantee: E tr(K − K̃) ≤ (1 + ε') times that of the best rank r for m of
    r/ε' + r log(1/(ε' η)), η the best relative error. Chen, Epperly, Tropp & Webber,
    "Randomly pivoted Cholesky" (2023), Theorem 2.3.
    """

    def drawn(residual: Float64Array) -> int:
        heights = np.cumsum(residual)
        return int(np.searchsorted(heights, rng.random() * heights[-1], side="right"))

    return _pivoted(X, kernel, parameters, row_weights, drawn)


def pivoted_bytes(n: int, m: int) -> int:
    """Return the bytes of the factor that pivoted Cholesky holds."""
    return 8 * n * m


def _pivoted(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    row_weights: Float64Array | None,
    choose: Callable[[Float64Array], int],
) -> Dictionary:
    weights, m = checked_weights(X, parameters, row_weights), budget(parameters, "cholesky")
    check_fits(pivoted_bytes(len(X), m), f"the factor of {len(X):,} rows × {m:,} columns")
    doubled, roots = X.astype(np.float64, copy=False), np.sqrt(weights)
    factor, pivots = np.empty((m, len(X))), np.empty(m, np.int64)
    residual = weights * kernel_diag(kernel, doubled)
    least = residual_rounding(np.dtype(np.float64)) * float(residual.max())
    found = 0
    while found < m and residual.max() > least:
        pivot = choose(residual)
        column = kernel_block(kernel, doubled[pivot : pivot + 1], doubled)[0] * roots
        column = column * roots[pivot] - factor[:found, pivot] @ factor[:found]
        factor[found] = column / np.sqrt(residual[pivot])
        residual = np.maximum(residual - factor[found] ** 2, 0)
        pivots[found], residual[pivot] = pivot, 0
        found += 1
    return kept_rows(X, pivots[:found], parameters.gamma, weights)


def k_means(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
) -> Dictionary:
    """Take the centres of scikit-learn's KMeans, m clusters, each with the weight of its rows.

    Parameters are those of :class:`~squeak_dist.samplers.Sampler`.

    Raises
    ------
    InvalidParameterError
        Without a budget, or for one above n.

    Notes
    -----
    The points are the centres, which are no rows: ``indices`` names the row of each cluster
    that is nearest to its centre. A centre of c rows has s² = c, so that the dictionary
    stands for all rows. Fewer centres than m where fewer rows differ. Cost: n m d per
    iteration. Guarantee: ‖K − K̃‖ is bounded by the quantization error, for
    kernels that are smooth in the distance of rows. Zhang, Tsang & Kwok, "Improved Nyström
    low-rank approximation and error analysis" (ICML 2008).
    """
    from sklearn.cluster import KMeans

    weights, m = checked_weights(X, parameters, row_weights), budget(parameters, "k-means")
    positive = np.flatnonzero(weights)
    rows = X[positive]
    clusters = min(m, len(np.unique(rows, axis=0)))
    model = KMeans(clusters, n_init=1, random_state=int(rng.integers(2**31 - 1)))
    with single_openmp_thread():  # its sums depend on the number of threads
        model.fit(rows, sample_weight=weights[positive])
    owner, centres = model.labels_.astype(np.int64), model.cluster_centers_
    filled, counts = np.unique(owner, return_counts=True)
    return Dictionary(
        points=centres[filled].astype(X.dtype),
        indices=positive[_nearest(rows, centres, owner, filled)],
        probabilities=1 / counts,
        multiplicities=np.ones(len(filled), np.int64),
        row_weights=np.bincount(owner, weights[positive])[filled] / counts,
        gamma=parameters.gamma,
        qbar=1,
    )


def _nearest(
    rows: FloatArray, centres: FloatArray, owner: IntArray, clusters: IntArray
) -> IntArray:
    """Return the position of the row of each cluster that is nearest to its centre."""
    distances = np.linalg.norm(rows - centres[owner], axis=1)
    order = np.lexsort((distances, owner))
    return order[np.searchsorted(owner[order], clusters)]
