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
from squeak_dist.distributed.class_sources import class_source, given_class_source
from squeak_dist.distributed.executor import (
    DaskExecutor,
    active_client,
    active_executor,
    extend_source,
    fit_source,
    forecast_source,
)
from squeak_dist.distributed.features import (
    extend_components_source,
    extend_features_source,
    fit_components_source,
    fit_features_source,
    has_own_container,
    transform_collection,
)
from squeak_dist.distributed.fitted_input import as_fitted, target_labels
from squeak_dist.distributed.labels import Labelled, labelled
from squeak_dist.distributed.predictions import (
    deviation_collection,
    novelty_collection,
    predict_collection,
    write_dual_weights,
)
from squeak_dist.distributed.row_outputs import RowOutput, map_rows
from squeak_dist.distributed.samples import sample_source
from squeak_dist.distributed.scores import Evaluation, Score, evaluate_source
from squeak_dist.distributed.sizes import register_sizes
from squeak_dist.distributed.sources import (
    Source,
    as_rows,
    read_features,
    read_parquet,
    read_source,
)
from squeak_dist.progress import Progress

__all__ = [
    "ClassEvaluation",
    "ClassScore",
    "DaskExecutor",
    "Evaluation",
    "Labelled",
    "Progress",
    "RowOutput",
    "Score",
    "Source",
    "active_client",
    "active_executor",
    "as_fitted",
    "as_rows",
    "class_source",
    "deviation_collection",
    "evaluate_classes",
    "evaluate_source",
    "extend_components_source",
    "extend_features_source",
    "extend_source",
    "fit_components_source",
    "fit_features_source",
    "fit_source",
    "forecast_source",
    "given_class_source",
    "has_own_container",
    "labelled",
    "map_rows",
    "novelty_collection",
    "predict_collection",
    "predict_labels",
    "predict_log_odds",
    "predict_probabilities",
    "read_features",
    "read_parquet",
    "read_source",
    "sample_source",
    "target_labels",
    "transform_collection",
    "write_dual_weights",
]

register_sizes()
