"""Warnings point at the line of the user."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import squeak_dist
from squeak_dist.errors import ColumnsDropped, FitStopped, GammaRaised

ROWS = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=list("abc"))
ROWS = ROWS.assign(y=ROWS.a, constant=1.0)


def by_function(**parameters):
    return squeak_dist.fit(ROWS, target="y", **parameters)


def by_method(**parameters):
    return squeak_dist.SqueakRegressor(**parameters).fit(ROWS, target="y")


@pytest.mark.parametrize("call", [by_function, by_method])
@pytest.mark.parametrize(
    ("parameters", "category"),
    [
        ({"gamma": 1e-6, "max_dictionary": 30}, GammaRaised),
        ({"gamma": 1e-6, "max_dictionary": 30, "on_overrun": "stop"}, FitStopped),
        ({}, ColumnsDropped),
    ],
)
def test_a_warning_points_at_the_line_of_the_user(call, parameters, category):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(**parameters)
    (raised,) = [w for w in caught if w.category is category]
    code = call.__code__
    assert (raised.filename, raised.lineno) == (code.co_filename, code.co_firstlineno + 1)
