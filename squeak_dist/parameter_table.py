"""The parameters of a fit as one table: checks, command line, job files and docs follow it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from squeak_dist.kernels import BUILTIN_KERNELS
from squeak_dist.validation import check_choice, check_integer, check_real

MISSING_POLICIES = ("raise", "impute", "drop")
SAMPLER_NAMES = (  # of squeak_dist.samplers
    "squeak", "squeak-by-row", "disqueak", "disqueak-left-deep", "disqueak-random", "exact",
    "uniform", "two-pass-rls", "ink-estimate", "rls-sampling", "recursive-rls", "bless",
    "greedy-cholesky", "random-cholesky", "k-means",
)  # fmt: skip
LENGTH_SCALES = ("auto", "ARD", "isotropic", "median")  # chosen by the fit

ALIASES = {  # what other libraries call them
    "alpha": "mu",
    "method": "sampler",
    "n_components": "max_dictionary",
    "sigma": "length_scale",
    "weights": "sample_weight",
}


@dataclass(frozen=True)
class Parameter:
    """What a parameter of a fit may be.

    Parameters
    ----------
    name : str
        What the user calls it.
    default : object
        Its value where none is given.
    help : str
        What it does, in a line.
    choices : tuple, default ()
        Words, and other single values, that are allowed.
    number : {None, int, float}, default None
        The numbers that are allowed beside them.
    above, below : float
        The open interval of a float.
    at_least : int, default 1
        The smallest integer.
    several : bool, default False
        Whether a list of numbers is allowed too.
    """

    name: str
    default: Any
    help: str
    choices: tuple[Any, ...] = ()
    number: type[int] | type[float] | None = None
    above: float = 0.0
    below: float = math.inf
    at_least: int = 1
    several: bool = False

    @property
    def field(self) -> str:
        """Its name in ``FitParameters``, which has the seed drawn already."""
        return "seed" if self.name == "random_state" else self.name

    @property
    def words(self) -> tuple[str, ...]:
        """The choices as they are written on a command line."""
        return tuple(c if isinstance(c, str) else str(c).lower() for c in self.choices)

    @property
    def domain(self) -> str:
        """What is allowed, in words."""
        numbers = {
            None: [],
            int: [f"an integer ≥ {self.at_least}"],
            float: [f"a number > {self.above:g}" if math.isinf(self.below)
                    else f"a number in ({self.above:g}, {self.below:g})"],
        }[self.number]  # fmt: skip
        several = ["a list of them"] if self.several else []
        return " or ".join([*numbers, *several, *(f'"{word}"' for word in self.words)])

    def check(self, value: Any) -> None:
        """Check one value.

        Raises
        ------
        InvalidParameterError
            With the name, what was got and what is allowed.
        """
        if isinstance(value, np.bool_):  # NumPy's come from search grids
            value = bool(value)
        if self.number is None:
            check_choice(self.name, value, self.choices)
        elif value is None or isinstance(value, str):
            if value not in self.choices:
                self._check_number(value)
        else:
            for each in value if self.several and isinstance(value, list | tuple) else (value,):
                self._check_number(each)

    def _check_number(self, value: Any) -> None:
        hint = "".join(f', or "{c}"' if isinstance(c, str) else f", or {c}" for c in self.choices)
        if self.number is int:
            check_integer(self.name, value, at_least=self.at_least, hint=hint)
        else:
            check_real(self.name, value, above=self.above, below=self.below, hint=hint)


_TABLE = (
    Parameter(
        "kernel", "auto", "Kernel, by name; RBF or Matérn, by error on a sample.",
        choices=("auto", *BUILTIN_KERNELS),
    ),
    Parameter(
        "length_scale", "auto",
        "Distance over which predictions vary, in the units of the columns: one number, one per "
        "encoded column, or how to choose.",
        choices=LENGTH_SCALES, number=float, several=True,
    ),
    Parameter("mu", "auto", "Ridge penalty μ.", choices=("auto",), number=float),
    Parameter(
        "gamma", "auto", "Leverage regularization γ: the smaller, the larger the dictionary.",
        choices=("auto",), number=float,
    ),
    Parameter(
        "epsilon", 0.3, "Accuracy of the dictionary.", number=float, below=1
    ),
    Parameter(
        "delta", 0.1, "Failure probability; used with qbar = theory alone.", number=float, below=1
    ),
    Parameter("qbar", 16, "Copies per row.", choices=("theory",), number=int),
    Parameter("max_dictionary", 2000, "Most rows kept.", choices=(None,), number=int),
    Parameter(
        "sampler", "squeak", "How the rows are chosen.", choices=SAMPLER_NAMES
    ),
    Parameter(
        "on_overrun", "raise_gamma", "At a dictionary that does not fit.",
        choices=("raise_gamma", "stop"),
    ),
    Parameter("solver", "auto", "How to solve.", choices=("auto", "direct", "cg")),
    Parameter(
        "approximation", "projected", "Span of the dictionary, or the paper's regularized map.",
        choices=("projected", "regularized"),
    ),
    Parameter(
        "linear_part", "auto", "An intercept, or all columns, beside the kernel.",
        choices=("auto", True, False),
    ),
    Parameter("fan_in", 2, "Dictionaries per merge.", number=int, at_least=2),
    Parameter(
        "missing", "raise", "Missing values: an error, medians, or without these rows.",
        choices=MISSING_POLICIES,
    ),
    Parameter(
        "standardize", "auto", "Divide columns by their standard deviation.",
        choices=("auto", True, False),
    ),
    Parameter("dtype", "float32", "Of rows and kernel blocks.", choices=("float32", "float64")),
    Parameter(
        "random_state", 0, "Seed: the same one, the same model.", number=int, at_least=0
    ),
)  # fmt: skip

PARAMETERS: Mapping[str, Parameter] = {parameter.name: parameter for parameter in _TABLE}
