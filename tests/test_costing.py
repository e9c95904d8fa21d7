"""The cost model: its sums by hand, and what it says of chains and iterations beside real ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import squeak_dist
import squeak_dist.squeak as module
from squeak_dist.kernels import RBF, kernel_diag
from squeak_dist.leverage import rls_of_new_rows
from squeak_dist.squeak import SqueakParameters, finish, squeak, start_state
from squeak_dist.stages.calibrating import mean_rates
from squeak_dist.stages.costing import (
    Cost,
    Curve,
    Growth,
    Machines,
    Rates,
    Shape,
    SizeCurve,
    chain_course,
    curve_through,
    dictionary_cost,
    direct_cost,
    iterations_cost,
    merged_sizes,
    moved_bytes,
    side_by_side,
    size_curve,
)
from squeak_dist.stages.iterating import expected_iterations
from squeak_dist.tuning import sample_spectrum

CURVES = ("residual", "sums", "product", "errors", "add", "step")
CUBES = ("shrink", "factor", "spectrum", "cholesky", "inverse")


def rates(**given):
    """Rates of 0, but for the curves that are given."""
    nothing = {name: Curve(1, 0.0, 0.0) for name in CURVES} | {
        name: Curve(2, 0.0, 0.0) for name in CUBES
    }
    return Rates(**{"arrival": 0.0, "linear": 0.0, "baseline": 0.0} | nothing | given)


def machines(slots=1, reading=0.0, keeps=True, waiting=0.0, **given):
    return Machines(slots, rates(**given), reading, keeps, waiting)


SHAPE = Shape(((100, 100), (300,), (200,)), (((0, 1), (2,)), ((0, 1),)))
FLAT = Growth(SizeCurve((1, 700), (10, 10)), SizeCurve((1, 700), (20, 20)), 0.5, 1.5)


def test_a_curve_goes_through_two_points():
    truth = Curve(2, 3.0, 0.5)
    found = curve_through(2, (4, 8), [truth(4), truth(8)])
    assert (found.low, found.high) == pytest.approx((3.0, 0.5))
    assert truth(2) == 4 * (3.0 + 1.0)


@pytest.mark.parametrize("seconds", [(1.0, 1.0), (1.0, 100.0)])
def test_no_term_of_a_curve_is_negative(seconds):
    found = curve_through(1, (10, 20), seconds)
    assert found.low >= 0
    assert found.high >= 0
    assert found(20) == pytest.approx(seconds[1])


def test_a_curve_of_one_size():
    assert curve_through(2, (3, 3), (9.0, 9.0))(6) == 36.0


def test_means_of_rates():
    found = mean_rates([rates(arrival=1.0, sums=Curve(1, 1.0, 0.0)), rates(sums=Curve(1, 3, 4))])
    assert found.arrival == 0.5
    assert found.sums == Curve(1, 2.0, 2.0)


def test_tasks_side_by_side():
    assert side_by_side([1, 2, 3, 4], 2) == Cost(5, 10)
    assert side_by_side([1, 2, 3, 4], 100) == Cost(4, 10)
    assert side_by_side([], 2) == Cost(0, 0)


def test_sizes_of_what_is_merged():
    """Chains keep 10 rows, the root 20; a chain that passes a level stays as it is."""
    [[first, alone], [last]] = merged_sizes(SHAPE, FLAT)
    assert first == pytest.approx([10, 10])
    assert alone == pytest.approx([10])
    assert last == pytest.approx([200**0.5, 10])


def test_reading_and_merges_by_hand():
    """One Shrink at the end of each chain."""
    machine = machines(reading=1.0, waiting=7.0, shrink=Curve(2, 1.0, 0.0))
    chains = 700 + sum((0.5 * rows) ** 2 for rows in (200, 300, 200))
    merges = (10 + 10) ** 2 + (200**0.5 + 10) ** 2
    cost = dictionary_cost(SHAPE, FLAT, machine)
    assert cost.work == pytest.approx(chains + merges)
    assert cost.seconds == pytest.approx(cost.work + 7.0)
    wide = dictionary_cost(SHAPE, FLAT, replace(machine, slots=3))
    assert wide.work == pytest.approx(cost.work)
    assert wide.seconds == pytest.approx(300 + 150**2 + merges + 7.0)


def test_the_direct_solve_by_hand():
    machine = machines(
        slots=2, waiting=5.0, baseline=0.25, sums=Curve(1, 1.0, 0.0), add=Curve(1, 0.5, 0.0),
        **{name: Curve(2, 0.01, 0.0) for name in CUBES},
    )  # fmt: skip
    cost = direct_cost(SHAPE, 10, machine)
    once = 5 * 1.0 + 0.25
    assert cost.work == pytest.approx(700 * 10 + 2 * 5 + once)
    assert cost.seconds == pytest.approx(400 * 10 + 2 * 5 + once + 5.0)


def test_rows_that_are_not_kept_are_read_in_each_pass():
    machine = machines(reading=1.0, product=Curve(1, 1.0, 0.0))
    passes = 2 + expected_iterations(1.0, 700, 5)
    kept = iterations_cost(SHAPE, 5, machine, 1.0)
    read = iterations_cost(SHAPE, 5, replace(machine, keeps=False), 1.0)
    assert kept.work == pytest.approx(700 * 5 * (passes - 2))
    assert read.work - kept.work == pytest.approx(700 * passes)


def test_bytes_moved_rise_with_workers_and_iterations():
    given = {"row_bytes": 40, "width": 3, "outputs": 1, "steps": 4}
    direct = moved_bytes(SHAPE, FLAT, 20, workers=1, iterations=0, **given)
    assert direct < moved_bytes(SHAPE, FLAT, 20, workers=2, iterations=0, **given)
    assert direct < moved_bytes(SHAPE, FLAT, 20, workers=1, iterations=4, **given)


# --- beside real ones ---------------------------------------------------------------------------


def rows_of(n, d=6, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def real_course(kernel, X, partitions, settings, monkeypatch):
    """Sizes that went into Shrink, and the size at the end."""
    sizes = []
    shrink = module.shrink

    def counted(kernel, dictionary, *args, **kwargs):
        sizes.append(len(dictionary))
        return shrink(kernel, dictionary, *args, **kwargs)

    monkeypatch.setattr(module, "shrink", counted)
    state = start_state(X.shape[1], X.dtype, settings)
    rng = np.random.default_rng(1)
    for part in np.split(X, np.cumsum(partitions)[:-1]):
        state = squeak(kernel, part, settings, rng, start=state)
    return sizes, len(finish(kernel, state, settings, rng).dictionary)


@pytest.mark.parametrize(("gamma", "n"), [(5.0, 12_000), (40.0, 20_000), (200.0, 20_000)])
def test_the_course_of_a_real_chain(gamma, n, monkeypatch):
    kernel, X, settings = RBF(2.0), rows_of(n), SqueakParameters(gamma)
    partitions = [n // 4] * 4
    spectrum = sample_spectrum(kernel, X[::20], n)
    [p] = rls_of_new_rows(kernel_diag(kernel, X[:1]), gamma, settings.epsilon)
    curve = size_curve(lambda r: replace(spectrum, rows=r).chain_size(gamma, 0.3, 16), n)
    growth = Growth(curve, curve, float(1 - (1 - p) ** 16), settings.growth)
    course = list(chain_course(partitions, growth))
    sizes, last = real_course(kernel, X, partitions, settings, monkeypatch)
    assert sum(stretch.rows for stretch in course) == pytest.approx(n)
    assert len(course) == pytest.approx(len(sizes), abs=1)
    assert sum(s.grown**3 for s in course) == pytest.approx(sum(s**3 for s in sizes), rel=0.4)
    assert growth.chain(n) == pytest.approx(last, rel=0.2)


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_iterations_of_a_real_solve(noise):
    X = rows_of(30_000, 12)
    target = np.sin(X[:, 0]) + np.tanh(X[:, 1]) * X[:, 2]
    target += noise * np.random.default_rng(2).normal(size=len(X))
    frame = pd.DataFrame(X).add_prefix("x").assign(y=target)
    report = squeak_dist.fit(
        frame, target="y", solver="cg", max_dictionary=400, length_scale="median"
    ).report_
    unexplained = report["train_rmse"][0] ** 2 / target.var()
    expected = expected_iterations(unexplained, len(X), report["dictionary_size"])
    assert expected == pytest.approx(len(report["cg_residuals"]) - 1, abs=1)


def test_iterations_by_hand():
    # 20 rows per centre: it begins at sqrt(0.1/20), 0.07, and ends below 0.03 sqrt(0.1), 0.0095,
    # of the signal; each iteration takes it down by sqrt(1/20), 0.22, but for a factor of 2.
    assert expected_iterations(0.1, 10**6, 1000) == 2
    assert expected_iterations(0.1, 10**6, 4000) == 3  # 10 rows per centre
    assert expected_iterations(0.5, 100, 100) == 0
