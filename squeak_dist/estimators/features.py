"""What the transformers share: fit without a target, transform, containers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from squeak_dist.distributed import (
    Progress,
    Source,
    extend_features_source,
    fit_features_source,
    has_own_container,
    read_features,
    transform_collection,
)
from squeak_dist.estimators.base import SqueakEstimator, adopt_fit
from squeak_dist.estimators.streams import forget_stream, go_on, open_stream
from squeak_dist.feature_model import FeatureModel
from squeak_dist.stages import FitParameters, Stream

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
            storage_options=storage_options,
        )
        adopt_fit(self, self._learn(source, parameters, client=client, progress=progress))
        forget_stream(self)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        features: Sequence[Hashable] | None = None,
        client: Client | None = None,
        progress: Progress | bool | None = None,
    ) -> Any:
        """Pass further rows through SQUEAK; the features are then those of all rows so far.

        Parameters
        ----------
        X, y, sample_weight, features, client, progress
            As in :meth:`fit`; later calls need the same columns as the first.

        Returns
        -------
        SqueakTransformer or SqueakPCA
            self.

        Raises
        ------
        InvalidParameterError
            Where parameters were changed since the first call.
        DataError
            For other columns than those of the first call.

        Warns
        -----
        FitForgotten
            After :meth:`fit` or a load, which keep no stream: it begins anew.

        Notes
        -----
        The first call fixes encoding, kernel and γ, as
        :meth:`SqueakRegressor.partial_fit <squeak_dist.SqueakRegressor.partial_fit>` says.
        The number and the order of the features change with the dictionary: what was
        learned on earlier ones is to be learned again.
        """
        parameters = self._parameters()
        stream = open_stream(self, parameters)
        source = read_features(X, features=features, sample_weight=sample_weight)
        extend = partial(self._extend, client=client, progress=progress)
        go_on(self, stream, source, parameters, extend)
        return self

    def _learn(self, source: Source, parameters: FitParameters, **run: Any) -> FeatureModel:
        return fit_features_source(source, parameters, **run)

    def _extend(
        self, stream: Stream | None, source: Source, parameters: FitParameters, **run: Any
    ) -> tuple[Stream, FeatureModel]:
        return extend_features_source(stream, source, parameters, **run)

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


class OwnContainers:
    """Before a :class:`FeatureEstimator` in the bases: Dask and xarray come out as they go in.

    scikit-learn wraps the ``transform`` of its own subclasses, so that it makes pandas
    frames where ``set_output`` asks for them. A Dask collection must not go through that,
    which would compute it; nor a grid, which is no table.
    """

    def transform(self, X: Any) -> Any:
        """Return the features of rows; lazily for lazy input, with its index.

        Parameters
        ----------
        X : Dask or pandas DataFrame, Dask or numpy array, str or path
            Columns of a frame are matched by name, those of an array by position.

        Returns
        -------
        ndarray, or what ``set_output`` asks for; Dask or xarray for such input
            Shape (n, n_features_out), of ``dtype``; of an xarray Dataset its grid and a last
            dimension ``feature``. Rows dropped by ``missing="drop"`` are NaN.

        Raises
        ------
        NotFittedError
            Before :meth:`fit`.
        DataError, ColumnTypeError
            For columns or values that do not match the fit.
        """
        assert isinstance(self, FeatureEstimator)
        if has_own_container(X):
            return transform_collection(self._fitted(), X, list(self.get_feature_names_out()))
        return super().transform(X)  # type: ignore[misc]
