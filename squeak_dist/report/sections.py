"""The sections of a report: which figures and tables, and what is said of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from squeak_dist.errors import DataError
from squeak_dist.model import FittedModel
from squeak_dist.report.dictionary_figures import dictionary_figure, leverage_figure
from squeak_dist.report.fit_figures import (
    convergence_figure,
    growth_figure,
    merge_tree_figure,
    seconds_figure,
)
from squeak_dist.report.judged import AnyModel, JudgedRows, judged, model_of
from squeak_dist.report.quality import MODEL, Scores, scores_of
from squeak_dist.report.row_figures import (
    coverage_figure,
    prediction_figure,
    residual_figure,
    telling_columns,
)
from squeak_dist.report.tables import (
    NumberTable,
    confusion_table,
    convergence_table,
    coverage_table,
    errors_table,
    facts_table,
    number,
    quality_table,
    stage_table,
    top_rows_table,
    tree_table,
    worker_table,
)

_MOST_OUTPUTS = 3  # with figures of their own
_MOST_RESIDUALS = 6

_LEFT_OUT = (
    "Measured on {rows:,} rows of the fit that were drawn at random, each as if it had been left "
    "out: its error is e/(1 − v h), where h is its leverage in the ridge regression. The "
    "dictionary, μ and the encoding are those of the fit, so held-out rows are the sterner judge: "
    "report(path, X_test, y_test). scikit-learn's Nystroem is not shown: to be fitted fairly it "
    "would need all rows of the fit, which a model does not keep. Predictions of it, or of "
    "anything else, can be passed with others=."
)
_LEVERAGE = (
    "A ridge leverage score says how much of a row no other rows explain: near 1 it is an outlier "
    "or of a rare regime, near 0 one of many alike. The dictionary keeps a row with a probability "
    "that grows with it."
)
_NO_SAMPLE = " The model keeps no sample of its rows: only the dictionary is shown."
_DIRECT = "The system was solved by one factorization, so there is no convergence to show."
_ERRORS = (
    "The columns in which most is left to explain come first. A line that stays near one height "
    "says that the model has taken from the column what there is."
)


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, and in words what it shows.

    Parameters
    ----------
    figure : bokeh figure
        The figure.
    caption : str
        What it shows: the caption, and the label for screen readers.
    """

    figure: Any
    caption: str


@dataclass(frozen=True, eq=False)
class Section:
    """A section of the page.

    Parameters
    ----------
    name, title : str
        Its anchor and its heading.
    text : str
        What is to be known before the figures.
    pictures : tuple of Picture
        Figures, two side by side where there is room.
    tables : tuple of NumberTable
        Below them; folded where ``folded``.
    folded : bool
        Whether the tables are shown on a click only.
    """

    name: str
    title: str
    text: str = ""
    pictures: tuple[Picture, ...] = ()
    tables: tuple[NumberTable, ...] = ()
    folded: bool = False


def sections_of(
    fitted: Any, columns: Sequence[Hashable] | None, others: Mapping[str, Any] | None
) -> list[Section]:
    """Return the sections of the report of a model.

    Parameters
    ----------
    fitted, columns, others
        As for :func:`~squeak_dist.report.page.report_page`.
    """
    model = model_of(fitted)
    return [
        Section("fit", "What was fitted", tables=(facts_table(model),)),
        *_quality_sections(fitted, model, others),
        _dictionary_section(model, columns),
        *_fit_sections(model),
    ]


def _quality_sections(fitted: Any, model: AnyModel, others: Any) -> list[Section]:
    if not isinstance(model, FittedModel):
        return []
    title = "How good it is"
    try:
        rows = fitted if isinstance(fitted, JudgedRows) else judged(model)
    except DataError as error:
        return [Section("quality", title, f"Not known: {error}.")]
    scores = scores_of(rows, others)
    how = "These rows were not in the fit." if rows.held_out else _LEFT_OUT.format(rows=len(rows))
    on = "all held-out rows" if rows.scores else rows.what
    table = quality_table(scores, f"Scores on {on}")
    quality = Section("quality", title, f"{_verdict(rows, scores)} {how}", tables=(table,))
    return [quality, _prediction_section(rows), _error_section(rows)]


def _verdict(rows: JudgedRows, scores: Scores) -> str:
    measure = next(iter(scores[MODEL]))
    ours, simple = (number(scores[name][measure]) for name in (MODEL, "linear ridge"))
    return f"{measure} {ours}, against {simple} of a linear ridge regression."


def _prediction_section(rows: JudgedRows) -> Section:
    if rows.model.classes is not None:
        caption = (
            f"Probabilities in tenths, and how often the class came, on {rows.what}. On the "
            f"dashed line probabilities are right."
        )
        pictures: tuple[Picture, ...] = (Picture(prediction_figure(rows), caption),)
        confusion = (confusion_table(rows),)
        return Section("predictions", "Predictions", "", pictures, confusion, folded=True)
    outputs = range(min(len(rows.model.target_names), _MOST_OUTPUTS))
    pictures = tuple(picture for i in outputs for picture in _prediction_pictures(rows, i))
    tables = tuple(coverage_table(rows, i) for i in outputs)
    title = "Predictions and intervals"
    return Section("predictions", title, "", pictures, tables, folded=True)


def _prediction_pictures(rows: JudgedRows, output: int) -> tuple[Picture, Picture]:
    name = rows.model.target_names[output]
    inside = (
        f"How many rows lie in the interval that was meant to hold a given share of them. Below "
        f"the dashed line the intervals of {name} are too narrow, above it too wide."
    )
    return (
        Picture(
            prediction_figure(rows, output=output),
            f"Actual {name} by predicted {name}, on {rows.what}.",
        ),
        Picture(coverage_figure(rows, output=output), inside),
    )


def _error_section(rows: JudgedRows) -> Section:
    pictures = tuple(
        Picture(
            residual_figure(rows, label),
            f"Errors by {label}; its groups explain {share:.1%} of the squared error.",
        )
        for label, share in telling_columns(rows)[:_MOST_RESIDUALS]
    )
    tables = (errors_table(rows, 0),)
    return Section("errors", "Errors by column", _ERRORS, pictures, tables, folded=True)


def _dictionary_section(model: AnyModel, columns: Sequence[Hashable] | None) -> Section:
    pictures = (
        Picture(
            leverage_figure(model),
            "Shares of rows by leverage score, in a sample of all rows and in the dictionary.",
        ),
        Picture(
            dictionary_figure(model, columns),
            _over_sample(model),
        ),
    )
    text = _LEVERAGE if model.sample is not None else _LEVERAGE + _NO_SAMPLE
    return Section("dictionary", "The dictionary", text, pictures, (top_rows_table(model),))


def _over_sample(model: AnyModel) -> str:
    rows = 0 if model.sample is None else len(model.sample)
    return (
        f"The {len(model.dictionary):,} rows of the dictionary, coloured by leverage, over "
        f"{rows:,} of all rows."
    )


def _fit_sections(model: AnyModel) -> list[Section]:
    if not model.report.get("merges"):
        text = "By partial_fit: one chain, of which the model keeps no record."
        return [Section("tree", "How it was fitted", text)]
    return [_tree_section(model), _cost_section(model)]


def _tree_section(model: AnyModel) -> Section:
    records = model.report["merges"]
    chains = sum(record["level"] == 0 for record in records)
    merges = len(records) - chains
    pictures = (
        Picture(
            merge_tree_figure(model),
            f"Chains: {chains}; merges: {merges}. The area of a node grows with its dictionary; "
            f"its colour says the seconds it took.",
        ),
        Picture(
            growth_figure(model),
            "Rows that each chain held after each partition; at its end it is thinned once more.",
        ),
    )
    return Section("tree", "Chains and merges", "", pictures, (tree_table(model),), folded=True)


def _cost_section(model: AnyModel) -> Section:
    times = Picture(
        seconds_figure(model),
        "Seconds of the stages (elapsed), and of each worker in chains and merges.",
    )
    tables = (stage_table(model), worker_table(model))
    title = "Solver, time and memory"
    if not model.report.get("cg_residuals"):
        text = _DIRECT if isinstance(model, FittedModel) else ""
        return Section("cost", title, text, (times,), tables)
    convergence = Picture(
        convergence_figure(model),
        "The relative residual of the solution on the sample, where conjugate gradients start, "
        "and after each iteration.",
    )
    return Section("cost", title, "", (convergence, times), (convergence_table(model), *tables))
