"""A fit as a chain of stages, written once for every executor.

profile → plan (encoding, kernel, γ, tree) → dictionaries (chains, then the merge
tree) → solve → model. Data flow one way; each stage ends with one value on the
driver.
"""

from squeak_dist.stages.announcing import task_facts
from squeak_dist.stages.checkpointing import CheckpointExecutor
from squeak_dist.stages.executors import Executor, PlainExecutor
from squeak_dist.stages.features import (
    fit_components,
    fit_components_stream,
    fit_features,
    fit_features_stream,
)
from squeak_dist.stages.fitting import fit_stream, fit_tables
from squeak_dist.stages.forecasting import Forecast, forecast_fit
from squeak_dist.stages.learning import projected_bytes
from squeak_dist.stages.parameters import FitParameters
from squeak_dist.stages.streaming import Stream

__all__ = [
    "CheckpointExecutor",
    "Executor",
    "FitParameters",
    "Forecast",
    "PlainExecutor",
    "Stream",
    "fit_components",
    "fit_components_stream",
    "fit_features",
    "fit_features_stream",
    "fit_stream",
    "fit_tables",
    "forecast_fit",
    "projected_bytes",
    "task_facts",
]
