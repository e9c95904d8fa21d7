"""scikit-learn faces of the model, and :func:`fit`, which makes one in a line."""

from squeak_dist.estimators.base import NotFittedError, SqueakEstimator
from squeak_dist.estimators.classifier import SqueakClassifier
from squeak_dist.estimators.front import fit, load, plan, remove_checkpoint
from squeak_dist.estimators.pca import SqueakPCA
from squeak_dist.estimators.regressor import SqueakRegressor
from squeak_dist.estimators.transformer import SqueakTransformer

__all__ = [
    "NotFittedError",
    "SqueakClassifier",
    "SqueakEstimator",
    "SqueakPCA",
    "SqueakRegressor",
    "SqueakTransformer",
    "fit",
    "load",
    "plan",
    "remove_checkpoint",
]
