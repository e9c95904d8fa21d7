"""All Dask wiring: collections to partitions, the executor, lazy predictions, scores.

Only public Dask calls. The data stay where they are: between workers move
dictionaries and partial sums only. Nothing is scattered and nothing is kept on
a worker outside Dask's own results, so that a lost worker costs time alone.
"""

from squeak_dist.distributed.class_predictions import (
    predict_labels,
    predict_log_odds,
    predict_probabilities,
)
from squeak_dist.distributed.class_scores import ClassEvaluation, ClassScore, evaluate_classes
from squeak_dist.distributed.executor import DaskExecutor, Progress, active_client, fit_source
from squeak_dist.distributed.labels import Labelled, class_source, labelled
from squeak_dist.distributed.predictions import (
    as_fitted,
    predict_collection,
    predict_frame,
    predict_rows,
    write_dual_weights,
)
from squeak_dist.distributed.scores import Evaluation, Score, evaluate_source
from squeak_dist.distributed.sources import Source, as_rows, read_parquet, read_source

__all__ = [
    "ClassEvaluation",
    "ClassScore",
    "DaskExecutor",
    "Evaluation",
    "Labelled",
    "Progress",
    "Score",
    "Source",
    "active_client",
    "as_fitted",
    "as_rows",
    "class_source",
    "evaluate_classes",
    "evaluate_source",
    "fit_source",
    "labelled",
    "predict_collection",
    "predict_frame",
    "predict_labels",
    "predict_log_odds",
    "predict_probabilities",
    "predict_rows",
    "read_parquet",
    "read_source",
    "write_dual_weights",
]
