"""Kernel principal components of tables of any size, as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from squeak_dist._typing import Float64Array
from squeak_dist.distributed import Source, extend_components_source, fit_components_source
from squeak_dist.estimators.features import FeatureEstimator, OwnContainers
from squeak_dist.feature_model import FeatureModel
from squeak_dist.kernels import Kernel
from squeak_dist.samplers import Sampler
from squeak_dist.stages import FitParameters, Stream
from squeak_dist.validation import check_integer


class SqueakPCA(OwnContainers, FeatureEstimator):
    """Kernel PCA: principal components of the rows in feature space.

    The covariance of the Nyström features of a dictionary is summed over all rows in
    one more pass, and its eigenvectors are the components. With a dictionary of all rows
    this is :class:`sklearn.decomposition.KernelPCA`, whose n × n matrix is never made.

    Parameters
    ----------
    n_components : int or None, default None
        Components to keep, at most one per point of the dictionary. None: all whose
        eigenvalue rounding leaves a meaning (1e-12 of the largest).
    kernel : str or Kernel, default "rbf"
        ``"rbf"``, ``"matern"`` (ν = 3/2), ``"laplacian"``, ``"polynomial"``,
        ``"linear"``, ``"cosine"``, or an object with ``kernel(X, Y)`` and
        ``kernel.diag(X)``, which is given the encoded rows.
    length_scale : float, sequence of float or "auto", default "auto"
        In the units of the columns; one number or one per encoded feature.
        ``"auto"``: the median distance of a sample of standardized rows.
    gamma : float or "auto", default "auto"
        Leverage regularization γ > 0: smaller keeps more rows. ``"auto"``: the
        smallest γ whose dictionary fits ``max_dictionary``.
    epsilon : float, default 0.3
        Accuracy ε of the dictionary, in (0, 1).
    delta : float, default 0.1
        Failure probability in (0, 1); used by ``qbar="theory"`` alone.
    qbar : int or "theory", default 16
        Copies q̄ ≥ 1 per row before selection.
    max_dictionary : int or None, default 2000
        Largest dictionary; it sets memory and time. None: no limit; give γ then.
    sampler : str or Sampler, default "squeak"
        How the dictionary is chosen: a name of :data:`squeak_dist.samplers.SAMPLERS`
        (``"uniform"``, ``"rls-sampling"``, ``"k-means"``, …), or your own function or
        object, called as :class:`squeak_dist.samplers.Sampler` says. All but
        ``"squeak"``, ``"disqueak…"`` and ``"uniform"`` need all rows in one task.
    on_overrun : {"raise_gamma", "stop"}, default "raise_gamma"
        At a dictionary that does not fit: raise γ (with a warning where γ was
        given), or stop the dictionary pass there.
    approximation : {"projected", "regularized"}, default "projected"
        Features of the projection on the span of the dictionary, or the paper's
        regularized map.
    fan_in : int, default 2
        Dictionaries per merge, at least 2.
    missing : {"raise", "impute", "drop"}, default "raise"
        Missing values: an error; median and an indicator column; or leave the rows out
        of the fit, and give them NaN for scores.
    standardize : bool or "auto", default "auto"
        Divide numeric columns by their standard deviation; ``"auto"``: where the
        length scale is ``"auto"``. Columns are always centred.
    dtype : {"float32", "float64"}, default "float32"
        Of encoded rows and scores; what is between them is float64 always.
    random_state : int, Generator, RandomState or None, default 0
        Seed, at least 0. The same seed gives the same bits on any number of workers.

    Attributes
    ----------
    eigenvalues_ : ndarray of float64, shape (q,)
        Of the centred kernel matrix, descending, as KernelPCA has them: the sum of
        squares of each score over the rows of the fit, weighted by their sample weights.
    explained_variance_ : ndarray of float64, shape (q,)
        Their variances: ``eigenvalues_`` / (n − 1), as PCA has it. With sample weights
        v of n rows the divisor is Σ v (n − 1) / n.
    explained_variance_ratio_ : ndarray of float64, shape (q,)
        Shares of the variance of the kernel itself, Σ v ‖φ(x) − φ̄‖², so what the
        dictionary does not span counts as unexplained: all components sum to less than
        1 by as much.
    components_ : ndarray of shape (m, d)
        The encoded rows that the map is made of. (Axes in feature space have no
        coordinates of their own: ``dual_coef_`` has them in terms of these rows.)
    component_indices_ : ndarray of int64, shape (m,)
        Their row numbers in the training data.
    dual_coef_ : ndarray of float64, shape (m, q)
        A score of an encoded row x is k(x, ``components_``) @ ``dual_coef_`` +
        ``intercept_``.
    intercept_ : ndarray of float64, shape (q,)
        Minus the scores of the mean.
    n_components_ : int
        q.
    dictionary_, kernel_, gamma_, effective_dimension_, report_
        As of :class:`SqueakTransformer`.
    n_features_in_ : int
        Columns seen in the fit.
    feature_names_in_ : ndarray of str
        Their names, where the data had string names.
    model_ : ComponentModel
        All of it as one frozen value.

    See Also
    --------
    SqueakTransformer : The features themselves.

    Notes
    -----
    A fit takes three passes over the data, and :meth:`transform` n m kernel entries and
    n m q multiply-adds in float64. The largest score, by size, of each component among
    ``components_`` is positive. There is no ``inverse_transform``: a point of feature
    space has no row that it came from.

    References
    ----------
    B. Schölkopf, A. Smola, K.-R. Müller: "Nonlinear component analysis as a kernel
    eigenvalue problem" (1998).

    Examples
    --------
    >>> import numpy as np
    >>> from squeak_dist import SqueakPCA
    >>> angles = np.linspace(0, 12, 400)
    >>> X = np.column_stack([np.cos(angles), np.sin(angles)])
    >>> SqueakPCA(n_components=2).fit_transform(X).shape
    (400, 2)
    """

    _own_parameters: ClassVar[tuple[str, ...]] = ("n_components",)

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: str | Kernel = "rbf",
        length_scale: float | Sequence[float] | str = "auto",
        gamma: float | str = "auto",
        epsilon: float = 0.3,
        delta: float = 0.1,
        qbar: int | str = 16,
        max_dictionary: int | None = 2000,
        sampler: str | Sampler = "squeak",
        on_overrun: str = "raise_gamma",
        approximation: str = "projected",
        fan_in: int = 2,
        missing: str = "raise",
        standardize: bool | str = "auto",
        dtype: str = "float32",
        random_state: Any = 0,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.length_scale = length_scale
        self.gamma = gamma
        self.epsilon = epsilon
        self.delta = delta
        self.qbar = qbar
        self.max_dictionary = max_dictionary
        self.sampler = sampler
        self.on_overrun = on_overrun
        self.approximation = approximation
        self.fan_in = fan_in
        self.missing = missing
        self.standardize = standardize
        self.dtype = dtype
        self.random_state = random_state

    @property
    def eigenvalues_(self) -> Float64Array:
        """Eigenvalues of the centred kernel matrix, descending."""
        return self._fitted().eigenvalues

    @property
    def explained_variance_(self) -> Float64Array:
        """Variance of each score."""
        model = self._fitted()
        return model.eigenvalues / model.divisor

    @property
    def explained_variance_ratio_(self) -> Float64Array:
        """Shares of the variance in feature space; 0 where there is none."""
        model = self._fitted()
        return model.eigenvalues / (model.total or 1.0)

    @property
    def dual_coef_(self) -> Float64Array:
        """Coefficients of the kernel columns of ``components_``."""
        return self._fitted().coefficients

    @property
    def intercept_(self) -> Float64Array:
        """What is added to make the mean of the scores 0."""
        return -self._fitted().offsets

    @property
    def n_components_(self) -> int:
        """Number of components."""
        return int(self._fitted().n_outputs)

    def _parameters(self) -> FitParameters:
        if self.n_components is not None:
            check_integer("n_components", self.n_components, at_least=1, hint=", or None")
        return super()._parameters()

    def _learn(self, source: Source, parameters: FitParameters, **run: Any) -> FeatureModel:
        return fit_components_source(source, parameters, n_components=self._wanted, **run)

    def _extend(
        self, stream: Stream | None, source: Source, parameters: FitParameters, **run: Any
    ) -> tuple[Stream, FeatureModel]:
        return extend_components_source(
            stream, source, parameters, n_components=self._wanted, **run
        )

    @property
    def _wanted(self) -> int | None:
        return None if self.n_components is None else int(self.n_components)
