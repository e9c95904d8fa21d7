"""How all figures look: colours that hold on white and on black, labels, tools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from bokeh.models import (
    ColorBar,
    FixedTicker,
    HoverTool,
    LinearColorMapper,
    NumeralTickFormatter,
    PrintfTickFormatter,
)
from bokeh.palettes import Viridis256
from bokeh.plotting import figure

# Each has a contrast of 3:1 or more against white and against #14171c.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#3a7fd5", "#c8701a", "#2f8f5b", "#a557a0", "#7b828c"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, "#8c6d1f", "#c94f5d")

_COLOURS = Viridis256[56:]  # the first are too dark for a dark ground
_HEIGHT = 340
_LARGE = 1e4
_TWO_DECADES = 100
_MOST_POINTS = 3000


def plain_figure(title: str, x_label: str, y_label: str, **options: Any) -> Any:
    """Return an empty figure as wide as its place.

    Parameters
    ----------
    title : str
        What is drawn; also the name of the figure for screen readers.
    x_label, y_label : str
        Of the axes.
    **options
        Of :func:`bokeh.plotting.figure`.
    """
    settings: dict[str, Any] = {
        "height": _HEIGHT,
        "sizing_mode": "stretch_width",
        "tools": "pan,box_zoom,wheel_zoom,reset,save",
        # A finger that scrolls the page must not be caught by a figure.
        "active_drag": None,
        "active_scroll": None,
        "background_fill_color": None,
        "border_fill_color": None,
        "outline_line_color": None,
    }
    plot = figure(title=title, x_axis_label=x_label, y_axis_label=y_label, **(settings | options))
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.title.text_font_size = "14px"
    for axis in plot.axis:
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = "13px"
        axis.major_label_text_font_size = "12px"
        axis.axis_line_color = axis.major_tick_line_color = GREY
        axis.minor_tick_line_color = None
    plot.grid.grid_line_color = GREY
    plot.grid.grid_line_alpha = 0.25
    return plot


def add_hover(plot: Any, renderers: Sequence[Any], tooltips: Sequence[tuple[str, str]]) -> None:
    """Add what is shown of the glyphs under the pointer."""
    plot.add_tools(HoverTool(renderers=list(renderers), tooltips=list(tooltips)))


def place_legend(plot: Any, location: str = "top_left") -> None:
    """Give the legend a place and no ground of its own; a click hides a series."""
    legend = plot.legend
    legend.location = location
    legend.background_fill_alpha = 0.0
    legend.border_line_color = None
    legend.label_text_font_size = "12px"
    legend.spacing, legend.padding = 0, 4
    legend.click_policy = "hide"


def colour_bar(plot: Any, values: npt.NDArray[Any], title: str) -> dict[str, Any]:
    """Add a colour bar for values; return the colour of a glyph whose field is ``value``."""
    low, high = (float(np.min(values)), float(np.max(values))) if len(values) else (0.0, 1.0)
    mapper = LinearColorMapper(_COLOURS, low=low, high=high if high > low else low + 1)
    bar = ColorBar(color_mapper=mapper, title=title, height=8, padding=4, label_standoff=4)
    bar.background_fill_alpha = 0.0
    bar.title_text_font_style = "normal"
    bar.formatter = PrintfTickFormatter(format="%.2g")
    plot.add_layout(bar, "below")  # at the side it would take a third of a phone's width
    return {"field": "value", "transform": mapper}


def short_ticks(axis: Any, values: npt.NDArray[Any]) -> None:
    """Label an axis of large numbers as 600k, not as 6.000e+5."""
    if len(values) and np.nanmax(np.abs(values)) >= _LARGE:
        axis.formatter = NumeralTickFormatter(format="0.[00]a")


def logarithmic_ticks(axis: Any, low: float, high: float) -> None:
    """Label a logarithmic axis at 1, 2 and 5 times powers of ten, or at few powers of ten."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    wide = high / low > _TWO_DECADES
    step = max(1, (last - first) // 5) if wide else 1
    steps = [1] if wide else [1, 2, 5]
    # From text, so that a tick is the number that its label says.
    ticks = [float(f"{k}e{e}") for e in range(first, last + 1, step) for k in steps]
    axis.ticker = FixedTicker(ticks=[t for t in ticks if low / 2 <= t <= 2 * high])
    axis.major_label_overrides = {t: f"{t:g}" for t in ticks}


def legend_below(plot: Any) -> None:
    """Put the legend below the figure, side by side."""
    plot.add_layout(plot.legend[0], "below")
    place_legend(plot, "center")
    plot.legend.orientation = "horizontal"


def evenly(count: int) -> npt.NDArray[np.int64]:
    """Return at most 3,000 of ``count`` positions, evenly spread: as many points are drawn."""
    return np.unique(np.linspace(0, count - 1, min(count, _MOST_POINTS)).astype(np.int64))


def no_data(plot: Any, reason: str) -> Any:
    """Say in a figure why nothing is drawn in it."""
    plot.title.text = f"{plot.title.text}: {reason}"
    plot.height = 120
    plot.axis.visible = False
    plot.grid.visible = False
    plot.toolbar_location = None
    plot.scatter([0], [0], alpha=0)  # else Bokeh warns that there is no renderer
    return plot
