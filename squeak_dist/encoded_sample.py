"""A few rows of the fit that stay in the model, so that a report can show them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.encoding import FeatureEncoding
from squeak_dist.row_sample import RowSample

MOST_ROWS = 1000
_MOST_BYTES = 1 << 21  # 2 MiB: at 500 float32 columns still 1,000 rows


@dataclass(frozen=True, eq=False)
class EncodedSample:
    """Encoded rows with their targets and weights.

    Parameters
    ----------
    X : ndarray of shape (s, d)
        Encoded rows.
    targets : ndarray of float64, shape (s, k)
        In the units of the user; no columns where there is no target.
    weights : ndarray of float64, shape (s,)
        Sample weights, 1 where there are none.
    """

    X: FloatArray
    targets: Float64Array
    weights: Float64Array

    def __len__(self) -> int:
        return len(self.X)


def encoded_sample(encoding: FeatureEncoding, sample: RowSample) -> EncodedSample:
    """Encode the first rows of a row sample: a uniform sample of the rows fitted.

    Parameters
    ----------
    encoding : FeatureEncoding
        Of the fit.
    sample : RowSample
        Of its profile.

    Returns
    -------
    EncodedSample
        At most 1,000 rows, and fewer where they would take more than 2 MiB.
    """
    rows = _most_rows(encoding.n_features, encoding.dtype, sample.targets.shape[1])
    X, kept = encoding.encode(sample.features.iloc[:rows])
    weights = np.ones(len(X)) if sample.weights is None else sample.weights[:rows][kept]
    return EncodedSample(X, np.ascontiguousarray(sample.targets[:rows][kept]), weights)


def few_rows(X: FloatArray, targets: Float64Array, weights: Float64Array) -> EncodedSample:
    """Return the first rows of a sample that is encoded already, as :func:`encoded_sample` does.

    Parameters
    ----------
    X, targets, weights
        As in :class:`EncodedSample`.
    """
    rows = _most_rows(X.shape[1], X.dtype, targets.shape[1])
    return EncodedSample(X[:rows].copy(), targets[:rows].copy(), weights[:rows].copy())


def _most_rows(n_features: int, dtype: npt.DTypeLike, n_targets: int) -> int:
    row_bytes = n_features * np.dtype(dtype).itemsize + 8 * (n_targets + 1)
    return min(MOST_ROWS, _MOST_BYTES // row_bytes)
