"""Figures of the dictionary: its leverage scores, and where it lies."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import ColumnDataSource, NumeralTickFormatter

from squeak_dist._typing import Float64Array
from squeak_dist.errors import InvalidParameterError
from squeak_dist.inspection import dictionary_frame, leverage_scores
from squeak_dist.report.judged import AnyModel, model_of
from squeak_dist.report.places import plane_of
from squeak_dist.report.style import (
    BLUE,
    GREY,
    ORANGE,
    add_hover,
    colour_bar,
    evenly,
    legend_below,
    logarithmic_ticks,
    plain_figure,
)

_BINS = 24
_MOST_COLUMNS = 6  # in the hover


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
    low, high = positive.min(initial=1.0), positive.max(initial=0.0)
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
    legend_below(plot)
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
    shown = evenly(len(frame))
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
    legend_below(plot)
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
