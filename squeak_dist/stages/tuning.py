"""Kernel and γ of a fit, chosen on the sample of the profile by a few tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.conjugate_gradients import resolvable
from squeak_dist.encoding import FeatureEncoding
from squeak_dist.errors import InvalidParameterError, TuningFellBack, warn_user
from squeak_dist.kernels import (
    RBF,
    Kernel,
    Matern,
    check_kernel,
    check_resolution,
    kernel_config,
    kernel_diag,
    make_kernel,
)
from squeak_dist.leverage import theory_qbar
from squeak_dist.linalg import single_blas_thread
from squeak_dist.nystrom import residual_rounding
from squeak_dist.profile import Profile
from squeak_dist.stages.executors import Executor
from squeak_dist.stages.parameters import FitParameters, as_length_scale
from squeak_dist.tuning import (
    Candidate,
    Choice,
    LikelyKernel,
    SampleSpectrum,
    TuningRows,
    choose_gamma,
    choose_kernel,
    leave_one_out,
    likely_directions,
    likely_kernel,
    log_loss,
    median_length_scale,
    sample_spectrum,
    spectrum_penalty,
    squared_loss,
)

_LEADING_ROWS = (250, 1000)  # half of all rows, between these
_KERNEL_CHECK_ROWS = 128
_UNSEEN = 8.0  # times smaller than a sample tells is the least eigenvalue on all rows
_LEAST_ROWS = 40  # below them a likelihood tells nothing of a kernel
_TELLING = 0.03  # of loss, by which likelihood must be worse to be worth a warning
_LOSSES = {False: "error in standard deviations", True: "log loss"}  # classifies?


@dataclass(frozen=True, eq=False)
class TuningSample:
    """Sampled rows as the fit sees them.

    Parameters
    ----------
    X : ndarray of shape (s, d)
        Encoded rows, in the precision of the fit.
    targets : ndarray of float64, shape (s, k)
        Targets of mean 0 and variance 1 over all rows.
    weights : ndarray of float64, shape (s,), optional
        Sample weights.
    rows : int
        n, the rows that they were drawn from.
    """

    X: FloatArray
    targets: Float64Array
    weights: Float64Array | None
    rows: int

    def leading(self) -> TuningSample:
        """Return the rows that are enough for a spectrum and a median: a sample as well."""
        size = int(np.clip(self.rows // 2, *_LEADING_ROWS))
        weights = None if self.weights is None else self.weights[:size]
        return TuningSample(self.X[:size], self.targets[:size], weights, self.rows)

    @cached_property
    def median_distance(self) -> float:
        """Median distance of its leading rows."""
        return median_length_scale(self.leading().X)


@dataclass(frozen=True, eq=False)
class Search:
    """How a kernel comes about: the word for its length scale, and its family."""

    length_scale: str
    family: Any


@dataclass(frozen=True, eq=False)
class Tuned:
    """What is chosen on the sample.

    Parameters
    ----------
    kernel : Kernel, optional
        With its length scales; none where the user gave an object, which no checkpoint
        could hold.
    gamma, qbar : float and int
        γ and q̄.
    choice : Choice, optional
        The kernels that competed, where the fit had to choose one.
    resolvable : bool
        Whether the sample lets conjugate gradients converge, as far as it can tell.
    """

    kernel: Kernel | None
    gamma: float
    qbar: int
    choice: Choice | None
    resolvable: bool


def tuning_sample(
    profile: Profile, encoding: FeatureEncoding, target_scale: Float64Array
) -> TuningSample:
    """Return the sample of a profile as the fit sees it.

    Parameters
    ----------
    profile : Profile
        With the sample.
    encoding : FeatureEncoding
        Of its rows.
    target_scale : ndarray of float64, shape (k,)
        Standard deviations of the targets.
    """
    X, kept = encoding.encode(profile.sample.features)
    weights = profile.sample.weights
    return TuningSample(
        X=X,
        targets=(profile.sample.targets[kept] - profile.target_mean) / target_scale,
        weights=None if weights is None else weights[kept],
        rows=profile.kept,
    )


def tune(
    executor: Executor,
    profile: Profile,
    encoding: FeatureEncoding,
    parameters: FitParameters,
    target_scale: Float64Array,
) -> Tuned:
    """Choose kernel and γ on the sample of a profile.

    Parameters
    ----------
    executor : Executor
        Where the tasks run: one per kernel that competes, and one for γ.
    profile : Profile
        With the sample.
    encoding : FeatureEncoding
        Of its rows.
    parameters : FitParameters
        What is given, and what is not.
    target_scale : ndarray of float64, shape (k,)
        Standard deviations of the targets.

    Raises
    ------
    InvalidParameterError
        For length scales that do not fit the encoded columns.
    InvalidKernelError
        For a kernel that is none.
    """
    _check_length_scales(encoding, parameters)
    sample = tuning_sample(profile, encoding, target_scale)
    shared = executor.share(sample)
    searches = _searches(sample, parameters)
    candidates = [executor.call(_find_task, shared, search) for search in searches]
    separate = [place for place, search in enumerate(searches) if search.length_scale == "ARD"]
    if separate and parameters.length_scale == "auto":
        candidates.append(executor.call(_turn_task, shared, candidates[separate[0]]))
    if len(candidates) > 1:
        candidates = [executor.call(_judge_task, c, shared, parameters) for c in candidates]
    tuned: Tuned = executor.gather(
        "tuning", executor.call(_tune_task, candidates, shared, parameters)
    )
    _warn_of_median(tuned.choice)
    return tuned


def _searches(sample: TuningSample, parameters: FitParameters) -> list[Search]:
    """Return how the kernels that compete come about, simplest first."""
    if not isinstance(parameters.kernel, str):
        return [Search("given", parameters.kernel)]
    families = _families(parameters.kernel)
    if not isinstance(parameters.length_scale, str):
        scale = as_length_scale(np.asarray(parameters.length_scale).tolist())
        found = [Search("given", replace(family, length_scale=scale)) for family in families]
        return found if _tells(sample) else found[:1]
    medians = [Search("median", family) for family in families]
    radial = all(isinstance(family, RBF | Matern) for family in families)
    if parameters.length_scale == "median" or not radial or not _tells(sample):
        return medians[:1]
    several = parameters.length_scale in ("auto", "ARD") and sample.X.shape[1] > 1
    how = "ARD" if several else "isotropic"
    return [*medians, *(Search(how, family) for family in families)]


def _tells(sample: TuningSample) -> bool:
    """Say whether the sample can tell kernels apart."""
    rows, _ = _tuning_rows(sample)
    return len(rows) >= _LEAST_ROWS and rows.targets.shape[1] > 0


def _find_task(sample: TuningSample, search: Search) -> Candidate:
    with single_blas_thread():
        if search.length_scale == "given":
            return Candidate("given", search.family)
        if search.length_scale == "median":
            scaled = replace(search.family, length_scale=sample.median_distance)
            return Candidate("median", scaled)
        rows, _ = _tuning_rows(sample)
        found = likely_kernel(search.family, rows, separate=search.length_scale == "ARD")
    return _likely(search.length_scale, found)


def _turn_task(sample: TuningSample, separate: Candidate) -> Candidate:
    """Go on from a length scale per feature to directions of the features."""
    rows, _ = _tuning_rows(sample)
    with single_blas_thread():
        found = None if separate.likely is None else likely_directions(separate.likely, rows)
    return _likely("directions", found)


def _likely(how: str, found: LikelyKernel | None) -> Candidate:
    return Candidate(how, None if found is None else found.kernel, likely=found)


def _judge_task(
    candidate: Candidate, sample: TuningSample, parameters: FitParameters
) -> Candidate:
    """Add the loss on rows left out, which stays infinite where there is none."""
    if candidate.kernel is None:
        return candidate
    rows, X = _tuning_rows(sample)
    with single_blas_thread():
        left_out = leave_one_out(candidate.kernel, rows, X, parameters.penalty.linear_part)
    if left_out is None:
        return candidate
    loss = log_loss if parameters.classifies else squared_loss
    return replace(candidate, loss=loss(left_out))


def _tune_task(
    candidates: list[Candidate], sample: TuningSample, parameters: FitParameters
) -> Tuned:
    judged = [replace(candidate, likely=None) for candidate in candidates]
    choice = choose_kernel(judged, _LOSSES[parameters.classifies])
    kernel = choice.chosen.kernel
    assert kernel is not None  # the median distance is always found
    with single_blas_thread():
        check_resolution(kernel, sample.X)
        check_kernel(kernel, sample.X[:_KERNEL_CHECK_ROWS])
        qbar = _qbar(parameters, sample.rows)
        gamma, resolved = _gamma(sample, kernel, parameters, qbar)
    return Tuned(
        kernel=kernel if isinstance(parameters.kernel, str) else None,
        gamma=gamma,
        qbar=qbar,
        choice=choice if len(candidates) > 1 else None,
        resolvable=resolved,
    )


def _families(name: str) -> tuple[Any, ...]:
    """Return the kernels that a name may stand for, the most usual first."""
    if name == "auto":
        return RBF(), Matern(nu=1.5)
    return (make_kernel(name, 1.0),)


def _tuning_rows(sample: TuningSample) -> tuple[TuningRows, FloatArray]:
    """Return the rows of positive weight, of mean 1, and the targets that vary on them."""
    X, targets, weights = sample.X, sample.targets, sample.weights
    if weights is not None:
        counts = weights > 0
        X, targets, weights = X[counts], targets[counts], weights[counts]
        weights = weights / weights.mean()  # μ is of their size
    varies = np.ptp(targets, axis=0) > 0 if len(targets) else np.zeros(targets.shape[1], bool)
    return TuningRows(X.astype(np.float64), targets[:, varies], weights), X


def _gamma(
    sample: TuningSample, kernel: Kernel, parameters: FitParameters, qbar: int
) -> tuple[float, bool]:
    """Return γ, and whether the sample lets conjugate gradients converge."""
    if not isinstance(parameters.gamma, str):
        return float(parameters.gamma), True
    leading = sample.leading()
    spectrum = sample_spectrum_of(sample, kernel)
    mu = spectrum_penalty(spectrum, leading.targets, parameters.penalty.mu)
    gamma = choose_gamma(
        spectrum,
        leading.targets,
        mu=mu,
        epsilon=parameters.epsilon,
        qbar=qbar,
        max_dictionary=parameters.max_dictionary,
        resolution=residual_rounding(leading.X.dtype) * _largest_diagonal(kernel, leading),
    )
    size = spectrum.dictionary_size(gamma, parameters.epsilon, qbar)
    least = (mu + spectrum.eigenvalue(size)) / _UNSEEN
    return gamma, resolvable(spectrum.norm, least, leading.X.dtype)


def sample_spectrum_of(sample: TuningSample, kernel: Kernel) -> SampleSpectrum:
    """Decompose the kernel matrix of the leading rows of a sample.

    Parameters
    ----------
    sample : TuningSample
        The sample.
    kernel : Kernel
        With its length scales.
    """
    leading = sample.leading()
    return sample_spectrum(kernel, leading.X, leading.rows, leading.weights)


def _largest_diagonal(kernel: Kernel, sample: TuningSample) -> float:
    diagonal = kernel_diag(kernel, sample.X).astype(np.float64)
    return float(np.max(diagonal if sample.weights is None else diagonal * sample.weights))


def _qbar(parameters: FitParameters, rows: int) -> int:
    if isinstance(parameters.qbar, str):
        return theory_qbar(rows, parameters.epsilon, parameters.delta)
    return int(parameters.qbar)


def _check_length_scales(encoding: FeatureEncoding, parameters: FitParameters) -> None:
    """Check that there is one length scale per encoded column where several are given."""
    if isinstance(parameters.length_scale, str):
        return
    scale = as_length_scale(np.asarray(parameters.length_scale).tolist())
    if isinstance(scale, tuple) and len(scale) != encoding.n_features:
        raise InvalidParameterError(
            f"length_scale has {len(scale)} values, but the columns encode to "
            f"{encoding.n_features} features ({', '.join(encoding.encoded_names[:20])}); give "
            f"one number or one per encoded feature"
        )


def _warn_of_median(choice: Choice | None) -> None:
    """Warn where maximum likelihood would have been worse than the median distance."""
    if choice is None or choice.chosen.length_scale != "median":
        return
    loss = choice.chosen.loss
    least = min(c.loss for c in choice.candidates if c.length_scale != "median")
    if least > loss + _TELLING:
        found = (
            f"with those of maximum likelihood the {choice.loss} of rows left out is "
            f"{least:.3g}, with the median distance {loss:.3g}"
            if np.isfinite(least)
            else "the search for those of maximum likelihood failed"
        )
        warn_user(
            f"the length scale is the median distance of a sample: {found}. "
            f'length_scale="median" asks for it without the search',
            TuningFellBack,
        )


def tuning_report(choice: Choice | None) -> dict[str, Any] | None:
    """Return what the report says of the choice of a kernel; None where there was none."""
    if choice is None:
        return None
    return {
        "chosen": choice.chosen.length_scale,
        "loss": choice.loss,
        "candidates": [
            {
                "kernel": None if c.kernel is None else kernel_config(c.kernel)["name"],
                "nu": getattr(c.kernel, "nu", None),
                "length_scale": c.length_scale,
                "left_out_loss": c.loss if np.isfinite(c.loss) else None,
            }
            for c in choice.candidates
        ],
    }
