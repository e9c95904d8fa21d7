"""Figures: what is drawn is what the model knows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from bokeh.plotting import figure

import squeak_dist
from squeak_dist.datasets import sea_surface_temperature
from squeak_dist.errors import InvalidParameterError, MissingColumnsError
from squeak_dist.report import (
    convergence_figure,
    coverage_figure,
    dictionary_figure,
    growth_figure,
    judged,
    leverage_figure,
    merge_tree_figure,
    prediction_figure,
    residual_figure,
    seconds_figure,
)
from squeak_dist.report.fit_figures import tree_nodes
from squeak_dist.report.groups import grouped
from squeak_dist.report.places import plane_of
from squeak_dist.report.row_figures import LEVELS, coverage, telling_columns
from squeak_dist.report.watching import fan_in_of, watched_fit, watched_text

FIGURES = {
    "tree": merge_tree_figure,
    "growth": growth_figure,
    "leverage": leverage_figure,
    "dictionary": dictionary_figure,
    "predictions": prediction_figure,
    "residuals": lambda fitted: residual_figure(fitted, "latitude"),
    "convergence": convergence_figure,
    "seconds": seconds_figure,
}


def drawn(plot, *columns):
    """Return the values of columns of the one source that has them all."""
    sources = [r.data_source.data for r in plot.renderers if hasattr(r, "data_source")]
    (data,) = [d for d in sources if set(columns) <= set(d)][-1:]
    return [np.asarray(data[name]) for name in columns]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_one_of_bokeh_and_knows_its_title(model, classifier, name):
    for fitted in (model, model.model_, classifier):
        plot = FIGURES[name](fitted)
        assert isinstance(plot, figure)
        assert plot.renderers
        assert plot.title.text
        assert plot.sizing_mode == "stretch_width"


def test_the_tree_has_a_node_for_each_record(model):
    records = model.report_["merges"]
    sizes, rows = drawn(merge_tree_figure(model), "size_out", "rows")
    assert len(sizes) == len(records) == 15  # eight chains and seven merges
    assert rows.max() == 1200
    assert sizes[-1] == len(model.dictionary_)


@pytest.mark.parametrize(("chains", "fan_in"), [(1, 2), (5, 2), (7, 3), (9, 4)])
def test_nodes_stand_above_those_that_they_merged(chains, fan_in):
    from squeak_dist.merge_tree import balanced_levels

    keys = [(0, i) for i in range(chains)]
    for level, groups in enumerate(balanced_levels(chains, fan_in), start=1):
        keys += [(level, i) for i, group in enumerate(groups) if len(group) > 1]
    nodes = tree_nodes([{"level": a, "index": b} for a, b in keys], fan_in)
    assert {(n.record["level"], n.record["index"]) for n in nodes} == set(keys)
    below = [child for node in nodes for child in node.below]
    assert len(below) == len(set(below)) == len(keys) - 1  # all but the root are merged once
    assert all(child[1] < node.y for node in nodes for child in node.below)


def test_growth_ends_at_the_size_of_the_chain(model):
    chains = [r for r in model.report_["merges"] if r["level"] == 0]
    assert all(record["growth"][-1][0] == record["rows"] for record in chains)
    rows, size = drawn(growth_figure(model), "rows", "size")
    assert (rows[-1], size[-1]) == (chains[-1]["rows"], chains[-1]["size_out"])


def test_shares_of_the_histogram_add_up(model):
    share, count = drawn(leverage_figure(model), "share", "count")
    assert share.sum() == pytest.approx(1)
    assert count.sum() == len(model.dictionary_)


def test_coverage_counts_the_rows_inside(model, classifier):
    rows = judged(model)
    inside = np.abs(rows.errors[:, 0]) <= 1.6448536 * rows.deviation[:, 0]
    assert coverage(rows)[LEVELS.index(0.9)] == pytest.approx(inside.mean())
    assert 0.8 < inside.mean() < 0.99
    with pytest.raises(InvalidParameterError, match="no intervals"):
        coverage_figure(classifier)
    with pytest.raises(InvalidParameterError, match=r"output must be in 0\.\.0"):
        coverage_figure(model, output=1)


def test_errors_by_a_column_that_was_left_out_of_the_fit_stand_first(houses):
    narrow = squeak_dist.fit(
        houses[["median_income", "total_rooms", "ocean_proximity", "median_house_value"]],
        target="median_house_value", features=["total_rooms", "ocean_proximity"],
        max_dictionary=60,
    )  # fmt: skip
    assert {label for label, _ in telling_columns(judged(narrow))} == {
        "total_rooms", "ocean_proximity",
    }  # fmt: skip
    with pytest.raises(MissingColumnsError, match="median_income"):
        residual_figure(narrow, "median_income")


@pytest.mark.parametrize(
    ("values", "groups"),
    [
        (pd.Series(np.arange(100.0)), 20),
        (pd.Series([1.0, 2.0, 2.0, np.nan]), 2),
        (pd.Series([None, np.nan], dtype=float), 0),
        (pd.Series(["a", None, "b", "a"]), 3),
        (pd.Series([True, False, True]), 2),
        (pd.Series([f"level {i}" for i in range(30)]), 13),
        (pd.Series(pd.date_range("2026-01-01", periods=50, tz="UTC")), 20),
        (pd.Series(pd.to_timedelta([1, 2, 3], unit="h")), 3),
    ],
)
def test_groups_of_a_column(values, groups):
    found = grouped(values)
    assert len(found.middles) == groups
    assert found.codes.max(initial=-1) == groups - 1
    errors = np.ones(len(values))
    if groups:
        assert found.means(errors, errors) == pytest.approx(np.ones(groups))
    assert 0 <= found.explained(errors, errors) <= 1.000001


def test_the_plane_is_a_map_where_the_columns_are_a_place(model):
    points = model.model_.sample.X
    by_name = plane_of(model.model_, points)
    assert by_name.is_map
    assert (by_name.dictionary[:, 0] < -114).all()  # California
    chosen = plane_of(model.model_, points, ["median_income", "ocean_proximity"])
    assert (chosen.x_label, chosen.is_map) == ("median_income", False)
    with pytest.raises(MissingColumnsError, match="no columns"):
        dictionary_figure(model, ["nowhere", "latitude"])
    with pytest.raises(InvalidParameterError, match="two labels"):
        dictionary_figure(model, ["latitude"])


def test_unit_vectors_are_places_too():
    pytest.importorskip("iris_sample_data")
    pytest.importorskip("h5py")
    cells = sea_surface_temperature().iloc[::400].reset_index(drop=True)
    model = squeak_dist.SqueakTransformer(max_dictionary=40).fit(cells[["x", "y", "z", "month"]])
    plane = plane_of(model.model_, model.model_.sample.X)
    assert plane.is_map
    expected = cells[["longitude", "latitude"]].iloc[model.dictionary_.indices]
    turn = (plane.dictionary - expected.to_numpy() + 180) % 360 - 180
    np.testing.assert_allclose(turn, 0, atol=1e-3)


def test_principal_axes_come_in_order(train):
    numbers = train[["total_rooms", "population", "households"]]
    model = squeak_dist.SqueakTransformer(max_dictionary=40).fit(numbers)
    plane = plane_of(model.model_, model.model_.sample.X)
    assert not plane.is_map
    first, second = plane.rows.var(axis=0)
    assert first > second > 0


def test_a_model_of_one_column_without_a_sample_is_drawn(train):
    model = squeak_dist.fit(
        train[["population", "median_house_value"]], target="median_house_value"
    )
    bare = replace(model.model_, sample=None)
    for draw in (merge_tree_figure, growth_figure, leverage_figure, dictionary_figure):
        assert draw(bare).renderers


# --- watching ---------------------------------------------------------------------------------


def events(model):
    nodes = [{**r, "growth": None} for r in model.report_["merges"]]
    return [
        (1.0, {"stage": "profile", "total": 2}),
        (2.0, {"task": "_profile_task", "profiled": 700}),
        (2.5, {"task": "_profile_task", "profiled": 500}),
        (3.0, {"stage": "dictionary", "total": 30}),
        *((4.0 + i, {"task": "x", "size": n["size_out"], "node": n}) for i, n in enumerate(nodes)),
    ]


def test_a_fit_is_read_from_its_events(model):
    heard = events(model)
    fit = watched_fit({"all": [], "squeak_dist-old": [(0.5, {})], "squeak_dist-new": heard})
    assert fit.name == "new"
    assert (fit.moment.stage, fit.moment.done, fit.moment.total) == ("dictionary", 15, 30)
    assert fit.moment.rows == 1200
    assert fit.moment.seconds == 15.0
    assert len(fit.nodes) == 15
    assert fan_in_of(fit.nodes) == 2
    assert "Chains done: 8, merges: 7" in watched_text(fit)


def test_before_the_first_fit_there_is_nothing_to_watch():
    assert watched_fit({"scheduler": [(1.0, {})]}) is None
    assert "No fit" in watched_text(None)
