"""Rows with what a model says of them: of the fit, each as if it had been left out, or others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import softmax

from squeak_dist._typing import Float64Array, IntArray
from squeak_dist.calibration import left_out_scores
from squeak_dist.classes import indicators
from squeak_dist.encoded_sample import EncodedSample
from squeak_dist.errors import DataError, InvalidParameterError
from squeak_dist.feature_model import FeatureModel
from squeak_dist.inspection import leverage_scores
from squeak_dist.linalg import single_blas_thread
from squeak_dist.model import FittedModel

AnyModel = FittedModel | FeatureModel


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Rows, their targets, and what a model and two simpler ones predict of them.

    Parameters
    ----------
    model : FittedModel
        The model.
    rows : EncodedSample
        s rows of positive weight, with k targets (±1 columns of a classifier).
    predicted, linear, constant : ndarray of float64, shape (s, k)
        By the model, by ridge regression on the encoded columns, by the mean of the target.
    deviation : ndarray of float64, shape (s, k)
        Standard deviation of the target about ``predicted``.
    held_out : bool
        True for rows that were not in the fit; False for rows of the fit, whose predictions
        are then those of a fit without the row.
    scores : mapping of name to mapping of measure to float
        Of all held-out rows, of which these are a sample; empty where these are all.
    """

    model: FittedModel
    rows: EncodedSample
    predicted: Float64Array
    linear: Float64Array
    constant: Float64Array
    deviation: Float64Array
    held_out: bool
    scores: Mapping[str, Mapping[str, float]]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def errors(self) -> Float64Array:
        """Target − prediction, shape (s, k)."""
        return self.rows.targets - self.predicted

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The columns of the rows in the units of the user."""
        return self.model.encoding.decode_points(self.rows.X)

    @cached_property
    def leverage(self) -> Float64Array:
        """Estimated ridge leverage scores, shape (s,)."""
        return leverage_scores(self.model, self.rows.X, self.rows.weights)

    @property
    def codes(self) -> IntArray:
        """Positions of the actual classes, shape (s,)."""
        assert self.model.classes is not None
        return self.model.classes.scores(self.rows.targets).argmax(axis=1)

    @property
    def shares(self) -> Float64Array:
        """Predicted probabilities of the classes, shape (s, K)."""
        assert self.model.classes is not None
        shares: Float64Array = softmax(self.model.classes.log_odds(self.predicted), axis=1)
        return shares

    @property
    def what(self) -> str:
        """What kind of rows these are, for a caption."""
        if self.held_out:
            return f"{len(self):,} held-out rows"
        return f"{len(self):,} rows of the fit, each predicted as if it had been left out"


def model_of(fitted: Any) -> AnyModel:
    """Return the model of an estimator, or the model itself.

    Raises
    ------
    InvalidParameterError
        If it is neither.
    """
    model = fitted.model if isinstance(fitted, JudgedRows) else getattr(fitted, "model_", fitted)
    if not isinstance(model, (FittedModel, FeatureModel)):
        raise InvalidParameterError(
            f"expected a fitted estimator of squeak_dist or its model_, got "
            f"{type(fitted).__name__}; call fit first"
        )
    return model


def judged(
    fitted: Any,
    X: pd.DataFrame | npt.NDArray[Any] | None = None,
    y: Any = None,
    sample_weight: Any = None,
) -> JudgedRows:
    """Judge rows in memory, or without any the rows of the fit that the model keeps.

    Parameters
    ----------
    fitted : SqueakRegressor, SqueakClassifier or FittedModel
        The model.
    X : DataFrame or ndarray of shape (n, d), optional
        Held-out rows; a frame is matched by names.
    y : array-like of shape (n,) or (n, k), optional
        Their targets, or labels; without it the target columns of X.
    sample_weight : array-like of shape (n,), optional
        Their weights; rows of weight 0 are left out.

    Returns
    -------
    JudgedRows

    Raises
    ------
    InvalidParameterError
        If the model has no predictions.
    DataError
        If it keeps no rows (an older store), or X and y do not match.

    Notes
    -----
    Cost: n m kernel entries and 4 n m² multiply-adds. A row of the fit is judged by the
    closed form of its left-out error, e / (1 − v h) with h = φᵀ A⁻¹ φ: exact for ridge
    regression on fixed features; the dictionary, μ and the mean stay those of the fit. The
    same is done for the linear baseline (whose A is estimated from these rows) and the mean.
    """
    model = _predictor(fitted)
    if X is not None:
        return judge_others(model, _test_rows(model, X, y, sample_weight))
    if model.sample is None:
        raise DataError(
            "the model keeps no rows of its fit: it is of a store of format 2; pass held-out rows "
            "X and y, or fit again"
        )
    return judge_left_out(model, _of_positive_weight(model.sample))


def _predictor(fitted: Any) -> FittedModel:
    if isinstance(fitted, JudgedRows):
        return fitted.model
    model = model_of(fitted)
    if not isinstance(model, FittedModel):
        raise InvalidParameterError(
            f"a {model.estimator_name} has no predictions to judge; this is for SqueakRegressor "
            f"and SqueakClassifier"
        )
    return model


def as_judged(fitted: Any) -> JudgedRows:
    """Return judged rows as they are; of a model those that it keeps."""
    return fitted if isinstance(fitted, JudgedRows) else judged(fitted)


def _of_positive_weight(rows: EncodedSample) -> EncodedSample:
    heavy = rows.weights > 0
    if not heavy.any():
        raise DataError("no rows to judge (n_samples=0): none has a target and a positive weight")
    return EncodedSample(rows.X[heavy], rows.targets[heavy], rows.weights[heavy])


def _test_rows(model: FittedModel, X: Any, y: Any, sample_weight: Any) -> EncodedSample:
    targets = _targets(model, X, y)
    encoded, kept = model.encoding.encode(X)
    if len(targets) != len(kept):
        raise DataError(f"X has {len(kept):,} rows and y {len(targets):,}; pass as many")
    weights = np.ones(len(kept)) if sample_weight is None else np.asarray(sample_weight, float)
    known = ~np.isnan(targets).any(axis=1) & kept
    return EncodedSample(encoded[known[kept]], targets[known], weights[known])


def _targets(model: FittedModel, X: Any, y: Any) -> Float64Array:
    names = list(model.target_names) if model.classes is None else [model.classes.target]
    if y is None and not set(names) <= set(getattr(X, "columns", ())):
        raise DataError(f"X has no columns {names} to compare with; pass them as y")
    if model.classes is not None:
        values = X[model.classes.target] if y is None else np.ravel(y)
        return indicators(model.classes, model.classes.codes(values))
    values = X[names] if y is None else y
    return np.asarray(values, np.float64).reshape(len(values), len(model.target_names))


def judge_others(
    model: FittedModel,
    rows: EncodedSample,
    scores: Mapping[str, Mapping[str, float]] | None = None,
) -> JudgedRows:
    """Judge rows that were not in the fit.

    Parameters
    ----------
    model : FittedModel
        The model.
    rows : EncodedSample
        Held-out rows with their targets.
    scores : mapping, optional
        Of all rows that these are a sample of.
    """
    rows = _of_positive_weight(rows)
    with single_blas_thread():
        variance = model.deviation_encoded(rows.X) ** 2
        return JudgedRows(
            model=model,
            rows=rows,
            predicted=model.predict_encoded(rows.X),
            linear=model.baseline_encoded(rows.X),
            constant=np.broadcast_to(model.target_mean, rows.targets.shape),
            deviation=np.sqrt(variance + _own_noise(model, rows.weights)),
            held_out=True,
            scores=scores or {},
        )


def judge_left_out(model: FittedModel, rows: EncodedSample) -> JudgedRows:
    """Judge rows of the fit, each as if it had been left out: see :func:`judged`.

    Parameters
    ----------
    model : FittedModel
        The model.
    rows : EncodedSample
        A uniform sample of its rows, of positive weight.
    """
    with single_blas_thread():
        predicted = model.predict_encoded(rows.X)
        linear = model.baseline_encoded(rows.X)
        variance = model.deviation_encoded(rows.X) ** 2
        leverage = model.leverage_encoded(rows.X)
    own = rows.weights * leverage
    total = float(model.report.get("weight_sum", rows.weights.sum()))
    constant = np.broadcast_to(model.target_mean, rows.targets.shape)
    # Without the row h grows to h / (1 − v h).
    grown = leverage / np.maximum(1 - own, 1e-3) - leverage
    return JudgedRows(
        model=model,
        rows=rows,
        predicted=left_out_scores(predicted, rows.targets, own),
        linear=left_out_scores(linear, rows.targets, _baseline_leverage(model, rows, total)),
        constant=left_out_scores(constant, rows.targets, rows.weights / total),
        deviation=np.sqrt(
            variance + grown[:, None] * model.noise_variance + _own_noise(model, rows.weights)
        ),
        held_out=False,
        scores={},
    )


def _own_noise(model: FittedModel, weights: Float64Array) -> Float64Array:
    """Return what the noise σ²/v of a row of weight v is above that of weight 1."""
    return (1 / weights - 1)[:, None] * model.noise_variance


def _baseline_leverage(model: FittedModel, rows: EncodedSample, total: float) -> Float64Array:
    """Return v h of the linear baseline, its Gram estimated as total/Σv times that of the rows."""
    columns = np.column_stack([rows.X.astype(np.float64), np.ones(len(rows))])
    U, s, _ = np.linalg.svd(columns * np.sqrt(rows.weights)[:, None], full_matrices=False)
    squares = s**2
    scale, mu = total / rows.weights.sum(), float(model.report.get("baseline_mu", 0.0))
    shares = np.divide(squares, scale * squares + mu, out=np.zeros_like(s), where=squares > 0)
    leverage: Float64Array = U**2 @ shares
    return leverage
