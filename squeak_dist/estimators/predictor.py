"""What regressor and classifier share: parameters and coefficients."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from squeak_dist._typing import Float64Array
from squeak_dist.distributed import ClassEvaluation, Evaluation, Source, sample_source
from squeak_dist.errors import InvalidParameterError
from squeak_dist.estimators.base import SqueakEstimator
from squeak_dist.kernels import Kernel
from squeak_dist.samplers import Sampler

if TYPE_CHECKING:
    from distributed import Client


class SqueakPredictor(SqueakEstimator, ABC):
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
    ) -> None:
        self.kernel = kernel
        self.length_scale = length_scale
        self.mu = mu
        self.gamma = gamma
        self.epsilon = epsilon
        self.delta = delta
        self.qbar = qbar
        self.max_dictionary = max_dictionary
        self.sampler = sampler
        self.on_overrun = on_overrun
        self.solver = solver
        self.approximation = approximation
        self.linear_part = linear_part
        self.fan_in = fan_in
        self.missing = missing
        self.standardize = standardize
        self.dtype = dtype
        self.random_state = random_state

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: Any = None,
        client: Client | str | None = None,
        columns: Sequence[Hashable] | None = None,
    ) -> Path:
        """Write a report of the fit and its quality: figures and tables on one HTML page.

        Parameters
        ----------
        path : str or path
            An HTML file; an earlier one is replaced. It opens without a network.
        X, y, sample_weight, target, client
            Held-out data, as in :meth:`fit`; without y the target columns are taken from X.
            Scores are then those of :meth:`evaluate`, and figures show 2,000 of the rows.
            Without X both are of the rows of the fit that the model keeps (1,000 at most), each
            predicted as if it had been left out: see :func:`squeak_dist.report.judged`.
        columns : two labels, optional
            The axes on which the dictionary is shown. By default longitude and latitude
            where the fit has them, else the first two principal axes.

        Returns
        -------
        Path
            Where it is.

        Raises
        ------
        DataError, ColumnTypeError
            For held-out data that do not match the fit.
        InvalidParameterError
            For y without X.
        MissingColumnsError
            If the fit has no such ``columns``.
        """
        from squeak_dist.report import judge_others, scores_of_evaluation, write_report

        model = self._fitted()
        if X is None:
            if y is not None or sample_weight is not None or target is not None:
                raise InvalidParameterError(
                    "y, sample_weight and target are of held-out data: pass X too"
                )
            return write_report(path, model, columns=columns)
        source = self._held_out(X, y, sample_weight, target)
        sample = sample_source(model, source, client=client)
        scores = self.evaluate(X, y, sample_weight, target=target, client=client).to_dict()
        rows = judge_others(model, sample, scores_of_evaluation(scores, model.target_names))
        return write_report(path, rows, columns=columns)

    @abstractmethod
    def _held_out(self, X: Any, y: Any, sample_weight: Any, target: Any) -> Source:
        """Cut held-out data as the training data were."""

    @abstractmethod
    def evaluate(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: Any = None,
        client: Client | str | None = None,
    ) -> Evaluation | ClassEvaluation:
        """Score on held-out data, beside simpler models.

        Parameters
        ----------
        X, y, sample_weight, target, client
            As in :meth:`fit`; without y the target columns of the fit are taken from X.
        """

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
        slopes = model.slopes[:-1] if len(model.slopes) > 1 else np.zeros(shape)
        return slopes[:, 0] if model.single_output else slopes

    @property
    def intercept_(self) -> Any:
        """What is added to both: the mean of the training target, and the constant beside it."""
        model = self._fitted()
        added = model.target_mean + (model.slopes[-1] if len(model.slopes) else 0.0)
        return float(added[0]) if model.single_output else added

    @property
    def mu_(self) -> float:
        """Ridge penalty."""
        return self._fitted().mu
