"""What a fitted model has to show of its dictionary: leverage scores, and rows as they were."""

from __future__ import annotations

import pandas as pd

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.feature_model import FeatureModel
from squeak_dist.leverage import rls_of_known_rows
from squeak_dist.linalg import single_blas_thread
from squeak_dist.model import FittedModel
from squeak_dist.nystrom import in_double, regularized_map


def leverage_scores(
    model: FittedModel | FeatureModel, X: FloatArray, row_weights: Float64Array | float = 1.0
) -> Float64Array:
    """Return the estimated ridge leverage scores of rows that were fitted.

    Parameters
    ----------
    model : FittedModel or FeatureModel
        Its dictionary, γ and ε count.
    X : ndarray of shape (n, d)
        Encoded rows.
    row_weights : ndarray of shape (n,) or float, default 1.0
        Their sample weights.

    Returns
    -------
    ndarray of float64, shape (n,)
        min((1 − ε) v r(x) / γ, 1), between 0 and 1: see
        :func:`~squeak_dist.leverage.rls_of_known_rows`.

    Notes
    -----
    Cost: n m kernel entries and n m² multiply-adds, and m³/3 for the map.
    """
    dictionary = model.dictionary
    with single_blas_thread():
        nystrom = regularized_map(model.kernel, in_double(dictionary))
        residual = nystrom.residual(X.astype(nystrom.points.dtype))
    return rls_of_known_rows(residual, dictionary.gamma, model.epsilon, row_weights)


def dictionary_frame(model: FittedModel | FeatureModel) -> pd.DataFrame:
    """Return the rows of the dictionary in the units of the user, with what is known of them.

    Parameters
    ----------
    model : FittedModel or FeatureModel
        The model.

    Returns
    -------
    pandas.DataFrame of m rows
        See :meth:`SqueakRegressor.dictionary_frame <squeak_dist.SqueakRegressor>`.
    """
    dictionary = model.dictionary
    frame = model.encoding.decode_points(dictionary.points)
    known = {
        "probability": dictionary.probabilities,
        "multiplicity": dictionary.multiplicities,
        "weight": dictionary.row_weights,
        "leverage": leverage_scores(model, dictionary.points, dictionary.row_weights),
    }
    taken = set(model.encoding.labels)
    for name, values in known.items():
        while name in taken:
            name = f"_{name}"
        frame[name] = values
    return frame.set_axis(pd.Index(dictionary.indices, name="row"), axis="index")
