"""Figures of judged rows: predictions, errors by column, intervals."""

from __future__ import annotations

from collections.abc import Hashable
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
from bokeh.models import ColumnDataSource, FactorRange, HoverTool, NumeralTickFormatter

from squeak_dist._typing import Float64Array
from squeak_dist.errors import InvalidParameterError, MissingColumnsError
from squeak_dist.report.groups import Groups, grouped
from squeak_dist.report.judged import JudgedRows, as_judged
from squeak_dist.report.style import (
    BLUE,
    GREY,
    ORANGE,
    SERIES,
    add_hover,
    evenly,
    no_data,
    place_legend,
    plain_figure,
    short_ticks,
)

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_CURVES = 6  # classes with a curve of their own
_FEWEST = 5  # rows of a point of such a curve


def prediction_figure(fitted: Any, *, output: int = 0) -> Any:
    """Draw actual against predicted; of a classifier frequencies against probabilities.

    Parameters
    ----------
    fitted : estimator, model or JudgedRows
        Of an estimator the rows that the model keeps, each predicted as if it had been left
        out; :func:`~squeak_dist.report.judged` makes JudgedRows of others.
    output : int, default 0
        Which target; of a classifier it is ignored.

    Returns
    -------
    bokeh.plotting.figure
    """
    rows = as_judged(fitted)
    if rows.model.classes is not None:
        return _reliability_figure(rows)
    name = rows.model.target_names[_checked(rows, output)]
    plot = plain_figure("Predicted and actual", f"predicted {name}", f"actual {name}")
    shown = evenly(len(rows))
    predicted, actual = rows.predicted[shown, output], rows.rows.targets[shown, output]
    source = ColumnDataSource(
        {
            "x": predicted, "y": actual, "value": rows.leverage[shown],
            "std": rows.deviation[shown, output],
        }
    )  # fmt: skip
    both = np.concatenate([predicted, actual])
    low, high = float(both.min()), float(both.max())
    for axis in plot.axis:
        short_ticks(axis, predicted)
    plot.line([low, high], [low, high], color=GREY, line_dash="dashed", legend_label="equal")
    dots = plot.scatter("x", "y", source=source, size=5, color=BLUE, alpha=0.6)
    tips = [("predicted", "@x{0.[0000]a} ± @std{0.[0000]a}"), ("actual", "@y{0.[0000]a}")]
    add_hover(plot, [dots], [*tips, ("leverage", "@value{0.000}")])
    place_legend(plot)
    return plot


def _checked(rows: JudgedRows, output: int) -> int:
    outputs = len(rows.model.target_names)
    if not 0 <= output < outputs:
        raise InvalidParameterError(f"output must be in 0..{outputs - 1}, got {output}")
    return output


def _reliability_figure(rows: JudgedRows) -> Any:
    assert rows.model.classes is not None
    plot = plain_figure(
        "Probabilities and frequencies",
        "predicted probability", "share of the rows that are of the class",
    )  # fmt: skip
    plot.line([0, 1], [0, 1], color=GREY, line_dash="dashed", legend_label="calibrated")
    shares, codes, drawn = rows.shares, rows.codes, []
    common = np.argsort(-np.bincount(codes, rows.rows.weights, minlength=shares.shape[1]))
    chosen = common[: min(_CURVES, shares.shape[1])] if shares.shape[1] > 2 else [1]
    for colour, code in zip(SERIES, chosen, strict=False):
        label = str(rows.model.classes.labels[code])
        source = _reliability_source(shares[:, code], codes == code, rows.rows.weights, label)
        plot.line("x", "y", source=source, color=colour, legend_label=label)
        drawn.append(plot.scatter("x", "y", source=source, color=colour, size=7))
    tips = [("class", "@label"), ("mean probability", "@x{0.0%}"), ("frequency", "@y{0.0%}")]
    add_hover(plot, drawn, [*tips, ("rows", "@count{0,0}")])
    place_legend(plot)
    return plot


def _reliability_source(
    shares: Float64Array, right: npt.NDArray[Any], weights: Float64Array, label: str
) -> ColumnDataSource:
    """Return means by tenths of the probability, of the tenths that have rows enough."""
    tenth = np.minimum((shares * 10).astype(int), 9)
    weight, count = np.bincount(tenth, weights, minlength=10), np.bincount(tenth, minlength=10)
    filled = np.flatnonzero(count >= _FEWEST)
    x, y = (np.bincount(tenth, weights * v, minlength=10)[filled] for v in (shares, right))
    return ColumnDataSource(
        {
            "x": x / weight[filled], "y": y / weight[filled], "count": count[filled],
            "label": [label] * len(filled),
        }
    )  # fmt: skip


def residual_figure(fitted: Any, column: Hashable, *, output: int = 0) -> Any:
    """Draw errors by the values of a column, with their means in twenty groups of equal size.

    Parameters
    ----------
    fitted : estimator, model or JudgedRows
        As in :func:`prediction_figure`.
    column : label
        Of the fit.
    output : int, default 0
        Which target. Of a classifier the error is 1 − the probability of the right class.

    Returns
    -------
    bokeh.plotting.figure

    Raises
    ------
    MissingColumnsError
        If the fit has no such column.
    """
    rows = as_judged(fitted)
    if column not in rows.frame.columns:
        raise MissingColumnsError(
            f"the fit has no column {column!r}; there are {list(rows.frame.columns)}"
        )
    errors, label = errors_of(rows, output)
    groups = grouped(rows.frame[column])
    plot = plain_figure(f"Errors by {column}", str(column), label, **_axis(groups))
    if not len(groups.middles):
        return no_data(plot, "all values are missing")
    held = np.flatnonzero(groups.codes >= 0)
    held = held[evenly(len(held))]
    x = _spread_levels(groups)[held] if groups.is_text else groups.values[held]
    source = ColumnDataSource({"x": x, "y": errors[held], "value": groups.values[held]})
    dots = plot.scatter("x", "y", source=source, size=4, color=BLUE, alpha=0.45)
    means, middles = groups.means(errors, rows.rows.weights), groups.middles
    short_ticks(plot.yaxis[0], errors)
    if not (groups.is_text or groups.is_time):
        short_ticks(plot.xaxis[0], groups.values)
    if groups.is_text:
        plot.scatter(
            np.arange(len(middles)) + 0.5, means, marker="dash", size=26, line_width=4,
            color=ORANGE, legend_label="mean",
        )  # fmt: skip
    else:
        plot.line(middles, means, color=ORANGE, line_width=3, legend_label="mean of a group")
    place_legend(plot, "top_right")
    shown = "@value{%F %T}" if groups.is_time else "@value"
    plot.add_tools(
        HoverTool(
            renderers=[dots], tooltips=[(str(column), shown), ("error", "@y{0.[0000]a}")],
            formatters={"@value": "datetime"} if groups.is_time else {},
        )
    )  # fmt: skip
    return plot


def _axis(groups: Groups) -> dict[str, Any]:
    if groups.is_text:
        return {"height": 300, "x_range": FactorRange(factors=list(groups.middles))}
    return {"height": 300, "x_axis_type": "datetime" if groups.is_time else "linear"}


def _spread_levels(groups: Groups) -> Float64Array:
    """Return places of rows within the band of their level, in a fixed order side by side."""
    band = 0.2 + 0.6 * ((np.arange(len(groups.codes)) * 0.618034) % 1)
    places: Float64Array = groups.codes + band
    return places


def errors_of(rows: JudgedRows, output: int = 0) -> tuple[Float64Array, str]:
    """Return one error per row, and what it is.

    Parameters
    ----------
    rows : JudgedRows
        Rows.
    output : int, default 0
        Which target of a regression.
    """
    if rows.model.classes is None:
        return rows.errors[:, _checked(rows, output)], "actual − predicted"
    right = rows.shares[np.arange(len(rows)), rows.codes]
    return 1 - right, "1 − p(right class)"


def telling_columns(rows: JudgedRows, output: int = 0) -> list[tuple[Hashable, float]]:
    """Return the columns, first those whose groups explain most of the squared errors.

    Parameters
    ----------
    rows : JudgedRows
        Rows.
    output : int, default 0
        Which target of a regression.

    Returns
    -------
    list of (label, share)
        The share of Σ v e² in [0, 1] that the means of twenty groups explain; by chance it is
        about 20 / s. Of a classifier the errors are taken from their mean.
    """
    errors, _ = errors_of(rows, output)
    if rows.model.classes is not None:
        errors = errors - np.average(errors, weights=rows.rows.weights)
    used = rows.model.encoding.used_labels
    weights = rows.rows.weights
    shares = [(label, grouped(rows.frame[label]).explained(errors, weights)) for label in used]
    return sorted(shares, key=lambda pair: -pair[1])


def coverage(rows: JudgedRows, output: int = 0) -> Float64Array:
    """Return the share of rows within the interval of each of ``LEVELS``, shape (11,).

    Parameters
    ----------
    rows : JudgedRows
        Of a regression.
    output : int, default 0
        Which target.
    """
    ratio = np.abs(rows.errors[:, output]) / rows.deviation[:, output]
    widths = np.array([NormalDist().inv_cdf((1 + level) / 2) for level in LEVELS])
    weights = rows.rows.weights / rows.rows.weights.sum()
    inside: Float64Array = (ratio[:, None] <= widths).T @ weights
    return inside


def coverage_figure(fitted: Any, *, output: int = 0) -> Any:
    """Draw how many rows lie within the intervals that were meant to hold a share of them.

    Parameters
    ----------
    fitted : estimator, model or JudgedRows
        As in :func:`prediction_figure`, of a regression.
    output : int, default 0
        Which target.

    Returns
    -------
    bokeh.plotting.figure

    Raises
    ------
    InvalidParameterError
        For a classifier, which has probabilities instead.
    """
    rows = as_judged(fitted)
    if rows.model.classes is not None:
        raise InvalidParameterError(
            "a classifier has no intervals; prediction_figure compares its probabilities with "
            "frequencies"
        )
    output = _checked(rows, output)
    plot = plain_figure(
        "Coverage of intervals", "share meant to be inside", "share that is inside"
    )
    plot.line([0, 1], [0, 1], color=GREY, line_dash="dashed", legend_label="as meant")
    source = ColumnDataSource({"x": LEVELS, "y": coverage(rows, output)})
    plot.line("x", "y", source=source, color=BLUE, line_width=2, legend_label="prediction ± z std")
    dots = plot.scatter("x", "y", source=source, color=BLUE, size=7)
    add_hover(plot, [dots], [("meant", "@x{0%}"), ("inside", "@y{0.0%}")])
    for axis in plot.axis:
        axis.formatter = NumeralTickFormatter(format="0%")
    place_legend(plot)
    return plot
