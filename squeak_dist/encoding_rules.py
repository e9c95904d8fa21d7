"""Which encoding a profile calls for."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import numpy as np

from squeak_dist.column_encoding import LEVEL_DISTANCE, ColumnEncoding, EncodedKind
from squeak_dist.column_profile import ColumnProfile, sorted_levels
from squeak_dist.columns import DAY
from squeak_dist.encoding import FeatureEncoding
from squeak_dist.errors import (
    ColumnsDropped,
    DataError,
    InfiniteValuesError,
    InvalidParameterError,
    warn_user,
)
from squeak_dist.profile import Profile
from squeak_dist.table import check_policy, listing


def make_encoding(
    profile: Profile,
    *,
    standardize: bool,
    missing: str,
    dtype: str = "float32",
    max_levels: int = 64,
) -> FeatureEncoding:
    """Make the encoding that a profile calls for.

    Parameters
    ----------
    profile : Profile
        Of all partitions, made with the same ``missing``.
    standardize : bool
        Divide numbers by their standard deviations, so that every column spreads
        alike: the expected squared difference of two rows is 2 per number, and 2
        for different levels. Datetimes are divided anyway: they have no unit.
    missing : {"raise", "impute", "drop"}
        What :meth:`FeatureEncoding.encode` does about missing values. With "impute",
        numbers become the median of the sample, with an indicator column where
        the fit has missing values; levels get a column for missing.
    dtype : {"float32", "float64"}
        Of the encoded rows.
    max_levels : int, default 64
        Levels of a categorical column with a column of their own, the most frequent
        first; the others share one.

    Returns
    -------
    FeatureEncoding

    Raises
    ------
    InvalidParameterError
        For a parameter out of range.
    DataError
        If no column is left.

    Warns
    -----
    ColumnsDropped
        Naming columns that are constant, missing throughout, or identifiers.
    """
    check_policy(missing)
    if dtype not in ("float32", "float64"):
        raise InvalidParameterError(f'dtype must be "float32" or "float64", got {dtype!r}')
    if max_levels < 1:
        raise InvalidParameterError(f"max_levels must be at least 1, got {max_levels!r}")
    impute = missing == "impute"
    columns = []
    for j, column in enumerate(profile.columns):
        if _is_left_out(profile, j, max_levels, impute):
            columns.append(_encode_nothing(profile, j))
        elif column.kind == "categorical" and column.order is None:
            columns.append(_encode_levels(column, impute, max_levels))
        else:
            columns.append(_encode_numbers(profile, j, standardize, impute))
    reasons = {
        column.label: _why_left_out(profile, j)
        for j, column in enumerate(columns)
        if not column.names
    }
    _report_left_out(reasons, len(columns))
    return FeatureEncoding(tuple(columns), missing, standardize, dtype)


def uncounted_columns(profile: Profile, *, max_levels: int = 64) -> tuple[Hashable, ...]:
    """Return the columns that must not cost a row with ``missing="drop"``: they are left out.

    Parameters
    ----------
    profile : Profile
        Of all partitions, made with ``missing="drop"``.
    max_levels : int, default 64
        As in :func:`make_encoding`.

    Returns
    -------
    tuple of hashable, in the order of the columns
        Those of the profile and further ones. Where there are further ones, more rows are
        kept than the profile counts, so it must be made again.
    """
    absent = [(j, column) for j, column in enumerate(profile.columns) if column.missing]
    found = {column.label for _, column in absent if column.kind is None}
    if found <= {*profile.uncounted} and profile.kept > 1:  # of fewer rows all look constant
        found |= {c.label for j, c in absent if _is_left_out(profile, j, max_levels, False)}
    found |= {*profile.uncounted}
    return tuple(label for label in profile.labels if label in found)


def _is_left_out(profile: Profile, j: int, max_levels: int, impute: bool) -> bool:
    """Whether a column tells nothing: constant, missing throughout, or identifiers.

    Where it is constant but not always known, whether it is may still tell something.
    """
    column = profile.columns[j]
    if column.kind is None or column.label in profile.uncounted:
        return True
    indicator = impute and column.missing > 0
    if column.kind == "categorical" and column.order is None:
        identifier = _is_identifier(column, max_levels, profile.kept)
        return identifier or len(column.levels) + indicator < 2
    return _spread(profile, j)[2] and not indicator


def _encode_nothing(profile: Profile, j: int) -> ColumnEncoding:
    column = profile.columns[j]
    if column.kind == "categorical" and column.order is None:
        return ColumnEncoding(column.label, "categorical")
    kind: EncodedKind = "ordinal" if column.order is not None else column.kind or "numeric"
    value = math.nan if column.kind is None else _spread(profile, j)[0]
    return ColumnEncoding(column.label, kind, center=value, fill=value, levels=column.order or ())


def _encode_levels(column: ColumnProfile, impute: bool, max_levels: int) -> ColumnEncoding:
    levels = sorted_levels(column.levels)
    return ColumnEncoding(
        column.label,
        "categorical",
        levels=tuple(levels[:max_levels]),
        other=len(levels) > max_levels or column.truncated,
        indicator=impute and column.missing > 0,
    )


def _is_identifier(column: ColumnProfile, max_levels: int, kept: int) -> bool:
    """Whether most rows have a level of their own, so that nothing can be learned from it."""
    return column.distinct > max(0.5 * kept, max_levels)


def _encode_numbers(profile: Profile, j: int, standardize: bool, impute: bool) -> ColumnEncoding:
    column = profile.columns[j]
    kind: EncodedKind = "ordinal" if column.order is not None else column.kind or "numeric"
    mean, sd, constant = _spread(profile, j)
    indicator = impute and column.missing > 0
    if constant:
        return ColumnEncoding(
            column.label, kind, center=mean, fill=mean, indicator=indicator,
            levels=column.order or (),
        )  # fmt: skip
    if not np.isfinite(sd):
        raise InfiniteValuesError(
            f"column {column.label!r} has values too large to be squared in float64; rescale it"
        )
    scale = 1.0 / sd if standardize or kind == "datetime" else 1.0
    if kind == "boolean":
        scale = LEVEL_DISTANCE if standardize else 1.0
    return ColumnEncoding(
        column.label,
        kind,
        center=mean,
        scale=scale,
        fill=_median(profile, j) if impute else mean,
        value=True,
        indicator=indicator,
        levels=column.order or (),
        cycles=_cycles(profile, j) if kind == "datetime" else (),
    )


def _spread(profile: Profile, j: int) -> tuple[float, float, bool]:
    """Return mean, standard deviation and whether the column is constant."""
    column = profile.columns[j]
    if column.order is None:
        moments = profile.moments
        sd = float(np.sqrt(moments.variance[j]))
        return float(moments.mean[j]), sd, bool(moments.constant[j])
    places = {level: place for place, level in enumerate(column.order)}
    codes = np.array([places[level] for level in column.levels], np.float64)
    counts = np.array(list(column.levels.values()), np.float64)
    if len(codes) < 2:
        return float(codes.sum()), 0.0, True
    mean = float(np.average(codes, weights=counts))
    return mean, float(np.sqrt(np.average((codes - mean) ** 2, weights=counts))), False


def _median(profile: Profile, j: int) -> float:
    """Return the median of the sample, or the mean where the sample has no value."""
    column, values = profile.columns[j], profile.sample.columns[j]
    if column.order is not None:
        places = {level: place for place, level in enumerate(column.order)}
        values = np.array([places.get(text, np.nan) for text in values], np.float64)
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else _spread(profile, j)[0]


def _cycles(profile: Profile, j: int) -> tuple[str, ...]:
    days = float(profile.moments.maximum[j] - profile.moments.minimum[j]) / DAY
    present = {"year": days >= 366, "week": days >= 14, "day": profile.columns[j].has_time}
    return tuple(cycle for cycle, wanted in present.items() if wanted)


def _why_left_out(profile: Profile, j: int) -> str:
    column = profile.columns[j]
    if column.kind is None:
        return "missing throughout"
    if column.kind == "categorical" and column.order is None and len(column.levels) > 1:
        return "identifiers: most rows have a level of their own"
    return "constant"


def _report_left_out(reasons: Mapping[Hashable, str], n_columns: int) -> None:
    if not reasons:
        return
    groups: dict[str, list[str]] = {}
    for label, reason in reasons.items():
        groups.setdefault(reason, []).append(repr(label))
    described = "; ".join(f"{listing(names)} ({reason})" for reason, names in groups.items())
    if len(reasons) == n_columns:
        raise DataError(f"no feature is left to learn from: {described}")
    warn_user(f"left out of the fit: {described}", ColumnsDropped)
