"""Figures of rows: leverage scores, where the dictionary lies, predictions, errors, intervals."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from bokeh.models import (
    ColumnDataSource,
    FactorRange,
    HoverTool,
    NumeralTickFormatter,
)

from squeak_dist._typing import Float64Array
from squeak_dist.errors import InvalidParameterError, MissingColumnsError
from squeak_dist.inspection import dictionary_frame, leverage_scores
from squeak_dist.report.groups import Groups, grouped
from squeak_dist.report.judged import AnyModel, JudgedRows, as_judged, model_of
from squeak_dist.report.places import plane_of
from squeak_dist.report.style import (
    BLUE,
    GREY,
    ORANGE,
    SERIES,
    add_hover,
    colour_bar,
    logarithmic_ticks,
    no_data,
    place_legend,
    plain_figure,
    short_ticks,
)

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_BINS = 24
_MOST_POINTS = 3000  # of a dictionary in a figure
_MOST_COLUMNS = 6  # in the hover
_CURVES = 6  # classes with a curve of their own
_FEWEST = 5  # rows of a point of such a curve


def leverage_figure(fitted: Any) -> Any:
    """Draw a histogram of estimated ridge leverage scores: of a sample of the rows, and of D.

    Parameters
    ----------
    fitted : estimator or model
        The model. Near 1: a row that no others explain; near 0: one of many alike.

    Returns
    -------
    bokeh.plotting.figure
    """
    model = model_of(fitted)
    plot = plain_figure(
        "Leverage scores", "ridge leverage score (log)", "share of rows (log)",
        x_axis_type="log", y_axis_type="log",
    )  # fmt: skip
    groups = _leverage_groups(model)
    positive = np.concatenate([scores[scores > 0] for _, scores, _ in groups])
    low, high = _range(positive if len(positive) else np.ones(1))
    edges = np.geomspace(low, max(high, 1.01 * low), _BINS + 1)
    floor = 0.5 / max(len(scores) for _, scores, _ in groups)
    for label, scores, colour in groups:
        # A score of 0, which a logarithm does not have, is in the first bin.
        counts, _ = np.histogram(np.clip(scores, edges[0], edges[-1]), edges)
        filled = np.flatnonzero(counts)
        source = ColumnDataSource(
            {
                "left": edges[filled], "right": edges[filled + 1], "count": counts[filled],
                "share": counts[filled] / len(scores), "bottom": np.full(len(filled), floor),
            }
        )  # fmt: skip
        bars = plot.quad(
            left="left", right="right", top="share", bottom="bottom", source=source,
            fill_color=colour, fill_alpha=0.45, line_color=colour, legend_label=label,
        )  # fmt: skip
        tips = [("", label), ("score", "@left{0.0e+0} to @right{0.0e+0}")]
        add_hover(plot, [bars], [*tips, ("rows", "@count{0,0}"), ("share", "@share{0.0%}")])
    plot.y_range.start = floor
    logarithmic_ticks(plot.xaxis[0], edges[0], edges[-1])
    plot.yaxis.formatter = NumeralTickFormatter(format="0.[00]%")
    plot.add_layout(plot.legend[0], "below")
    place_legend(plot, "center")
    plot.legend.orientation = "horizontal"
    return plot


def _leverage_groups(model: AnyModel) -> list[tuple[str, Float64Array, str]]:
    """Return name, scores and colour of the sample, if the model has one, and the dictionary."""
    dictionary, sample = model.dictionary, model.sample
    own = leverage_scores(model, dictionary.points, dictionary.row_weights)
    groups = [("rows of the dictionary", own, ORANGE)]
    if sample is not None and len(sample):
        scores = leverage_scores(model, sample.X, sample.weights)
        groups.insert(0, ("sample of all rows", scores, BLUE))
    return groups


def dictionary_figure(fitted: Any, columns: Sequence[Hashable] | None = None) -> Any:
    """Draw where the dictionary lies over a sample of the rows, coloured by leverage.

    Parameters
    ----------
    fitted : estimator or model
        The model.
    columns : two labels, optional
        Columns of the fit for the axes: see :func:`~squeak_dist.report.places.plane_of`.

    Returns
    -------
    bokeh.plotting.figure

    Raises
    ------
    MissingColumnsError
        If the fit has no such columns.
    InvalidParameterError
        If they are not two.
    """
    model = model_of(fitted)
    if columns is not None and len(columns) != 2:
        raise InvalidParameterError(f"columns must be two labels, got {list(columns)}")
    empty = model.dictionary.points[:0]
    plane = plane_of(model, empty if model.sample is None else model.sample.X, columns)
    plot = plain_figure(plane.title, plane.x_label, plane.y_label)
    if len(plane.rows):
        plot.scatter(
            plane.rows[:, 0], plane.rows[:, 1], size=4, color=GREY, alpha=0.5,
            legend_label="sample of all rows",
        )  # fmt: skip
    frame = dictionary_frame(model)
    shown = np.unique(np.linspace(0, len(frame) - 1, min(len(frame), _MOST_POINTS)).astype(int))
    source = _dictionary_source(frame.iloc[shown], plane.dictionary[shown])
    fill = colour_bar(plot, frame.iloc[:, -1].to_numpy(), "leverage")
    dots = plot.scatter(
        "x", "y", size=7, fill_color=fill, line_color=GREY, line_width=0.5, source=source,
        legend_label="rows of the dictionary",
    )  # fmt: skip
    names = [name for name in source.data if str(name).startswith("column")]
    tips = [("row", "@row{0,0}"), ("leverage", "@value{0.000}")]
    labels = [str(label) for label in frame.columns[: len(names)]]
    add_hover(plot, [dots], [*tips, *((a, f"@{b}") for a, b in zip(labels, names, strict=True))])
    plot.add_layout(plot.legend[0], "below")
    place_legend(plot, "center")
    plot.legend.orientation = "horizontal"
    plot.height = 420
    return plot


def _dictionary_source(frame: pd.DataFrame, places: Float64Array) -> ColumnDataSource:
    own = frame.columns[: min(_MOST_COLUMNS, frame.shape[1] - 4)]
    texts = {f"column{i}": list(map(shown_value, frame[name])) for i, name in enumerate(own)}
    known = {"row": frame.index.to_numpy(), "value": frame.iloc[:, -1].to_numpy()}
    return ColumnDataSource(known | texts | {"x": places[:, 0], "y": places[:, 1]})


def shown_value(value: Any) -> str:
    """Return a value of a column as a reader wants it."""
    if value is None or value is pd.NaT or (isinstance(value, float) and np.isnan(value)):
        return "missing"
    if isinstance(value, (float, np.floating)):
        return f"{value:.6g}"
    return str(value)


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
    predicted, actual = rows.predicted[:, output], rows.rows.targets[:, output]
    source = ColumnDataSource(
        {"x": predicted, "y": actual, "value": rows.leverage, "std": rows.deviation[:, output]}
    )
    low, high = _range(np.concatenate([predicted, actual]))
    for axis in plot.axis:
        short_ticks(axis, predicted)
    plot.line([low, high], [low, high], color=GREY, line_dash="dashed", legend_label="equal")
    dots = plot.scatter("x", "y", source=source, size=5, color=BLUE, alpha=0.6)
    tips = [("predicted", "@x{0.[0000]a} ± @std{0.[0000]a}"), ("actual", "@y{0.[0000]a}")]
    add_hover(plot, [dots], [*tips, ("leverage", "@value{0.000}")])
    place_legend(plot)
    return plot


def _range(values: Float64Array) -> tuple[float, float]:
    return float(values.min()), float(values.max())


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
    held = groups.codes >= 0
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
