"""Ridge regression on a Nyström map by preconditioned conjugate gradients.

One iteration is one pass over the rows: each kernel entry is computed once and
used for both products. The system is that of the normal equations in the map's
coordinates, A θ = b with A = Σ v z zᵀ + μI; its preconditioner is the Cholesky
factor of an estimate of A from a uniform sample of rows together with the
dictionary. Rudi, Carratino & Rosasco, "FALKON" (2017), with another
preconditioner: DESIGN §6.1 has the comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from squeak_dist._scratch import scratch
from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.dictionary import Dictionary
from squeak_dist.kernels import kernel_block, kernel_strips, strip_product
from squeak_dist.leverage import rls_of_known_rows
from squeak_dist.linalg import (
    add_gram,
    cholesky_jittered,
    solve_lower,
    solve_lower_transposed,
    symmetrize,
    triangular_gram,
)
from squeak_dist.nystrom import (
    NystromMap,
    linear_columns,
    residual_rounding,
    row_slices,
    summed_on_distinct,
)

_SKETCH = 64  # random directions: squared lengths to sqrt(2/64), 18 %
SKETCH_ROWS = 3  # of a sketch of all rows, per centre
_EMBEDDED, _TARGETS = 2048, 64  # rows of the data at a time, and rows of the sketch they go into
_CLEAR = 1.5  # times the rounding of products: the smallest eigenvalue that is told from it


def kernel_product(
    nystrom: NystromMap,
    X: FloatArray,
    V: Float64Array,
    row_weights: Float64Array | None = None,
) -> Float64Array:
    """Return Fᵀ diag(v) F V over the rows of X, each kernel entry made once.

    Parameters
    ----------
    nystrom : NystromMap
        Its kernel and its m points.
    X : ndarray of shape (n, d)
        Encoded rows.
    V : ndarray of float64, shape (m, k), (m + 1, k) or (m + d + 1, k)
        Vectors in the coordinates of F = K_xD, [K_xD, 1] or [K_xD, x, 1].
    row_weights : ndarray of shape (n,), optional
        Sample weights v.

    Returns
    -------
    ndarray of float64, of the shape of V
        Cost: n m kernel entries and 2 n m k multiply-adds in the precision of X,
        summed in float64.
    """
    total, m = np.zeros_like(V), len(nystrom)
    columns = [np.ascontiguousarray(column, X.dtype) for column in V.T]
    weights = None if row_weights is None else row_weights.astype(X.dtype)
    constant, linear = len(V) > m, len(V) > m + 1
    for rows, K in kernel_strips(nystrom.kernel, X, nystrom.points):
        for j, column in enumerate(columns):
            u = K @ column[:m]
            if linear:
                u += X[rows] @ column[m:-1]
            if constant:
                u += column[-1]
            if weights is not None:
                u *= weights[rows]
            total[:m, j] += u @ K
            if linear:
                total[m:-1, j] += u @ X[rows]
            if constant:
                total[-1, j] += u.sum(dtype=np.float64)
    return total


def residual_moment(
    nystrom: NystromMap,
    X: FloatArray,
    targets: Float64Array,
    coefficients: Float64Array,
    row_weights: Float64Array | None = None,
) -> tuple[Float64Array, Float64Array]:
    """Return Fᵀ diag(v) e and Σ v e² of the errors e = y − F c over the rows of X.

    Parameters
    ----------
    nystrom : NystromMap
        Its kernel and its m points.
    X : ndarray of shape (n, d)
        Encoded rows.
    targets : ndarray of float64, shape (n, k)
        Centred targets.
    coefficients : ndarray of float64, shape (m, k), (m + 1, k) or (m + d + 1, k)
        c, of F = K_xD, [K_xD, 1] or [K_xD, x, 1]. Their terms are large and cancel, so
        predictions are summed in float64.
    row_weights : ndarray of shape (n,), optional
        Sample weights v.

    Returns
    -------
    moment : ndarray of float64, of the shape of ``coefficients``
    square : ndarray of float64, shape (k,)
        Cost: n m kernel entries, and half as much again for both products.
    """
    moment, m = np.zeros_like(coefficients), len(nystrom)
    square = np.zeros(coefficients.shape[1])
    constant, linear = len(coefficients) > m, len(coefficients) > m + 1
    for rows, K in kernel_strips(nystrom.kernel, X, nystrom.points):
        errors = targets[rows] - strip_product(K, coefficients[:m])
        if linear:
            errors -= X[rows].astype(np.float64) @ coefficients[m:-1]
        if constant:
            errors -= coefficients[-1]
        weighted = errors if row_weights is None else errors * row_weights[rows, None]
        square += np.einsum("ij,ij->j", weighted, errors)
        for j, column in enumerate(weighted.astype(X.dtype).T):
            u = np.ascontiguousarray(column)
            moment[:m, j] += u @ K
            if linear:
                moment[m:-1, j] += u @ X[rows]
            if constant:
                moment[-1, j] += u.sum(dtype=np.float64)
    return moment, square


@dataclass(frozen=True, eq=False)
class ResidualSketch:
    """The residual r(x) of the regularized map, from the features of the map at hand.

    Parameters
    ----------
    directions : ndarray of shape (m, 64) or (m, 0)
        D such that r(x) ≈ k(x, x) − ‖z‖² + ‖Dᵀ z‖²; none where the map is the regularized one.
    """

    directions: FloatArray

    def residual(self, diagonal: FloatArray, Z: FloatArray) -> Float64Array:
        """Return the estimate of r(x), shape (n,): at least some roundings of k(x, x).

        Parameters
        ----------
        diagonal : ndarray of shape (n,)
            k(x, x).
        Z : ndarray of shape (n, m)
            Features. Cost: 64 n m multiply-adds.
        """
        shaded = Z @ self.directions
        residual = diagonal - np.einsum("ij,ij->i", Z, Z) + np.einsum("ij,ij->i", shaded, shaded)
        return np.maximum(residual, residual_rounding(Z.dtype) * diagonal).astype(np.float64)


def residual_sketch(
    nystrom: NystromMap, dictionary: Dictionary, approximation: str, rng: np.random.Generator
) -> ResidualSketch:
    """Prepare residuals that weigh rows: to a sixth of what shading adds, for no further solve.

    Parameters
    ----------
    nystrom : NystromMap
        :func:`~squeak_dist.nystrom.solution_map` of the dictionary.
    dictionary : Dictionary
        With its γ and weights.
    approximation : {"projected", "regularized"}
        Which map it is.
    rng : numpy.random.Generator
        Of the random signs.

    Notes
    -----
    On the span of the dictionary, K_DD = T Tᵀ, the regularized map leaves of a row
    γ zᵀ (Tᵀ S² T + γI)⁻¹ z = γ ‖C⁻¹ z‖² more than the projection (Woodbury). Random signs g
    have E (gᵀ C⁻¹ z)² = ‖C⁻¹ z‖² (Achlioptas 2003). Cost: m³/3 multiply-adds.
    """
    dtype = nystrom.points.dtype
    if approximation == "regularized":
        return ResidualSketch(np.zeros((len(nystrom), 0), dtype))
    weights = np.sqrt(summed_on_distinct(dictionary.column_weights**2, dictionary.points))
    B = triangular_gram(weights[:, None] * nystrom.factor)
    B[np.diag_indices_from(B)] += dictionary.gamma
    signs = rng.choice([-1.0, 1.0], (len(B), _SKETCH)) * np.sqrt(dictionary.gamma / _SKETCH)
    directions = solve_lower_transposed(cholesky_jittered(B, 1e-14, overwrite=True), signs)
    return ResidualSketch(directions.astype(dtype))


def sampled_row_weights(
    residual: Float64Array,
    row_weights: Float64Array | float,
    rate: float,
    dictionary: Dictionary,
    epsilon: float,
) -> Float64Array:
    """Return the balance-heuristic weights 1/(ρ + q̄ p(x)) of uniformly sampled rows.

    Together with :func:`dictionary_row_weights` the expected weight of each row
    of the data is 1, while rows that either sample finds often get less noise
    from the other (Veach & Guibas 1995).

    Parameters
    ----------
    residual : ndarray of float64, shape (s,)
        r(x) by the regularized map of the dictionary.
    row_weights : ndarray of shape (s,) or float
        Sample weights v.
    rate : float
        ρ, the chance of a row to be in the uniform sample.
    dictionary : Dictionary
        γ and q̄.
    epsilon : float
        ε.
    """
    tau = rls_of_known_rows(residual, dictionary.gamma, epsilon, row_weights)
    return 1 / (rate + dictionary.qbar * tau)


def dictionary_row_weights(dictionary: Dictionary, rate: float) -> Float64Array:
    """Return the balance-heuristic weights Q_i/(ρ + q̄ p_i) of the dictionary's rows."""
    return dictionary.multiplicities / (rate + dictionary.qbar * dictionary.probabilities)


def preconditioner(gram: Float64Array, mu: float) -> Float64Array:
    """Return the Cholesky factor of an estimate of A, from the lower triangle of its Gram."""
    A = symmetrize(gram)
    A[np.diag_indices_from(A)] += mu
    return cholesky_jittered(A, 1e-13, overwrite=True)


def sign_embedding(
    nystrom: NystromMap,
    X: FloatArray,
    row_weights: Float64Array | None,
    width: int,
    rows: int,
    rng: np.random.Generator,
    start: FloatArray | None = None,
) -> FloatArray:
    """Return S diag(√v) F, a sketch of the rows of X whose sums are sketches of all rows.

    Parameters
    ----------
    nystrom : NystromMap
        Its kernel and its m points.
    X : ndarray of shape (n, d)
        Encoded rows.
    row_weights : ndarray of shape (n,), optional
        Sample weights v.
    width : int
        Of the linear part in F: F = K_xD, [K_xD, 1] or [K_xD, x, 1].
    rows : int
        s, of the sketch.
    rng : numpy.random.Generator
        Of S.
    start : ndarray of shape (s, m + width), optional
        The sums so far; left unchanged.

    Returns
    -------
    ndarray of the dtype of the map, shape (s, m + width)
        E (SF)ᵀ(SF) = Fᵀ diag(v) F.

    Notes
    -----
    A sparse sign embedding, as of KRILL (Díaz et al. 2023): a row of the data goes with random
    signs into 64 rows of the sketch, which 2,048 rows of the data share that chance put
    together, so that the sketch is made by matrix products. Cost: n m kernel entries and
    64 n m multiply-adds.
    """
    m, dtype = len(nystrom), nystrom.points.dtype
    total = np.zeros((rows, m + width), dtype) if start is None else start.copy()
    order, targets = rng.permutation(len(X)), min(_TARGETS, rows)
    with scratch((min(_EMBEDDED, len(X)), m), dtype) as buffer:
        for part in row_slices(len(X), _EMBEDDED):
            chosen = order[part]
            some = X[chosen].astype(dtype, copy=False)
            signs = rng.choice([-1.0, 1.0], (targets, len(chosen))) / np.sqrt(targets)
            if row_weights is not None:
                signs *= np.sqrt(row_weights[chosen])
            signs = signs.astype(dtype)
            into = rng.choice(rows, targets, replace=False)
            K = kernel_block(nystrom.kernel, some, nystrom.points, buffer[: len(chosen)])
            total[into, :m] += signs @ K
            total[into, m:] += signs @ linear_columns(some, dtype, width)
    return total


def embedded_factor(
    nystrom: NystromMap, embedded: FloatArray, penalties: Float64Array
) -> Float64Array:
    """Return the Cholesky factor of the estimate of A that a sketch of all rows makes.

    Parameters
    ----------
    nystrom : NystromMap
        Map of m features.
    embedded : ndarray of shape (s, p)
        Sum of :func:`sign_embedding` over all rows.
    penalties : ndarray of float64, shape (p, 1)
        The diagonal that A has beside the sums.

    Notes
    -----
    The eigenvalues of the preconditioned matrix are within (1 ± sqrt(p/s))² of each other's mean,
    whatever the leverage of the rows. Cost: 3 s m² / 2 multiply-adds.
    """
    A = np.diag(penalties[:, 0])
    for rows in row_slices(len(embedded), _EMBEDDED):
        features = embedded[rows].copy()
        nystrom.forward.solve_rows(features[:, : len(nystrom)])
        add_gram(features, A)
    return cholesky_jittered(A, 1e-13, overwrite=True)


def resolvable(norm: float, least: float, dtype: npt.DTypeLike) -> bool:
    """Say whether products with A tell its smallest eigenvalues from rounding.

    Parameters
    ----------
    norm : float
        ‖A‖₂, or an estimate.
    least : float
        Its smallest eigenvalue, or an estimate: μ at least.
    dtype : dtype
        In which kernel entries are computed, of precision ε. In all trials iterations
        converged, in 4 or 5, while ε ‖A‖₂ was well below the smallest eigenvalue; where it was
        about as large, in some and not in others; and in none where it was larger.
    """
    return _CLEAR * float(np.finfo(dtype).eps) * norm < least


@dataclass(frozen=True, eq=False)
class CGState:
    """Where conjugate gradients stand; one column per output, each with its own steps.

    Parameters
    ----------
    theta : ndarray of float64, shape (m, k)
        Solution so far.
    residual : ndarray of float64, shape (m, k)
        b − A θ.
    direction : ndarray of float64, shape (m, k)
        Where the next step goes.
    energy : ndarray of float64, shape (k,)
        rᵀ M⁻¹ r of the residual.
    start_energy : ndarray of float64, shape (k,)
        What it is measured against: about the same of b.
    """

    theta: Float64Array
    residual: Float64Array
    direction: Float64Array
    energy: Float64Array
    start_energy: Float64Array

    @property
    def relative_residual(self) -> float:
        """Largest sqrt(rᵀM⁻¹r / bᵀM⁻¹b) over the outputs: the stopping rule."""
        ratio = self.energy / np.where(self.start_energy > 0, self.start_energy, 1)
        return float(np.sqrt(ratio.max(initial=0.0)))


def start_cg(theta: Float64Array, factor: Float64Array) -> CGState:
    """Return a state at θ whose residual is not known yet: :func:`restart_cg` makes it one.

    Parameters
    ----------
    theta : ndarray of float64, shape (m, k)
        Where to start: the solution on the sample, near that on all rows, so that residuals
        are measured against θᵀ M θ in place of bᵀ M⁻¹ b.
    factor : ndarray of float64, shape (m, m)
        :func:`preconditioner`.
    """
    blank, image = np.zeros_like(theta), factor.T @ theta
    energy = np.einsum("ij,ij->j", image, image)
    return CGState(theta, blank, blank, energy, energy)


def restart_cg(state: CGState, residual: Float64Array, factor: Float64Array) -> CGState:
    """Return the state that goes on from θ with a residual computed anew.

    Parameters
    ----------
    state : CGState
        At its start, or after some steps, whose own residual has drifted by float32 rounding.
    residual : ndarray of float64, shape (m, k)
        b − A θ.
    factor : ndarray of float64, shape (m, m)
        :func:`preconditioner`.
    """
    direction = _preconditioned(factor, residual)
    energy = np.einsum("ij,ij->j", residual, direction)
    return replace(state, residual=residual, direction=direction, energy=energy)


def step_cg(state: CGState, product: Float64Array, factor: Float64Array) -> CGState:
    """Return the state after one step along the direction.

    Parameters
    ----------
    state : CGState
        Before.
    product : ndarray of float64, shape (m, k)
        A times the direction.
    factor : ndarray of float64, shape (m, m)
        :func:`preconditioner`.
    """
    curvature = np.einsum("ij,ij->j", state.direction, product)
    alpha = np.divide(state.energy, curvature, out=np.zeros_like(curvature), where=curvature > 0)
    residual = state.residual - alpha * product
    solved = _preconditioned(factor, residual)
    energy = np.einsum("ij,ij->j", residual, solved)
    before = np.where(state.energy > 0, state.energy, 1)
    # Polak–Ribière instead of Fletcher–Reeves: float32 products make A inexact.
    beta = np.maximum(energy - np.einsum("ij,ij->j", state.residual, solved), 0) / before
    return replace(
        state,
        theta=state.theta + alpha * state.direction,
        residual=residual,
        direction=solved + beta * state.direction,
        energy=energy,
    )


def _preconditioned(factor: Float64Array, vectors: Float64Array) -> Float64Array:
    return solve_lower_transposed(factor, solve_lower(factor, vectors))
