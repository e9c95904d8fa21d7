"""What all estimators share: the dictionary's attributes, parameters and names."""

from __future__ import annotations

import numbers
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils import check_random_state

from squeak_dist._typing import FloatArray
from squeak_dist.checkpoint import Vault, vault_at
from squeak_dist.dictionary import Dictionary
from squeak_dist.errors import InvalidParameterError, SqueakError
from squeak_dist.inspection import dictionary_frame
from squeak_dist.kernels import Kernel
from squeak_dist.stages import FitParameters
from squeak_dist.store import save_model, to_plain


class NotFittedError(SqueakError, SklearnNotFittedError):  # type: ignore[misc]
    """The estimator has no model yet."""


class SqueakEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose ``model_`` is a frozen value with a dictionary in it."""

    model_: Any
    _own_parameters: ClassVar[tuple[str, ...]] = ()  # that FitParameters does not have

    @property
    def dictionary_(self) -> Dictionary:
        """The rows kept."""
        return self._fitted().dictionary

    def dictionary_frame(self) -> pd.DataFrame:
        """Return the rows kept with the values of their columns, one line each.

        Returns
        -------
        pandas.DataFrame of m rows
            The columns of the fit, as :meth:`FeatureEncoding.decode_points
            <squeak_dist.encoding.FeatureEncoding.decode_points>` recovers them, then
            ``probability`` p, ``multiplicity`` Q of q̄ copies, ``weight`` (the sample weight) and
            ``leverage``, the estimated ridge leverage score in [0, 1]: near 1 for rows that no
            other rows explain. A name that a column of the fit has gets a ``_`` in front. The
            index ``row`` has their numbers in the training data.

        Notes
        -----
        Cost: 4 m³/3 multiply-adds.
        """
        return dictionary_frame(self._fitted())

    @property
    def components_(self) -> FloatArray:
        """The points of the dictionary, encoded."""
        return self._fitted().dictionary.points

    @property
    def component_indices_(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Row numbers of the dictionary in the training data."""
        return self._fitted().dictionary.indices

    @property
    def kernel_(self) -> Kernel:
        """The kernel, in the units of the encoded rows."""
        return self._fitted().kernel

    @property
    def gamma_(self) -> float:
        """Leverage regularization that the dictionary is accurate for."""
        return self._fitted().dictionary.gamma

    @property
    def effective_dimension_(self) -> float:
        """The dictionary's estimate of d_eff(γ)."""
        return float(self._fitted().report["effective_dimension"])

    @property
    def report_(self) -> Mapping[str, Any]:
        """The record of the fit."""
        return self._fitted().report

    def report(
        self, path: str | os.PathLike[str], *, columns: Sequence[Hashable] | None = None
    ) -> Path:
        """Write a report of the fit: figures and tables on one HTML page.

        Parameters
        ----------
        path : str or path
            An HTML file; an earlier one is replaced. It opens without a network.
        columns : two labels, optional
            The axes on which the dictionary is shown. By default longitude and latitude
            where the fit has them, else the first two principal axes.

        Returns
        -------
        Path
            Where it is.
        """
        from squeak_dist.report import write_report  # bokeh takes a second to import

        return write_report(path, self._fitted(), columns=columns)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, Any] | None = None,
        overwrite: bool = True,
    ) -> None:
        """Save the model as zarr: a directory, a ``.zip`` file or any fsspec URL.

        Parameters
        ----------
        path : str or path
            Where to. An earlier model there is replaced only when the new one is
            complete.
        storage_options : mapping, optional
            For a URL: passed to fsspec.
        overwrite : bool, default True
            False: an error where something is.

        Raises
        ------
        StoreError
            If it cannot be written.
        """
        save_model(self._fitted(), path, storage_options=storage_options, overwrite=overwrite)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def check_parameters(self) -> FitParameters:
        """Return the parameters, checked without any data.

        Raises
        ------
        InvalidParameterError
            For a parameter outside its range.
        """
        return self._parameters()

    def _parameters(self) -> FitParameters:
        given = self.get_params(deep=False)
        for name in self._own_parameters:
            del given[name]
        return FitParameters(seed=_seed(given.pop("random_state")), **given)

    def _vault(self, checkpoint: Any, options: Mapping[str, Any] | None) -> Vault | None:
        """Return where a fit keeps its finished parts, or None."""
        if checkpoint is None:
            return None
        if not _is_integer(self.get_params(deep=False)["random_state"]):
            raise InvalidParameterError(
                "a fit with a checkpoint needs an integer random_state: any other draws another "
                "seed when the fit goes on"
            )
        return vault_at(checkpoint, options)

    def _fitted(self) -> Any:
        if not hasattr(self, "model_"):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet; call fit first, or load "
                f"a model with squeak_dist.load"
            )
        return self.model_


def _seed(random_state: Any) -> int:
    """Return a seed: the given one, or one drawn."""
    if _is_integer(random_state):
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    raise InvalidParameterError(
        f"random_state must be an integer ≥ 0, a numpy Generator or RandomState, or None; got "
        f"{random_state!r}"
    )


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def adopt(estimator: SqueakEstimator, model: Any) -> None:
    """Make an estimator the face of a model."""
    labels = model.encoding.labels
    estimator.model_ = model
    estimator.n_features_in_ = len(labels)
    if all(isinstance(label, str) for label in labels) and not model.unnamed_features:
        estimator.feature_names_in_ = np.array(labels, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def adopt_fit(estimator: SqueakEstimator, model: Any) -> None:
    """Make an estimator the face of the model that it has fitted, with its parameters in it."""
    parameters = _plain_parameters(estimator, model.seed)
    adopt(estimator, replace(model, report={**model.report, "parameters": parameters}))


def _plain_parameters(estimator: SqueakEstimator, seed: int) -> dict[str, Any]:
    """Return the parameters of a fit as JSON has them: the seed drawn, None for objects."""
    given = estimator.get_params(deep=False) | {"random_state": seed}
    for name in ("kernel", "sampler"):
        if not isinstance(given[name], str):
            given[name] = None
    if isinstance(given.get("class_weight"), Mapping):
        given["class_weight"] = [list(pair) for pair in given["class_weight"].items()]
    whole = (numbers.Integral, np.bool_)
    plain: dict[str, Any] = to_plain(
        {
            name: float(v) if isinstance(v, numbers.Real) and not isinstance(v, whole) else v
            for name, v in given.items()
        },
        "parameters",
    )
    return plain


def known_parameters(estimator: type[SqueakEstimator], model: Any) -> dict[str, Any]:
    """Return what a model knows of the parameters of its fit; nothing in older stores."""
    stored: Mapping[str, Any] = model.report.get("parameters", {})
    own = estimator._get_param_names()
    known = {name: value for name, value in stored.items() if name in own}
    if not str(known.get("kernel") or "()").isidentifier():  # it was an object
        known["kernel"] = model.kernel
    if known.get("sampler", "") is None:  # so was this, which no store holds
        del known["sampler"]
    if isinstance(known.get("class_weight"), list):
        known["class_weight"] = dict(map(tuple, known["class_weight"]))
    return known
