"""Draw the pictures of docs/algorithm.md from real runs: `python docs/draw_pictures.py`.

Prints the figures that the page quotes.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from squeak_dist import RBF
from squeak_dist.leverage import accuracy_ratio, effective_dimension, exact_rls
from squeak_dist.merge_tree import balanced_levels
from squeak_dist.nystrom import projected_map
from squeak_dist.squeak import SqueakParameters, finish, merge, squeak

HERE = Path(__file__).parent / "pictures"
KERNEL = RBF(length_scale=0.7)
GAMMA, EPSILON, QBAR = 1.0, 0.3, 16


def uneven_rows(n: int) -> np.ndarray:
    """A dense cluster, a wide cloud around it, and three small groups far away."""
    rng = np.random.default_rng(0)
    far = np.array([[4.0, 3.5], [-4.2, 3.0], [3.5, -3.8]])[rng.integers(3, size=n // 100)]
    dense = 0.35 * rng.normal(size=(int(0.89 * n), 2))
    cloud = 1.4 * rng.normal(size=(n - len(dense) - len(far), 2))
    rows = np.concatenate([dense, cloud, far + 0.15 * rng.normal(size=far.shape)])
    return rng.permutation(rows)


def learned(X: np.ndarray, key: int, gamma: float = GAMMA):
    """Return the dictionary of one partition."""
    parameters = SqueakParameters(gamma, EPSILON, QBAR)
    rng = np.random.default_rng([7, key])
    return finish(KERNEL, squeak(KERNEL, X, parameters, rng), parameters, rng).dictionary


def draw_choice(X: np.ndarray) -> None:
    """The rows kept beside as many uniform ones."""
    chosen = learned(X, 0)
    uniform = np.random.default_rng(1).choice(len(X), len(chosen), replace=False)
    figure, axes = plt.subplots(
        1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained"
    )
    for ax, rows, title in (
        (axes[0], chosen.indices, f"SQUEAK: {len(chosen)} rows"),
        (axes[1], uniform, f"uniform: {len(uniform)} rows"),
    ):
        ax.scatter(*X.T, s=2, color="0.75", linewidths=0)
        ax.scatter(*X[rows].T, s=16, color="#b2182b", linewidths=0)
        left = projected_map(KERNEL, X[rows]).residual(X)
        ax.set_title(f"{title}; worst residual {left.max():.1g}")
        ax.set_aspect("equal")
        print(title, "residual max", left.max(), "mean", left.mean())
    save(figure, "choice.png")


def draw_bracket(X: np.ndarray) -> None:
    """Estimated against exact leverage scores, and the spectrum of the error."""
    K = KERNEL(X)
    exact = exact_rls(K, GAMMA)
    chosen = learned(X, 0)
    alpha = accuracy_ratio(EPSILON)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    line = np.array([exact.min(), 1.0])
    axes[0].fill_between(line, line / alpha, line, color="0.9", label=f"τ/α … τ, α = {alpha:.2f}")
    axes[0].loglog(
        exact[chosen.indices],
        chosen.probabilities,
        ".",
        color="#2166ac",
        label="rows of the dictionary",
    )
    axes[0].set(xlabel="exact leverage score τ", ylabel="probability p of being kept")
    axes[0].legend()
    inside = (chosen.probabilities >= exact[chosen.indices] / alpha) & (
        chosen.probabilities <= exact[chosen.indices] * 1.0001
    )
    print("d_eff", exact.sum(), "m", len(chosen), "inside the bracket", inside.mean())
    Z = projected_map(KERNEL, chosen.points).transform(X)
    error = np.linalg.eigvalsh(K - Z @ Z.T)[::-1]
    spectrum = np.linalg.eigvalsh(K)[::-1]
    axes[1].semilogy(np.arange(1, 301), spectrum[:300], color="0.6", label="eigenvalues of K")
    axes[1].semilogy(
        np.arange(1, 301),
        np.maximum(error[:300], 1e-8),
        color="#b2182b",
        label="eigenvalues of K − K̃",
    )
    axes[1].axhline(GAMMA / (1 - EPSILON), ls=":", color="k", label="γ/(1 − ε)")
    axes[1].set(xlabel="number", ylim=(1e-6, None))
    axes[1].legend()
    print("largest eigenvalue of K - K~:", error[0], "bound", GAMMA / (1 - EPSILON))
    save(figure, "bracket.png")


def draw_tree(X: np.ndarray) -> None:
    """Sizes of the dictionaries in a tree of eight partitions."""
    parameters = SqueakParameters(GAMMA, EPSILON, QBAR)
    parts = [learned(part, i) for i, part in enumerate(np.array_split(X, 8))]
    rows = [len(part) for part in np.array_split(X, 8)]
    figure, ax = plt.subplots(figsize=(9, 3.2), layout="constrained")
    places = np.arange(8.0)
    label(ax, places, 0, rows, "rows")
    label(ax, places, 1, [len(part) for part in parts], "kept")
    ax.plot([places, places], [0.18, 0.82], color="0.7")
    for level, groups in enumerate(balanced_levels(8, 2)):
        rng = np.random.default_rng([8, level])
        parts = [merge(KERNEL, [parts[i] for i in group], parameters, rng) for group in groups]
        centres = np.array([places[list(group)].mean() for group in groups])
        for group, centre in zip(groups, centres, strict=True):
            for child in group:
                ax.plot([places[child], centre], [level + 1.18, level + 1.82], color="0.7")
        places = centres
        label(ax, places, level + 2, [len(part) for part in parts], "kept")
    print("root", len(parts[0]), "of", sum(rows))
    ax.set(yticks=range(5), yticklabels=["partitions", "dictionaries", "merge", "merge", "root"])
    ax.set_xticks([])
    ax.spines[:].set_visible(False)
    save(figure, "tree.png")


def label(ax, places, height: float, numbers: list[int], word: str) -> None:
    for place, number in zip(places, numbers, strict=True):
        ax.text(
            place,
            height,
            f"{number:,}",
            ha="center",
            va="center",
            bbox={
                "boxstyle": "round",
                "fc": "#d1e5f0" if word == "kept" else "0.93",
                "ec": "none",
            },
        )
    ax.set_xlim(-0.6, 7.6)


def draw_sizes(X: np.ndarray) -> None:
    """Size of the dictionary and of the error over γ."""
    K = KERNEL(X)
    gammas = np.array([8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125])
    dimension = [effective_dimension(K, gamma) for gamma in gammas]
    size, error = [], []
    for gamma in gammas:
        chosen = learned(X, 3, gamma)
        Z = projected_map(KERNEL, chosen.points).transform(X)
        size.append(len(chosen))
        error.append(np.linalg.eigvalsh(K - Z @ Z.T)[-1])
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    axes[0].loglog(gammas, size, "o-", color="#b2182b", label="rows kept")
    axes[0].loglog(gammas, dimension, "o-", color="0.5", label="d_eff(γ)")
    axes[1].loglog(gammas, error, "o-", color="#b2182b", label="largest eigenvalue of K − K̃")
    axes[1].loglog(gammas, gammas / (1 - EPSILON), ":", color="k", label="γ/(1 − ε)")
    for ax in axes:
        ax.set_xlabel("γ")
        ax.legend()
    for row in zip(gammas, dimension, size, error, strict=True):
        print("γ {:g}: d_eff {:.1f}, m {}, error {:.4f}".format(*row))
    save(figure, "sizes.png")


def save(figure, name: str) -> None:
    figure.savefig(HERE / name, dpi=100, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    table = uneven_rows(3000)
    draw_choice(table)
    draw_bracket(table)
    draw_tree(uneven_rows(16_000))
    draw_sizes(table)
