"""What the transformers share: fit without a target, transform, containers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from squeak_dist.distributed import (
    Progress,
    Source,
    fit_features_source,
    is_lazy,
    read_features,
    transform_collection,
)
from squeak_dist.estimators.base import SqueakEstimator, adopt
from squeak_dist.feature_model import FeatureModel
from squeak_dist.stages import FitParameters

if TYPE_CHECKING:
    from distributed import Client


class FeatureEstimator(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    SqueakEstimator,
):
    """A transformer of rows in memory, whose ``model_`` is a FeatureModel."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        features: Sequence[Hashable] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        client: Client | None = None,
        progress: Progress | bool | None = None,
    ) -> Any:
        """Learn the features of a table.

        Parameters
        ----------
        X : Dask or pandas DataFrame, Dask or numpy array, str or path
            The rows. A string is a path or URL of parquet.
        y : object, optional
            Ignored: it is there for pipelines.
        sample_weight : array or Series like X, or a column name, optional
            Weights v ≥ 0 of the rows; 0 leaves a row out.
        features : list of labels, optional
            Columns to learn from; all others than the weight by default.
        storage_options : mapping, optional
            For a URL: passed to fsspec.
        client : distributed.Client, optional
            The current client by default; without any, local threads.
        progress : callable or bool, optional
            Called with (stage, tasks done, tasks in all). True: a line per stage in a
            terminal or notebook, with rows per second, dictionary size and time left.

        Returns
        -------
        SqueakTransformer or SqueakPCA
            self.

        Raises
        ------
        InvalidParameterError
            For a parameter outside its range.
        DataError, ColumnTypeError
            For data that cannot be fitted: see :mod:`squeak_dist.errors`.
        VersionMismatchError, ClusterError, InsufficientMemoryError
            For a cluster that cannot do it, before work is submitted.

        Notes
        -----
        A pass for the profile and one for the dictionary (n m² multiply-adds at most);
        a third one for principal components (1.5 n m²).
        """
        parameters = self._parameters()
        source = read_features(
            X,
            features=features,
            sample_weight=sample_weight,
            storage_options=None if storage_options is None else dict(storage_options),
        )
        adopt(self, self._learn(source, parameters, client=client, progress=progress))
        return self

    def _learn(self, source: Source, parameters: FitParameters, **run: Any) -> FeatureModel:
        return fit_features_source(source, parameters, **run)

    def transform(self, X: Any) -> Any:
        """Return the features of rows in memory, shape (n, n_features_out)."""
        # scikit-learn puts the result into the container that set_output asks for.
        return transform_collection(self._fitted(), X, list(self.get_feature_names_out()))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray[Any, Any]:
        """Return the names of the features: that of the class, and a number.

        Parameters
        ----------
        input_features : object, optional
            Ignored: the features are no columns of X.
        """
        self._fitted()
        names: np.ndarray[Any, Any] = super().get_feature_names_out(input_features)
        return names

    @property
    def components_(self) -> Any:
        """The points of the map, encoded: one row per point, each point once."""
        model = self._fitted()
        return model.dictionary.points[model.support]

    @property
    def component_indices_(self) -> Any:
        """Row numbers of the points in the training data."""
        model = self._fitted()
        return model.dictionary.indices[model.support]

    @property
    def _n_features_out(self) -> int:
        return int(self._fitted().n_outputs)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "raise"
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []  # it is the parameter ``dtype``
        return tags


class LazyTransform:
    """Before a :class:`FeatureEstimator` in the bases: lazy features of lazy input.

    scikit-learn wraps the ``transform`` of its own subclasses, so that it makes pandas
    frames where ``set_output`` asks for them. A Dask collection must not go through that,
    which would compute it.
    """

    def transform(self, X: Any) -> Any:
        """Return the features of rows; lazily for lazy input, with its index.

        Parameters
        ----------
        X : Dask or pandas DataFrame, Dask or numpy array, str or path
            Columns of a frame are matched by name, those of an array by position.

        Returns
        -------
        ndarray, or what ``set_output`` asks for; Dask array or DataFrame for Dask input
            Shape (n, n_features_out), of ``dtype``. Rows dropped by ``missing="drop"``
            are NaN.

        Raises
        ------
        NotFittedError
            Before :meth:`fit`.
        DataError, ColumnTypeError
            For columns or values that do not match the fit.
        """
        assert isinstance(self, FeatureEstimator)
        if is_lazy(X):
            return transform_collection(self._fitted(), X, list(self.get_feature_names_out()))
        return super().transform(X)  # type: ignore[misc]
