"""What a fit will keep and cost, said before it runs."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import squeak_dist
from squeak_dist.errors import DataError, UnknownParameterError


def table(n=20_000, d=5, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, d)), columns=[f"x{i}" for i in range(d)])
    frame["y"] = np.sin(2 * frame["x0"]) * frame["x1"] + 0.1 * rng.normal(size=n)
    return frame


@pytest.fixture(scope="module")
def pair():
    """A forecast and the fit that it is of."""
    lazy = dd.from_pandas(table(), npartitions=4)
    settings = {"target": "y", "max_dictionary": 400}
    return squeak_dist.plan(lazy, **settings), squeak_dist.fit(lazy, **settings)


def test_it_is_the_fit_that_comes(pair):
    forecast, model = pair
    assert forecast.rows == model.report_["rows_fitted"]
    assert forecast.chains == model.report_["chains"]
    assert forecast.kernel == str(model.kernel_)
    assert forecast.chosen.gamma == model.report_["gamma_requested"]
    assert forecast.chosen.solver == model.report_["solver"]
    assert set(forecast.chosen.seconds) == set(model.report_["seconds"])


def test_the_dictionary_is_about_as_large(pair):
    forecast, model = pair
    assert forecast.chosen.dictionary_size == pytest.approx(len(model.dictionary_), rel=0.2)
    assert forecast.chosen.effective_dimension == pytest.approx(
        model.effective_dimension_, rel=0.3
    )


def test_the_ladder_falls_with_gamma(pair):
    ladder = pair[0].ladder
    for name in ("effective_dimension", "dictionary_size", "task_bytes", "network_bytes"):
        values = [getattr(rung, name) for rung in ladder]
        assert values == sorted(values, reverse=True)
    assert [rung.gamma for rung in ladder] == sorted(rung.gamma for rung in ladder)
    assert all(s > 0 for rung in ladder for s in rung.seconds.values())
    assert pair[0].chosen in ladder


def test_a_rung_is_what_a_fit_with_its_gamma_keeps(pair):
    rung = pair[0].ladder[3]
    model = squeak_dist.fit(
        table(), target="y", gamma=rung.gamma, kernel=pair[1].kernel_, standardize=True
    )
    assert rung.dictionary_size == pytest.approx(len(model.dictionary_), rel=0.25)


def test_it_prints_a_table(pair):
    lines = str(pair[0]).splitlines()
    assert lines[0].startswith("20,000 rows in 4 partitions, 5 encoded columns")
    assert sum(line.startswith("→") for line in lines) == 1
    assert max(map(len, lines)) <= 80


def test_bad_input_is_refused_as_in_a_fit():
    with pytest.raises(UnknownParameterError, match="gamma"):
        squeak_dist.plan(table(100), target="y", gama=1)
    with pytest.raises(DataError):
        squeak_dist.plan(table(100), target="z")


@pytest.mark.parametrize("n", [2, 30, 300])
def test_small_tables(n):
    forecast = squeak_dist.plan(table(n), target="y")
    assert 1 <= forecast.chosen.dictionary_size <= n


def test_what_tasks_take_is_all_of_the_clock_on_one_thread():
    with dask.config.set(scheduler="sync", num_workers=1):
        chosen = squeak_dist.plan(table(), target="y", max_dictionary=200).chosen
    for stage in ("dictionary", "solve"):
        work = chosen.processor_seconds[stage]
        assert 0 < work < chosen.seconds[stage] < work + 5  # the scheduler's share
