"""What regressor and classifier share: parameters and coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array
from squeak_dist.estimators.base import SqueakEstimator
from squeak_dist.kernels import Kernel


class SqueakPredictor(SqueakEstimator):
    """An estimator whose model is a ridge regression on a dictionary.

    Parameters are those of :class:`~squeak_dist.SqueakRegressor`.
    """

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
        on_overrun: str = "raise_gamma",
        solver: str = "auto",
        approximation: str = "projected",
        linear_part: bool | str = "auto",
        fan_in: int = 2,
        missing: str = "raise",
        standardize: bool | str = "auto",
        dtype: str = "float32",
        random_state: Any = 0,
    ) -> None:
        self.kernel = kernel
        self.length_scale = length_scale
        self.mu = mu
        self.gamma = gamma
        self.epsilon = epsilon
        self.delta = delta
        self.qbar = qbar
        self.max_dictionary = max_dictionary
        self.on_overrun = on_overrun
        self.solver = solver
        self.approximation = approximation
        self.linear_part = linear_part
        self.fan_in = fan_in
        self.missing = missing
        self.standardize = standardize
        self.dtype = dtype
        self.random_state = random_state

    @property
    def dual_coef_(self) -> Float64Array:
        """Coefficients of the dictionary's kernel columns."""
        model = self._fitted()
        return model.coefficients[:, 0] if model.single_output else model.coefficients

    @property
    def linear_coef_(self) -> Float64Array:
        """Coefficients of the encoded columns beside the kernel; zeros without a linear part."""
        model = self._fitted()
        shape = (model.encoding.n_features, len(model.target_names))
        slopes = model.slopes[:-1] if len(model.slopes) else np.zeros(shape)
        return slopes[:, 0] if model.single_output else slopes

    @property
    def intercept_(self) -> Any:
        """What is added to both: the mean of the training target, and the linear constant."""
        model = self._fitted()
        added = model.target_mean + (model.slopes[-1] if len(model.slopes) else 0.0)
        return float(added[0]) if model.single_output else added

    @property
    def mu_(self) -> float:
        """Ridge penalty."""
        return self._fitted().mu
