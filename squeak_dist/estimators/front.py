"""The face in a line each: :func:`fit` and :func:`load`."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squeak_dist import checkpoint as checkpoints
from squeak_dist.distributed import Progress, forecast_source, read_source
from squeak_dist.errors import UnknownParameterError
from squeak_dist.estimators.base import SqueakEstimator, adopt, known_parameters
from squeak_dist.estimators.classifier import SqueakClassifier
from squeak_dist.estimators.pca import SqueakPCA
from squeak_dist.estimators.regressor import SqueakRegressor
from squeak_dist.estimators.transformer import SqueakTransformer
from squeak_dist.feature_model import ComponentModel, FeatureModel
from squeak_dist.kernels import Kernel
from squeak_dist.model import FittedModel
from squeak_dist.parameter_table import ALIASES
from squeak_dist.samplers import SAMPLERS
from squeak_dist.stages import Forecast
from squeak_dist.store import load_model

if TYPE_CHECKING:
    from distributed import Client

_KINDS: dict[str, type[SqueakEstimator]] = {
    kind.__name__: kind
    for kind in (SqueakRegressor, SqueakClassifier, SqueakTransformer, SqueakPCA)
}
_OTHER_NAMES = {name: [ours] for name, ours in ALIASES.items()} | {"seed": ["random_state"]}


def fit(
    X: Any,
    y: Any = None,
    *,
    target: Any = None,
    features: Sequence[Hashable] | None = None,
    sample_weight: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | str | None = None,
    progress: Progress | bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_options: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> SqueakRegressor:
    """Fit a kernel ridge regression to a table of any size.

    Parameters
    ----------
    X, y, target, features, sample_weight, storage_options, client, progress
        As in :meth:`SqueakRegressor.fit`.
    checkpoint, checkpoint_options
        As in :meth:`SqueakRegressor.fit`.
    **parameters
        Those of :class:`SqueakRegressor`: ``kernel``, ``length_scale``, ``mu``,
        ``gamma``, ``epsilon``, ``qbar``, ``max_dictionary``, ``sampler``, ``missing``, ….

    Returns
    -------
    SqueakRegressor
        Fitted.

    Raises
    ------
    UnknownParameterError
        For a parameter that there is not, with those that come close.
    SqueakError
        See :meth:`SqueakRegressor.fit`.

    Examples
    --------
    >>> import numpy as np, pandas as pd, squeak_dist
    >>> frame = pd.DataFrame({"x": np.linspace(0, 6, 300)})
    >>> frame["y"] = np.sin(frame["x"])
    >>> model = squeak_dist.fit(frame, target="y")
    >>> bool(abs(model.predict(pd.DataFrame({"x": [1.0]}))[0] - np.sin(1)) < 0.01)
    True
    """
    _check_names(parameters)
    return SqueakRegressor(**parameters).fit(
        X,
        y,
        sample_weight,
        target=target,
        features=features,
        storage_options=storage_options,
        client=client,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_options=checkpoint_options,
    )


def plan(
    X: Any,
    y: Any = None,
    *,
    target: Any = None,
    features: Sequence[Hashable] | None = None,
    sample_weight: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | str | None = None,
    progress: Progress | bool | None = None,
    **parameters: Any,
) -> Forecast:
    """Say what a fit would keep and cost, before it runs.

    Parameters
    ----------
    X, y, target, features, sample_weight, storage_options, client, progress
        As in :meth:`SqueakRegressor.fit`.
    **parameters
        Those of :class:`SqueakRegressor`.

    Returns
    -------
    Forecast
        Dictionary size, memory, network and seconds of the fit, and of fits with other γ;
        ``print`` shows a table.

    Raises
    ------
    UnknownParameterError
        For a parameter that there is not, with those that come close.
    SqueakError
        See :meth:`SqueakRegressor.fit`.

    Notes
    -----
    One pass over the data; kernel and γ are chosen as in the fit; some seconds to measure
    what a row costs on every thread of the cluster.
    """
    _check_names(parameters)
    checked = SqueakRegressor(**parameters).check_parameters()
    source = read_source(
        X,
        y,
        target=target,
        features=features,
        sample_weight=sample_weight,
        storage_options=storage_options,
    )
    return forecast_source(source, checked, client=client, progress=progress)


def _check_names(parameters: Mapping[str, Any]) -> None:
    own = SqueakRegressor().get_params()
    known = [*own, *inspect.signature(fit).parameters][:-1]  # without the last, **parameters
    for name in parameters:
        if name not in own:
            close = _OTHER_NAMES.get(name) or difflib.get_close_matches(name, known, n=2)
            hint = " or ".join(map(repr, close)) if close else ", ".join(sorted(known))
            raise UnknownParameterError(
                f"fit has no parameter {name!r}; "
                + (f"did you mean {hint}?" if close else f"there are {hint}")
            )


def remove_checkpoint(
    path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Remove a checkpoint: all that a fit wrote to it, and nothing else.

    Parameters
    ----------
    path : str or path
        The checkpoint of :func:`fit`.
    storage_options : mapping, optional
        For a URL: passed to fsspec.

    Raises
    ------
    CheckpointError
        If there is no checkpoint, or it cannot be removed.
    """
    checkpoints.remove_checkpoint(checkpoints.vault_at(path, storage_options))


def load(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    kernel: Kernel | None = None,
) -> Any:
    """Load a model that the ``save`` of an estimator wrote.

    Parameters
    ----------
    path : str or path
        A directory, a ``.zip`` file or any fsspec URL.
    storage_options : mapping, optional
        For a URL: passed to fsspec.
    kernel : Kernel, optional
        The kernel object, for a model fitted with one that is not built in.

    Returns
    -------
    SqueakRegressor, SqueakClassifier, SqueakTransformer or SqueakPCA
        As it was saved, ready to give the same bits; its parameters are those of the fit,
        so a clone fits the same model again. (``random_state`` is the seed that was
        drawn; stores of earlier versions have the values that were chosen for "auto".)

    Raises
    ------
    StoreError
        If there is nothing, or something else, or it is incomplete or damaged.
    """
    model = load_model(path, storage_options=storage_options, kernel=kernel)
    estimator = _estimator_of(model)
    adopt(estimator, model)
    return estimator


def _estimator_of(model: FittedModel | FeatureModel) -> SqueakEstimator:
    """Return an estimator that has not been fitted, with the parameters of a model."""
    kind = _KINDS[model.estimator_name]
    return kind(**(_derived_parameters(model) | known_parameters(kind, model)))


def _derived_parameters(model: FittedModel | FeatureModel) -> dict[str, Any]:
    """Return what the model alone says: for stores that have no parameters."""
    parameters: dict[str, Any] = {
        "kernel": model.kernel,
        "gamma": model.dictionary.gamma,
        "epsilon": model.epsilon,
        "qbar": model.dictionary.qbar,
        "approximation": model.approximation,
        "missing": model.encoding.missing,
        "standardize": model.encoding.standardize,
        "dtype": model.encoding.dtype,
        "random_state": model.seed,
    }
    if (name := model.report.get("sampler")) in SAMPLERS:
        parameters["sampler"] = name  # one of the user's own is not in the store
    if isinstance(model, ComponentModel):
        return parameters | {"n_components": model.n_outputs}
    if isinstance(model, FeatureModel):
        return parameters
    parameters["mu"] = model.mu
    if model.classes is None:
        return parameters
    given = model.report.get("class_weights")
    weights = dict(zip(model.classes.labels, given, strict=True)) if given else None
    return parameters | {"class_weight": weights}
