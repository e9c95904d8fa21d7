"""What a profile says against a fit, as errors with columns and counts."""

from __future__ import annotations

import numpy as np

from squeak_dist.errors import (
    ConstantTargetError,
    EmptyDataError,
    InfiniteValuesError,
    InvalidParameterError,
    MissingValuesError,
)
from squeak_dist.profile import Profile
from squeak_dist.table import check_policy, named_counts


def check_profile(profile: Profile, *, missing: str) -> None:
    """Raise what makes a fit impossible, with the columns and counts.

    The parameters are those of :func:`check_profiled_values`.

    Raises
    ------
    EmptyDataError
        If fewer than two rows are left.
    MissingValuesError, InfiniteValuesError
        As :func:`check_profiled_values`.
    InvalidParameterError
        For negative weights, or none above 0.
    ConstantTargetError
        If the target does not vary.
    """
    check_profiled_values(profile, missing=missing)
    _check_rows(profile)
    if not profile.weight_sum > 0:
        raise InvalidParameterError(
            "all sample weights are zero; at least two rows need one above 0"
        )
    constant = profile.target_moments.constant
    if constant.size and constant.all():
        value = float(profile.target_mean[0])
        raise ConstantTargetError(
            f"the target is constant: {value:.6g} in all rows of positive weight, out of "
            f"{profile.kept}; there is nothing to learn"
        )


def check_profiled_values(profile: Profile, *, missing: str) -> None:
    """Raise what no row may have: all that is asked of rows that continue a fit.

    Parameters
    ----------
    profile : Profile
        Of all partitions.
    missing : {"raise", "impute", "drop"}
        The policy it was made with.

    Raises
    ------
    EmptyDataError
        If there are no rows.
    MissingValuesError, InfiniteValuesError
        Naming the columns and how many rows are affected.
    InvalidParameterError
        For negative weights.
    """
    check_policy(missing)
    if not profile.rows:
        raise EmptyDataError("found no rows to fit (n_samples=0)")
    _check_missing(profile, missing)
    _check_infinite(profile)
    if profile.weight_negative:
        affected = named_counts([("the sample weights", profile.weight_negative)])
        raise InvalidParameterError(f"negative values in {affected}; weights must be ≥ 0")


def _check_missing(profile: Profile, missing: str) -> None:
    if profile.weight_missing:
        raise MissingValuesError(
            f"missing values in {named_counts([('the sample weights', profile.weight_missing)])}; "
            f"every row needs a weight (0 leaves a row out)"
        )
    affected = _columns_with_missing(profile)
    if missing == "raise" and affected:
        raise MissingValuesError(
            f'missing values (NaN) in {affected} of {profile.rows} rows; pass missing="impute" '
            f'to fill features in, or missing="drop" to leave such rows out'
        )


def _check_infinite(profile: Profile) -> None:
    counts = [(repr(column.label), column.infinite) for column in profile.columns]
    counts += zip(_target_names(profile), profile.target_infinite.tolist(), strict=True)
    affected = named_counts([*counts, ("the sample weights", profile.weight_infinite)])
    if affected:
        raise InfiniteValuesError(
            f"infinite values (inf) in {affected} of {profile.rows} rows; replace or remove them"
        )
    if not np.isfinite(profile.target_moments.squares).all():
        raise InfiniteValuesError("the target is too large to be squared in float64; rescale it")


def _check_rows(profile: Profile) -> None:
    if profile.kept > 1:
        return
    message = f"found {'one row' if profile.kept else 'no rows'} to fit (n_samples={profile.kept})"
    dropped = profile.rows - profile.kept
    if dropped:
        affected = _columns_with_missing(profile)
        message += f": {dropped} of {profile.rows} were dropped, missing {affected}"
    raise EmptyDataError(f"{message}; at least two are needed")


def _columns_with_missing(profile: Profile) -> str:
    counts = [(repr(column.label), column.missing) for column in profile.columns]
    counts += zip(_target_names(profile), profile.target_missing.tolist(), strict=True)
    return named_counts(counts)


def _target_names(profile: Profile) -> list[str]:
    k = len(profile.target_missing)
    return ["the target"] if k == 1 else [f"target {j}" for j in range(k)]
