"""What merges cost and keep, by fan-in and shape of the tree.

    python benchmarks/merging.py [--quick] [--csv FILE]

32 dictionaries of equal parts of made rows; processor seconds of one thread. "path": the longest
way from a leaf to the root, which is what workers without number would take.
"""

from __future__ import annotations

import time

import numpy as np
from output import Rows, run

from squeak_dist.kernels import RBF
from squeak_dist.linalg import single_blas_thread
from squeak_dist.merge_tree import balanced_levels, left_deep_levels, random_levels
from squeak_dist.squeak import SqueakParameters, finish, merge, squeak, start_state

LEAVES = 32


def leaves_of(rows: int, kernel: RBF, settings: SqueakParameters) -> list:
    found = []
    for leaf in range(LEAVES):
        rng = np.random.default_rng(leaf)
        X = rng.normal(size=(rows, 8)).astype(np.float32)
        start = start_state(X.shape[1], X.dtype, settings)
        state = squeak(
            kernel, X, settings, rng, start=start, indices=np.arange(rows) + leaf * rows
        )
        found.append(finish(kernel, state, settings, rng).dictionary)
    return found


def measure(quick: bool) -> Rows:
    m = 150 if quick else 600
    kernel = RBF(3.0)
    settings = SqueakParameters(gamma=1.0, max_dictionary=m)
    rng = np.random.default_rng(0)
    trees = {
        **{f"balanced, fan-in {k}": balanced_levels(LEAVES, k) for k in (2, 4, 8)},
        "left-deep, fan-in 2": left_deep_levels(LEAVES, 2),
        "random, fan-in 2": random_levels(LEAVES, 2, rng),
    }
    rows: Rows = []
    with single_blas_thread():
        leaves = leaves_of(2000 if quick else 20_000, kernel, settings)
        for name, levels in trees.items():
            nodes, merges, total = [(d, 0.0) for d in leaves], 0, 0.0
            for level in levels:
                above = []
                for group in level:
                    if len(group) == 1:
                        above.append(nodes[group[0]])
                        continue
                    began = time.thread_time()
                    made = merge(kernel, [nodes[i][0] for i in group], settings, rng)
                    seconds = time.thread_time() - began
                    merges, total = merges + 1, total + seconds
                    above.append((made, seconds + max(nodes[i][1] for i in group)))
                nodes = above
            root, path = nodes[0]
            rows.append({
                "tree": name, "merges": merges, "levels": len(levels), "m": len(root),
                "gamma": round(root.gamma, 3), "total_s": round(total, 2),
                "path_s": round(path, 2), "ms_a_merge": round(1e3 * total / merges, 1),
            })  # fmt: skip
    return rows


if __name__ == "__main__":
    run(__doc__ or "", measure)
