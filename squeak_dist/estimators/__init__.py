"""scikit-learn faces of the model, and :func:`fit`, which makes one in a line."""

from squeak_dist.estimators.base import NotFittedError, SqueakEstimator
from squeak_dist.estimators.classifier import SqueakClassifier
from squeak_dist.estimators.front import fit, load
from squeak_dist.estimators.regressor import SqueakRegressor

__all__ = [
    "NotFittedError",
    "SqueakClassifier",
    "SqueakEstimator",
    "SqueakRegressor",
    "fit",
    "load",
]
