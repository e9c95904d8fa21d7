"""Figures of how a model was fitted: its merge tree, its chains, its solver, its seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, NumeralTickFormatter

from squeak_dist.merge_tree import balanced_levels
from squeak_dist.report.judged import model_of
from squeak_dist.report.style import (
    BLUE,
    GREY,
    ORANGE,
    SERIES,
    add_hover,
    colour_bar,
    no_data,
    place_legend,
    plain_figure,
)

_MOST_WORKERS = 16
_MANY_CHAINS = 6  # more of them share one colour


@dataclass(frozen=True)
class TreeNode:
    """A node of the merge tree with its place in a drawing.

    Parameters
    ----------
    record : mapping
        What the node reported of itself.
    x, y : float
        The chains are at x = 0, 1, …; y is the level.
    below : tuple of (float, float)
        Places of the nodes that it merged.
    """

    record: Mapping[str, Any]
    x: float
    y: float
    below: tuple[tuple[float, float], ...] = ()


def tree_nodes(records: Sequence[Mapping[str, Any]], fan_in: int) -> list[TreeNode]:
    """Return places for the nodes of a merge tree, each in the middle of those it merged.

    Parameters
    ----------
    records : sequence of mapping
        ``level`` and ``index`` of each node; those that are not there yet are left out, and
        so are the nodes above that pass one child through.
    fan_in : int
        Dictionaries per merge.
    """
    known = {(record["level"], record["index"]): record for record in records}
    width = sum(level == 0 for level, _ in known)
    places = [(float(i), 0.0) for i in range(width)]
    chains = sorted(key for key in known if key[0] == 0)
    nodes = [TreeNode(known[key], *places[i]) for i, key in enumerate(chains)]
    for level, groups in enumerate(balanced_levels(width, max(fan_in, 2)), start=1):
        below, places = places, []
        for index, group in enumerate(groups):
            children = tuple(below[i] for i in group)
            middle = float(np.mean([x for x, _ in children]))
            merged = len(group) > 1 and (level, index) in known
            places.append((middle, float(level)) if merged else children[0])
            if merged:
                nodes.append(TreeNode(known[level, index], middle, float(level), children))
    return nodes


def merge_tree_figure(fitted: Any) -> Any:
    """Draw the merge tree: nodes by size, coloured by seconds.

    Parameters
    ----------
    fitted : estimator or model
        Of a fit. Hover shows level, rows of the data, rows in and kept, γ, seconds, worker.

    Returns
    -------
    bokeh.plotting.figure
    """
    report = model_of(fitted).report
    return tree_figure(report.get("merges", ()), int(report.get("fan_in", 2)))


def tree_figure(records: Sequence[Mapping[str, Any]], fan_in: int) -> Any:
    """Draw the merge tree of records; see :func:`merge_tree_figure`.

    Parameters
    ----------
    records : sequence of mapping
        Of :class:`~squeak_dist.stages.records.TaskRecord`.
    fan_in : int
        Dictionaries per merge.
    """
    plot = plain_figure("Merge tree", "chain", "level (0: chains)")
    if not records:
        return no_data(plot, "there was no tree")
    nodes = tree_nodes(records, fan_in)
    lines = [(node, child) for node in nodes for child in node.below]
    plot.multi_line(
        [[child[0], node.x] for node, child in lines],
        [[child[1], node.y] for node, child in lines],
        color=GREY,
        alpha=0.7,
    )
    seconds = np.array([node.record["seconds"] for node in nodes])
    sizes = np.array([node.record["size_out"] for node in nodes], float)
    largest = 26 if len(nodes) < 40 else 14
    columns = {
        name: [node.record[name] for node in nodes]
        for name in ("level", "index", "rows", "size_in", "size_out", "gamma", "worker")
    }
    source = ColumnDataSource(
        columns
        | {"x": [node.x for node in nodes], "y": [node.y for node in nodes], "value": seconds}
        | {"size": 6 + largest * np.sqrt(sizes / max(sizes.max(), 1))}
    )
    fill = colour_bar(plot, seconds, "seconds")
    dots = plot.scatter("x", "y", size="size", fill_color=fill, line_color=GREY, source=source)
    add_hover(plot, [dots], _NODE_TIPS)
    for axis, span, places in (
        (plot.xaxis, plot.x_range, [node.x for node in nodes]),
        (plot.yaxis, plot.y_range, [node.y for node in nodes]),
    ):
        _whole_ticks(axis, int(max(places)))
        span.start, span.end = -0.6, max(places) + 0.6  # a node is wider than its point
    return plot


_NODE_TIPS = (
    ("level, node", "@level, @index"),
    ("rows of the data", "@rows{0,0}"),
    ("rows in", "@size_in{0,0}"),
    ("rows kept", "@size_out{0,0}"),
    ("γ", "@gamma{0.0000a}"),
    ("seconds", "@value{0.000}"),
    ("worker", "@worker"),
)


def _whole_ticks(axis: Any, last: int) -> None:
    axis.ticker = list(range(0, last + 1, max(1, -(-(last + 1) // 10))))
    axis.minor_tick_line_color = None


def growth_figure(fitted: Any) -> Any:
    """Draw how many rows each chain held, partition by partition.

    Parameters
    ----------
    fitted : estimator or model
        Of a fit. A point is before the Shrink of that moment, the last one after the final
        Shrink.

    Returns
    -------
    bokeh.plotting.figure
    """
    plot = plain_figure("Dictionary along each chain", "rows seen", "rows held")
    chains = [r for r in model_of(fitted).report.get("merges", ()) if r["level"] == 0]
    if not any(record.get("growth") for record in chains):
        return no_data(plot, "the model keeps no record of it")
    drawn = []
    for record in chains:
        rows, sizes, gammas = map(list, zip(*record["growth"], strict=True))
        index = record["index"]
        source = ColumnDataSource(
            {
                "rows": [0, *rows, record["rows"]],
                "size": [0, *sizes, record["size_out"]],
                "gamma": [gammas[0], *gammas, record["gamma"]],
                "chain": [index] * (len(rows) + 2),
            }
        )
        colour = SERIES[index] if len(chains) <= _MANY_CHAINS else BLUE
        label = {"legend_label": f"chain {index}"} if len(chains) <= _MANY_CHAINS else {}
        plot.line("rows", "size", source=source, color=colour, line_width=1.5, **label)
        drawn.append(plot.scatter("rows", "size", source=source, color=colour, size=5))
    tips = [("chain", "@chain"), ("rows seen", "@rows{0,0}"), ("rows held", "@size{0,0}")]
    add_hover(plot, drawn, [*tips, ("γ", "@gamma{0.0000a}")])
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    if len(chains) <= _MANY_CHAINS:
        place_legend(plot, "bottom_right")
    return plot


def convergence_figure(fitted: Any) -> Any:
    """Draw the relative residual of conjugate gradients by seconds, or say that none were needed.

    Parameters
    ----------
    fitted : estimator or model
        Of a fit.

    Returns
    -------
    bokeh.plotting.figure
    """
    report = model_of(fitted).report
    residuals, seconds = report.get("cg_residuals") or [], report.get("cg_seconds") or []
    plot = plain_figure(
        "Convergence of the solver", "iteration", "relative residual", y_axis_type="log"
    )
    if not residuals:
        solver = report.get("solver", "none")
        return no_data(plot, "one factorization, no iterations" if solver == "direct" else "none")
    steps = list(range(len(residuals)))  # 0 is the solution on the sample
    spent = seconds if len(seconds) == len(steps) else [float("nan")] * len(steps)
    source = ColumnDataSource({"step": steps, "residual": residuals, "seconds": spent})
    plot.line("step", "residual", source=source, color=BLUE, line_width=2)
    dots = plot.scatter("step", "residual", source=source, color=BLUE, size=8)
    tips = [("iteration", "@step"), ("relative residual", "@residual{0.00e+0}")]
    add_hover(plot, [dots], [*tips, ("seconds since the solve began", "@seconds{0.0}")])
    _whole_ticks(plot.xaxis, steps[-1])
    return plot


def seconds_figure(fitted: Any) -> Any:
    """Draw the seconds of each stage, and those of chains and merges on each worker.

    Parameters
    ----------
    fitted : estimator or model
        Of a fit. Of more than 16 workers those are drawn that did most.

    Returns
    -------
    bokeh.plotting.figure
    """
    report = model_of(fitted).report
    plot_title = "Seconds by stage and by worker"
    stages = dict(report.get("seconds", {}))
    if not stages:
        return no_data(plain_figure(plot_title, "seconds", ""), "the model keeps no record of it")
    workers = _busiest(worker_totals(report.get("merges", ())))
    names = [*stages, *(f"worker {i + 1}" for i in range(len(workers)))]
    values = [*stages.values(), *(total["seconds"] for total in workers.values())]
    hosts = [*(f"stage {name}" for name in stages), *workers]
    colours = [BLUE] * len(stages) + [ORANGE] * len(workers)
    plot = plain_figure(
        plot_title, "seconds", "", y_range=names[::-1], height=110 + 24 * len(names)
    )
    source = ColumnDataSource({"name": names, "value": values, "host": hosts, "colour": colours})
    bars = plot.hbar("name", right="value", height=0.7, color="colour", source=source)
    add_hover(plot, [bars], [("", "@host"), ("seconds", "@value{0.00}")])
    plot.x_range.start = 0
    plot.ygrid.visible = False
    return plot


def _busiest(workers: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    names = sorted(workers, key=lambda name: -workers[name]["seconds"])[:_MOST_WORKERS]
    return {name: total for name, total in workers.items() if name in names}


def worker_totals(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return nodes, seconds and peak bytes of each worker in chains and merges, by its name."""
    totals: dict[str, dict[str, float]] = {}
    for record in records:
        total = totals.setdefault(record["worker"], {"nodes": 0, "seconds": 0.0, "peak_bytes": 0})
        total["nodes"] += 1
        total["seconds"] += record["seconds"]
        total["peak_bytes"] = max(total["peak_bytes"], record.get("peak_bytes", 0))
    return dict(sorted(totals.items()))
