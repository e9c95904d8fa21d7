"""Fitted feature maps as frozen values: the Nyström features, and principal components of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray, IntArray
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoded_sample import EncodedSample
from squeak_dist.encoding import FeatureEncoding
from squeak_dist.kernels import Kernel, kernel_block
from squeak_dist.nystrom import NystromMap, distinct_rows, in_double, row_slices, solution_map

_BLOCK_ENTRIES = 1 << 22  # kernel entries at once: 32 MiB of float64


@dataclass(frozen=True, eq=False)
class FeatureModel:
    """Features z(x) of the Nyström map of a dictionary.

    Parameters
    ----------
    kernel : Kernel
        The kernel, in the units of the encoded rows.
    dictionary : Dictionary
        The m rows that the map is made of.
    encoding : FeatureEncoding
        From the user's columns to encoded rows.
    unnamed_features : bool
        True where the features came as an array, so that columns match by position.
    epsilon : float
        Accuracy ε of the dictionary, in (0, 1).
    seed : int
        What every random number of the fit came from.
    approximation : str
        ``"projected"`` or ``"regularized"``.
    report : mapping
        Plain values (str, int, float, bool, None, lists and dicts of them).
    sample : EncodedSample, optional
        A few of the rows fitted, without targets, for reports.
    """

    kernel: Kernel
    dictionary: Dictionary
    encoding: FeatureEncoding
    unnamed_features: bool
    epsilon: float
    seed: int
    approximation: str
    report: Mapping[str, Any]
    sample: EncodedSample | None = field(default=None, kw_only=True)

    estimator_name: ClassVar[str] = "SqueakTransformer"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kernel!r}, outputs={self.n_outputs})"

    def __getstate__(self) -> dict[str, Any]:
        # Without the map: m² numbers that follow from the dictionary.
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def n_outputs(self) -> int:
        """Number of features."""
        return len(self.support)

    @cached_property
    def support(self) -> IntArray:
        """Positions in the dictionary of the points of the map, which has each point once."""
        if self.approximation == "regularized":
            return np.arange(len(self.dictionary))
        return distinct_rows(self.dictionary.points)

    def transform_encoded(self, X: FloatArray) -> FloatArray:
        """Return the features of encoded rows.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Encoded rows; the result has their dtype.

        Returns
        -------
        ndarray of shape (n, n_outputs)

        Notes
        -----
        Cost: n m kernel entries and n m² multiply-adds, in float64: in float32 a row
        would get features in a batch that differ from those it gets alone by up to
        1e-4, since a small map amplifies the rounding of kernel entries.
        """
        out = np.empty((len(X), self.n_outputs), X.dtype)
        for rows, Z in self._map.blocks(X.astype(np.float64, copy=False)):
            out[rows] = Z
        return out

    @cached_property
    def _map(self) -> NystromMap:
        return solution_map(self.kernel, in_double(self.dictionary), self.approximation)


@dataclass(frozen=True, eq=False)
class ComponentModel(FeatureModel):
    """Scores of principal components of the features z(x).

    Parameters
    ----------
    kernel, dictionary, encoding, unnamed_features, epsilon, seed, approximation, report, sample
        As in :class:`FeatureModel`.
    coefficients : ndarray of float64, shape (m', q)
        A score is k_D(x)ᵀ coefficients − offsets, D the m' points of ``support``.
    offsets : ndarray of float64, shape (q,)
        Scores of the mean.
    eigenvalues : ndarray of float64, shape (q,)
        Weighted sums of squared scores over the rows of the fit, descending.
    total : float
        What they would sum to with all components of the kernel itself.
    divisor : float
        What makes a variance of a sum of squares.
    """

    coefficients: Float64Array
    offsets: Float64Array
    eigenvalues: Float64Array
    total: float
    divisor: float

    estimator_name: ClassVar[str] = "SqueakPCA"

    @property
    def n_outputs(self) -> int:
        """Number of components."""
        return len(self.eigenvalues)

    def transform_encoded(self, X: FloatArray) -> FloatArray:
        """Return the scores of encoded rows.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Encoded rows; the result has their dtype.

        Returns
        -------
        ndarray of shape (n, n_outputs)

        Notes
        -----
        Cost: n m kernel entries and n m q multiply-adds, in float64: the coefficients
        of small components are large and cancel.
        """
        points = self.dictionary.points[self.support].astype(np.float64)
        out = np.empty((len(X), self.n_outputs), X.dtype)
        step = max(1, _BLOCK_ENTRIES // len(points))
        buffer = np.empty((min(step, len(X)), len(points)))
        for rows in row_slices(len(X), step):
            part = X[rows].astype(np.float64)
            block = kernel_block(self.kernel, part, points, buffer[: len(part)])
            out[rows] = block @ self.coefficients - self.offsets
        return out
