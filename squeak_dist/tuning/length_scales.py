"""Length scales of a kernel: the median heuristic, and maximum marginal likelihood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.tuning.marginal_likelihood import (
    Radial,
    TuningRows,
    likelihood_of_directions,
    negative_log_likelihood,
    squared_distances,
)

_STARTS = (0.5, 2.0)  # in median distances
_FIRST_NOISE = 0.1
_NOISE = (1e-6, 1e3)  # range of μ, the ratio of noise to kernel scale
_REACH = 6.0  # log length scales stay this close to that of the median distance
_SPREAD = np.sqrt(3)  # of their prior
_COARSE_ROWS = 512  # on which the starts compete
_ROWS_SHARE, _ROWS = 4, (128, 1024)  # one row in four of a sample, between these
_COARSE_ITERATIONS, _ITERATIONS = 40, 12
_GAIN = 1e-4  # of the likelihood per row, below which an iteration ends the search
_NOT_DEFINITE = 1e10
_MOST_TURNED = 32  # features: the search has d² parameters
_TURN_SPREAD = 0.5  # of their prior
_COARSE_TURNS = 30
_UNCHANGING = 1e-3  # of the largest 1/ℓ


@dataclass(frozen=True, eq=False)
class LikelyKernel:
    """A kernel whose parameters make the targets of a sample most likely.

    Parameters
    ----------
    kernel : RBF or Matern
        With its length scale.
    mu : float
        Ratio of noise to kernel scale.
    value : float
        Negative log likelihood per row, prior included.
    """

    kernel: Radial
    mu: float
    value: float

    @property
    def logarithms(self) -> Float64Array:
        """Log length scales, one or one per feature, and log μ."""
        return np.log(np.append(self.kernel.length_scale, self.mu))


def median_length_scale(X: FloatArray) -> float:
    """Return the median distance between the rows of a sample, the median heuristic.

    Parameters
    ----------
    X : ndarray of shape (s, d)
        Encoded rows, a thousand or so: the cost is s² d.

    Returns
    -------
    float
        Positive: 1.0 where all rows are equal; the median over different rows
        where most of them are duplicates.
    """
    distances = squared_distances(np.asarray(X, np.float64))
    above = distances[np.triu_indices(len(distances), 1)]
    largest = float(above.max(initial=0.0))
    different = above[above > 1e-12 * largest] if largest > 0 else above[:0]
    return float(np.sqrt(np.median(different))) if len(different) else 1.0


def likely_kernel(family: Radial, rows: TuningRows, *, separate: bool) -> LikelyKernel | None:
    """Return the kernel of a family that makes the targets of a sample most likely.

    Parameters
    ----------
    family : RBF or Matern
        Its length scale is not used.
    rows : TuningRows
        The sample, of which a quarter is used, at least 128 and at most 1,024 rows.
        Two starts, half and twice the median distance, compete on 512 of them.
    separate : bool
        Whether each feature has its own length scale (automatic relevance determination).

    Returns
    -------
    LikelyKernel or None
        None where the search fails.

    Notes
    -----
    Cost: about 100 s³ multiply-adds for s = 512, and 12 for s = 1,024.
    """
    few = rows.first(int(np.clip(len(rows) // _ROWS_SHARE, *_ROWS)))
    coarse = few.first(_COARSE_ROWS)
    median = median_length_scale(few.X)
    scales = rows.X.shape[1] if separate else 1
    starts = [np.log([*([factor * median] * scales), _FIRST_NOISE]) for factor in _STARTS]
    found = [maximize(family, start, coarse, median, _COARSE_ITERATIONS) for start in starts]
    best = min((f for f in found if f is not None), key=lambda f: f.value, default=None)
    if best is None or len(few) == len(coarse):
        return best
    return maximize(family, best.logarithms, few, median, _ITERATIONS)


def maximize(
    family: Radial, start: Float64Array, rows: TuningRows, median: float, iterations: int
) -> LikelyKernel | None:
    """Maximize marginal likelihood and prior from one start, by L-BFGS-B.

    Parameters
    ----------
    family : RBF or Matern
        Its length scale is not used.
    start : ndarray of float64, shape (2,) or (d + 1,)
        Log length scales and log μ.
    rows : TuningRows
        The rows.
    median : float
        Median distance: the log length scales have a normal prior around its logarithm,
        of standard deviation √3 (Hvarfner, Hellsten & Nardi 2024), without which some
        hundred rows in many dimensions are explained one by one.
    iterations : int
        Most iterations, each about one evaluation of the likelihood.

    Returns
    -------
    LikelyKernel or None
        None where the likelihood is not finite.
    """
    centre = np.log(median)
    bounds = [(centre - _REACH, centre + _REACH)] * (len(start) - 1) + [tuple(np.log(_NOISE))]

    def objective(logarithms: Float64Array) -> tuple[float, Float64Array]:
        off = np.append(logarithms[:-1] - centre, 0) / _SPREAD
        try:
            value, gradient = negative_log_likelihood(family, logarithms, rows)
        except np.linalg.LinAlgError:
            return _NOT_DEFINITE, np.zeros_like(logarithms)
        prior = 0.5 * float(off @ off) / len(rows)
        return value + prior, gradient + off / (_SPREAD * len(rows))

    found = _minimum(objective, start, bounds, iterations)
    if found is None:
        return None
    logarithms, value = found
    scales = tuple(map(float, np.exp(logarithms[:-1])))
    kernel = replace(family, length_scale=scales if len(scales) > 1 else scales[0])
    return LikelyKernel(kernel, float(np.exp(logarithms[-1])), value)


def _minimum(
    objective: Callable[[Float64Array], tuple[float, Float64Array]],
    start: Float64Array,
    bounds: Sequence[tuple[float | None, float | None]],
    iterations: int,
) -> tuple[Float64Array, float] | None:
    """Return where L-BFGS-B arrives and the value there; None where it is not finite."""
    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds,
        options={"maxiter": iterations, "ftol": _GAIN},
    )  # fmt: skip
    if not found.fun < _NOT_DEFINITE or not np.isfinite(found.x).all():
        return None
    return found.x, float(found.fun)


def likely_directions(start: LikelyKernel, rows: TuningRows) -> LikelyKernel | None:
    """Turn the features of a kernel with a length scale each so that targets are most likely.

    Parameters
    ----------
    start : LikelyKernel
        Of :func:`likely_kernel`, ``separate``.
    rows : TuningRows
        Its sample, of which as many rows are used.

    Returns
    -------
    LikelyKernel or None
        Its directions are orthonormal, the shortest length scale first; those along which the
        kernel does not change are left out. None for more than 32 features, and where the
        search fails.

    Notes
    -----
    A = B diag(1/ℓ) from B = I, whose entries have a normal prior of standard deviation 1/2
    around I: d² numbers by some hundred rows. The singular values of A are 1/ℓ along its right
    singular vectors; turning what comes out of it changes no distance. Cost: about
    20 s³ multiply-adds for s = 512, and 12 for s = 1,024.
    """
    d = rows.X.shape[1]
    if d > _MOST_TURNED:
        return None
    few = rows.first(int(np.clip(len(rows) // _ROWS_SHARE, *_ROWS)))
    scales = np.broadcast_to(start.kernel.length_scale, d)
    B, log_mu, value = np.eye(d), float(np.log(start.mu)), np.inf
    steps = [(few.first(_COARSE_ROWS), _COARSE_TURNS)]
    if len(few) > _COARSE_ROWS:
        steps.append((few, _ITERATIONS))
    for some, iterations in steps:
        found = _turn(start.kernel, B, log_mu, replace(some, X=some.X / scales), iterations)
        if found is None:
            return None
        B, log_mu, value = found
    _, inverse, directions = np.linalg.svd(B / scales)
    kept = inverse > _UNCHANGING * inverse[0]
    kernel = replace(
        start.kernel,
        length_scale=tuple(map(float, 1 / inverse[kept])),
        directions=tuple(tuple(map(float, row)) for row in directions[kept]),
    )
    return LikelyKernel(kernel, float(np.exp(log_mu)), value)


def _turn(
    family: Radial, B: Float64Array, log_mu: float, rows: TuningRows, iterations: int
) -> tuple[Float64Array, float, float] | None:
    """Return the B, log μ and −log p per row that L-BFGS-B arrives at; None where it fails."""
    d = len(B)

    def objective(values: Float64Array) -> tuple[float, Float64Array]:
        B = values[:-1].reshape(d, d)
        off = (B - np.eye(d)) / _TURN_SPREAD
        try:
            value, by_directions, by_noise = likelihood_of_directions(
                family, B, float(values[-1]), rows
            )
        except np.linalg.LinAlgError:
            return _NOT_DEFINITE, np.zeros_like(values)
        prior = 0.5 * float(np.sum(off**2)) / len(rows)
        by_directions = by_directions + off / (_TURN_SPREAD * len(rows))
        return value + prior, np.append(by_directions, by_noise)

    bounds = [(None, None)] * (d * d) + [tuple(np.log(_NOISE))]
    found = _minimum(objective, np.append(B, log_mu), bounds, iterations)
    if found is None:
        return None
    values, value = found
    return values[:-1].reshape(d, d), float(values[-1]), value
