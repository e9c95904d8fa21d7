"""Scores of a model on judged rows, beside the mean and a linear ridge regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array
from squeak_dist.errors import LengthMismatchError
from squeak_dist.report.judged import JudgedRows

Scores = dict[str, dict[str, float]]

MODEL = "squeak_dist"
_SMALLEST = float(np.finfo(np.float64).eps)


def scores_of(rows: JudgedRows, others: Mapping[str, Any] | None = None) -> Scores:
    """Return what each method scores on the rows: method → measure → value.

    Parameters
    ----------
    rows : JudgedRows
        Rows; where they are a sample of scored rows, the scores of all of these are returned.
    others : mapping of name to array-like, optional
        What other methods predict of the same rows: numbers of shape (s,) or (s, k), or labels.

    Raises
    ------
    LengthMismatchError
        If a prediction is of another number of rows.

    Notes
    -----
    RMSE and R² per target; of a classifier accuracy, and log loss where there are
    probabilities. All are weighted.
    """
    if rows.scores:
        return {name: dict(measures) for name, measures in rows.scores.items()}
    given = {name: np.asarray(values) for name, values in (others or {}).items()}
    for name, values in given.items():
        if len(values) != len(rows):
            raise LengthMismatchError(
                f"{name!r} has {len(values):,} predictions, but there are {len(rows):,} rows; "
                f"pass one per row"
            )
    return _class_scores(rows, given) if rows.model.classes is not None else _errors(rows, given)


def _errors(rows: JudgedRows, others: Mapping[str, Any]) -> Scores:
    targets, weights = rows.rows.targets, rows.rows.weights / rows.rows.weights.sum()
    about = targets - weights @ targets
    methods = {
        "mean": rows.constant,
        "linear ridge": rows.linear,
        **{name: values.reshape(targets.shape) for name, values in others.items()},
        MODEL: rows.predicted,
    }
    return {
        name: _measures(rows, weights @ (targets - predicted) ** 2, weights @ about**2)
        for name, predicted in methods.items()
    }


def _measures(rows: JudgedRows, square: Float64Array, spread: Float64Array) -> dict[str, float]:
    names = rows.model.target_names
    of = [f" of {name}" for name in names] if len(names) > 1 else [""]
    rmse = {f"RMSE{o}": float(np.sqrt(s)) for o, s in zip(of, square, strict=True)}
    r2 = {
        f"R²{o}": float(1 - s / v) if v > 0 else float("nan")
        for o, s, v in zip(of, square, spread, strict=True)
    }
    return rmse | r2


def _class_scores(rows: JudgedRows, others: Mapping[str, Any]) -> Scores:
    classes = rows.model.classes
    assert classes is not None
    codes, weights = rows.codes, rows.rows.weights / rows.rows.weights.sum()
    prior = (1 + classes.scores(rows.model.target_mean[None])) / 2
    shares = {"most frequent class": np.repeat(prior, len(rows), axis=0), MODEL: rows.shares}
    chosen = {
        "most frequent class": shares["most frequent class"].argmax(axis=1),
        "linear ridge": classes.scores(rows.linear).argmax(axis=1),
        **{name: classes.codes(values) for name, values in others.items()},
        MODEL: shares[MODEL].argmax(axis=1),
    }
    scores = {name: {"accuracy": float(weights @ (c == codes))} for name, c in chosen.items()}
    for name, p in shares.items():
        right = np.maximum(p[np.arange(len(codes)), codes], _SMALLEST)
        scores[name]["log loss"] = float(-weights @ np.log(right))
    return scores


_METHODS = {
    "mean": "mean",
    "majority": "most frequent class",
    "linear": "linear ridge",
    "model": MODEL,
}
_WORDS = {
    "rmse": "RMSE",
    "r2": "R²",
    "balanced_accuracy": "balanced accuracy",
    "log_loss": "log loss",
    "brier": "Brier score",
}


def scores_of_evaluation(evaluation: Mapping[str, Any], target_names: Sequence[str]) -> Scores:
    """Return the scores of ``evaluate(...).to_dict()`` in the words of :func:`scores_of`.

    Parameters
    ----------
    evaluation : mapping
        Method → measure → a number, or one per target.
    target_names : sequence of str
        The targets.
    """
    return {
        _METHODS[method]: _named(measures, target_names)
        for method, measures in sorted(evaluation.items(), key=_in_order)
        if method in _METHODS
    }


def _in_order(item: tuple[str, Any]) -> int:
    return list(_METHODS).index(item[0]) if item[0] in _METHODS else -1


def _named(measures: Mapping[str, Any], target_names: Sequence[str]) -> dict[str, float]:
    named: dict[str, float] = {}
    for name, found in measures.items():
        word = _WORDS.get(name, name)
        if isinstance(found, list) and len(found) > 1:
            named |= {f"{word} of {t}": v for t, v in zip(target_names, found, strict=True)}
        else:
            named[word] = found[0] if isinstance(found, list) else found
    return {word: value for word, value in named.items() if value is not None}
