"""Ridge regression for every penalty μ from one eigendecomposition.

The normal equations of n rows are all that is needed: errors on the rows
fitted, degrees of freedom and generalized cross-validation follow for any μ in
O(m) operations, with or without some linear columns beside the m features: the
encoded columns and a constant, or the constant alone, which is an intercept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from squeak_dist._typing import Float64Array
from squeak_dist.errors import NumericalError
from squeak_dist.linalg import symmetrize, triangular_inverse

_MU_FLOOR = 1e-9  # of the largest eigenvalue: below it the sums hold only rounding
_GRID = 28  # three a decade: a minimum of GCV is wider
_PRECISION = 1e-3  # of log μ, which changes no prediction
_FLAT = 1e-4  # of GCV: far below what it is uncertain by, sqrt(2/n)
_LEAST_GAIN = 0.01  # of GCV: below it linear columns add risk far from the data, not accuracy
_HIGHEST = 2.0  # deviations of the target that the constant may be from its mean


@dataclass(frozen=True, eq=False)
class Border:
    """Linear columns beside the features of a path, the constant last.

    Parameters
    ----------
    cross : ndarray of float64, shape (m, d)
        Vᵀ Σ v z xᵀ, in the eigenvectors' coordinates.
    gram : ndarray of float64, shape (d, d)
        Σ v x xᵀ, and the ridge on its diagonal.
    ridge : ndarray of float64, shape (d,)
        What the columns have beside μ.
    moment : ndarray of float64, shape (d, k)
        Σ v x yᵀ.
    """

    cross: Float64Array
    gram: Float64Array
    ridge: Float64Array
    moment: Float64Array

    @property
    def weight_sum(self) -> float:
        """Σ v, which the constant has in the Gram."""
        return float(self.gram[-1, -1] - self.ridge[-1])

    def constant_held(self, more: float) -> Border:
        """Return the border whose constant has that much more ridge."""
        added = np.zeros(len(self.ridge))
        added[-1] = more
        return replace(self, gram=self.gram + np.diag(added), ridge=self.ridge + added)


@dataclass(frozen=True, eq=False)
class RidgePath:
    """The ridge regressions of all μ on the same sums.

    Parameters
    ----------
    values : ndarray of float64, shape (m,)
        Eigenvalues λ ≥ 0 of the Gram Σ v z zᵀ = V diag(λ) Vᵀ, ascending.
    moment : ndarray of float64, shape (m, k)
        Vᵀ Σ v z yᵀ.
    target_square : ndarray of float64, shape (k,)
        Σ v y².
    rows : int
        Rows of positive weight.
    border : Border, optional
        Linear columns that share the penalty.
    """

    values: Float64Array
    moment: Float64Array
    target_square: Float64Array
    rows: int
    border: Border | None = None

    def train_square(self, mu: float) -> Float64Array:
        """Return Σ v (y − ŷ)² on the rows fitted, shape (k,)."""
        return self._sums(mu)[0]

    def freedom(self, mu: float) -> float:
        """Return the degrees of freedom df(μ) = tr(A (A + μI)⁻¹), without the intercept."""
        return self._sums(mu)[1]

    def gcv(self, mu: float) -> float:
        """Return GCV(μ) = n ‖y − ŷ‖² / (n − df(μ) − 1)², summed over outputs.

        Golub, Heath & Wahba (1979); infinite where no degree of freedom is left, or
        μ is so small that rounding in the sums outweighs it.
        """
        try:
            square, freedom = self._sums(mu)
        except np.linalg.LinAlgError:
            return np.inf
        left = self.rows - 1 - freedom
        return np.inf if left <= 0 else float(self.rows * square.sum() / left**2)

    def best_mu(self) -> float:
        """Return the largest μ whose GCV is least, but for 1e-4 of it.

        It is from 1e-9 to 1 of the largest eigenvalue. Where there is hardly any noise the
        curve is flat for decades, and rounding would choose among them; a variance r(x)/μ
        would be as arbitrary.
        """
        largest = float(self.values[-1]) or 1.0
        grid = np.log(largest) + np.linspace(np.log(_MU_FLOOR), 0, _GRID)
        return float(np.exp(_minimum(lambda log_mu: self.gcv(float(np.exp(log_mu))), grid)))

    @property
    def width(self) -> int:
        """How many linear columns stand beside the features."""
        return 0 if self.border is None else len(self.border.gram)

    @property
    def ridge(self) -> Float64Array:
        """What each of the linear columns has beside μ, shape (width,)."""
        return np.zeros(0) if self.border is None else self.border.ridge

    def narrowed(self, width: int) -> RidgePath:
        """Return the path with the last ``width`` of its linear columns."""
        if self.border is None or width == 0:
            return replace(self, border=None)
        kept = slice(self.width - width, None)
        border = self.border
        return replace(
            self,
            border=Border(
                border.cross[:, kept],
                border.gram[kept, kept],
                border.ridge[kept],
                border.moment[kept],
            ),
        )

    def bounded(self, mu: float) -> RidgePath:
        """Return the path whose constant is at most two deviations of the target from its mean.

        The kernel part may make up for any constant among the rows, where μ is small and the
        kernel smooth: far from all rows it would then be anything. The bound is the multiplier
        of least squares under |b| ≤ 2σ: more ridge on the constant, none where it holds. Where
        rounding outweighs μ, which GCV refuses, the path is returned as it is.
        """
        if self.border is None:
            return self
        border, shrunk = self.border, 1 / (self.values + mu)
        try:
            factor = _schur_factor(border, shrunk[:, None] * border.cross, mu)
            constant = self.solution(mu)[1][-1]
        except np.linalg.LinAlgError:
            return self
        deviation = np.sqrt(self.target_square / border.weight_sum)
        highest = np.where(deviation > 0, _HIGHEST * deviation, np.inf)
        excess = float(np.max(np.abs(constant) / highest, initial=0.0)) - 1
        if excess <= 0:
            return self
        # b falls as 1 / (s + ridge): s is what the other columns leave of the constant's square.
        return replace(self, border=border.constant_held(excess * float(factor[-1, -1] ** 2)))

    def solution(self, mu: float) -> tuple[Float64Array, Float64Array]:
        """Return the coefficients of the features, Vᵀθ of shape (m, k), and of linear columns.

        Raises
        ------
        LinAlgError
            If rounding outweighs μ beside linear columns.
        """
        theta, slopes, _ = self._solved(mu)
        return theta, slopes

    def _sums(self, mu: float) -> tuple[Float64Array, float]:
        """Return Σ v (y − ŷ)² per output and df: θ = A⁻¹b explains bᵀθ + θᵀMθ, M the penalty."""
        theta, slopes, freedom = self._solved(mu)
        explained = np.einsum("ij,ij->j", self.moment, theta)
        if self.border is not None:
            explained += np.einsum("ij,ij->j", self.border.moment, slopes)
            explained += np.einsum("i,ij,ij->j", self.border.ridge, slopes, slopes)
        norm = np.einsum("ij,ij->j", theta, theta) + np.einsum("ij,ij->j", slopes, slopes)
        square = self.target_square - explained - mu * norm
        return np.maximum(square, 1e-14 * self.target_square), freedom

    def _solved(self, mu: float) -> tuple[Float64Array, Float64Array, float]:
        """Return Vᵀθ, the linear coefficients and df."""
        shrunk = 1 / (self.values + mu)
        theta, freedom = shrunk[:, None] * self.moment, float(np.sum(self.values * shrunk))
        if self.border is None:
            return theta, np.zeros((0, theta.shape[1])), freedom
        slopes, added = _slopes(self.border, shrunk, theta, mu)
        return theta - shrunk[:, None] * (self.border.cross @ slopes), slopes, freedom + added


def choose_penalty(
    path: RidgePath, mu: float | None, linear_part: bool | None
) -> tuple[float, RidgePath]:
    """Return μ, and the path with those of its linear columns that stay.

    Parameters
    ----------
    path : RidgePath
        With a border.
    mu : float, optional
        Where it is given; by GCV otherwise.
    linear_part : bool, optional
        All linear columns, or none. Otherwise the constant stays unless it raises GCV by
        1 %, and all of them if they lower it by 1 % more.

    Notes
    -----
    A constant hardly changes GCV: what it changes is what is said of rows far from all
    others, where the kernel says nothing.
    """

    def penalized(of: RidgePath) -> tuple[float, RidgePath]:
        chosen = of.best_mu() if mu is None else mu
        return chosen, of.bounded(chosen)

    if linear_part is not None:
        return penalized(path if linear_part else path.narrowed(0))
    best_mu, best = penalized(path.narrowed(0))
    least = best.gcv(best_mu)
    for candidate, gain in ((path.narrowed(1), -_LEAST_GAIN), (path, _LEAST_GAIN)):
        wider_mu, wider = penalized(candidate)
        if (score := wider.gcv(wider_mu)) < (1 - gain) * least:
            best, best_mu, least = wider, wider_mu, score
    return best_mu, best


def _slopes(
    border: Border, shrunk: Float64Array, theta: Float64Array, mu: float
) -> tuple[Float64Array, float]:
    """Return the linear coefficients and what they add to df, by block elimination.

    Raises
    ------
    LinAlgError
        Where rounding outweighs μ: d columns add between 0 and d to df.
    """
    weighted = shrunk[:, None] * border.cross
    factor = _schur_factor(border, weighted, mu)
    half = triangular_inverse(factor)
    slopes = half.T @ (half @ (border.moment - border.cross.T @ theta))
    spread = weighted @ half.T
    added = len(half) - mu * float(np.sum(half**2) + np.sum(spread**2))
    if not 0 <= added <= len(half):
        raise np.linalg.LinAlgError("rounding outweighs the penalty")
    return slopes, added


def _schur_factor(border: Border, weighted: Float64Array, mu: float) -> Float64Array:
    """Return the Cholesky factor of what the features leave of the linear columns, plus μ."""
    schur = border.gram - border.cross.T @ weighted
    schur[np.diag_indices_from(schur)] += mu
    return np.asarray(np.linalg.cholesky(schur), np.float64)


def _minimum(score: Callable[[float], float], grid: Float64Array) -> float:
    """Return the minimum of a score, on the grid and between the neighbours of the best.

    Of a flat one it is the upper end, where the score is 1e-4 above its least.
    """
    scores = [score(float(g)) for g in grid]
    best = int(np.argmin(scores))
    if not np.isfinite(scores[best]):
        return float(grid[-1])
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    with np.errstate(invalid="ignore"):  # scores may be infinite
        refined = minimize_scalar(
            score,
            bounds=(float(low), float(high)),
            method="bounded",
            options={"xatol": _PRECISION},
        )
    least = min(float(refined.fun), scores[best])
    place = float(refined.x) if refined.fun <= scores[best] else float(grid[best])
    limit = (1 + _FLAT) * least
    beyond = (i for i, g in enumerate(grid) if g > place and not scores[i] <= limit)
    end = next(beyond, None)
    if end is None:
        return float(grid[-1])
    start = max(place, float(grid[end - 1]))
    if not np.isfinite(scores[end]):
        return start
    return float(brentq(lambda log_mu: score(log_mu) - limit, start, grid[end], xtol=_PRECISION))


def ridge_path(
    gram: Float64Array, moment: Float64Array, target_square: Float64Array, rows: int
) -> tuple[RidgePath, Float64Array]:
    """Decompose normal equations.

    Parameters
    ----------
    gram : ndarray of float64, shape (m, m)
        Σ v z zᵀ; the lower block triangle counts.
    moment : ndarray of float64, shape (m, k)
        Σ v z yᵀ.
    target_square : ndarray of float64, shape (k,)
        Σ v y².
    rows : int
        Rows of positive weight.

    Returns
    -------
    path : RidgePath
    vectors : ndarray of float64, shape (m, m)
        The eigenvectors V. Cost: about 9 m³.

    Raises
    ------
    NumericalError
        If the sums are not finite.
    """
    if not (np.isfinite(gram).all() and np.isfinite(moment).all()):
        raise NumericalError(
            "the normal equations are not finite: kernel values, targets or sample weights "
            'overflow; scale them, or use dtype="float64"'
        )
    values, vectors = np.linalg.eigh(symmetrize(gram))
    path = RidgePath(np.maximum(values, 0), vectors.T @ moment, target_square, rows)
    return path, vectors
