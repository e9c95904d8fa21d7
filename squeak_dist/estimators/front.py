"""The face in a line each: :func:`fit` and :func:`load`."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squeak_dist import checkpoint as checkpoints
from squeak_dist.distributed import Progress
from squeak_dist.estimators.base import adopt
from squeak_dist.estimators.regressor import SqueakRegressor
from squeak_dist.kernels import Kernel
from squeak_dist.model import FittedModel
from squeak_dist.store import load_model

if TYPE_CHECKING:
    from distributed import Client


def fit(
    X: Any,
    y: Any = None,
    *,
    target: Any = None,
    features: Sequence[Hashable] | None = None,
    sample_weight: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | None = None,
    progress: Progress | None = None,
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
        ``gamma``, ``epsilon``, ``qbar``, ``max_dictionary``, ``missing``, ….

    Returns
    -------
    SqueakRegressor
        Fitted.

    Raises
    ------
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
) -> SqueakRegressor:
    """Load a model that :meth:`SqueakRegressor.save` wrote.

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
    SqueakRegressor
        Ready to predict, to the same bits; its parameters are those of the fit
        as far as the store knows them.

    Raises
    ------
    StoreError
        If there is nothing, or something else, or it is incomplete or damaged.
    """
    model = load_model(path, storage_options=storage_options, kernel=kernel)
    return _estimator_of(model)


def _estimator_of(model: FittedModel) -> SqueakRegressor:
    estimator = SqueakRegressor(
        kernel=model.kernel,
        mu=model.mu,
        gamma=model.dictionary.gamma,
        epsilon=model.epsilon,
        qbar=model.dictionary.qbar,
        approximation=model.approximation,
        missing=model.encoding.missing,
        standardize=model.encoding.standardize,
        dtype=model.encoding.dtype,
        random_state=model.seed,
    )
    adopt(estimator, model)
    return estimator
