"""The guarantees can fail: each constant or step of the algorithm, broken, is caught.

A mutation replaces one small function of ``squeak_dist.squeak``; the check that must see
it is one of ``guarantee_checks.py``, which passes on the real algorithm.
"""

from __future__ import annotations

from dataclasses import replace

import guarantee_checks as checks
import numpy as np
import pytest

import squeak_dist.squeak as target

TAU, NEW = target.rls_of_dictionary, target.rls_of_new_rows
JUDGE, THIN, FACTOR = target._make_judge, target.thin, target.regularized_factor


@pytest.fixture(autouse=True)
def _many_shrinks(monkeypatch):
    monkeypatch.setattr(target, "MIN_ROWS", 48)
    monkeypatch.setattr(target, "COARSE_FROM", 16)


def scaled(factor):
    """τ̃ times a factor, wherever it is estimated."""
    return {
        "rls_of_dictionary": lambda *given: factor * TAU(*given),
        "rls_of_new_rows": lambda *given: np.minimum(factor * NEW(*given), 1),
    }


def without_minimum(dictionary, tau, rng, *, halving=False):
    """p⁺ = τ̃ even where it is above p; no copies come back."""
    p = np.minimum(tau, 1)
    copies = rng.binomial(dictionary.multiplicities, np.minimum(p / dictionary.probabilities, 1))
    return replace(dictionary, probabilities=p, multiplicities=copies).take(np.flatnonzero(copies))


def redrawn(dictionary, tau, rng, *, halving=False):
    """Q⁺ ~ Binomial(q̄, p⁺) whatever Q was."""
    p = np.minimum(tau, dictionary.probabilities)
    copies = rng.binomial(dictionary.qbar, p)
    return replace(dictionary, probabilities=p, multiplicities=copies).take(np.flatnonzero(copies))


def coarse_alone(*given):
    judge = JUDGE(*given)
    return judge if judge.coarse is None else target._Judge(judge.coarse, None)


def at_random(dictionary, tau, rng, *, halving=False):
    """A size that is held, but not by the RLS: two rows of three stay."""
    return dictionary.take(np.flatnonzero(rng.random(len(dictionary)) < 2 / 3))


def unweighted(kernel, dictionary, gamma):
    return FACTOR(kernel, replace(dictionary, row_weights=np.ones(len(dictionary))), gamma)


MUTATIONS = {
    "τ̃ doubled": (scaled(2.0), "lemma"),
    "τ̃ halved": (scaled(0.5), "lemma"),
    "1 − ε forgotten": (scaled(1 / 0.7), "lemma"),
    "γ instead of γ_k in merges": (
        {"merge_gamma": lambda gamma, epsilon, merged: gamma},
        "merges",
    ),
    "kγ instead of γ_k in merges": (
        {"merge_gamma": lambda gamma, epsilon, merged: merged * gamma},
        "merges",
    ),
    "γ_k with ε squared": (
        {"merge_gamma": lambda gamma, epsilon, merged: (1 + (merged - 1) * epsilon**2) * gamma},
        "merges",
    ),
    "min(τ̃, p) forgotten": ({"thin": without_minimum}, "bias"),
    "redrawn instead of thinned": ({"thin": redrawn}, "bias"),
    "the floor p/2 in blocks": (
        {"thin": lambda D, tau, rng, *, halving=False: THIN(D, tau, rng, halving=True)},
        "trees",
    ),
    "thinned at random": ({"thin": at_random}, "accuracy"),
    "sample weights forgotten in Shrink": (
        {"regularized_factor": unweighted},
        "weighted lemma",
    ),
    "the prefilter's p kept": ({"_make_judge": coarse_alone}, "prefilter"),
}


def caught(check: str) -> bool:
    """More violations than chance allows: once in a thousand at the probabilities given.

    One run of the stream fails with 1.3 % (``bernstein``), each of the eleven nodes of a tree
    with as much.
    """
    if check == "lemma":
        return checks.lemma_failures() > checks.allowed_failures(6, 0.013)
    if check == "weighted lemma":
        v = np.random.default_rng(0).choice([0.2, 1.0, 5.0], size=500)
        return checks.lemma_failures(v=v) > checks.allowed_failures(6, 0.013)
    if check == "trees":
        return checks.tree_failures() > checks.allowed_failures(5, 11 * 0.013)
    if check == "merges":
        return checks.merge_failures() > 0  # no chance in it
    if check == "accuracy":
        return checks.accuracy_failures() > checks.allowed_failures(6, 0.013)
    if check == "bias":
        return abs(checks.weight_bias()) > 4  # 6e-5 under the normal law
    return checks.prefilter_distance() < 1e-3


# "bias" and "prefilter" are tests of test_statistics.py.
@pytest.mark.parametrize("check", ["lemma", "weighted lemma", "trees", "merges", "accuracy"])
def test_the_algorithm_as_it_is_passes(check):
    assert not caught(check)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_caught(name, monkeypatch):
    functions, check = MUTATIONS[name]
    for function, mutant in functions.items():
        monkeypatch.setattr(target, function, mutant)
    assert caught(check)
