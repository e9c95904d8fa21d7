"""Table 1 of the paper by measurement: every system, on even and uneven rows.

    python benchmarks/table1.py [DATA] [--quick] [--out docs/table1]

DATA is the folder of uci_kin40k.parquet (even) and uci_keggdirected.parquet (uneven);
without it the made rows alone are used: one dense cluster and rare far rows, whose
coherence is known. γ = n/1000, so that d_eff stays about the same while n grows; a second
series changes γ at n = 1,000. Budgets of the systems that need one are the size of SQUEAK's
dictionary of the same seed. Writes OUT.csv, OUT.md and OUT_*.png.
"""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
import time
import tracemalloc
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import table1_report as report
from scipy.sparse.linalg import LinearOperator, eigs, eigsh

from squeak_dist.dictionary import Dictionary
from squeak_dist.kernels import RBF, Kernel
from squeak_dist.leverage import exact_rls
from squeak_dist.linalg import single_blas_thread
from squeak_dist.nystrom import distinct_rows, projected_map, regularized_map
from squeak_dist.samplers import SAMPLERS, SIZED, TREES
from squeak_dist.solvers import mu_by_gcv, normal_equations, solve_direct
from squeak_dist.squeak import SqueakParameters, finish, merge, squeak, start_state
from squeak_dist.tuning import median_length_scale

EPSILON, QBAR = 0.3, 8
PER_GAMMA = 1000  # rows per unit of γ
NOISE = 0.3  # of the fixed design, as a share of the signal's spread
TEST_ROWS = 2000
DENSE = 8000  # most rows of a dense reference; beyond, kernel blocks are made at each product
DRAWS = {"two-pass-rls": 1.5, "ink-estimate": 2.0}  # draws per row of SQUEAK's: fewer are distinct
SLOW = {"squeak-by-row": 1000, "ink-estimate": 4000, "k-means": 4000, "exact": 2000}  # most rows
FEW = {"exact": 1, "squeak-by-row": 2}  # seeds of these
BEYOND = ("squeak", "disqueak", "uniform", "bless")
ORDER = [*SAMPLERS]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one set: X and y to learn from, others to test on, and the kernel."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    kernel: Kernel

    @property
    def gamma(self) -> float:
        return len(self.X) / PER_GAMMA


@dataclass(frozen=True)
class Result:
    """One system on one set."""

    data: str
    n: int
    seed: int
    series: str
    qbar: int
    gamma: float
    d_eff: float
    d_max: float
    system: str
    seconds: float
    peak_bytes: float
    size: int
    gamma_of_size: float
    error: float
    error_projected: float
    constant: float
    risk_ratio: float
    risk_bound: float
    rmse: float


# --- data ---------------------------------------------------------------------------------


def made(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A dense cluster, and 20 far sites of n/500 equal rows each.

    A far row has the RLS 1/(n/500 + γ): at γ = n/1000 the maximal degrees of freedom are 333
    or more for every n, and the sites' part of d_eff is 13.3.
    """
    rng = np.random.default_rng([7, seed])
    X = 0.4 * rng.normal(size=(n, 5))
    far = rng.choice(n, size=20 * (n // 500), replace=False)
    X[far] = np.repeat(rng.uniform(-40, 40, size=(20, 5)), n // 500, axis=0)
    signal = np.sin(3 * X[:, 0]) + np.cos(2 * X[:, 1])
    return X, signal + NOISE * rng.normal(size=n)


def standard(path: Path) -> tuple[np.ndarray, np.ndarray]:
    frame = pd.read_parquet(path).drop(columns="test", errors="ignore")
    values = frame.to_numpy(np.float64)
    values = (values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-12)
    return values[:, :-1], values[:, -1]


def rows_of(name: str, source: tuple[np.ndarray, np.ndarray] | None, n: int, seed: int) -> Rows:
    """Return n rows and others to test on, drawn by the seed."""
    if source is None:
        (X, y), (X_test, y_test) = made(n, seed), made(TEST_ROWS, 1000 + seed)
        return Rows(name, X, y, X_test, y_test, RBF(1.0))
    X, y = source
    kernel = RBF(median_length_scale(X[np.random.default_rng(0).choice(len(X), 1000)]))
    drawn = np.random.default_rng([1, seed]).permutation(len(X))[: n + TEST_ROWS]
    X, y = X[drawn], y[drawn]
    return Rows(name, X[:n], y[:n], X[n:], y[n:], kernel)


# --- what is measured ---------------------------------------------------------------------


class Reference:
    """The kernel matrix: dense up to DENSE rows, made in blocks beyond; and EXACT's risk."""

    def __init__(self, rows: Rows, gamma: float) -> None:
        self.rows, self.gamma, n = rows, gamma, len(rows.X)
        self.K = rows.kernel(rows.X, rows.X) if n <= DENSE else None
        rng = np.random.default_rng(0)
        some = rng.choice(n, size=30)
        signal = rows.kernel(rows.X, rows.X[some]) @ rng.normal(size=30)
        self.signal = signal / signal.std()
        if self.K is None:
            self.d_eff = self.d_max = self.risk = np.nan
            return
        tau = exact_rls(self.K, gamma)
        self.d_eff, self.d_max = float(tau.sum()), float(n * tau.max())
        self.risk = np.nan
        if n <= DENSE // 2:
            A = np.linalg.inv(self.K + gamma * np.eye(n))  # μ = γ
            trace = n - 2 * gamma * np.trace(A) + gamma**2 * np.sum(A**2)
            self.risk = gamma**2 * np.sum((A @ self.signal) ** 2) + NOISE**2 * trace

    def product(self, v: np.ndarray) -> np.ndarray:
        """K v."""
        if self.K is not None:
            return self.K @ v
        X = self.rows.X.astype(np.float32)
        blocks = np.array_split(np.arange(len(X)), len(X) // 2000)
        v = v.astype(np.float32)
        return np.concatenate([self.rows.kernel(X[b], X) @ v for b in blocks]).astype(np.float64)

    def residual(self, Z: np.ndarray) -> LinearOperator:
        """K − Z Zᵀ."""
        n = len(Z)
        return LinearOperator(
            (n, n), lambda v: self.product(v.ravel()) - Z @ (Z.T @ v.ravel()), dtype=np.float64
        )

    def error(self, Z: np.ndarray) -> float:
        """‖K − Z Zᵀ‖₂ / γ by Lanczos."""
        value = eigsh(self.residual(Z), k=1, which="LA", tol=1e-2, ncv=10, v0=_start(len(Z)),
                      return_eigenvectors=False)  # fmt: skip
        return max(float(value[0]), 0.0) / self.gamma

    def constant(self, Z: np.ndarray, D: Dictionary) -> float:
        """The least c with K − K̃ ⪯ c γ K(K+γI)⁻¹: 1 + λ_max((I − W)(K − K̃))/γ, W = diag(s²)."""
        loss, R = np.ones(len(Z)), self.residual(Z)
        loss[D.indices] -= D.selection_weights**2
        if not loss.any():
            return 1.0
        product = LinearOperator(R.shape, lambda v: loss * R.matvec(v), dtype=np.float64)
        value = eigs(product, k=1, which="LR", tol=1e-2, ncv=10, v0=_start(len(Z)),
                     return_eigenvectors=False)  # fmt: skip
        return 1 + max(float(value[0].real), 0.0) / self.gamma

    def risk_ratio(self, Z: np.ndarray) -> float:
        """R(w̃)/R(ŵ) at μ = γ on the fixed design, noise NOISE."""
        gram, mu = Z.T @ Z, self.gamma
        values = np.maximum(np.linalg.eigvalsh(gram), 0)
        solved = np.linalg.solve(gram + mu * np.eye(len(gram)), Z.T @ self.signal)
        bias = np.sum((self.signal - Z @ solved) ** 2)
        return float((bias + NOISE**2 * np.sum((values / (values + mu)) ** 2)) / self.risk)


def _start(n: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=n)


def rmse(rows: Rows, D: Dictionary) -> float:
    """RMSE / sd on the test rows, in the span of the dictionary, μ by GCV."""
    nystrom = projected_map(rows.kernel, D.points[distinct_rows(D.points)])
    mean = rows.y.mean()
    equations = normal_equations(nystrom, rows.X, (rows.y - mean)[:, None])
    theta = solve_direct(equations, mu_by_gcv(equations))
    predicted = nystrom.transform(rows.X_test) @ theta[:, 0] + mean
    return float(np.sqrt(np.mean((predicted - rows.y_test) ** 2)) / rows.y_test.std())


def parameters(gamma: float, limit: int | None = None, qbar: int = QBAR) -> SqueakParameters:
    return SqueakParameters(gamma, EPSILON, qbar, max_dictionary=limit)


def chosen(
    system: str, rows: Rows, gamma: float, budget: int, seed: int, qbar: int = QBAR
) -> Dictionary:
    limit = None
    if system in SIZED:
        limit = min(int(DRAWS.get(system, 1.0) * budget), len(rows.X))
    rng = np.random.default_rng([seed, 11])
    return SAMPLERS[system](rows.X, rows.kernel, parameters(gamma, limit, qbar), rng)


def measured(
    system: str,
    rows: Rows,
    reference: Reference,
    budget: int,
    seed: int,
    series: str,
    qbar: int = QBAR,
) -> Result:
    """Run one system and measure it."""
    gamma, peak = reference.gamma, np.nan
    began = time.process_time()  # of one thread: what other processes do is not in it
    D = chosen(system, rows, gamma, budget, seed, qbar)
    seconds = time.process_time() - began
    if seed == 0 and series == "n":
        tracemalloc.start()
        chosen(system, rows, gamma, budget, seed)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    regularized = regularized_map(rows.kernel, D).transform(rows.X)
    projected = projected_map(rows.kernel, D.points[distinct_rows(D.points)]).transform(rows.X)
    every = len(D) == len(rows.X)
    dense = reference.K is not None
    return Result(
        data=rows.name, n=len(rows.X), seed=seed, series=series, qbar=qbar,
        gamma=gamma, d_eff=reference.d_eff, d_max=reference.d_max, system=system, seconds=seconds,
        peak_bytes=peak, size=len(D), gamma_of_size=D.gamma,
        error=reference.error(regularized),
        error_projected=0.0 if every else reference.error(projected),
        # Centres are no rows, so W has no place for their weights.
        constant=reference.constant(regularized, D) if dense and system != "k-means" else np.nan,
        risk_ratio=reference.risk_ratio(regularized),
        risk_bound=(1 + 1 / (1 - EPSILON)) ** 2,
        rmse=rmse(rows, D),
    )  # fmt: skip


def series_in_n(sources: dict, sizes: list[int], seeds: int) -> Iterator[Result]:
    """All systems at γ = n/PER_GAMMA; fewer seeds as n grows."""
    for n in sizes:
        for name, source in sources.items():
            for seed in range(seeds if n <= 1000 else max(1, seeds * 700 // n)):
                rows = rows_of(name, source, n, seed)
                reference = Reference(rows, rows.gamma)
                budget = len(chosen("squeak", rows, rows.gamma, 0, seed))
                for system in ORDER if n <= DENSE // 2 else BEYOND:
                    if n <= SLOW.get(system, DENSE) and seed < FEW.get(system, seeds):
                        yield measured(system, rows, reference, budget, seed, "n")


def series_in_gamma(sources: dict, n: int, seeds: int) -> Iterator[Result]:
    """SQUEAK, the oracle and the two trees at other γ: growth with d_eff."""
    systems = ("squeak", "disqueak", "rls-sampling", "recursive-rls", "bless", "ink-estimate")
    for name, source in sources.items():
        for seed in range(seeds):
            rows = rows_of(name, source, n, seed)
            for step in (0.25, 1.0, 4.0, 16.0):
                reference = Reference(rows, step * rows.gamma)
                budget = len(chosen("squeak", rows, reference.gamma, 0, seed))
                for system in systems:
                    yield measured(system, rows, reference, budget, seed, "gamma")


def series_in_qbar(sources: dict, n: int, seeds: int) -> Iterator[Result]:
    """What q̄ brings: Theorem 1 asks for about 10⁴."""
    for name, source in sources.items():
        for seed in range(seeds):
            rows = rows_of(name, source, n, seed)
            reference = Reference(rows, rows.gamma)
            for qbar in (4, 16, 64, 256):
                for system in ("squeak", "disqueak", "rls-sampling"):
                    yield measured(system, rows, reference, 0, seed, "qbar", qbar)


def beyond(sources: dict, n: int) -> Iterator[Result]:
    """Some systems on more rows than a dense matrix holds; the last set alone."""
    for name, source in [*sources.items()][-1:]:
        rows = rows_of(name, source, n, 0)
        reference = Reference(rows, rows.gamma)
        budget = len(chosen("squeak", rows, rows.gamma, 0, 0))
        for system in BEYOND:
            yield measured(system, rows, reference, budget, 1, "beyond")


# --- curves -------------------------------------------------------------------------------


def any_time(sources: dict, n: int) -> pd.DataFrame:
    """|D_t|, d_eff(γ)_t and the error at twenty times of a stream."""
    lines = []
    for name, source in sources.items():
        rows = rows_of(name, source, n, 0)
        given, rng = parameters(rows.gamma), np.random.default_rng(0)
        state = start_state(rows.X.shape[1], rows.X.dtype, given)
        for t in np.linspace(n / 20, n, 20).astype(int):
            state = squeak(rows.kernel, rows.X[state.rows_seen : t], given, rng, start=state)
            D = finish(rows.kernel, state, given, np.random.default_rng(t)).dictionary
            part = Rows(name, rows.X[:t], rows.y[:t], rows.X_test, rows.y_test, rows.kernel)
            reference = Reference(part, rows.gamma)
            Z = regularized_map(rows.kernel, D).transform(part.X)
            lines.append((name, t, len(D), reference.d_eff, reference.error(Z)))
    return pd.DataFrame(lines, columns=["data", "t", "size", "d_eff", "error"])


def by_level(sources: dict, n: int, pieces: int = 16) -> pd.DataFrame:
    """Size and error of every node of trees of three shapes."""
    lines = []
    for name, source in sources.items():
        rows = rows_of(name, source, n, 0)
        given = parameters(rows.gamma)
        for shape, grow in TREES.items():
            rng = np.random.default_rng(0)
            nodes = []
            for piece in np.array_split(np.arange(n), pieces):
                state = squeak(rows.kernel, rows.X[piece], given, rng, indices=piece)
                nodes.append((piece, finish(rows.kernel, state, given, rng).dictionary))
            lines += [(name, shape, 0, *_node(rows, *node)) for node in nodes]
            for level, groups in enumerate(grow(pieces, 2, rng), start=1):
                below = nodes
                nodes = [
                    below[group[0]]
                    if len(group) == 1
                    else (
                        np.sort(np.concatenate([below[i][0] for i in group])),
                        merge(rows.kernel, [below[i][1] for i in group], given, rng),
                    )
                    for group in groups
                ]
                lines += [
                    (name, shape, level, *_node(rows, *node))
                    for node, group in zip(nodes, groups, strict=True)
                    if len(group) > 1
                ]
    return pd.DataFrame(lines, columns=["data", "tree", "level", "rows", "size", "error"])


def _node(rows: Rows, positions: np.ndarray, D: Dictionary) -> tuple[int, int, float]:
    part = Rows(rows.name, rows.X[positions], rows.y, rows.X_test, rows.y_test, rows.kernel)
    K = rows.kernel(part.X, part.X)
    Z = regularized_map(rows.kernel, D).transform(part.X)
    value = eigsh(K - Z @ Z.T, k=1, which="LA", tol=1e-2, ncv=10, v0=_start(len(Z)),
                  return_eigenvectors=False)[0]  # fmt: skip
    return len(positions), len(D), float(value) / rows.gamma


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--quick", action="store_true", help="n up to 1,000, three seeds")
    parser.add_argument("--seeds", type=int, help="up to n = 1,000; fewer beyond")
    parser.add_argument("--sizes", help="rows, separated by commas")
    parser.add_argument("--beyond", type=int, help="rows without a dense reference; 0: none")
    parser.add_argument("--out", type=Path, default=Path("docs/table1"))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    usual = "500,1000" if options.quick else "500,1000,2000,4000,8000"
    sizes = [int(n) for n in (options.sizes or usual).split(",")]
    seeds = options.seeds or (3 if options.quick else 10)
    far = options.beyond if options.beyond is not None else (0 if options.quick else 16_000)
    sources: dict = {"made": None}
    if options.data:
        for name in ("uci_kin40k", "uci_keggdirected"):
            sources[name] = standard(options.data / f"{name}.parquet")

    began, results = time.perf_counter(), []
    with single_blas_thread():
        runs = [series_in_n(sources, sizes, seeds), series_in_gamma(sources, 1000, seeds // 3)]
        runs += [series_in_qbar(sources, 1000, seeds // 3)]
        runs += [beyond(sources, far)] if far else []
        for run in runs:
            for result in run:
                results.append(asdict(result))
                print(f"{time.perf_counter() - began:6.0f} s  {result.data} n={result.n} seed="
                      f"{result.seed} {result.system}: {result.seconds:.2f} s m={result.size} "
                      f"error {result.error:.2f}", flush=True)  # fmt: skip
            pd.DataFrame(results).to_csv(options.out.with_suffix(".csv"), index=False,
                                         float_format="%.5g")  # fmt: skip
        curve = any_time(sources, max(n for n in sizes if n <= 2000))
        levels = by_level(sources, max(n for n in sizes if n <= 2000))
    seconds = time.perf_counter() - began
    given = shlex.join("DATA" if a == str(options.data) else a for a in sys.argv[1:])
    command = f"OMP_NUM_THREADS=1 python benchmarks/table1.py {given}"
    machine = f"{platform.machine()}, one BLAS thread, {seconds / 60:.0f} minutes"
    frame = pd.DataFrame(results)
    report.plots(frame, curve, levels, options.out)
    report.write(frame, curve, levels, options.out, command, machine)


if __name__ == "__main__":
    main()
