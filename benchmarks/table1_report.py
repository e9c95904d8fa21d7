"""The tables and plots of ``table1.py``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

# Time in n at a constant d_eff, and size in d_eff, as the papers have them. SQUEAK's time is
# n d_eff³ by row and n d_eff² in blocks; INK-Estimate's has n² d_eff² λ_max²/γ², where λ_max
# and γ both grow with n here. The oracle's RLS are not counted in the paper; they are here.
PAPER = {
    "squeak": ("1", "1"),
    "squeak-by-row": ("1", "1"),
    "disqueak": ("1", "1"),
    "disqueak-left-deep": ("1", "1"),
    "disqueak-random": ("1", "1"),
    "exact": ("3 (solve)", "–"),
    "uniform": ("0", "–"),
    "two-pass-rls": ("1", "–"),
    "ink-estimate": ("2", "1"),
    "rls-sampling": ("3", "1"),
    "recursive-rls": ("1", "1"),
    "bless": ("0", "1"),
    "greedy-cholesky": ("1", "–"),
    "random-cholesky": ("1", "–"),
    "k-means": ("1", "–"),
}
MARKS = "osd^v<>phX*P+xD"


def spread(values: pd.Series, digits: int) -> str:
    """Return mean ± standard deviation."""
    values = values.dropna()
    if not len(values):
        return "–"
    mean = f"{values.mean():,.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {values.std():,.{digits}f}"


def slope(x: pd.Series, y: pd.Series) -> str:
    """Return the exponent of y in x, by least squares on logarithms."""
    found = (x > 0) & (y > 0)
    if x[found].nunique() < 2:
        return "–"
    return f"{np.polyfit(np.log(x[found]), np.log(y[found]), 1)[0]:.2f}"


def system_table(frame: pd.DataFrame) -> str:
    """Return the table of one set at one n, mean ± sd over seeds."""
    lines = [
        "| system | seconds | peak MiB | size | error/γ, regularized | projected | constant c | "
        "risk ratio | RMSE/sd |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for system in dict.fromkeys(frame.system):
        part = frame[frame.system == system]
        cells = [
            spread(part.seconds, 3),
            spread(part.peak_bytes / 2**20, 1),
            spread(part["size"], 0),
            spread(part.error, 2),
            spread(part.error_projected, 2),
            spread(part.constant, 2),
            spread(part.risk_ratio, 3),
            spread(part.rmse, 3),
        ]
        lines.append(f"| {system} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def growth_table(frame: pd.DataFrame) -> str:
    """Return the exponents beside those of the papers; over the seeds' means."""
    lines = [
        "| system | " + " | ".join(f"time in n, {d}" for d in dict.fromkeys(frame.data))
        + " | paper | " + " | ".join(f"size in d_eff, {d}" for d in dict.fromkeys(frame.data))
        + " | paper |",
    ]  # fmt: skip
    sets = list(dict.fromkeys(frame.data))
    lines.append("|---" * (3 + 2 * len(sets)) + "|")
    for system in dict.fromkeys(frame.system):
        in_time, in_size = [], []
        for name in sets:
            part = frame[(frame.system == system) & (frame.data == name)]
            by_n = part[part.series == "n"].groupby("n").seconds.mean()
            in_time.append(slope(by_n.index.to_series(), by_n))
            other = part[part.series == "gamma"].groupby("gamma")[["d_eff", "size"]].mean()
            in_size.append(slope(other["d_eff"], other["size"]))
        time_paper, size_paper = PAPER[system]
        lines.append(
            f"| {system} | {' | '.join(in_time)} | {time_paper} | {' | '.join(in_size)} | "
            f"{size_paper} |"
        )
    return "\n".join(lines) + "\n"


def violations_table(frame: pd.DataFrame, bound: float) -> str:
    """Return how often each system leaves the bounds of Theorem 1."""
    lines = [
        "| system | runs | c > 1/(1−ε) | largest c | risk above its bound | largest risk ratio | "
        "largest size / (q̄ d_eff) |",
        "|---|---|---|---|---|---|---|",
    ]
    for system in dict.fromkeys(frame.system):
        part = frame[(frame.system == system) & frame.d_eff.notna()]
        above = (part.constant > bound).sum()
        risky = (part.risk_ratio > part.risk_bound).sum()
        ratio = (part["size"] / part.d_eff / part.qbar).max()
        largest = part.constant.max()
        lines.append(
            f"| {system} | {len(part)} | {above} | "
            f"{'–' if np.isnan(largest) else f'{largest:.2f}'} | {risky} | "
            f"{part.risk_ratio.max():.3f} | {ratio:.2f} |"
        )
    return "\n".join(lines) + "\n"


def copies_table(frame: pd.DataFrame) -> str:
    """Return size and constant by q̄."""
    lines = ["| set | system | q̄ | size | constant c | error/γ |", "|---|---|---|---|---|---|"]
    for (name, system, qbar), part in frame.groupby(["data", "system", "qbar"], sort=False):
        lines.append(
            f"| {name} | {system} | {qbar} | {spread(part['size'], 0)} | "
            f"{spread(part.constant, 2)} | {spread(part.error, 2)} |"
        )
    return "\n".join(lines) + "\n"


def plots(frame: pd.DataFrame, curve: pd.DataFrame, levels: pd.DataFrame, out: Path) -> None:
    """Write OUT_sizes.png, OUT_anytime.png and OUT_levels.png."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    sets = list(dict.fromkeys(frame.data))
    figure, axes = plt.subplots(1, len(sets), figsize=(4.2 * len(sets), 3.6), squeeze=False)
    for axis, name in zip(axes[0], sets, strict=True):
        at = frame[(frame.data == name) & ((frame.series == "gamma") | (frame.n == 1000))]
        for i, system in enumerate(dict.fromkeys(frame.system)):
            part = at[(at.system == system) & (at.error_projected > 0)]
            axis.scatter(
                part["size"], part.error_projected, s=14, label=system,
                marker=MARKS[i], color=mpl.colormaps["tab20"](i),
            )  # fmt: skip
        axis.set(title=name, xlabel="rows kept", xscale="log", yscale="log")
    axes[0][0].set_ylabel("‖K − K̃‖₂ / γ, projected")
    axes[0][-1].legend(fontsize=6, ncols=2)
    _save(figure, f"{out}_sizes.png")

    figure, axes = plt.subplots(1, len(sets), figsize=(4.2 * len(sets), 3.2), squeeze=False)
    for axis, name in zip(axes[0], sets, strict=True):
        part = curve[curve.data == name]
        axis.plot(part.t, part["size"], label="|D_t|")
        axis.plot(part.t, 0.7 * 8 * part.d_eff, "--", label="(1−ε) q̄ d_eff(γ)_t")
        axis.plot(part.t, part.d_eff, ":", label="d_eff(γ)_t")
        axis.set(title=name, xlabel="rows seen", ylim=(0, None))
    axes[0][0].legend(fontsize=8)
    _save(figure, f"{out}_anytime.png")

    figure, axes = plt.subplots(1, len(sets), figsize=(4.2 * len(sets), 3.2), squeeze=False)
    for axis, name in zip(axes[0], sets, strict=True):
        for tree in dict.fromkeys(levels.tree):
            part = levels[(levels.data == name) & (levels.tree == tree)].groupby("level").error
            axis.plot(part.mean().index, part.mean(), marker=".", label=f"{tree}, mean")
            axis.plot(part.max().index, part.max(), ":", color=axis.lines[-1].get_color())
        axis.axhline(1 / 0.7, color="grey", lw=0.8)
        axis.set(title=name, xlabel="level of the merge tree", ylim=(0, None))
    axes[0][0].set_ylabel("‖K − K̃‖₂ / γ of a node's rows")
    axes[0][0].legend(fontsize=7)
    _save(figure, f"{out}_levels.png")


def _save(figure, path: str) -> None:
    import matplotlib.pyplot as plt

    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def level_table(levels: pd.DataFrame) -> str:
    """Return mean and largest error, and mean size, by tree: leaves and root."""
    lines = ["| set | tree | levels | leaves: error, size | root: error, size | largest error |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for (name, tree), part in levels.groupby(["data", "tree"], sort=False):
        leaves, root = part[part.level == 0], part[part.level == part.level.max()]
        lines.append(
            f"| {name} | {tree} | {part.level.max()} | {leaves.error.mean():.2f}, "
            f"{leaves['size'].mean():.0f} | {root.error.mean():.2f}, {root['size'].mean():.0f} | "
            f"{part.error.max():.2f} |"
        )
    return "\n".join(lines) + "\n"


def write(
    frame: pd.DataFrame,
    curve: pd.DataFrame,
    levels: pd.DataFrame,
    out: Path,
    command: str,
    machine: str,
) -> None:
    """Write OUT.md; text between the marks of an earlier one, made by hand, is kept."""
    stem, in_n = out.name, frame[frame.series == "n"]
    parts = [
        "# Table 1 of the paper, measured\n",
        f"Made by `{command}` ({machine}). Raw results: `{stem}.csv`. γ = n/1000, ε = 0.3, q̄ = 8; "
        "mean ± standard deviation over seeds. Budgets are the size of SQUEAK's dictionary; "
        "INK-Estimate has twice as many copies and two-pass RLS 1.5 times as many draws, of which "
        "fewer are distinct.\n",
        _kept(out.with_suffix(".md")),
        "## What the columns are\n",
        "Seconds (of processor time, one thread) and peak memory are those of the choice of rows "
        "alone, the kernel matrix that the measure needs not among them. *error/γ* is ‖K − K̃‖₂/γ "
        "for the paper's regularized K̃ and for the projection on the span, which `fit` uses. "
        "*constant c* is the least c with "
        "K − K̃ ⪯ c γ K(K+γI)⁻¹ for the regularized form; Theorem 1 promises c ≤ 1/(1−ε) = 1.43. "
        "For the projection c is 1 + error/γ. *risk ratio* is R(w̃)/R(ŵ) of the regularized form "
        "at μ = γ on a fixed design with known f* and noise; its bound is (1 + γ/(μ(1−ε)))² = "
        "5.90. *RMSE/sd* is out of sample, in the span of the dictionary, μ by GCV.\n",
    ]
    for name in dict.fromkeys(in_n.data):
        n = in_n[(in_n.data == name) & (in_n.system == "two-pass-rls")].n
        for size in sorted({int(n[n <= 2000].max()), int(n.max())}):
            at = in_n[(in_n.data == name) & (in_n.n == size)]
            parts += [
                f"## {name}, n = {size:,}, seeds: {at.seed.nunique()}, d_eff = "
                f"{at.d_eff.mean():.1f}, maximal degrees of freedom {at.d_max.mean():,.0f}\n",
                system_table(at),
            ]
    dense = in_n[in_n.system == "rls-sampling"].n.max()
    far = pd.concat([in_n[in_n.n > dense], frame[frame.series == "beyond"]])
    for (name, size), at in far.groupby(["data", "n"], sort=False):
        parts += [f"## {name}, n = {size:,}, one seed\n", system_table(at)]
    parts += [
        "## Growth\n",
        "Exponents fitted on logarithms: seconds in n at γ = n/1000 (d_eff nearly constant), "
        "size in d_eff at n = 1,000 and four γ.\n",
        growth_table(frame[frame.series.isin(["n", "gamma"])]),
        "## The bounds of Theorem 1, over all runs\n",
        "c and the risk, over all runs at q̄ = 8.\n",
        violations_table(frame[frame.series != "qbar"], 1 / 0.7),
        "What more copies bring, n = 1,000:\n",
        copies_table(frame[frame.series == "qbar"]),
        "## Trees\n",
        level_table(levels),
        f"![size against error]({stem}_sizes.png)\n",
        f"![any-time]({stem}_anytime.png)\n",
        f"![levels]({stem}_levels.png)\n",
    ]
    out.with_suffix(".md").write_text("\n".join(p for p in parts if p), encoding="utf-8")


def _kept(path: Path) -> str:
    """Return what was written by hand into an earlier report, between its marks."""
    start, end = "<!-- by hand -->", "<!-- end -->"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if start not in text:
        return f"{start}\n{end}\n"
    return text[text.index(start) : text.index(end) + len(end)] + "\n"
