"""Which kernel a fit gets: the candidates, and the error that each leaves on a sample.

A likelihood on some hundred rows can prefer length scales that a regression on
all rows does not. What decides is therefore the leave-one-out error of a small
Nyström ridge regression on the whole sample, the same model as that of the fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from squeak_dist._typing import FloatArray
from squeak_dist.errors import NumericalError
from squeak_dist.kernels import Kernel
from squeak_dist.linalg import solve_lower, solve_lower_transposed
from squeak_dist.nystrom import distinct_rows, linear_columns, projected_map
from squeak_dist.ridge_path import choose_penalty
from squeak_dist.solvers import joint_equations, ridge_factor
from squeak_dist.tuning.marginal_likelihood import TuningRows

_CENTRES_SHARE, _CENTRES = 4, 512
_OUTLYING = 3.0  # standard deviations of the target that an error counts at most
_TIE = 1.01  # errors this close are a tie, which the simpler kernel wins


@dataclass(frozen=True, eq=False)
class Candidate:
    """A kernel that a fit may get.

    Parameters
    ----------
    length_scale : str
        How its length scale came about: ``"given"``, ``"median"`` (median distance),
        ``"isotropic"`` (maximum likelihood, one for all features) or ``"ARD"`` (one per
        feature: automatic relevance determination).
    kernel : Kernel, optional
        With its length scale; none where the search for it failed.
    error : float
        Leave-one-out error on the sample, in standard deviations of the target.
    """

    length_scale: str
    kernel: Kernel | None
    error: float = np.inf


@dataclass(frozen=True, eq=False)
class Choice:
    """The kernel chosen, and all that competed."""

    chosen: Candidate
    candidates: tuple[Candidate, ...]


def choose_kernel(candidates: Sequence[Candidate]) -> Choice:
    """Return the candidate of the least leave-one-out error.

    Parameters
    ----------
    candidates : sequence of Candidate
        Simplest first; not empty. Errors within 1 % of the least are a tie, which the
        simplest wins.
    """
    limit = _TIE * min(c.error for c in candidates)
    return Choice(next(c for c in candidates if c.error <= limit), tuple(candidates))


def leave_one_out_error(
    kernel: Kernel, rows: TuningRows, X: FloatArray, linear_part: bool | None = None
) -> float:
    """Return the leave-one-out error of a small Nyström ridge regression on a sample.

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
    float
        Root of the weighted mean of (e_i / (1 − v_i h_i))² over the rows that are no
        centres, in standard deviations of the target: e the errors on the rows fitted
        and h their leverage φᵀ A⁻¹ φ (Allen 1974, PRESS). An error counts as 3 at most,
        so that no outlying row decides; infinite where the equations cannot be solved.
        The centres are the first quarter of the rows, at most 512; μ is chosen by GCV.

    Notes
    -----
    Cost: s c² and 10 c³ multiply-adds for c centres.
    """
    centres = min(max(len(X) // _CENTRES_SHARE, 1), _CENTRES)
    v = np.ones(len(rows)) if rows.weights is None else rows.weights
    targets = rows.targets - np.average(rows.targets, axis=0, weights=v)
    try:
        nystrom = projected_map(kernel, X[:centres][distinct_rows(X[:centres])])
        joint = joint_equations(nystrom, X, targets, rows.weights)
        mu, path = choose_penalty(joint.path(), None, linear_part)
        equations = joint.assembled(linear=path.border is not None)
        factor = ridge_factor(equations, mu)
    except (NumericalError, np.linalg.LinAlgError):
        return np.inf
    features = nystrom.transform(X).astype(np.float64)
    if path.border is not None:
        features = np.concatenate([features, linear_columns(X, np.float64)], axis=1)
    theta = solve_lower_transposed(factor, solve_lower(factor, equations.moment))
    leverage = np.square(solve_lower(factor, features.T)).sum(axis=0)
    left_out = (targets - features @ theta) / np.maximum(1 - v * leverage, 1e-9)[:, None]
    spread = np.sqrt(np.average(targets**2, axis=0, weights=v))
    relative = np.clip(left_out / spread, -_OUTLYING, _OUTLYING)[centres:]
    mean = float(np.average(relative**2, axis=0, weights=v[centres:]).mean())
    return float(np.sqrt(mean)) if np.isfinite(mean) else np.inf
