"""The fitted model as a frozen value: all that prediction needs, and the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.classes import Classes
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoded_sample import EncodedSample
from squeak_dist.encoding import FeatureEncoding
from squeak_dist.kernels import Kernel, kernel_diag, kernel_strips
from squeak_dist.linalg import ForwardSubstitution, forward_substitution
from squeak_dist.nystrom import (
    NystromMap,
    converted_blocks,
    evaluated_in_double,
    linear_columns,
    solution_map,
)


@dataclass(frozen=True, eq=False)
class FittedModel:
    """Kernel, dictionary, coefficients, encoding and the record of the fit.

    Parameters
    ----------
    kernel : Kernel
        The kernel, in the units of the encoded rows.
    dictionary : Dictionary
        The m rows that the model is made of.
    coefficients : ndarray of float64, shape (m, n_outputs)
        c; a prediction is k_D(x)ᵀ c + [x, 1]ᵀ slopes + target_mean, of [x, 1] as many of
        the last columns as there are slopes.
    linear_coefficients : ndarray of float64, shape (n_features + 1, n_outputs)
        Ridge regression on the encoded columns and a constant, the baseline of
        ``evaluate``.
    slopes : ndarray of float64, shape (n_features + 1, n_outputs), (1, ...) or (0, ...)
        The linear part beside the kernel, its constant last; the constant alone, an
        intercept; or none.
    column_range : ndarray of float64, shape (2, n_features)
        Smallest and largest value of each encoded column in the fit: beyond them
        the linear part stays what it is there.
    noise_variance : ndarray of float64, shape (n_outputs,)
        σ², the variance of a target of weight 1 about the function.
    posterior : ndarray, shape (p (p + 1) / 2,)
        :func:`packed` Cholesky factor of A = Σ v φ φᵀ + μI, φ the features of the
        map and the linear columns, p of them in all.
    target_mean : ndarray of float64, shape (n_outputs,)
        Weighted mean of the target over the rows fitted (the intercept).
    encoding : FeatureEncoding
        From the user's columns to encoded rows.
    target_names : tuple of str
        One per output.
    single_output : bool
        True where the target was one-dimensional, so that predictions are too.
    unnamed_features : bool
        True where the features came as an array, so that columns match by position.
    mu : float
        Ridge penalty μ > 0 on the scale of a sum of squares.
    epsilon : float
        Accuracy ε of the dictionary, in (0, 1).
    seed : int
        What every random number of the fit came from.
    approximation : str
        ``"projected"`` or ``"regularized"``.
    report : mapping
        Plain values (str, int, float, bool, None, lists and dicts of them).
    classes : Classes, optional
        What the outputs stand for where the task is classification.
    sample : EncodedSample, optional
        A few of the rows fitted, for reports; none in a model of an older store, or of
        ``partial_fit``.
    """

    kernel: Kernel
    dictionary: Dictionary
    coefficients: Float64Array
    linear_coefficients: Float64Array
    slopes: Float64Array
    column_range: Float64Array
    noise_variance: Float64Array
    posterior: FloatArray
    target_mean: Float64Array
    encoding: FeatureEncoding
    target_names: tuple[str, ...]
    single_output: bool
    unnamed_features: bool
    mu: float
    epsilon: float
    seed: int
    approximation: str
    report: Mapping[str, Any] = field(default_factory=dict)
    classes: Classes | None = None
    sample: EncodedSample | None = None

    @property
    def estimator_name(self) -> str:
        """The estimator whose model this is."""
        return "SqueakRegressor" if self.classes is None else "SqueakClassifier"

    def __repr__(self) -> str:
        targets = ", ".join(map(repr, self.target_names))
        return (
            f"FittedModel({self.kernel!r}, m={len(self.dictionary)}, mu={self.mu:.3g}, "
            f"target={targets if self.single_output else f'[{targets}]'})"
        )

    def for_predictions(self) -> FittedModel:
        """Return the model without posterior and sample, which are most of its bytes."""
        return replace(self, posterior=self.posterior[:0], sample=None)

    def predict_encoded(self, X: FloatArray) -> Float64Array:
        """Predict encoded rows.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Encoded rows.

        Returns
        -------
        ndarray of float64, shape (n, n_outputs)

        Notes
        -----
        Cost: n m kernel entries, in float64 whatever the dtype of the fit: in float32 the last
        bits of an entry depend on the rows beside it, and the coefficients of a smooth function,
        large as they are, would make that visible. Memory: a strip of entries.
        """
        points, coefficients = self._active
        predictions = np.empty((len(X), coefficients.shape[1]))
        for block, doubled in converted_blocks(X, np.float64):
            for rows, K in kernel_strips(self.kernel, doubled, points):
                predictions[block][rows] = K @ coefficients
        if len(self.slopes):
            predictions += self._linear_columns(X) @ self.slopes
        return predictions + self.target_mean

    def baseline_encoded(self, X: FloatArray) -> Float64Array:
        """Return what plain ridge regression predicts of encoded rows, shape (n, n_outputs)."""
        return linear_columns(X, np.float64) @ self.linear_coefficients + self.target_mean

    def residual_encoded(self, X: FloatArray) -> Float64Array:
        """Return r(x) = k(x, x) − ‖z(x)‖² ≥ 0 of encoded rows, shape (n,): their novelty.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Encoded rows. Cost: n m kernel entries and n m² multiply-adds in float64.
        """
        return self._map.residual(X.astype(np.float64))

    def leverage_encoded(self, X: FloatArray) -> Float64Array:
        """Return h(x) = φᵀ A⁻¹ φ ≥ 0 of encoded rows, shape (n,), for a weight of 1.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Encoded rows; of a row that was fitted v h is in [0, 1).

        Notes
        -----
        Cost: n m kernel entries and 2 n m² multiply-adds.
        """
        return self.leverage_and_residual(X)[0]

    def leverage_and_residual(self, X: FloatArray) -> tuple[Float64Array, Float64Array]:
        """Return h(x) and r(x) of encoded rows, each ≥ 0 and of shape (n,), from one map of them.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Encoded rows. Cost: n m kernel entries and 2 n m² multiply-adds in float64.
        """
        doubled, leverage = X.astype(np.float64), np.empty(len(X))
        residual = np.array(kernel_diag(self.kernel, doubled), np.float64)
        for rows, Z in self._map.blocks(doubled):
            residual[rows] -= np.einsum("ij,ij->i", Z, Z)
            leverage[rows] = self._leverage(X[rows], Z)
        return leverage, np.maximum(residual, 0)

    def deviation_encoded(self, X: FloatArray) -> Float64Array:
        """Return the standard deviation of a new target of weight 1 at encoded rows.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Encoded rows.

        Returns
        -------
        ndarray of float64, shape (n, n_outputs)
            sqrt(σ² (1 + φᵀ A⁻¹ φ + r(x) / μ)) > 0: the noise, the uncertainty of the
            coefficients and what the dictionary does not span. Gaussian process
            regression with prior variance σ²/μ and noise σ² on the whole data,
            up to the approximation of its kernel (Quiñonero-Candela & Rasmussen
            2005, "deterministic training conditional", with the residual added).

        Notes
        -----
        Cost: n m kernel entries and 2 n m² multiply-adds in float64.
        """
        leverage, residual = self.leverage_and_residual(X)
        return np.sqrt((1 + leverage + residual / self.mu)[:, None] * self.noise_variance)

    def _leverage(self, X: FloatArray, Z: FloatArray) -> Float64Array:
        """Return φᵀ A⁻¹ φ of rows and their features z."""
        features = np.concatenate([Z, self._linear_columns(X)], axis=1)
        whitened = self._posterior_solve.solve_rows(features)
        return np.einsum("ij,ij->i", whitened, whitened)

    def _linear_columns(self, X: FloatArray) -> Float64Array:
        """Return the columns beside the kernel: those of X within their range in the fit, 1."""
        return linear_columns(np.clip(X, *self.column_range), np.float64, len(self.slopes))

    @cached_property
    def _active(self) -> tuple[Float64Array, Float64Array]:
        """The points that predictions need, and their coefficients: copies have 0."""
        active = self.coefficients.any(axis=1)
        points = self.dictionary.points.astype(np.float64)
        if active.all() or not active.any():
            return points, self.coefficients
        return points[active], self.coefficients[active]

    @cached_property
    def _map(self) -> NystromMap:
        return evaluated_in_double(solution_map(self.kernel, self.dictionary, self.approximation))

    @cached_property
    def _posterior_solve(self) -> ForwardSubstitution:
        return forward_substitution(unpacked(self.posterior), np.dtype(np.float64))


def packed(factor: Float64Array, dtype: str) -> FloatArray:
    """Return the lower triangle of a matrix row by row, shape (p (p + 1) / 2,)."""
    return factor[np.tri(len(factor), dtype=bool)].astype(dtype)


def unpacked(triangle: FloatArray) -> Float64Array:
    """Return the lower triangular matrix that :func:`packed` took, shape (p, p)."""
    size = (math.isqrt(8 * len(triangle) + 1) - 1) // 2
    factor = np.zeros((size, size))
    factor[np.tri(size, dtype=bool)] = triangle
    return factor
