"""Scores of a classifier on a test set, beside the most frequent class and a linear one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from distributed import Client
from scipy.special import softmax

from squeak_dist._typing import Float64Array
from squeak_dist.classes import Classes
from squeak_dist.distributed.executor import active_executor
from squeak_dist.distributed.scores import check_values
from squeak_dist.distributed.sources import Source
from squeak_dist.errors import DataError
from squeak_dist.linalg import single_blas_thread
from squeak_dist.merge_tree import balanced_levels
from squeak_dist.model import FittedModel
from squeak_dist.stages.executors import reduce_tree
from squeak_dist.table import Table

_SMALLEST = np.finfo(np.float64).eps  # a probability of 0 in a logarithm, as scikit-learn has it


@dataclass(frozen=True)
class ClassScore:
    """Accuracy of one classifier on a test set.

    Parameters
    ----------
    accuracy : float
        Share of the weight that is classified right.
    balanced_accuracy : float
        Mean of that share over the classes of the test set.
    log_loss, brier : float or None
        Means of −log p(label) and of Σ_k (p_k − 1[k is the label])²; None where the
        classifier has no probabilities.
    """

    accuracy: float
    balanced_accuracy: float
    log_loss: float | None = None
    brier: float | None = None


@dataclass(frozen=True)
class ClassEvaluation:
    """A classifier on a test set, beside two others.

    Parameters
    ----------
    rows : int
        Rows that were scored: those with a label.
    unseen : int
        Rows of labels that the fit had not: all classifiers are wrong on them.
    model, linear, majority : ClassScore
        squeak_dist; the largest output of a linear ridge regression on the same columns;
        the most frequent class of the fit, with the frequencies as probabilities.
    """

    rows: int
    unseen: int
    model: ClassScore
    linear: ClassScore
    majority: ClassScore

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{'':>12}  accuracy  balanced  log loss     Brier   on {self.rows:,} rows"]
        for name, score in (
            ("majority", self.majority),
            ("linear", self.linear),
            ("squeak", self.model),
        ):
            shown = ["       —" if v is None else f"{v:8.4f}" for v in asdict(score).values()]
            lines.append(f"{name:>12}  {'  '.join(shown)}")
        if self.unseen:
            lines.append(f"{self.unseen:,} rows have labels that the fit had not")
        return "\n".join(lines)


def evaluate_classes(
    model: FittedModel, source: Source, *, client: Client | str | None = None
) -> ClassEvaluation:
    """Score a classifier on a source in one pass.

    Parameters
    ----------
    model : FittedModel
        Of classes.
    source : Source
        Test rows, with positions of classes as their target.
    client : distributed.Client, optional
        The current client by default.

    Raises
    ------
    DataError
        If no rows are left, or columns do not match.
    InfiniteValuesError, MissingValuesError, InvalidParameterError
        For such weights.
    """
    with active_executor(client) as executor:
        shared = executor.share(model.for_predictions())
        leaves = [executor.call(_class_sums, shared, table) for table in executor.tables(source)]
        levels = balanced_levels(len(leaves), 8)
        root = reduce_tree(executor, leaves, levels, lambda nodes, level, index: (_sum, nodes))
        return _evaluation(executor.gather("scores", root))


def _sum(parts: list[Float64Array]) -> Float64Array:
    return np.sum(parts, axis=0)


def _class_sums(model: FittedModel, table: Table) -> Float64Array:
    """Return sums of one partition by true class, the last for labels of no class: (K + 1, 9).

    Columns: rows, weight, weight that model, linear and majority classify right, log
    losses and Brier scores of model and majority.
    """
    assert model.classes is not None
    classes = model.classes
    check_values(table, (classes.target,))
    X, kept = model.encoding.encode(table.features)
    codes = table.targets[kept, 0]
    weights = np.ones(len(codes)) if table.weights is None else table.weights[kept]
    scored = ~np.isnan(codes) & (weights > 0)
    X, truth, weights = X[scored], codes[scored].astype(np.int64), weights[scored]
    with single_blas_thread():
        odds = classes.log_odds(model.predict_encoded(X))
        linear = classes.scores(model.baseline_encoded(X)).argmax(axis=1)
    prior = np.repeat(frequencies(model, classes), len(X), axis=0)
    measures = [np.ones(len(X)), weights]
    measures += [weights * (p == truth) for p in (odds.argmax(axis=1), linear)]
    measures += [weights * (prior.argmax(axis=1) == truth)]
    losses = [_losses(shares, truth) for shares in (softmax(odds, axis=1), prior)]
    measures += [weights * loss[i] for i in range(2) for loss in losses]
    size = len(classes) + 1
    return np.column_stack([np.bincount(truth, m, minlength=size) for m in measures])


def frequencies(model: FittedModel, classes: Classes) -> Float64Array:
    """Return the share of each class among the rows fitted, shape (1, K)."""
    return (1 + classes.scores(model.target_mean[None])) / 2


def _losses(shares: Float64Array, truth: Any) -> tuple[Float64Array, Float64Array]:
    """Return log loss and Brier score of each row; the last class has no probability."""
    padded = np.column_stack([shares, np.zeros(len(shares))])
    right = padded[np.arange(len(truth)), truth]
    brier = np.sum(shares**2, axis=1) - 2 * right + 1
    return -np.log(np.maximum(right, _SMALLEST)), brier


def _evaluation(total: Float64Array) -> ClassEvaluation:
    rows, weight = total[:, 0], total[:, 1]
    if not weight.sum() > 0:
        raise DataError(
            "no rows to score (n_samples=0): the table is empty, or no row has a label and a "
            "weight above 0"
        )
    means = total[:, 5:].sum(axis=0) / weight.sum()
    model, linear, majority = (
        (float(right.sum() / weight.sum()), float(np.mean(right[weight > 0] / weight[weight > 0])))
        for right in total[:, 2:5].T
    )
    return ClassEvaluation(
        int(rows.sum()),
        int(rows[-1]),
        ClassScore(*model, float(means[0]), float(means[2])),
        ClassScore(*linear),
        ClassScore(*majority, float(means[1]), float(means[3])),
    )
