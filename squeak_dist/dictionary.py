"""The dictionary: the rows that SQUEAK keeps, with their sampling probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray, IntArray
from squeak_dist.errors import InvalidParameterError


@dataclass(frozen=True, eq=False)
class Dictionary:
    """A weighted set of distinct rows that stands for all rows seen so far.

    Parameters
    ----------
    points : ndarray of shape (m, d)
        The encoded rows themselves.
    indices : ndarray of int64, shape (m,)
        Global row numbers, each at most once.
    probabilities : ndarray of float64, shape (m,)
        Sampling probabilities p_i in (0, 1].
    multiplicities : ndarray of int64, shape (m,)
        Copies kept, Q_i in 1..qbar.
    row_weights : ndarray of float64, shape (m,)
        Sample weights v_i of the rows (1 where there are none); a row counts
        as the feature sqrt(v_i) φ(x_i).
    gamma : float
        Leverage regularization γ > 0 that the dictionary is accurate for.
    qbar : int
        Copies per row before selection, q̄ ≥ 1.

    Notes
    -----
    Definition 1 of Calandriello, Lazaric & Valko: the selection matrix has
    s_i = sqrt(Q_i / (q̄ p_i)) on its diagonal.
    """

    points: FloatArray
    indices: IntArray
    probabilities: Float64Array
    multiplicities: IntArray
    row_weights: Float64Array
    gamma: float
    qbar: int

    def __post_init__(self) -> None:
        m = len(self.points)
        columns = (self.indices, self.probabilities, self.multiplicities, self.row_weights)
        if self.points.ndim != 2 or any(c.shape != (m,) for c in columns):
            raise InvalidParameterError(
                f"a dictionary needs points of shape (m, d) and four columns of length m; got "
                f"points {self.points.shape} and columns {[c.shape for c in columns]}"
            )

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        m, d = self.points.shape
        return f"Dictionary(m={m}, d={d}, gamma={self.gamma:.3g}, qbar={self.qbar})"

    @property
    def selection_weights(self) -> Float64Array:
        """s_i = sqrt(Q_i / (q̄ p_i)), shape (m,)."""
        return np.sqrt(self.multiplicities / (self.qbar * self.probabilities))

    @property
    def column_weights(self) -> Float64Array:
        """s_i · sqrt(v_i): selection and sample weight together, shape (m,)."""
        return self.selection_weights * np.sqrt(self.row_weights)

    def take(self, rows: IntArray) -> Dictionary:
        """Return the dictionary of the given positions, in that order."""
        return replace(
            self,
            points=self.points[rows],
            indices=self.indices[rows],
            probabilities=self.probabilities[rows],
            multiplicities=self.multiplicities[rows],
            row_weights=self.row_weights[rows],
        )


def empty_dictionary(
    n_features: int, dtype: np.dtype[np.floating], gamma: float, qbar: int
) -> Dictionary:
    """Return the dictionary of no rows.

    Parameters
    ----------
    n_features : int
        d.
    dtype : dtype
        Of the points to come.
    gamma : float
        γ > 0.
    qbar : int
        q̄ ≥ 1.
    """
    return Dictionary(
        points=np.empty((0, n_features), dtype),
        indices=np.empty(0, np.int64),
        probabilities=np.empty(0),
        multiplicities=np.empty(0, np.int64),
        row_weights=np.empty(0),
        gamma=gamma,
        qbar=qbar,
    )


def concatenate(dictionaries: list[Dictionary]) -> Dictionary:
    """Return the union of dictionaries of disjoint rows, at the largest γ among them.

    Raises
    ------
    InvalidParameterError
        If there are none, or their q̄ differ.
    """
    if not dictionaries:
        raise InvalidParameterError("got no dictionaries to concatenate; at least one is needed")
    qbars = {d.qbar for d in dictionaries}
    if len(qbars) > 1:
        raise InvalidParameterError(
            f"dictionaries of different qbar cannot be joined: got {sorted(qbars)}"
        )
    return Dictionary(
        points=np.concatenate([d.points for d in dictionaries]),
        indices=np.concatenate([d.indices for d in dictionaries]),
        probabilities=np.concatenate([d.probabilities for d in dictionaries]),
        multiplicities=np.concatenate([d.multiplicities for d in dictionaries]),
        row_weights=np.concatenate([d.row_weights for d in dictionaries]),
        gamma=max(d.gamma for d in dictionaries),
        qbar=dictionaries[0].qbar,
    )
