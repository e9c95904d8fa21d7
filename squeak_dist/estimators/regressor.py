"""Kernel ridge regression on a dictionary, as a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import RegressorMixin

from squeak_dist.distributed import (
    Evaluation,
    Progress,
    Source,
    as_fitted,
    deviation_collection,
    evaluate_source,
    extend_source,
    fit_source,
    novelty_collection,
    predict_collection,
    read_source,
    target_labels,
    write_dual_weights,
)
from squeak_dist.estimators.base import adopt_fit
from squeak_dist.estimators.predictor import SqueakPredictor
from squeak_dist.estimators.streams import forget_stream, go_on, open_stream

if TYPE_CHECKING:
    from distributed import Client


class SqueakRegressor(RegressorMixin, SqueakPredictor):  # type: ignore[misc]
    """Nyström kernel ridge regression on a dictionary that SQUEAK chooses.

    One pass over the data keeps a dictionary of essential rows, chosen by ridge
    leverage scores on every partition and merged in a tree; a second pass solves
    the ridge regression on it. Runs on the current Dask client, or on local
    threads where there is none.

    Parameters
    ----------
    kernel : str or Kernel, default "auto"
        ``"rbf"``, ``"matern"`` (ν = 3/2), ``"laplacian"``, ``"polynomial"``,
        ``"linear"``, ``"cosine"``, or an object with ``kernel(X, Y)`` and
        ``kernel.diag(X)``, which is given the encoded rows. ``"auto"``: RBF or Matérn
        3/2, whichever leaves the smaller leave-one-out error on a sample (RBF with
        ``length_scale="median"``, which searches for nothing).
    length_scale : float, sequence of float, "auto", "ARD", "isotropic" or "median"
        In the units of the columns; one number or one per encoded feature; default
        ``"auto"``: by maximum marginal likelihood on up to 1,024 rows, one per feature
        (``"ARD"``) or, of up to 32 features, one per direction among them
        (:attr:`~squeak_dist.RBF.directions`), whichever leaves the smaller leave-one-out
        error of a small model on up to 4,096 rows; the median distance where neither beats
        that. ``"isotropic"``: one number by likelihood; ``"median"``: the median distance.
        The columns are standardized for each of these words.
    mu : float or "auto", default "auto"
        Ridge penalty μ > 0 on a sum of squares: scikit-learn KernelRidge's
        ``alpha`` (FALKON's penalty is μ/n). ``"auto"``: generalized
        cross-validation, without a further pass.
    gamma : float or "auto", default "auto"
        Leverage regularization γ > 0: smaller keeps more rows. ``"auto"``: μ, or
        the smallest γ whose dictionary fits ``max_dictionary``.
    epsilon : float, default 0.3
        Accuracy ε of the dictionary, in (0, 1).
    delta : float, default 0.1
        Failure probability in (0, 1); used by ``qbar="theory"`` alone.
    qbar : int or "theory", default 16
        Copies q̄ ≥ 1 per row before selection. ``"theory"`` is the value that
        Theorem 1 asks for, about 10⁴: it keeps nearly every row of a small table.
    max_dictionary : int or None, default 2000
        Largest dictionary; it sets memory and time.
    sampler : str or Sampler, default "squeak"
        How the dictionary is chosen: a name of :data:`squeak_dist.samplers.SAMPLERS`
        (``"uniform"``, ``"rls-sampling"``, ``"k-means"``, …), or your own function or
        object, called as :class:`squeak_dist.samplers.Sampler` says. All but
        ``"squeak"``, ``"disqueak…"`` and ``"uniform"`` need all rows in one task.
    on_overrun : {"raise_gamma", "stop"}, default "raise_gamma"
        At a dictionary that does not fit: raise γ (with a warning where γ was
        given), or stop the dictionary pass there.
    solver : {"auto", "direct", "cg"}, default "auto"
        Direct solve of the normal equations; or preconditioned conjugate
        gradients, one pass per iteration, which is faster for large n and m, and
        falls back to the direct solve where it would not converge. ``"auto"``:
        by a cost model of n, m and the outputs.
    approximation : {"projected", "regularized"}, default "projected"
        Regression in the span of the dictionary, or the paper's regularized map.
    linear_part : bool or "auto", default "auto"
        Whether the encoded columns and a constant stand beside the kernel, under the
        same penalty: f(x) = k_D(x)ᵀ c + xᵀ b + a. Beyond the range of a column in the
        fit its term stays constant. ``"auto"``: the constant, an intercept, unless it
        raises the GCV score by 1 %, and the columns where they lower it by 1 %. False:
        the kernel alone about the mean of the target, as scikit-learn's KernelRidge.
    fan_in : int, default 2
        Dictionaries per merge, at least 2.
    missing : {"raise", "impute", "drop"}, default "raise"
        Missing values: an error; median and an indicator column (rows without a
        target are dropped); or drop the rows.
    standardize : bool or "auto", default "auto"
        Divide numeric columns by their standard deviation; ``"auto"``: where the
        length scale is ``"auto"``. Columns are always centred.
    dtype : {"float32", "float64"}, default "float32"
        Of rows and kernel blocks; sums are float64 always.
    random_state : int, Generator, RandomState or None, default 0
        Seed, at least 0. The same seed gives the same bits on any number of workers.

    Attributes
    ----------
    dictionary_ : Dictionary
        The rows kept, encoded, with probabilities and multiplicities.
    components_ : ndarray of shape (m, d)
        The points of the dictionary.
    component_indices_ : ndarray of int64, shape (m,)
        Their row numbers in the training data.
    dual_coef_ : ndarray of float64, shape (m,) or (m, n_outputs)
        Coefficients c; a prediction is k_D(x)ᵀ c + xᵀ ``linear_coef_`` + ``intercept_``.
    linear_coef_ : ndarray of float64, shape (d,) or (d, n_outputs)
        Of the encoded columns beside the kernel; zeros without a linear part.
    intercept_ : float or ndarray of shape (n_outputs,)
        Mean of the training target, and the constant of the linear part.
    kernel_ : Kernel
        The kernel with its length scale.
    gamma_, mu_, effective_dimension_ : float
        γ and μ used, and the dictionary's estimate of d_eff(γ).
    report_ : dict
        Rows, sizes, seconds, memory, and every node of the merge tree.
    n_features_in_ : int
        Columns seen in the fit.
    feature_names_in_ : ndarray of str
        Their names, where the data had string names.
    model_ : FittedModel
        All of it as one frozen value.

    References
    ----------
    D. Calandriello, A. Lazaric, M. Valko: "Pack only the essentials: Adaptive
    dictionary learning for kernel ridge regression" (2016); "Distributed
    adaptive sampling for kernel matrix approximation" (AISTATS 2017).

    Examples
    --------
    >>> import numpy as np
    >>> from squeak_dist import SqueakRegressor
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> model = SqueakRegressor().fit(X, np.sin(X[:, 0]))
    >>> bool(model.score(X, np.sin(X[:, 0])) > 0.99)
    True
    """

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
    ) -> SqueakRegressor:
        """Fit the model.

        Parameters
        ----------
        X : Dask or pandas DataFrame, Dask or numpy array, str or path
            Features; with ``target`` also the target. A string is a path or URL
            of parquet.
        y : array or Series like X, shape (n,) or (n, n_outputs), optional
            The target, where it is no column of X. A Dask Series is aligned with a
            Dask frame by index, as in pandas: each row of X needs its row in y.
        sample_weight : array or Series like X, or a column name, optional
            Weights v ≥ 0 of the squared errors; aligned as y is.
        target : label or list of labels, optional
            Columns of X to predict.
        features : list of labels, optional
            Columns to learn from; all others than target and weight by default.
        storage_options : mapping, optional
            For a URL: passed to fsspec.
        client : distributed.Client or "ray", optional
            The current client by default; without any, local threads. ``"ray"``: the
            Ray that ``ray.init()`` connected this process to.
        progress : callable or bool, optional
            Called with (stage, tasks done, tasks in all). True: a line per stage in a
            terminal or notebook, with rows per second, dictionary size and time left.
        checkpoint : str or path, optional
            A directory or any fsspec URL that client and workers share. Finished
            parts are kept there; after a break the same call goes on from them, to
            the same bits. Needs an integer ``random_state``. It stays when the fit is
            done: see :func:`squeak_dist.remove_checkpoint`.
        checkpoint_options : mapping, optional
            For a URL of a checkpoint: passed to fsspec.

        Returns
        -------
        SqueakRegressor
            self.

        Raises
        ------
        InvalidParameterError
            For a parameter outside its range.
        DataError, ColumnTypeError
            For data that cannot be fitted: see :mod:`squeak_dist.errors`.
        VersionMismatchError, ClusterError, InsufficientMemoryError
            For a cluster that cannot do it, before work is submitted.
        CheckpointError, CheckpointMismatchError
            For a checkpoint that cannot be written, or is of other data or parameters.

        Notes
        -----
        A pass for the profile, one for the dictionary (n m² multiply-adds at most),
        and one for a direct solve (1.5 n m²) or one per iteration. A task needs
        O(m²) memory and one partition, independent of n.
        """
        parameters = self._parameters()
        vault = self._vault(checkpoint, checkpoint_options)
        source = read_source(
            X,
            y,
            target=target,
            features=features,
            sample_weight=sample_weight,
            storage_options=storage_options,
        )
        model = fit_source(source, parameters, client=client, progress=progress, checkpoint=vault)
        adopt_fit(self, model)
        forget_stream(self)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: Any = None,
        features: Sequence[Hashable] | None = None,
        client: Client | str | None = None,
        progress: Progress | bool | None = None,
    ) -> SqueakRegressor:
        """Pass further rows through SQUEAK; the model is then that of all rows so far.

        Parameters
        ----------
        X, y, sample_weight, target, features, client, progress
            As in :meth:`fit`; later calls need the same columns as the first.

        Returns
        -------
        SqueakRegressor
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
        The first call fixes what :meth:`fit` learns from all rows: the encoding
        (centre, scale, levels), the kernel and γ; so let it be of typical rows, a
        thousand at least. The dictionary is at any time that of one chain over the
        rows so far, to the bit, with its guarantee; γ is raised where it outgrows
        ``max_dictionary``. The rows are gone then: their sums are projected on the
        span of each new dictionary, which :meth:`fit` does not need.
        """
        parameters = self._parameters()
        stream = open_stream(self, parameters)
        source = read_source(X, y, target=target, features=features, sample_weight=sample_weight)
        extend = partial(extend_source, client=client, progress=progress)
        go_on(self, stream, source, parameters, extend)
        return self

    def predict(self, X: Any, *, return_std: bool = False) -> Any:
        """Predict; lazy for lazy input, with its index.

        Parameters
        ----------
        X : Dask or pandas DataFrame, Dask or numpy array, str or path
            Columns of a frame are matched by name, those of an array by position.
        return_std : bool, default False
            Also return the standard deviation of a new target at each row: noise,
            uncertainty of the fit, and what the dictionary does not span. A target is
            within 1.64 of them in 90 % of all cases, where the noise is Gaussian and the
            same everywhere.

        Returns
        -------
        Dask Series, DataFrame or array, or ndarray
            Shape (n,) or (n, n_outputs); with ``return_std`` a pair of them.

        Raises
        ------
        NotFittedError
            Before :meth:`fit`.
        DataError, ColumnTypeError
            For columns or values that do not match the fit.

        Notes
        -----
        n m kernel entries; with ``return_std`` another n m of them and 2 n m²
        multiply-adds.
        """
        model = self._fitted()
        if not return_std:
            return predict_collection(model, X)
        return predict_collection(model, X), deviation_collection(model, X)

    def novelty(self, X: Any) -> Any:
        """Return r(x) = k(x, x) − ‖z(x)‖²: how little the dictionary explains of each row.

        Parameters
        ----------
        X : Dask or pandas DataFrame, Dask or numpy array, str or path
            As in :meth:`predict`.

        Returns
        -------
        Dask Series or array, or ndarray
            Shape (n,), at least 0 and at most k(x, x), which is 1 for most kernels: a row
            as far from all that was fitted as can be.
        """
        return novelty_collection(self._fitted(), X)

    def evaluate(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: Any = None,
        client: Client | str | None = None,
    ) -> Evaluation:
        """Score on test data, beside the mean and a linear ridge regression.

        Parameters
        ----------
        X, y, sample_weight, target, client
            As in :meth:`fit`; without y the target columns of the fit are taken
            from X.

        Returns
        -------
        Evaluation
            RMSE and R² of each; ``print`` shows a table. One pass over the data.
        """
        model = self._fitted()
        source = self._held_out(X, y, sample_weight, target)
        return evaluate_source(model, source, client=client)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R² on test data, the mean over outputs; computes.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`; without y the target columns of the fit are taken
            from X.

        Returns
        -------
        float
            At most 1; 0 is the mean of the test target.
        """
        return float(np.mean(self.evaluate(X, y, sample_weight).model.r2))

    def save_dual_weights(
        self,
        path: str | os.PathLike[str],
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        client: Client | str | None = None,
    ) -> None:
        """Write the dual weights w̃ = (y − f(x))/μ of every training row to zarr.

        With ``approximation="regularized"`` this is (K̃ + μI)⁻¹ y of the paper, by
        block inversion. The workers write, one writer per chunk.

        Parameters
        ----------
        path : str or path
            A store of its own, with the array ``dual_weights`` of shape (n, outputs).
        X, y, sample_weight, target
            The training data, as they were given to :meth:`fit`.
        storage_options : mapping, optional
            For a URL: passed to fsspec.
        client : distributed.Client or "ray", optional
            The current client by default.
        """
        model = self._fitted()
        source = self._held_out(X, y, sample_weight, target)
        write_dual_weights(model, source, path, storage_options=storage_options, client=client)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = self.missing != "raise"
        tags.input_tags.string = True
        return tags

    def _held_out(self, X: Any, y: Any, sample_weight: Any, target: Any) -> Source:
        """Cut test data as the training data were."""
        model = self._fitted()
        X = as_fitted(model, X)
        if y is None and target is None:
            target = target_labels(model, X)
        if isinstance(target, list) and len(target) == 1 and model.single_output:
            target = target[0]
        return read_source(
            X,
            y,
            target=target,
            features=None if model.unnamed_features else list(model.encoding.used_labels),
            sample_weight=sample_weight,
        )
