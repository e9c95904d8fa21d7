"""Kernel ridge regression on tables too big for one machine.

SQUEAK keeps, in one pass over each partition, only a dictionary of essential
rows chosen by ridge leverage scores; dictionaries merge in a tree; one global
Nyström solution follows. ``squeak_dist.fit(table, target=...)`` does it all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from squeak_dist._version import __version__

if TYPE_CHECKING:
    from squeak_dist.distributed import ClassEvaluation as ClassEvaluation
    from squeak_dist.distributed import Evaluation as Evaluation
    from squeak_dist.estimators import SqueakClassifier as SqueakClassifier
    from squeak_dist.estimators import SqueakPCA as SqueakPCA
    from squeak_dist.estimators import SqueakRegressor as SqueakRegressor
    from squeak_dist.estimators import SqueakTransformer as SqueakTransformer
    from squeak_dist.estimators import fit as fit
    from squeak_dist.estimators import load as load
    from squeak_dist.estimators import plan as plan
    from squeak_dist.estimators import remove_checkpoint as remove_checkpoint
    from squeak_dist.kernels import RBF as RBF
    from squeak_dist.kernels import Cosine as Cosine
    from squeak_dist.kernels import Kernel as Kernel
    from squeak_dist.kernels import Laplacian as Laplacian
    from squeak_dist.kernels import Linear as Linear
    from squeak_dist.kernels import Matern as Matern
    from squeak_dist.kernels import Polynomial as Polynomial
    from squeak_dist.stages import Forecast as Forecast

# The face is loaded on first use: importing the package must not import Dask.
_HOMES = {
    "fit": "estimators",
    "load": "estimators",
    "plan": "estimators",
    "remove_checkpoint": "estimators",
    "SqueakClassifier": "estimators",
    "SqueakRegressor": "estimators",
    "SqueakTransformer": "estimators",
    "SqueakPCA": "estimators",
    "ClassEvaluation": "distributed",
    "Evaluation": "distributed",
    "Forecast": "stages",
    "Kernel": "kernels",
    "RBF": "kernels",
    "Matern": "kernels",
    "Laplacian": "kernels",
    "Polynomial": "kernels",
    "Linear": "kernels",
    "Cosine": "kernels",
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"squeak_dist.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'squeak_dist' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
