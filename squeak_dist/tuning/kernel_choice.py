"""Which kernel a fit gets: the candidates, and the loss that each leaves on a sample.

A likelihood on some hundred rows can prefer length scales that a regression on
all rows does not. What decides is therefore what a small Nyström ridge regression on
the whole sample, the same model as that of the fit, predicts of the rows it leaves out.
For classes it is the log loss of their probabilities: length scales that are best
for squares of ±1 columns can be worse at telling 26 letters apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.calibration import fit_link, left_out_scores
from squeak_dist.errors import NumericalError
from squeak_dist.kernels import Kernel
from squeak_dist.linalg import forward_substitution, solve_lower, solve_lower_transposed
from squeak_dist.nystrom import distinct_rows, linear_columns, projected_map
from squeak_dist.ridge_path import choose_penalty
from squeak_dist.solvers import joint_equations_of_features, ridge_factor
from squeak_dist.tuning.length_scales import LikelyKernel
from squeak_dist.tuning.marginal_likelihood import TuningRows

_CENTRES_SHARE, _CENTRES = 4, 512
_OUTLYING = 3.0  # standard deviations of the target that an error counts at most
# The d² numbers of directions come from a thousand rows, some of which they are judged by, and
# do not get better with all of them.
_HANDICAP = {"directions": 1.03}
_TIE = 1.01  # errors this close are a tie, which the simpler kernel wins


@dataclass(frozen=True, eq=False)
class Candidate:
    """A kernel that a fit may get.

    Parameters
    ----------
    length_scale : str
        How its length scale came about: ``"given"``, ``"median"`` (median distance),
        ``"isotropic"`` (maximum likelihood, one for all features), ``"ARD"`` (one per
        feature: automatic relevance determination) or ``"directions"`` (one per direction
        among the features).
    kernel : Kernel, optional
        With its length scale; none where the search for it failed.
    loss : float
        Of the rows of the sample, each left out.
    likely : LikelyKernel, optional
        What a search by likelihood found.
    """

    length_scale: str
    kernel: Kernel | None
    loss: float = np.inf
    likely: LikelyKernel | None = None


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What a regression on a sample predicts of rows that it leaves out.

    Parameters
    ----------
    targets : ndarray of float64, shape (r, k)
        Targets of the rows.
    predicted : ndarray of float64, shape (r, k)
        Predictions without them.
    weights : ndarray of float64, shape (r,)
        Their weights.
    spread : ndarray of float64, shape (k,)
        Standard deviations of the targets in the sample.
    """

    targets: Float64Array
    predicted: Float64Array
    weights: Float64Array
    spread: Float64Array


@dataclass(frozen=True, eq=False)
class Choice:
    """The kernel chosen, all that competed, and what they were judged by."""

    chosen: Candidate
    candidates: tuple[Candidate, ...]
    loss: str


def choose_kernel(candidates: Sequence[Candidate], loss: str) -> Choice:
    """Return the candidate of the least loss.

    Parameters
    ----------
    candidates : sequence of Candidate
        Simplest first; not empty. Losses within 1 % of the least are a tie, which the
        simplest wins; directions have to be better by 3 % more.
    loss : str
        What the losses are, for the report.
    """
    counted = [_HANDICAP.get(c.length_scale, 1.0) * c.loss for c in candidates]
    chosen = next(
        c for c, of in zip(candidates, counted, strict=True) if of <= _TIE * min(counted)
    )
    return Choice(chosen, tuple(candidates), loss)


def leave_one_out(
    kernel: Kernel, rows: TuningRows, X: FloatArray, linear_part: bool | None = None
) -> LeftOut | None:
    """Return what a small Nyström ridge regression on a sample predicts of left-out rows.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    rows : TuningRows
        s rows with their targets.
    X : ndarray of shape (s, d)
        The same rows in the precision of the fit.
    linear_part : bool, optional
        Whether the encoded columns stand beside the kernel; by GCV where it is None.

    Returns
    -------
    LeftOut or None
        y − e / (1 − v h) of the rows that are no centres: e the errors on the rows fitted
        and h their leverage φᵀ A⁻¹ φ (Allen 1974, PRESS). The centres are the first quarter
        of the rows, at most 512; μ is chosen by GCV. None where the equations cannot be
        solved.

    Notes
    -----
    Cost: s c² and 10 c³ multiply-adds for c centres.
    """
    centres = min(max(len(X) // _CENTRES_SHARE, 1), _CENTRES)
    v = np.ones(len(rows)) if rows.weights is None else rows.weights
    targets = rows.targets - np.average(rows.targets, axis=0, weights=v)
    try:
        nystrom = projected_map(kernel, X[:centres][distinct_rows(X[:centres])])
        m, linear = len(nystrom), linear_columns(X, np.float64)
        features = np.concatenate([nystrom.transform(X), linear], axis=1, dtype=np.float64)
        joint = joint_equations_of_features(features, X, targets, rows.weights)
        mu, path = choose_penalty(joint.path(), None, linear_part)
        equations = joint.assembled(path.ridge)
        factor = ridge_factor(equations, mu)
    except (NumericalError, np.linalg.LinAlgError):
        return None
    if path.width < linear.shape[1]:
        features = np.hstack([features[:, :m], linear[:, linear.shape[1] - path.width :]])
    theta = solve_lower_transposed(factor, solve_lower(factor, equations.moment))
    fitted = features @ theta
    whitened = forward_substitution(factor, features.dtype).solve_rows(features)
    leverage = np.einsum("ij,ij->i", whitened, whitened)
    left_out = left_out_scores(fitted, targets, v * leverage)
    if not np.isfinite(left_out).all():
        return None
    spread = np.sqrt(np.average(targets**2, axis=0, weights=v))
    return LeftOut(targets[centres:], left_out[centres:], v[centres:], spread)


def squared_loss(left_out: LeftOut) -> float:
    """Return the root mean squared error, in standard deviations of the target.

    Parameters
    ----------
    left_out : LeftOut
        Predictions. An error counts as 3 at most, so that no outlying row decides.
    """
    errors = (left_out.targets - left_out.predicted) / left_out.spread
    squares = np.square(np.clip(errors, -_OUTLYING, _OUTLYING))
    return float(np.sqrt(np.average(squares, axis=0, weights=left_out.weights).mean()))


def log_loss(left_out: LeftOut) -> float:
    """Return −log p of the class of a row, on average over the rows.

    Parameters
    ----------
    left_out : LeftOut
        Predictions of indicators of classes, of two values each, as they stand after
        standardizing; one column stands for two classes. The probabilities are those of
        the link that fits them best.
    """
    low, high = left_out.targets.min(axis=0), left_out.targets.max(axis=0)
    indicators, scores = (
        2 * (values - low) / np.where(high > low, high - low, 1.0) - 1
        for values in (left_out.targets, left_out.predicted)
    )
    if indicators.shape[1] == 1:
        indicators, scores = (np.hstack([-values, values]) for values in (indicators, scores))
    codes = indicators.argmax(axis=1)
    logs = log_softmax(fit_link(scores, codes, left_out.weights).log_odds(scores), axis=1)
    return float(-np.average(logs[np.arange(len(codes)), codes], weights=left_out.weights))
