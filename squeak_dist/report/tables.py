"""Tables of a report, as values and as HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from squeak_dist.inspection import dictionary_frame
from squeak_dist.report.dictionary_figures import shown_value
from squeak_dist.report.fit_figures import worker_totals
from squeak_dist.report.judged import AnyModel, JudgedRows
from squeak_dist.report.row_figures import LEVELS, coverage, telling_columns

_MOST_RECORDS = 64  # lines of the merge tree
_MOST_COLUMNS = 12
_MOST_CLASSES = 12


@dataclass(frozen=True)
class NumberTable:
    """A table with a caption; a line begins with its name.

    Parameters
    ----------
    caption : str
        What it shows.
    columns : tuple of str
        Names of the columns, that of the first one included.
    lines : tuple of tuple of str
        Texts, as many as columns.
    """

    caption: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def to_html(self) -> str:
        """Return the table as HTML."""
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.columns)
        body = "".join(
            f'<tr><th scope="row">{escape(first)}</th>'
            + "".join(f"<td>{escape(text)}</td>" for text in rest)
            + "</tr>"
            for first, *rest in self.lines
        )
        # A caption element would be no wider than its table.
        label = escape(self.caption)
        return (
            f'<p class="caption">{label}</p>'
            f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
            f'<table aria-label="{label}"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )


def number(value: Any) -> str:
    """Return a number with four digits, or a dash for what is not known."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "—"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def size(nbytes: float | None) -> str:
    """Return bytes in the unit that suits them; a dash where they are not known."""
    if not nbytes:
        return "—"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024 or unit == "GiB":
            break
        nbytes /= 1024
    return f"{nbytes:.0f} {unit}" if nbytes >= 10 else f"{nbytes:.1f} {unit}"


def facts_table(model: AnyModel) -> NumberTable:
    """Return what was fitted, to what.

    Parameters
    ----------
    model : FittedModel or FeatureModel
        The model.
    """
    report, dictionary = model.report, model.dictionary
    facts: dict[str, Any] = {
        "estimator": model.estimator_name,
        "columns": _shortened(list(model.encoding.feature_names)),
        "encoded columns": model.encoding.n_features,
        "rows fitted": report.get("rows_fitted"),
        "rows of the dictionary, m": len(dictionary),
        "kernel": _kernel(model),
        "leverage regularization γ": dictionary.gamma,
        "effective dimension d_eff(γ)": report.get("effective_dimension"),
        "accuracy ε, copies per row q̄": f"{model.epsilon:g}, {dictionary.qbar}",
        "ridge penalty μ": getattr(model, "mu", None),
        "linear part beside the kernel": report.get("linear_part"),
        "solver": report.get("solver"),
        "preconditioner, made of a": report.get("cg_preconditioner"),
        "degrees of freedom": report.get("degrees_of_freedom"),
        "approximation": model.approximation,
        "seed": model.seed,
    }
    lines = [(name, _text(value)) for name, value in facts.items() if value is not None]
    return NumberTable("The fit", ("what", "value"), tuple(lines))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else number(value)


def _kernel(model: AnyModel) -> str:
    scale = getattr(model.kernel, "feature_scales", None)
    name = type(model.kernel).__name__
    if isinstance(scale, float):
        return f"{name}, length scale {number(scale)}"
    if isinstance(scale, tuple):
        pairs = [f"{n} {s:.3g}" for n, s in zip(model.encoding.encoded_names, scale, strict=False)]
        turned = getattr(model.kernel, "directions", None)
        along = "" if turned is None else f" along {len(turned)} directions"
        return f"{name}{along}, length scales{' of columns' if along else ''} {_shortened(pairs)}"
    return str(model.kernel)


def _shortened(names: Sequence[str]) -> str:
    more = f", … ({len(names)} in all)" if len(names) > _MOST_COLUMNS else ""
    return ", ".join(names[:_MOST_COLUMNS]) + more


def quality_table(scores: Mapping[str, Mapping[str, float]], caption: str) -> NumberTable:
    """Return scores as a table, a method per line.

    Parameters
    ----------
    scores : mapping
        As :func:`~squeak_dist.report.quality.scores_of` returns them.
    caption : str
        On which rows.
    """
    measures = tuple(dict.fromkeys(name for found in scores.values() for name in found))
    lines = (
        (method, *(_score(measure, found.get(measure)) for measure in measures))
        for method, found in scores.items()
    )
    return NumberTable(caption, ("method", *measures), tuple(lines))


def _score(measure: str, value: float | None) -> str:
    """Four decimals of R², which is near 0 for the mean; four digits of all else."""
    if value is None or not math.isfinite(value) or not measure.startswith("R²"):
        return number(value)
    return f"{round(value, 4) + 0.0:.4f}"


def top_rows_table(model: AnyModel, count: int = 10) -> NumberTable:
    """Return the rows of the dictionary of the highest leverage, with their values.

    Parameters
    ----------
    model : FittedModel or FeatureModel
        The model.
    count : int, default 10
        How many.
    """
    frame = dictionary_frame(model)
    first = frame.iloc[np.argsort(-frame.iloc[:, -1].to_numpy(), kind="stable")[:count]]
    own = list(range(frame.shape[1] - 4))[:_MOST_COLUMNS]
    lines = tuple(
        (f"{row:,}", f"{line.iloc[-1]:.3g}", *(shown_value(line.iloc[i]) for i in own))
        for row, line in first.iterrows()
    )
    names = tuple(str(frame.columns[i]) for i in own)
    caption = f"The {len(first)} rows of highest leverage, with their values"
    return NumberTable(caption, ("row", "leverage", *names), lines)


def coverage_table(rows: JudgedRows, output: int) -> NumberTable:
    """Return how many rows lie within their intervals."""
    inside = coverage(rows, output)
    lines = tuple((f"{a:.0%}", f"{b:.1%}") for a, b in zip(LEVELS, inside, strict=True))
    caption = f"Coverage of the intervals of {rows.model.target_names[output]}"
    return NumberTable(caption, ("meant to be inside", "is inside"), lines)


def errors_table(rows: JudgedRows, output: int) -> NumberTable:
    """Return the columns and the share of the squared errors that each alone could explain."""
    found = telling_columns(rows, output)[:24]
    lines = tuple((str(label), f"{share:.1%}") for label, share in found)
    return NumberTable(
        f"What is left in the errors, by column (by chance about {20 / len(rows):.1%})",
        ("column", "share of the squared error that means of its groups explain"), lines,
    )  # fmt: skip


def confusion_table(rows: JudgedRows) -> NumberTable:
    """Return how many rows of each class were taken for which; of the most frequent classes."""
    classes = rows.model.classes
    assert classes is not None
    K = len(classes)
    counts = np.zeros((K, K), np.int64)
    np.add.at(counts, (rows.codes, rows.shares.argmax(axis=1)), 1)
    shown = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[:_MOST_CLASSES])
    names = tuple(str(classes.labels[i]) for i in shown)
    lines = ((n, *(f"{counts[i, j]:,}" for j in shown)) for n, i in zip(names, shown, strict=True))
    caption = "Actual class (lines) and predicted class (columns)"
    return NumberTable(caption, ("actual", *names), tuple(lines))


def tree_table(model: AnyModel) -> NumberTable:
    """Return the nodes of the merge tree, the root first."""
    records = sorted(model.report.get("merges", ()), key=lambda r: (-r["level"], r["index"]))
    lines = tuple(
        (
            f"level {r['level']}, node {r['index']}" if r["level"] else f"chain {r['index']}",
            number(r["rows"]), number(r["size_in"]), number(r["size_out"]), number(r["gamma"]),
            number(r["seconds"]), r["worker"],
        )
        for r in records[:_MOST_RECORDS]
    )  # fmt: skip
    more = f"; the first {_MOST_RECORDS} of {len(records)}" if len(records) > len(lines) else ""
    columns = ("node", "rows of the data", "rows in", "rows kept", "γ", "seconds", "worker")
    return NumberTable(f"Nodes of the merge tree{more}", columns, lines)


def convergence_table(model: AnyModel) -> NumberTable:
    """Return residual, error and seconds at the start, which is 0, and after each iteration."""
    residuals = model.report.get("cg_residuals") or []
    seconds = model.report.get("cg_seconds") or [None] * len(residuals)
    errors = model.report.get("cg_train_rmse") or [[]] * len(residuals)  # none in older models
    lines = tuple(
        (str(i), f"{residual:.2e}", ", ".join(map(number, rmse)) or "—", number(spent))
        for i, (residual, rmse, spent) in enumerate(zip(residuals, errors, seconds, strict=True))
    )
    columns = (
        "iteration", "relative residual", "RMSE on the rows fitted", "seconds since the start",
    )  # fmt: skip
    return NumberTable("Iterations", columns, lines)


def stage_table(model: AnyModel) -> NumberTable:
    """Return seconds, memory and bytes of each stage."""
    report = model.report
    peaks, moved = report.get("peak_bytes", {}), report.get("bytes", {})
    notes = {
        "profile": ("encoded", "all rows, encoded: {}"),
        "dictionary": ("dictionaries", "dictionaries handed on: {}"),
        "solve": ("sum", "the largest partial sum: {}"),
    }
    lines = []
    for stage, seconds in report.get("seconds", {}).items():
        key, text = notes.get(stage, ("", ""))
        peak = size(peaks.get(stage))
        what = text.format(size(moved[key])) if key in moved else "—"
        lines.append((stage, number(seconds), peak, what))
    columns = ("stage", "seconds", "largest memory of a worker so far", "bytes")
    return NumberTable("Stages", columns, tuple(lines))


def worker_table(model: AnyModel) -> NumberTable:
    """Return what each worker did in chains and merges."""
    totals = worker_totals(model.report.get("merges", ()))
    lines = tuple(
        (name, number(t["nodes"]), number(t["seconds"]), size(t["peak_bytes"]))
        for name, t in totals.items()
    )
    columns = ("worker", "nodes", "seconds", "largest memory")
    return NumberTable("Workers, in chains and merges", columns, lines)
