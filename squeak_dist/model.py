"""The fitted model as a frozen value: all that prediction needs, and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoding import FeatureEncoding
from squeak_dist.kernels import Kernel, kernel_block

_BLOCK_ENTRIES = 1 << 22  # kernel entries at once in a prediction: 16 MiB of float32


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
        c; a prediction is k_D(x)ᵀ c + target_mean.
    linear_coefficients : ndarray of float64, shape (n_features, n_outputs)
        Ridge regression on the encoded columns, the baseline of ``evaluate``.
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
    """

    kernel: Kernel
    dictionary: Dictionary
    coefficients: Float64Array
    linear_coefficients: Float64Array
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

    def __repr__(self) -> str:
        targets = ", ".join(map(repr, self.target_names))
        return (
            f"FittedModel({self.kernel!r}, m={len(self.dictionary)}, mu={self.mu:.3g}, "
            f"target={targets if self.single_output else f'[{targets}]'})"
        )

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
        Cost: n m kernel entries; memory: one block of 2²² entries.
        """
        points = self.dictionary.points
        predictions = np.empty((len(X), self.coefficients.shape[1]))
        step = max(1, _BLOCK_ENTRIES // max(1, len(points)))
        buffer = np.empty((min(step, len(X)), len(points)), np.result_type(X, points))
        # The coefficients of a smooth model are large and cancel, so a float32 product
        # would lose what the float32 kernel entries still hold.
        coefficients = self.coefficients
        for start in range(0, len(X), step):
            rows = X[start : start + step]
            block = kernel_block(self.kernel, rows, points, buffer[: len(rows)])
            predictions[start : start + step] = block @ coefficients
        return predictions + self.target_mean
