from __future__ import annotations

import math
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squeak_dist.merge_tree import (
    MIN_CHAINS,
    ROWS_PER_CHAIN,
    MergeTree,
    balanced_levels,
    group_rows,
    left_deep_levels,
    plan_merge_tree,
    random_levels,
)

rows_of_partitions = st.lists(
    st.one_of(st.just(0), st.integers(1, 20), st.integers(1, 2_000_000)), max_size=60
)
fan_ins = st.integers(2, 8)
few = settings(max_examples=80, deadline=None)


def assert_tree_over(levels, n_leaves, fan_in):
    """Each level takes every node below once and in order; the last one is the root."""
    width = n_leaves
    for level in levels:
        assert list(chain.from_iterable(level)) == list(range(width))
        sizes = [len(node) for node in level]
        assert all(size == fan_in for size in sizes[:-1])
        assert 1 <= sizes[-1] <= fan_in
        width = len(level)
    assert width == min(n_leaves, 1)
    depth = math.ceil(round(math.log(n_leaves, fan_in), 9)) if n_leaves > 1 else 0
    assert len(levels) == depth


@few
@given(rows_of_partitions, fan_ins)
def test_chains_cover_each_filled_partition_once_and_in_order(rows, fan_in):
    tree = plan_merge_tree(rows, fan_in=fan_in)
    filled = [i for i, count in enumerate(rows) if count]
    assert list(chain.from_iterable(tree.chains)) == filled
    assert all(tree.chains)
    assert_tree_over(tree.levels, len(tree.chains), fan_in)


@few
@given(rows_of_partitions)
def test_the_number_of_chains_is_a_rule_of_the_rows(rows):
    tree = plan_merge_tree(rows)
    filled, total = sum(count > 0 for count in rows), sum(rows)
    assert len(tree.chains) <= min(filled, max(MIN_CHAINS, math.ceil(total / ROWS_PER_CHAIN)))
    assert tree == plan_merge_tree(list(rows))


@few
@given(st.integers(0, 300), fan_ins)
def test_levels_are_balanced_and_end_in_one_node(n_leaves, fan_in):
    assert_tree_over(balanced_levels(n_leaves, fan_in), n_leaves, fan_in)


@few
@given(st.integers(1, 200), fan_ins)
def test_every_leaf_reaches_the_root_by_one_path(n_leaves, fan_in):
    levels = balanced_levels(n_leaves, fan_in)
    reached = [{i} for i in range(n_leaves)]
    for level in levels:
        reached = [set.union(*(reached[i] for i in node)) for node in level]
    assert reached == [set(range(n_leaves))]
    merges = MergeTree(tuple((i,) for i in range(n_leaves)), levels).n_merges
    nodes = sum(len(level) for level in levels)
    passed_through = sum(len(node) == 1 for level in levels for node in level)
    assert merges == nodes - passed_through


@pytest.mark.parametrize("equal", [1, 1000, 250_000])
def test_equal_partitions_give_chains_of_equal_length(equal):
    tree = plan_merge_tree([equal] * 64)
    lengths = {len(run) for run in tree.chains}
    n_chains = max(8, math.ceil(64 * equal / ROWS_PER_CHAIN))
    assert lengths == {64 // n_chains}
    assert len(tree.chains) == n_chains


@few
@given(st.lists(st.integers(1, 1000), min_size=8, max_size=60))
def test_chains_hold_about_equal_rows(rows):
    """No chain exceeds its share by more than the two partitions at its ends."""
    tree = plan_merge_tree(rows)
    share = sum(rows) / 8
    for run in tree.chains:
        assert sum(rows[i] for i in run) <= share + max(rows)


def test_one_partition_is_one_chain_and_no_merge():
    tree = plan_merge_tree([5_000_000])
    assert tree == MergeTree(((0,),), ())
    assert tree.n_merges == 0


@pytest.mark.parametrize("rows", [[], [0], [0, 0, 0]])
def test_no_rows_give_no_chains(rows):
    assert plan_merge_tree(rows) == MergeTree((), ())


def test_empty_partitions_anywhere_are_left_out():
    tree = plan_merge_tree([0, 10, 0, 0, 20, 30, 0])
    assert tree.chains == ((1,), (4,), (5,))
    assert tree.levels == (((0, 1), (2,)), ((0, 1),))
    assert tree.n_merges == 2


@pytest.mark.parametrize("place", [0, 7, 19])
def test_a_giant_among_tiny_ones(place):
    """The giant is a chain with at most its small neighbours; nothing is lost."""
    rows = [3] * 20
    rows[place] = 10_000_000
    tree = plan_merge_tree(rows)
    assert list(chain.from_iterable(tree.chains)) == list(range(20))
    assert 1 <= len(tree.chains) <= 3
    assert_tree_over(tree.levels, len(tree.chains), 2)


def test_the_parameters_set_the_number_of_chains():
    assert len(plan_merge_tree([100] * 50, min_chains=3).chains) == 3
    assert len(plan_merge_tree([100] * 50, rows_per_chain=200).chains) == 25
    assert len(plan_merge_tree([100] * 50, rows_per_chain=1).chains) == 50
    assert len(plan_merge_tree([100] * 4).chains) == 4


@pytest.mark.parametrize("fan_in", range(2, 9))
def test_a_single_last_node_is_passed_through(fan_in):
    levels = balanced_levels(fan_in + 1, fan_in)
    assert levels == ((tuple(range(fan_in)), (fan_in,)), ((0, 1),))
    assert MergeTree(((0,),) * (fan_in + 1), levels).n_merges == 2


# --- groups of partitions --------------------------------------------------------------------


@few
@given(st.lists(st.integers(0, 100), max_size=60), st.integers(1, 300))
def test_groups_cover_each_position_once_and_close_when_full(rows, target):
    groups = group_rows(rows, target)
    assert list(chain.from_iterable(groups)) == list(range(len(rows)))
    assert all(groups)
    for group in groups[:-1]:
        assert sum(rows[i] for i in group) >= target
    for group in groups:
        assert sum(rows[i] for i in group[:-1]) < target  # none is longer than needed


def test_group_rows_by_example():
    assert group_rows([], 10) == ()
    assert group_rows([3], 10) == ((0,),)
    assert group_rows([10, 10], 10) == ((0,), (1,))
    assert group_rows([4, 4, 4, 0, 1], 10) == ((0, 1, 2), (3, 4))
    assert group_rows([100, 1, 1], 10) == ((0,), (1, 2))


@pytest.mark.parametrize("n_leaves", [1, 2, 3, 7, 16, 40])
@pytest.mark.parametrize("fan_in", [2, 3, 5, 8])
@pytest.mark.parametrize("shape", ["balanced", "left-deep", "random"])
def test_levels_of_every_shape_join_each_leaf_once(n_leaves, fan_in, shape):
    rng = np.random.default_rng([n_leaves, fan_in])
    levels = {
        "balanced": lambda: balanced_levels(n_leaves, fan_in),
        "left-deep": lambda: left_deep_levels(n_leaves, fan_in),
        "random": lambda: random_levels(n_leaves, fan_in, rng),
    }[shape]()
    nodes = [{leaf} for leaf in range(n_leaves)]
    for level in levels:
        assert sorted(i for group in level for i in group) == list(range(len(nodes)))
        assert all(1 <= len(group) <= fan_in for group in level)
        assert max(map(len, level)) > 1
        if shape == "left-deep":
            assert all(len(group) == 1 for group in level[1:])
        nodes = [set().union(*(nodes[i] for i in group)) for group in level]
    assert nodes == [set(range(n_leaves))]
    if shape == "left-deep":
        assert len(levels) == -(-(n_leaves - 1) // (fan_in - 1))
