"""Features of the Nyström map, as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squeak_dist.estimators.features import FeatureEstimator, OwnContainers
from squeak_dist.kernels import Kernel
from squeak_dist.samplers import Sampler


class SqueakTransformer(OwnContainers, FeatureEstimator):
    """Features z(x) with z(x)ᵀ z(y) ≈ k(x, y), for any linear model behind them.

    Takes the place of :class:`sklearn.kernel_approximation.Nystroem`, with a dictionary
    chosen by ridge leverage scores in place of a uniform sample, on tables of any size.

    Parameters
    ----------
    kernel : str or Kernel, default "rbf"
        ``"rbf"``, ``"matern"`` (ν = 3/2), ``"laplacian"``, ``"polynomial"``,
        ``"linear"``, ``"cosine"``, or an object with ``kernel(X, Y)`` and
        ``kernel.diag(X)``, which is given the encoded rows.
    length_scale : float, sequence of float or "auto", default "auto"
        In the units of the columns; one number or one per encoded feature.
        ``"auto"``: the median distance of a sample of standardized rows.
    gamma : float or "auto", default "auto"
        Leverage regularization γ > 0: smaller keeps more rows. ``"auto"``: the
        smallest γ whose dictionary fits ``max_dictionary``, with all rows kept that
        rounding can tell apart where it holds them.
    epsilon : float, default 0.3
        Accuracy ε of the dictionary, in (0, 1).
    delta : float, default 0.1
        Failure probability in (0, 1); used by ``qbar="theory"`` alone.
    qbar : int or "theory", default 16
        Copies q̄ ≥ 1 per row before selection.
    max_dictionary : int or None, default 2000
        Largest dictionary, and so the most features. None: no limit; give γ then.
    sampler : str or Sampler, default "squeak"
        How the dictionary is chosen: a name of :data:`squeak_dist.samplers.SAMPLERS`
        (``"uniform"``, ``"rls-sampling"``, ``"k-means"``, …), or your own function or
        object, called as :class:`squeak_dist.samplers.Sampler` says. All but
        ``"squeak"``, ``"disqueak…"`` and ``"uniform"`` need all rows in one task.
    on_overrun : {"raise_gamma", "stop"}, default "raise_gamma"
        At a dictionary that does not fit: raise γ (with a warning where γ was
        given), or stop there.
    approximation : {"projected", "regularized"}, default "projected"
        Z Zᵀ is the projection of the kernel matrix on the span of the dictionary, as
        Nystroem's is; or the paper's regularized K S (SᵀKS + γI)⁻¹ SᵀK.
    fan_in : int, default 2
        Dictionaries per merge, at least 2.
    missing : {"raise", "impute", "drop"}, default "raise"
        Missing values: an error; median and an indicator column; or leave the rows out
        of the fit, and give them NaN for features.
    standardize : bool or "auto", default "auto"
        Divide numeric columns by their standard deviation; ``"auto"``: where the
        length scale is ``"auto"``. Columns are always centred.
    dtype : {"float32", "float64"}, default "float32"
        Of encoded rows and features; what is between them is float64 always.
    random_state : int, Generator, RandomState or None, default 0
        Seed, at least 0. The same seed gives the same bits on any number of workers.

    Attributes
    ----------
    components_ : ndarray of shape (n_features_out, d)
        The encoded rows that the map is made of; each point once.
    component_indices_ : ndarray of int64, shape (n_features_out,)
        Their row numbers in the training data.
    dictionary_ : Dictionary
        The rows kept, with probabilities and multiplicities; equal rows may stand in it
        more than once.
    kernel_ : Kernel
        The kernel with its length scale.
    gamma_, effective_dimension_ : float
        γ used, and the dictionary's estimate of d_eff(γ).
    report_ : dict
        Rows, sizes, seconds, memory, and every node of the merge tree.
    n_features_in_ : int
        Columns seen in the fit.
    feature_names_in_ : ndarray of str
        Their names, where the data had string names.
    model_ : FeatureModel
        All of it as one frozen value.

    See Also
    --------
    SqueakPCA : The principal components of these features.

    Notes
    -----
    A fit takes two passes over the data, and :meth:`transform` n m kernel entries and
    n m² multiply-adds in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from squeak_dist import SqueakTransformer
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> model = make_pipeline(SqueakTransformer(max_dictionary=30), Ridge(0.01))
    >>> bool(model.fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.99)
    True
    """

    def __init__(
        self,
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
