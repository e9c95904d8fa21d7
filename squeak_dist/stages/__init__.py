"""A fit as a chain of stages, written once for every executor.

profile → plan (encoding, kernel, γ, tree) → dictionaries (chains, then the merge
tree) → solve → model. Data flow one way; each stage ends with one value on the
driver.
"""

from squeak_dist.stages.checkpointing import CheckpointExecutor
from squeak_dist.stages.executors import Executor, PlainExecutor
from squeak_dist.stages.fitting import fit_tables, projected_bytes
from squeak_dist.stages.parameters import FitParameters

__all__ = [
    "CheckpointExecutor",
    "Executor",
    "FitParameters",
    "PlainExecutor",
    "fit_tables",
    "projected_bytes",
]
