"""Scores of a model on a test set, beside the mean and a linear baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client

from squeak_dist._typing import Float64Array
from squeak_dist.distributed.executor import active_executor
from squeak_dist.distributed.sources import Source
from squeak_dist.errors import (
    DataError,
    InfiniteValuesError,
    InvalidParameterError,
    MissingValuesError,
)
from squeak_dist.linalg import single_blas_thread
from squeak_dist.merge_tree import balanced_levels
from squeak_dist.model import FittedModel
from squeak_dist.stages.executors import reduce_tree
from squeak_dist.table import Table, named_counts


@dataclass(frozen=True)
class Score:
    """Accuracy of one predictor on a test set, per output.

    Parameters
    ----------
    rmse : tuple of float
        Root mean squared error, in the units of the target.
    r2 : tuple of float
        Coefficient of determination; 0 is the mean of the test set.
    """

    rmse: tuple[float, ...]
    r2: tuple[float, ...]


@dataclass(frozen=True)
class Evaluation:
    """A model on a test set, beside the mean and a linear ridge regression.

    Parameters
    ----------
    rows : int
        Rows that were scored: those with a target.
    model, linear, mean : Score
        squeak_dist; ridge regression on the same encoded columns, fitted in the
        same pass; the mean of the training target.
    """

    rows: int
    model: Score
    linear: Score
    mean: Score

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; an R² of a constant test target is None."""
        return {"rows": self.rows} | {
            name: {
                "rmse": list(score.rmse),
                "r2": [r2 if math.isfinite(r2) else None for r2 in score.r2],
            }
            for name, score in (
                ("mean", self.mean),
                ("linear", self.linear),
                ("model", self.model),
            )
        }

    def _scores(self) -> tuple[tuple[str, Score], ...]:
        return ("mean", self.mean), ("linear", self.linear), ("squeak", self.model)

    def __str__(self) -> str:
        lines = [f"{'':>12}  {'RMSE':>12}  {'R²':>8}   on {self.rows:,} rows"]
        for name, score in self._scores():
            for rmse, r2 in zip(score.rmse, score.r2, strict=True):
                lines.append(f"{name:>12}  {rmse:12.6g}  {r2:8.4f}")
        return "\n".join(lines)


def evaluate_source(
    model: FittedModel, source: Source, *, client: Client | str | None = None
) -> Evaluation:
    """Score a model on a source in one pass.

    Parameters
    ----------
    model : FittedModel
        The model.
    source : Source
        Test rows with their targets; rows without a target are left out.
    client : distributed.Client or "ray", optional
        The current client by default.

    Raises
    ------
    DataError
        If no rows are left, or columns do not match.
    InfiniteValuesError
        For infinite targets or weights, or errors too large to be squared.
    MissingValuesError, InvalidParameterError
        For missing or negative weights.
    """
    with active_executor(client) as executor:
        shared = executor.share(model.for_predictions())
        leaves = [executor.call(_score_sums, shared, table) for table in executor.tables(source)]
        levels = balanced_levels(len(leaves), 8)
        root = reduce_tree(
            executor, leaves, levels, lambda nodes, level, index: (_merge_sums, nodes)
        )
        return _evaluation(executor.gather("scores", root))


def _score_sums(model: FittedModel, table: Table) -> Float64Array:
    """Return the sums of one partition, per output and weighted; shape (7, k).

    Rows: weight sum, count, mean of y, squared deviations, and squared errors of
    model, linear and mean. Means and deviations are merged, not raw sums, so a
    shifted target loses nothing.
    """
    check_values(table, model.target_names)
    X, kept = model.encoding.encode(table.features)
    y = table.targets[kept]
    weights = np.ones(len(y)) if table.weights is None else table.weights[kept]
    scored = ~np.isnan(y).any(axis=1)
    X, y, weights = X[scored], y[scored], weights[scored]
    if not len(y) or weights.sum() <= 0:
        return np.zeros((7, table.targets.shape[1]))
    with single_blas_thread():
        predicted = model.predict_encoded(X)
        linear = model.baseline_encoded(X)
    total = weights.sum()
    mean = weights @ y / total
    errors = [y - mean, y - predicted, y - linear, y - model.target_mean]
    with np.errstate(over="ignore"):  # the end says so
        squares = [weights @ error**2 for error in errors]
    ones = np.ones_like(mean)
    return np.array([total * ones, len(y) * ones, mean, *squares])


def check_values(table: Table, target_names: tuple[str, ...]) -> None:
    """Refuse what the fit refuses too; rows without a target are only left out.

    Raises
    ------
    InfiniteValuesError, MissingValuesError, InvalidParameterError
        For infinite targets or weights, and for missing or negative weights.
    """
    infinite = [
        (f"the target {name!r}", int(np.isinf(column).sum()))
        for name, column in zip(target_names, table.targets.T, strict=True)
    ]
    weights = np.ones(1) if table.weights is None else table.weights
    role = "the sample weights"
    if affected := named_counts([*infinite, (role, int(np.isinf(weights).sum()))]):
        raise InfiniteValuesError(
            f"infinite values (inf) in {affected} of a partition; replace or remove them"
        )
    if affected := named_counts([(role, int(np.isnan(weights).sum()))]):
        raise MissingValuesError(
            f"missing values in {affected} of a partition; every row needs a weight (0 leaves a "
            f"row out)"
        )
    if affected := named_counts([(role, int((weights < 0).sum()))]):
        raise InvalidParameterError(
            f"negative values in {affected} of a partition; weights must be ≥ 0"
        )


@np.errstate(over="ignore", invalid="ignore")  # the end says so
def _merge_sums(parts: list[Float64Array]) -> Float64Array:
    total, *rest = parts
    for part in rest:
        weight = total[0] + part[0]
        share = np.divide(part[0], weight, out=np.zeros_like(weight), where=weight > 0)
        gap = part[2] - total[2]
        merged = total + part
        merged[2] = total[2] + gap * share
        merged[3] += gap**2 * share * total[0]
        total = merged
    return total


def _evaluation(total: Float64Array) -> Evaluation:
    weight, count, _, deviation, *errors = total
    if count[0] == 0:
        raise DataError(
            "no rows to score (n_samples=0): the table is empty, or no row has a target and a "
            "weight above 0"
        )
    if not np.isfinite(total).all():
        raise InfiniteValuesError("the errors are too large to be squared in float64; rescale y")

    def score(square: Float64Array) -> Score:
        rmse = np.sqrt(square / weight)
        r2 = 1 - square / np.where(deviation > 0, deviation, np.nan)
        return Score(tuple(map(float, rmse)), tuple(map(float, r2)))

    model, linear, mean = map(score, errors)
    return Evaluation(int(count[0]), model, linear, mean)
