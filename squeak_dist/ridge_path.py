"""Ridge regression for every penalty μ from one tridiagonal form.

The normal equations of n rows are all that is needed: errors on the rows
fitted, degrees of freedom and generalized cross-validation follow for any μ in
O(m) operations, with or without some linear columns beside the m features: the
encoded columns and a constant, or the constant alone, which is an intercept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from squeak_dist._typing import Float64Array
from squeak_dist.errors import NumericalError
from squeak_dist.linalg import symmetrize
from squeak_dist.tridiagonal import Rotation, Tridiagonal, tridiagonal_form

_MU_FLOOR = 1e-9  # of the largest eigenvalue: below it the sums hold only rounding
_GRID = 28  # three a decade: a minimum of GCV is wider
_BETWEEN = 8  # places between two of a grid; two rounds take log μ to 2 %
_NO_FACTOR = -1.0  # on the diagonal in place of a factor, whose own is positive
_MOST_NUMBERS = 1 << 22  # in a stack of matrices, one per μ
_FLAT = 1e-4  # of GCV: far below what it is uncertain by, sqrt(2/n)
_LEAST_GAIN = 0.01  # of GCV: below it linear columns add risk far from the data, not accuracy
_HIGHEST = 2.0  # deviations of the target that the constant may be from its mean


@dataclass(frozen=True, eq=False)
class Border:
    """Linear columns beside the features of a path, the constant last.

    Parameters
    ----------
    cross : ndarray of float64, shape (m, d)
        Qᵀ Σ v z xᵀ.
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
    form : Tridiagonal
        T of the Gram Σ v z zᵀ = Q T Qᵀ.
    moment : ndarray of float64, shape (m, k)
        Qᵀ Σ v z yᵀ.
    target_square : ndarray of float64, shape (k,)
        Σ v y².
    rows : int
        Rows of positive weight.
    border : Border, optional
        Linear columns that share the penalty.
    """

    form: Tridiagonal
    moment: Float64Array
    target_square: Float64Array
    rows: int
    border: Border | None = None

    def train_square(self, mu: float) -> Float64Array:
        """Return Σ v (y − ŷ)² on the rows fitted, shape (k,)."""
        return self._sums(np.array([mu]))[0][0]

    def freedom(self, mu: float) -> float:
        """Return the degrees of freedom df(μ) = tr(A (A + μI)⁻¹), without the intercept."""
        return float(self._sums(np.array([mu]))[1][0])

    def gcv(self, mu: float) -> float:
        """Return GCV(μ) = n ‖y − ŷ‖² / (n − df(μ) − 1)², summed over outputs.

        Golub, Heath & Wahba (1979); infinite where no degree of freedom is left, or
        μ is so small that rounding in the sums outweighs it.
        """
        return float(self._scores(np.array([mu]))[0])

    def best_mu(self) -> float:
        """Return the largest μ whose GCV is least, but for 1e-4 of it.

        It is from 1e-9 to 1 of the largest eigenvalue. Where there is hardly any noise the
        curve is flat for decades, and rounding would choose among them; a variance r(x)/μ
        would be as arbitrary.
        """
        largest = float(self.form.values[-1]) or 1.0
        grid = np.log(largest) + np.linspace(np.log(_MU_FLOOR), 0, _GRID)
        return float(np.exp(_minimum(lambda log_mus: self._scores(np.exp(log_mus)), grid)))

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
        border, solved = self.border, self._solved(np.array([mu]))
        if np.isnan(solved.freedom[0]):
            return self
        constant = solved.slopes[0, -1]
        deviation = np.sqrt(self.target_square / border.weight_sum)
        highest = np.where(deviation > 0, _HIGHEST * deviation, np.inf)
        excess = float(np.max(np.abs(constant) / highest, initial=0.0)) - 1
        if excess <= 0:
            return self
        # b falls as 1 / (s + ridge): s is what the other columns leave of the constant's square.
        return replace(
            self, border=border.constant_held(excess * float(solved.constant_square[0]))
        )

    def solution(self, mu: float) -> tuple[Float64Array, Float64Array]:
        """Return the coefficients of the features, Qᵀθ of shape (m, k), and of linear columns.

        Raises
        ------
        LinAlgError
            If rounding outweighs μ.
        """
        solved = self._solved(np.array([mu]))
        if np.isnan(solved.freedom[0]):
            raise np.linalg.LinAlgError("rounding outweighs the penalty")
        return solved.theta[0], solved.slopes[0]

    def _scores(self, mus: Float64Array) -> Float64Array:
        """Return GCV of each μ, shape (g,)."""
        squares, freedom = self._sums(mus)
        left = self.rows - 1 - freedom
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(left > 0, self.rows * squares.sum(axis=1) / left**2, np.inf)

    def _sums(self, mus: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return Σ v (y − ŷ)² per output, shape (g, k), and df, shape (g,).

        θ = A⁻¹b explains bᵀθ + θᵀMθ, M the penalty. df is NaN where rounding outweighs μ.
        """
        squares, freedom = [], []
        for some in _stacks(mus, self.moment.size + len(self.moment) * self.width):
            solved = self._solved(some)
            explained = np.einsum("ij,gij->gj", self.moment, solved.theta)
            norm = np.einsum("gij,gij->gj", solved.theta, solved.theta)
            if self.border is not None:
                explained += np.einsum("ij,gij->gj", self.border.moment, solved.slopes)
                own = solved.slopes**2
                explained += np.einsum("i,gij->gj", self.border.ridge, own)
                norm += own.sum(axis=1)
            square = self.target_square - explained - some[:, None] * norm
            squares.append(np.maximum(square, 1e-14 * self.target_square))
            freedom.append(solved.freedom)
        return np.concatenate(squares), np.concatenate(freedom)

    def _solved(self, mus: Float64Array) -> _Solved:
        """Solve for each μ, by block elimination where there are linear columns."""
        values, border, k = self.form.values, self.border, self.moment.shape[1]
        beside = [] if border is None else [border.cross]
        both, definite = self.form.solved(mus, np.concatenate([self.moment, *beside], axis=1))
        freedom = np.where(definite, (1 / (values + mus[:, None])) @ values, np.nan)
        theta, weighted = both[:, :, :k], both[:, :, k:]
        if border is None:
            empty = np.zeros((len(mus), 0, k))
            return _Solved(theta, empty, freedom, np.zeros(len(mus)))
        d = self.width
        schur = border.gram - border.cross.T @ weighted + mus[:, None, None] * np.eye(d)
        factors = _factors(schur)
        half = np.linalg.inv(factors)  # S⁻¹ = halfᵀ half
        rest = border.moment - border.cross.T @ theta
        slopes = np.swapaxes(half, 1, 2) @ (half @ rest)
        spread = weighted @ np.swapaxes(half, 1, 2)
        # d columns add between 0 and d to df: where they do not, it is rounding.
        added = d - mus * (np.sum(half**2, axis=(1, 2)) + np.sum(spread**2, axis=(1, 2)))
        trusted = (factors[:, 0, 0] != _NO_FACTOR) & (added >= 0) & (added <= d)
        return _Solved(
            theta=theta - weighted @ slopes,
            slopes=slopes,
            freedom=np.where(trusted, freedom + added, np.nan),
            constant_square=factors[:, -1, -1] ** 2,
        )


@dataclass(frozen=True, eq=False)
class _Solved:
    """Solutions for g penalties.

    Parameters
    ----------
    theta : ndarray of float64, shape (g, m, k)
        Qᵀθ.
    slopes : ndarray of float64, shape (g, d, k)
        Of the linear columns.
    freedom : ndarray of float64, shape (g,)
        df; NaN where rounding outweighs μ.
    constant_square : ndarray of float64, shape (g,)
        What all other columns leave of the constant's Σ v, penalties included.
    """

    theta: Float64Array
    slopes: Float64Array
    freedom: Float64Array
    constant_square: Float64Array


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


def _stacks(mus: Float64Array, numbers: int) -> Iterator[Float64Array]:
    """Yield the penalties, as many at a time as memory allows for that many numbers each."""
    step = max(1, _MOST_NUMBERS // max(numbers, 1))
    for start in range(0, len(mus), step):
        yield mus[start : start + step]


def _factors(matrices: Float64Array) -> Float64Array:
    """Return the Cholesky factor of each; a multiple of I where there is none."""
    try:
        return np.asarray(np.linalg.cholesky(matrices), np.float64)
    except np.linalg.LinAlgError:  # of one of them at least
        factors = np.empty_like(matrices)
    for factor, matrix in zip(factors, matrices, strict=True):
        try:
            factor[...] = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            factor[...] = _NO_FACTOR * np.eye(len(matrix))
    return factors


def _minimum(scores_of: Callable[[Float64Array], Float64Array], grid: Float64Array) -> float:
    """Return the minimum of a score, on the grid and between the neighbours of the best.

    Of a flat one it is the upper end, where the score is 1e-4 above its least.
    """
    scores = scores_of(grid)
    best = int(np.argmin(scores))
    if not np.isfinite(scores[best]):
        return float(grid[-1])
    place, least = float(grid[best]), float(scores[best])
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    for _ in range(2):
        between = np.linspace(low, high, _BETWEEN + 2)
        found = scores_of(between[1:-1])
        nearest = int(np.argmin(found))
        if found[nearest] < least:
            place, least = float(between[nearest + 1]), float(found[nearest])
        low, high = between[nearest], between[nearest + 2]
    limit = (1 + _FLAT) * least
    beyond = np.flatnonzero((grid > place) & ~(scores <= limit))
    if not len(beyond):
        return float(grid[-1])
    end = int(beyond[0])
    low, high = max(place, float(grid[end - 1])), float(grid[end])
    for _ in range(2):  # low is within the limit, high is not
        between = np.linspace(low, high, _BETWEEN + 2)
        above = np.append(~(scores_of(between[1:-1]) <= limit), True)
        first = int(np.argmax(above))
        low, high = between[first], between[first + 1]
    return float(low)


def ridge_path(
    gram: Float64Array, moment: Float64Array, target_square: Float64Array, rows: int
) -> tuple[RidgePath, Rotation]:
    """Reduce normal equations to the form that all penalties are solved in.

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
    rotation : Rotation
        Q. Cost: 4 m³/3 flops, half of them on vectors, and O(m²).

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
    form, rotation = tridiagonal_form(symmetrize(gram))
    return RidgePath(form, rotation.coordinates(moment), target_square, rows), rotation
