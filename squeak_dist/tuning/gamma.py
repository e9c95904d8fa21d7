"""γ from the spectrum of a sample: what a dictionary costs, and what it is worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.kernels import Kernel, kernel_block
from squeak_dist.ridge_path import RidgePath
from squeak_dist.tridiagonal import diagonal_form

_BUDGET_SHARE = 0.95  # of max_dictionary: the estimate is for the mean size
_LEAST_ROWS = 20  # that an automatic γ keeps, however much noise μ stands for
_LEAST_ESTIMATE = 0.9  # of (1 − ε)τ: what p is on average, the least of several estimates
_LARGEST_CORRECTION = 20.0  # of log γ: beyond, all of the sample's rows are in the dictionary


@dataclass(frozen=True, eq=False)
class SampleSpectrum:
    """Eigendecomposition of the kernel matrix of a sample that stands for n rows.

    Parameters
    ----------
    values : ndarray of float64, shape (s,)
        Eigenvalues λ ≥ 0.
    vectors : ndarray of float64, shape (s, s)
        Eigenvectors U, one per column.
    rows : int
        n, the rows that the sample was drawn from.
    """

    values: Float64Array
    vectors: Float64Array
    rows: int

    @property
    def norm(self) -> float:
        """The estimate of ‖K‖₂ of all n rows."""
        return float(self.values.max(initial=0.0)) * self.rows / len(self.values)

    def eigenvalue(self, place: float) -> float:
        """Return an estimate of the eigenvalue of K of all n rows at a place: 1 is the largest.

        Beyond s/2 it is that at s/2: the last of a sample's eigenvalues are far too small.
        """
        index = int(np.clip(place, 1, max(len(self.values) // 2, 1)))
        return float(self.values[-index]) * self.rows / len(self.values)

    def rls(self, gamma: float) -> Float64Array:
        """Return what the RLS of the sample's rows would be among all n rows, shape (s,).

        Parameters
        ----------
        gamma : float
            γ > 0.

        Returns
        -------
        ndarray of float64, shape (s,)
            The geometric mean of two estimates. h, the RLS within the sample, where a row
            stands for n/s rows like it, gives (s/n) h, too little where none is like it; what
            the others leave of the row, h/(1 − h), gives too much, as n rows leave less.
            They meet where s = n.
        """
        share = len(self.values) / self.rows
        ridge = self._ridge(gamma)
        shrunk = self.values / (self.values + ridge)
        held = self._squares @ shrunk
        left_out = ridge / gamma * held / np.maximum(1 - held, np.finfo(float).eps)
        return np.sqrt(share * held * left_out / (1 + left_out))

    def effective_dimension(self, gamma: float) -> float:
        """Return the estimate of d_eff(γ) of all n rows: the sum of their RLS."""
        return float(np.sum(self.rls(gamma))) * self.rows / len(self.values)

    @cached_property
    def _squares(self) -> Float64Array:
        return self.vectors**2

    def _degrees(self, ridge: float) -> float:
        return float(np.sum(self.values / (self.values + ridge)))

    def _ridge(self, gamma: float) -> float:
        """Return the ridge at which the sample has the degrees of freedom that n rows have at γ.

        A ridge λ on s rows acts as κ = λ / (s − d) does per row of infinitely many, d the
        degrees of freedom of both (Silverstein 1995; Bach, "High-dimensional analysis of double
        descent", 2024); so λ / (s − d) = γ / (n − d), where n > s. 0 < λ ≤ γ s/n.
        """
        s, n = len(self.values), self.rows
        if n <= s:
            return gamma * s / n

        def excess(log_ridge: float) -> float:
            ridge = float(np.exp(log_ridge))
            d = self._degrees(ridge)
            return log_ridge - float(np.log(gamma * max(s - d, 1e-9) / (n - d)))

        high = float(np.log(gamma * s / n))
        low = high - _LARGEST_CORRECTION
        return float(np.exp(low if excess(low) >= 0 else brentq(excess, low, high, xtol=1e-6)))

    def dictionary_size(self, gamma: float, epsilon: float, qbar: int) -> float:
        """Return the expected number of distinct rows that SQUEAK keeps at this γ."""
        return self._size(_LEAST_ESTIMATE * (1 - epsilon), gamma, qbar)

    def chain_size(self, gamma: float, epsilon: float, qbar: int) -> float:
        """Return the number that one chain keeps, whose rows are hardly estimated twice."""
        return self._size(1 - epsilon, gamma, qbar)

    def _size(self, share: float, gamma: float, qbar: int) -> float:
        missed = (1 - share * np.minimum(self.rls(gamma), 1)) ** qbar
        return float(np.sum(1 - missed)) * self.rows / len(self.values)

    def mu(self, targets: Float64Array) -> float:
        """Return the ridge penalty μ that GCV chooses on the sample itself.

        The penalty of a sum of squares is the ratio of noise to kernel scale,
        so it does not depend on the number of rows.
        """
        return self._path(targets).best_mu()

    def unexplained(self, targets: Float64Array) -> float:
        """Return the share of the targets' variance that GCV expects a fit to leave, at most 1."""
        path = self._path(targets)
        variance = float(path.target_square.sum()) / path.rows
        return min(path.gcv(path.best_mu()) / variance, 1.0) if variance else 1.0

    def _path(self, targets: Float64Array) -> RidgePath:
        centred = targets - targets.mean(axis=0)
        roots = np.sqrt(self.values)
        moment = roots[:, None] * (self.vectors.T @ centred)
        square = np.einsum("ij,ij->j", centred, centred)
        return RidgePath(diagonal_form(self.values), moment, square, len(centred))


def sample_spectrum(
    kernel: Kernel, X: FloatArray, rows: int, row_weights: Float64Array | None = None
) -> SampleSpectrum:
    """Decompose the kernel matrix of a sample.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    X : ndarray of shape (s, d)
        Encoded rows of the sample; the cost is about 9 s³.
    rows : int
        n ≥ s, the rows that it was drawn from.
    row_weights : ndarray of float64, shape (s,), optional
        Sample weights.
    """
    doubled = np.asarray(X, np.float64)
    K = kernel_block(kernel, doubled, doubled)
    if row_weights is not None:
        K *= np.sqrt(row_weights) * np.sqrt(row_weights)[:, None]
    values, vectors = np.linalg.eigh(K)
    return SampleSpectrum(np.maximum(values, 0), vectors, max(rows, len(X)))


def spectrum_penalty(spectrum: SampleSpectrum, targets: Float64Array, mu: float | None) -> float:
    """Return μ: as given, else by GCV on the sample; 0 where there is no target.

    Parameters
    ----------
    spectrum : SampleSpectrum
        Of the sample.
    targets : ndarray of float64, shape (s, k)
        Its targets.
    mu : float, optional
        What is given.
    """
    if mu is not None:
        return mu
    return spectrum.mu(targets) if targets.shape[1] else 0.0


def choose_gamma(
    spectrum: SampleSpectrum,
    targets: Float64Array,
    *,
    mu: float | None,
    epsilon: float,
    qbar: int,
    max_dictionary: int | None,
    resolution: float,
) -> float:
    """Return γ: μ where the dictionary may be that large, else what the budget allows.

    Theorem 1 bounds the risk by (1 + γ/(μ(1−ε)))² times the exact one, so a γ
    far below μ buys nothing; the size that a γ costs is estimated on the sample.

    Parameters
    ----------
    spectrum : SampleSpectrum
        Of the sample.
    targets : ndarray of float64, shape (s, k)
        Targets of the sample, for μ where it is not given. Without any (k = 0) the
        budget alone decides: γ is as small as the size and the rounding allow.
    mu : float, optional
        Ridge penalty; chosen by GCV on the sample by default.
    epsilon, qbar, max_dictionary
        As in :class:`~squeak_dist.squeak.SqueakParameters`.
    resolution : float
        Smallest residual that the map can tell from rounding. A γ so small that
        such residuals alone would fill the dictionary is of no use.
    """
    mu = spectrum_penalty(spectrum, targets, mu)
    noise = 0.5 * resolution * qbar * spectrum.rows / (max_dictionary or spectrum.rows)
    wanted = max(mu, noise) or 1.0

    def size(gamma: float) -> float:
        return spectrum.dictionary_size(gamma, epsilon, qbar)

    if max_dictionary is not None and size(wanted) > _BUDGET_SHARE * max_dictionary:
        return _gamma_of_size(size, _BUDGET_SHARE * max_dictionary, wanted)
    least = min(_LEAST_ROWS, spectrum.rows / 2, _BUDGET_SHARE * (max_dictionary or np.inf))
    return wanted if size(wanted) >= least else _gamma_of_size(size, least, wanted)


def _gamma_of_size(size: Callable[[float], float], target: float, near: float) -> float:
    """Return the γ at which a dictionary has the target size, a falling function of γ."""

    def excess(log_gamma: float) -> float:
        return size(float(np.exp(log_gamma))) - target

    low = high = float(np.log(near))
    while excess(low) < 0 and low > -600:
        low -= 5
    while excess(high) > 0 and high < 600:
        high += 5
    if excess(low) < 0 or excess(high) > 0:
        return near
    return float(np.exp(brentq(excess, low, high, xtol=1e-3)))
