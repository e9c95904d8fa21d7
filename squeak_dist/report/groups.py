"""Rows grouped by the values of one column, for means of errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from squeak_dist._typing import Float64Array, IntArray

_GROUPS = 20
_MOST_LEVELS = 12
_MISSING, _REST = "missing", "other levels"


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of rows of similar values.

    Parameters
    ----------
    values : ndarray of shape (s,)
        What is drawn: float64, datetime64, or text.
    codes : ndarray of int, shape (s,)
        Group of each row; −1 for none (a missing number).
    middles : ndarray of shape (g,)
        Middle value of each group: its median, or its level.
    """

    values: npt.NDArray[Any]
    codes: IntArray
    middles: npt.NDArray[Any]

    @property
    def is_text(self) -> bool:
        """Whether the values are levels."""
        return self.values.dtype == object

    @property
    def is_time(self) -> bool:
        """Whether the values are moments."""
        return self.values.dtype.kind == "M"

    def means(self, errors: Float64Array, weights: Float64Array) -> Float64Array:
        """Return the weighted mean of each group, shape (g,)."""
        held = self.codes >= 0
        sums, totals = (
            np.bincount(self.codes[held], w[held], minlength=len(self.middles))
            for w in (weights * errors, weights)
        )
        means: Float64Array = sums / totals
        return means

    def explained(self, errors: Float64Array, weights: Float64Array) -> float:
        """Return the share of Σ v e² that the means of the groups explain, in [0, 1]."""
        held = self.codes >= 0
        total = float(np.sum(weights * errors**2))
        if not total or not held.any():
            return 0.0
        means = self.means(errors, weights)[self.codes[held]]
        return float(np.sum(weights[held] * means**2) / total)


def grouped(values: pd.Series[Any]) -> Groups:
    """Group the rows of a column: by its most frequent levels, or in twenty quantiles.

    Parameters
    ----------
    values : Series
        Numbers, booleans, text, times or durations (then in seconds).
    """
    if pd.api.types.is_datetime64_any_dtype(values):
        return _quantiles(values.to_numpy("datetime64[ms]"), values)
    if pd.api.types.is_timedelta64_dtype(values):
        values = values.dt.total_seconds()
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        return _quantiles(values.to_numpy(np.float64), values)
    return _levels(values)


def _quantiles(shown: npt.NDArray[Any], values: pd.Series[Any]) -> Groups:
    codes = np.full(len(values), -1)
    if 0 < values.nunique() <= _GROUPS:
        codes = pd.factorize(values, sort=True)[0]
    elif values.notna().any():
        bins = pd.qcut(values.rank(method="dense"), _GROUPS, labels=False, duplicates="drop")
        found = bins.notna().to_numpy()
        # Some of the bins may be empty where values repeat.
        codes[found] = np.unique(bins.to_numpy()[found], return_inverse=True)[1]
    middles = [np.sort(shown[codes == g])[np.sum(codes == g) // 2] for g in range(codes.max() + 1)]
    return Groups(shown, codes, np.array(middles, dtype=shown.dtype))


def _levels(values: pd.Series[Any]) -> Groups:
    texts = values.astype(object).where(values.notna(), _MISSING).map(str)
    common = list(texts.value_counts().index[:_MOST_LEVELS])
    kept = texts.where(texts.isin(common), _REST)
    levels = [*common, *[_REST] * bool((~texts.isin(common)).any())]
    codes = kept.map({level: i for i, level in enumerate(levels)}).to_numpy(np.int64)
    return Groups(kept.to_numpy(object), codes, np.array(levels, dtype=object))
