"""Classification on a dictionary, as a scikit-learn estimator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.exceptions import DataConversionWarning

from squeak_dist._typing import Float64Array
from squeak_dist.classes import Classes
from squeak_dist.distributed import (
    ClassEvaluation,
    Progress,
    Source,
    as_fitted,
    class_source,
    evaluate_classes,
    extend_source,
    fit_source,
    given_class_source,
    labelled,
    predict_labels,
    predict_log_odds,
    predict_probabilities,
)
from squeak_dist.errors import ConstantTargetError, DataError, InvalidParameterError
from squeak_dist.estimators.base import adopt_fit
from squeak_dist.estimators.predictor import SqueakPredictor
from squeak_dist.estimators.streams import forget_stream, go_on, open_stream
from squeak_dist.kernels import Kernel
from squeak_dist.label_counts import check_class_weight
from squeak_dist.model import FittedModel
from squeak_dist.samplers import Sampler
from squeak_dist.stages import FitParameters

if TYPE_CHECKING:
    from distributed import Client


class SqueakClassifier(ClassifierMixin, SqueakPredictor):  # type: ignore[misc]
    """Classification by kernel ridge regression on ±1 columns, on a dictionary of SQUEAK.

    One column for two classes (+1 is the second in ``classes_``), one per class for
    more; all of them share the dictionary and the factorization. One more pass than
    :class:`~squeak_dist.SqueakRegressor`, over the column of labels alone, finds the
    classes.

    Parameters
    ----------
    kernel, length_scale, mu, gamma, epsilon, delta, qbar, max_dictionary, sampler
        As in :class:`~squeak_dist.SqueakRegressor`.
    on_overrun, solver, approximation, linear_part, fan_in
        As in :class:`~squeak_dist.SqueakRegressor`.
    missing : {"raise", "impute", "drop"}, default "raise"
        As in :class:`~squeak_dist.SqueakRegressor`; rows without a label are an error,
        or are dropped.
    standardize, dtype, random_state
        As in :class:`~squeak_dist.SqueakRegressor`.
    class_weight : None, "balanced" or dict of label to float, default None
        Weights of the classes, multiplied into the sample weights. ``"balanced"``:
        n / (K n_k), n_k the rows of class k. Probabilities are then those of a world
        where classes have these weights, as in scikit-learn.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The labels, ascending.
    dictionary_ : Dictionary
        The rows kept, encoded, with probabilities and multiplicities.
    components_, component_indices_ : ndarray
        The points of the dictionary, (m, d), and their row numbers, (m,).
    dual_coef_, linear_coef_, intercept_
        Of the regression on ±1 columns, as in :class:`~squeak_dist.SqueakRegressor`.
    kernel_, gamma_, mu_, effective_dimension_, report_, model_
        As in :class:`~squeak_dist.SqueakRegressor`.
    n_features_in_ : int
        Columns seen in the fit.
    feature_names_in_ : ndarray of str
        Their names, where the data had string names.

    Notes
    -----
    The regression estimates f_k = 2 P(class k | x) − 1, but linearly: outside [−1, 1] too, and
    too near to 0 where there are many classes. Log-odds are therefore
    a f_k + c log max((1 + f_k) / 2, 0.03) + b_k, and probabilities their softmax. The few
    numbers a, c, b are fitted by maximum likelihood on the leave-one-out scores of the row
    sample (4,096 rows at most): docs/calibration.md has what that brings on held-out rows.
    :meth:`predict` takes the class of the largest log-odds, so it agrees with
    :meth:`predict_proba` and :meth:`decision_function`.

    References
    ----------
    J. Platt: "Probabilistic outputs for support vector machines" (1999), for the target
    probabilities of the link.

    Examples
    --------
    >>> import numpy as np
    >>> from squeak_dist import SqueakClassifier
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> y = np.where(np.sin(2 * X[:, 0]) > 0, "up", "down")
    >>> model = SqueakClassifier().fit(X, y)
    >>> str(model.predict([[0.8]])[0]), bool(model.predict_proba([[0.8]])[0, 1] > 0.9)
    ('up', True)
    """

    _own_parameters: ClassVar[tuple[str, ...]] = ("class_weight",)

    def __init__(
        self,
        *,
        kernel: str | Kernel = "auto",
        length_scale: float | Sequence[float] | str = "auto",
        mu: float | str = "auto",
        gamma: float | str = "auto",
        epsilon: float = 0.3,
        delta: float = 0.1,
        qbar: int | str = 16,
        max_dictionary: int | None = 2000,
        sampler: str | Sampler = "squeak",
        on_overrun: str = "raise_gamma",
        solver: str = "auto",
        approximation: str = "projected",
        linear_part: bool | str = "auto",
        fan_in: int = 2,
        missing: str = "raise",
        standardize: bool | str = "auto",
        dtype: str = "float32",
        random_state: Any = 0,
        class_weight: Any = None,
    ) -> None:
        super().__init__(
            kernel=kernel,
            length_scale=length_scale,
            mu=mu,
            gamma=gamma,
            epsilon=epsilon,
            delta=delta,
            qbar=qbar,
            max_dictionary=max_dictionary,
            sampler=sampler,
            on_overrun=on_overrun,
            solver=solver,
            approximation=approximation,
            linear_part=linear_part,
            fan_in=fan_in,
            missing=missing,
            standardize=standardize,
            dtype=dtype,
            random_state=random_state,
        )
        self.class_weight = class_weight

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: Any = None,
        features: Sequence[Hashable] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        client: Client | str | None = None,
        progress: Progress | bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_options: Mapping[str, Any] | None = None,
    ) -> SqueakClassifier:
        """Fit the model.

        Parameters
        ----------
        X : Dask or pandas DataFrame, Dask or numpy array, str or path
            As in :meth:`SqueakRegressor.fit <squeak_dist.SqueakRegressor.fit>`.
        y : array or Series like X, shape (n,), optional
            Labels: text, booleans, whole numbers, or categorical.
        sample_weight : array or Series like X, or a column name, optional
            Weights v ≥ 0 of the squared errors.
        target : label, optional
            Column of X with the labels.
        features, storage_options, client, progress, checkpoint, checkpoint_options
            As in :meth:`SqueakRegressor.fit <squeak_dist.SqueakRegressor.fit>`.

        Returns
        -------
        SqueakClassifier
            self.

        Raises
        ------
        InvalidParameterError
            For a parameter outside its range.
        DataError, ColumnTypeError
            For data that cannot be fitted, labels that are no classes, or one class only.
        VersionMismatchError, ClusterError, InsufficientMemoryError
            For a cluster that cannot do it, before work is submitted.
        """
        parameters = self._parameters()
        vault = self._vault(checkpoint, checkpoint_options)
        _warn_of_column(y)
        found = labelled(
            X,
            y,
            target=target,
            features=features,
            sample_weight=sample_weight,
            storage_options=storage_options,
        )
        source, classes, weights = class_source(
            found, self.class_weight, parameters.missing, client=client, progress=progress
        )
        try:
            model = fit_source(
                source,
                parameters,
                client=client,
                progress=progress,
                checkpoint=vault,
                classes=classes,
            )
        except ConstantTargetError as error:
            raise _one_class(classes) from error
        adopt_fit(self, _with_weights(model, weights))
        forget_stream(self)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        target: Any = None,
        features: Sequence[Hashable] | None = None,
        client: Client | str | None = None,
        progress: Progress | None = None,
    ) -> SqueakClassifier:
        """Pass further rows through SQUEAK; the model is then that of all rows so far.

        Parameters
        ----------
        X, y
            As in :meth:`fit`; later calls need the same columns as the first.
        classes : array of shape (K,), optional
            All labels that will come. Needed by the first call, where two of them at
            least must be present; those of an earlier :meth:`fit` are taken over.
        sample_weight, target, features, client, progress
            As in :meth:`fit`.

        Returns
        -------
        SqueakClassifier
            self.

        Raises
        ------
        InvalidParameterError
            Where ``classes`` or parameters were changed since the first call, the first
            call has no ``classes``, or ``class_weight="balanced"``.
        DataError
            For labels that are not among the classes, or other columns than those of the
            first call.

        Warns
        -----
        FitForgotten
            After :meth:`fit` or a load, which keep no stream: it begins anew.

        Notes
        -----
        As :meth:`SqueakRegressor.partial_fit <squeak_dist.SqueakRegressor.partial_fit>`;
        probabilities are fitted anew after each call, on a uniform sample of all rows so
        far.
        """
        parameters = self._parameters()
        if isinstance(self.class_weight, str):
            raise InvalidParameterError(
                'class_weight="balanced" needs all labels at once, which partial_fit never has; '
                "pass a dict of weights, e.g. from sklearn.utils.class_weight.compute_class_weight"
            )
        stream = open_stream(self, parameters)
        _warn_of_column(y)
        found = labelled(X, y, target=target, features=features, sample_weight=sample_weight)
        continued = stream is not None or (classes is None and hasattr(self, "model_"))
        source, known, weights = given_class_source(
            found, classes, self.model_.classes if continued else None, self.class_weight
        )
        extend = partial(extend_source, client=client, progress=progress, classes=known)
        try:
            go_on(self, stream, source, parameters, extend)
        except ConstantTargetError as error:
            raise _one_class(known) from error
        self.model_ = _with_weights(self.model_, weights)
        return self

    def predict(self, X: Any) -> Any:
        """Predict labels; lazy for lazy input, with its index.

        Parameters
        ----------
        X : Dask or pandas DataFrame, Dask or numpy array, str or path
            Columns of a frame are matched by name, those of an array by position.

        Returns
        -------
        Dask Series or array, xarray DataArray, or ndarray
            Shape (n,), of the type that the labels of the fit had; of an xarray Dataset on its
            grid.

        Raises
        ------
        NotFittedError
            Before :meth:`fit`.
        DataError, ColumnTypeError
            For columns or values that do not match the fit.
        """
        return predict_labels(self._fitted(), X)

    def decision_function(self, X: Any) -> Any:
        """Return log-odds; lazy for lazy input. X and errors are those of :meth:`predict`.

        Parameters
        ----------
        X : collection
            As for :meth:`predict`.

        Returns
        -------
        Dask Series, DataFrame or array, or ndarray
            Of two classes log p₁/p₀, shape (n,): above 0 the second is predicted. Else one
            column per class, (n, K), up to a constant per row; of an xarray Dataset they are
            along a last dimension ``class``.
        """
        return predict_log_odds(self._fitted(), X)

    def predict_proba(self, X: Any) -> Any:
        """Return probabilities, calibrated on left-out scores; lazy for lazy input.

        Parameters
        ----------
        X : collection
            As for :meth:`predict`.

        Returns
        -------
        Dask DataFrame or array, or ndarray
            Shape (n, K), in the order of ``classes_``; the columns of a frame are labels, and so
            are the coordinates of the last dimension, ``class``, of xarray.
        """
        return predict_probabilities(self._fitted(), X)

    def predict_log_proba(self, X: Any) -> Any:
        """Return logarithms of :meth:`predict_proba`, without its underflow."""
        return predict_probabilities(self._fitted(), X, logarithm=True)

    def evaluate(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: Any = None,
        client: Client | str | None = None,
    ) -> ClassEvaluation:
        """Score on test data, beside the most frequent class and a linear ridge regression.

        Parameters
        ----------
        X, y, sample_weight, target, client
            As in :meth:`fit`; without y the target column of the fit is taken from X.

        Returns
        -------
        ClassEvaluation
            Accuracy, balanced accuracy, log loss and Brier score; ``print`` shows a table.
            Labels that the fit had not are counted as wrong. One pass over the data.
        """
        model = self._fitted()
        source = self._held_out(X, y, sample_weight, target)
        return evaluate_classes(model, source, client=client)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy on test data; computes.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`; without y the target column of the fit is taken from X.

        Returns
        -------
        float
            In [0, 1].
        """
        return self.evaluate(X, y, sample_weight).model.accuracy

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The labels, ascending."""
        classes: Classes = self._fitted().classes
        return classes.array

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "raise"
        tags.input_tags.string = True
        return tags

    def _parameters(self) -> FitParameters:
        check_class_weight(self.class_weight)
        return replace(super()._parameters(), classifies=True)

    def _held_out(self, X: Any, y: Any, sample_weight: Any, target: Any) -> Source:
        """Cut test data as the training data were; their target is the position of the class."""
        model = self._fitted()
        X = as_fitted(model, X)
        if y is None and target is None:
            target = column_named(X, model.classes.target)
        found = labelled(
            X,
            y,
            target=target,
            features=None if model.unnamed_features else list(model.encoding.used_labels),
            sample_weight=sample_weight,
        )
        return found.source(model.classes)


def _with_weights(model: FittedModel, weights: Float64Array | None) -> FittedModel:
    given = {"class_weights": None if weights is None else weights.tolist()}
    return replace(model, report={**model.report, **given})


def _one_class(classes: Classes) -> DataError:
    return DataError(
        f"a classifier can't train when only one class is present: of the classes "
        f"{classes.target!r} has, one alone is in rows of positive weight"
    )


def column_named(X: Any, name: str) -> Any:
    """Return the label of the column of X that is called ``name``; the name if none is."""
    return next((c for c in getattr(X, "columns", ()) if c == name or str(c) == name), name)


def _warn_of_column(y: Any) -> None:
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    if len(shape) == 2 and shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape "
            "of y to (n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=3,
        )
