"""Pictures of a fitted model: bokeh figures, and one HTML page of all of them.

Each function takes a fitted estimator (or its ``model_``) and returns a bokeh figure, which
``bokeh.plotting.show`` or a notebook displays. Figures of predictions also take the
:class:`JudgedRows` that :func:`judged` makes of held-out rows. bokeh is imported here alone.
"""

from squeak_dist.report.dictionary_figures import dictionary_figure, leverage_figure
from squeak_dist.report.fit_figures import (
    convergence_figure,
    growth_figure,
    merge_tree_figure,
    seconds_figure,
)
from squeak_dist.report.judged import JudgedRows, judge_others, judged
from squeak_dist.report.page import report_page, write_report
from squeak_dist.report.quality import scores_of_evaluation
from squeak_dist.report.row_figures import coverage_figure, prediction_figure, residual_figure

__all__ = [
    "JudgedRows",
    "convergence_figure",
    "coverage_figure",
    "dictionary_figure",
    "growth_figure",
    "judge_others",
    "judged",
    "leverage_figure",
    "merge_tree_figure",
    "prediction_figure",
    "report_page",
    "residual_figure",
    "scores_of_evaluation",
    "seconds_figure",
    "write_report",
]
