"""The parameters of a fit, checked at construction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from squeak_dist.errors import InvalidParameterError
from squeak_dist.kernels import Kernel, make_kernel
from squeak_dist.parameter_table import LENGTH_SCALES, PARAMETERS
from squeak_dist.samplers import SIZED, Sampler, check_sampler, sampler_name

_OBJECTS = ("kernel", "length_scale", "sampler")  # more than words and numbers: checked apart
_TUNABLE = ("auto", "rbf", "matern")


@dataclass(frozen=True)
class Penalty:
    """What is given of the ridge regression; the rest is chosen by GCV.

    Parameters
    ----------
    mu : float, optional
        Ridge penalty μ.
    linear_part : bool, optional
        Whether the encoded columns stand beside the kernel.
    """

    mu: float | None
    linear_part: bool | None


@dataclass(frozen=True)
class FitParameters:
    """The parameters of a fit.

    Parameters
    ----------
    kernel, length_scale, mu, gamma, epsilon, delta, qbar, max_dictionary, sampler
        As in :class:`squeak_dist.SqueakRegressor`.
    on_overrun, solver, approximation, linear_part, fan_in, missing, standardize, dtype
        As in :class:`squeak_dist.SqueakRegressor`.
    seed : int
        Its ``random_state``, drawn.
    classifies : bool
        Whether the targets are the ±1 columns of classes.

    Raises
    ------
    InvalidParameterError
        At construction, for a value outside its range.
    """

    kernel: str | Kernel = "auto"
    length_scale: float | Sequence[float] | str = "auto"
    mu: float | str = "auto"
    gamma: float | str = "auto"
    epsilon: float = 0.3
    delta: float = 0.1
    qbar: int | str = 16
    max_dictionary: int | None = 2000
    sampler: str | Sampler = "squeak"
    on_overrun: str = "raise_gamma"
    solver: str = "auto"
    approximation: str = "projected"
    linear_part: bool | str = "auto"
    fan_in: int = 2
    missing: str = "raise"
    standardize: bool | str = "auto"
    dtype: str = "float32"
    seed: int = 0
    classifies: bool = False

    def __post_init__(self) -> None:
        self._check_kernel()
        for parameter in PARAMETERS.values():
            if parameter.name not in _OBJECTS:
                parameter.check(getattr(self, parameter.field))
        self._check_sampler()
        for name in ("epsilon", "delta"):  # of a Fraction NumPy would make objects
            object.__setattr__(self, name, float(getattr(self, name)))

    def _check_sampler(self) -> None:
        check_sampler(self.sampler)
        name = self.sampler_name
        if self.on_overrun == "stop" and name != "squeak":
            raise InvalidParameterError(
                f'on_overrun="stop" ends a stream of SQUEAK, and sampler={name!r} is none; leave '
                f'it at "raise_gamma"'
            )
        if self.max_dictionary is None and name in SIZED:
            raise InvalidParameterError(
                f"sampler={name!r} needs its size in advance; give max_dictionary"
            )

    @property
    def sampler_name(self) -> str:
        """What the report calls the sampler."""
        return sampler_name(self.sampler)

    def _check_kernel(self) -> None:
        named = isinstance(self.kernel, str)
        if not (named and is_auto(self.kernel)):
            make_kernel(self.kernel, 1.0)
        if not named and not is_auto(self.length_scale):
            raise InvalidParameterError(
                "length_scale is for kernels given by name; a kernel object has its own, so "
                'leave length_scale="auto"'
            )
        if not isinstance(self.length_scale, str):
            make_kernel("rbf", as_length_scale(np.asarray(self.length_scale).tolist()))
        elif self.length_scale not in LENGTH_SCALES:
            as_length_scale(self.length_scale)
        likely = isinstance(self.length_scale, str) and self.length_scale in ("ARD", "isotropic")
        if likely and named and self.kernel not in _TUNABLE:
            raise InvalidParameterError(
                f'length_scale="{self.length_scale}" is by maximum likelihood, which is for '
                f"kernel={', '.join(map(repr, _TUNABLE))}; got {self.kernel!r}. "
                f'"auto" takes the median distance there'
            )

    @property
    def penalty(self) -> Penalty:
        """What is given of the ridge regression."""
        return Penalty(
            mu=None if isinstance(self.mu, str) else float(self.mu),
            linear_part=None if isinstance(self.linear_part, str) else bool(self.linear_part),
        )

    @property
    def scales_columns(self) -> bool:
        """Whether numeric columns are divided by their standard deviation."""
        if isinstance(self.standardize, str):
            return isinstance(self.length_scale, str) and isinstance(self.kernel, str)
        return bool(self.standardize)

    def record(self) -> dict[str, Any]:
        """Return the parameters under the user's names, for a report; objects as their text."""
        plain = (str, int, float, Sequence, np.ndarray, np.generic, type(None))
        given = {name: getattr(self, table.field) for name, table in PARAMETERS.items()}
        given["sampler"] = self.sampler_name
        return {k: v if isinstance(v, plain) else str(v) for k, v in given.items()}


def is_auto(value: Any) -> bool:
    """Say whether a parameter is left to the fit."""
    return isinstance(value, str) and value == "auto"


def as_length_scale(value: Any) -> float | tuple[float, ...]:
    """Return a length scale as one float or a tuple of them.

    Raises
    ------
    InvalidParameterError
        If it is neither.
    """
    try:
        return tuple(map(float, value)) if isinstance(value, list) else float(value)
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(
            f"length_scale must be a positive number, one per feature, or one of "
            f"{', '.join(map(repr, LENGTH_SCALES))}; got {value!r}"
        ) from error
