"""The demo: sea-surface temperatures, fitted on worker processes, beside other methods."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from distributed import Client

import squeak_dist
from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.cli.connecting import connected
from squeak_dist.cli.places import Place
from squeak_dist.cli.progress import compute_with_bar, fit_view
from squeak_dist.datasets import holdout, sea_surface_temperature
from squeak_dist.distributed import read_parquet
from squeak_dist.errors import InvalidParameterError
from squeak_dist.linalg import single_blas_thread
from squeak_dist.model import FittedModel
from squeak_dist.nystrom import regularized_map

FEATURES = ["x", "y", "z", "month_cos", "month_sin", "month"]
# Chosen by a grid search on a tenth of the training rows: about 20° of longitude, 4.6° of
# latitude (currents run along the equator), a third of a year on the circle, 20 months.
LENGTH_SCALES = (0.35, 0.35, 0.08, 2.0, 2.0, 20.0)
MAX_DICTIONARY = 1000
_DRAWN = 2000  # test rows in the figures of the report
_EXTREME_SHARE = 0.05  # of the test rows: those of highest leverage


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Parameters
    ----------
    method : str
        What was fitted.
    size : int or None
        Centres, where it has any.
    seconds : float
        Of its fit, prediction included for scikit-learn.
    rmse, r2 : float
        On all test rows.
    rmse_extreme : float
        On the test rows of highest leverage.
    """

    method: str
    size: int | None
    seconds: float
    rmse: float
    r2: float
    rmse_extreme: float


def start_demo(out: Path, seed: int, cluster: Place, *, quiet: bool) -> None:
    """Run the demo on worker processes, or on the cluster that is named.

    Parameters
    ----------
    out, seed
        As in :func:`run_demo`.
    cluster : Place
        Where it runs.
    quiet : bool
        No progress bars.

    Raises
    ------
    InvalidParameterError
        Without worker processes.
    """
    with connected(cluster) as client:
        if client is None:
            raise InvalidParameterError("the demo runs on worker processes: --workers 1 or more")
        run_demo(client, out, seed, quiet=quiet)


def run_demo(client: Client, out: Path, seed: int, *, quiet: bool) -> None:
    """Fit, save, reload and predict the sea-surface temperatures; print table, draw maps.

    Parameters
    ----------
    client : distributed.Client
        Worker processes of this machine.
    out : Path
        Directory for data, model and maps; what an earlier demo left is replaced.
    seed : int
        Of the split, the fit and the samples of the other methods.
    quiet : bool
        No progress bars.
    """
    train, test = holdout(sea_surface_temperature(), fraction=0.1, seed=seed)
    train_dir, test_dir = out / "train.parquet", out / "test.parquet"
    write_months(train, train_dir)
    write_months(test, test_dir)
    path = out / "model.zarr"
    click.echo(
        f"{len(train):,} training rows in {train['month'].nunique()} monthly partitions, "
        f"{len(test):,} test rows; {', '.join(FEATURES)} -> temperature",
        err=True,
    )
    began = time.perf_counter()
    with fit_view(quiet=quiet) as view:
        fitted = squeak_dist.fit(
            read_parquet(train_dir),
            target="temperature",
            features=FEATURES,
            kernel="rbf",  # Nystroem's as well
            length_scale=LENGTH_SCALES,
            max_dictionary=MAX_DICTIONARY,
            random_state=seed,
            client=client,
            progress=view,
        )
    seconds = time.perf_counter() - began
    fitted.save(path)

    model = squeak_dist.load(path)
    predictions = compute_with_bar(model.predict(read_parquet(test_dir)), client, quiet=quiet)
    predicted = predictions.to_numpy()
    extreme = _highest_leverage(model.model_, test)
    scored = _scorer(test["temperature"].to_numpy(), extreme)
    rows = [
        *_simple_rows(model.model_, train, test, scored),
        *_nystroem_rows(model.model_, train, test, scored, seconds, seed, quiet=quiet),
        scored("squeak_dist", len(model.dictionary_), seconds, predicted),
    ]
    _print_table(rows, model.model_)
    for line in draw_maps(out, model, train, test):
        click.echo(line)
    click.echo(f"report: {write_demo_report(out, model.model_, test, rows)}")
    click.echo(f"model: {path}")


def write_demo_report(out: Path, model: FittedModel, test: pd.DataFrame, rows: list[Row]) -> Path:
    """Write the report of the model with the scores of all methods on all test rows.

    Parameters
    ----------
    out : Path
        Directory of the page.
    model : FittedModel
        The model.
    test : pandas.DataFrame
        Test rows, of which 2,000 are drawn.
    rows : list of Row
        The table of the demo.
    """
    from squeak_dist.report import judge_others, judged, write_report

    scores = {
        row.method: {
            "RMSE": row.rmse, "R²": row.r2, "RMSE of the top 5 %": row.rmse_extreme,
            "seconds": row.seconds,
        }
        for row in rows
    }  # fmt: skip
    drawn = test.sample(_DRAWN, random_state=0)
    shown = judged(model, drawn[FEATURES], drawn["temperature"]).rows
    return write_report(out / "report.html", judge_others(model, shown, scores))


def write_months(frame: pd.DataFrame, directory: Path) -> None:
    """Write one parquet file per month; files of an earlier demo are replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.parquet"):
        old.unlink()
    for month, rows in frame.groupby("month"):
        rows.to_parquet(directory / f"month-{int(str(month)):02d}.parquet")


def _highest_leverage(model: FittedModel, test: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Return which test rows the dictionary explains least, a mask."""
    X, _ = model.encoding.encode(test[FEATURES])
    with single_blas_thread():
        residual = regularized_map(model.kernel, model.dictionary).residual(X)
    return residual >= np.quantile(residual, 1 - _EXTREME_SHARE)


def _scorer(actual: Float64Array, extreme: np.ndarray[Any, Any]) -> Callable[..., Row]:
    def scored(method: str, size: int | None, seconds: float, predicted: FloatArray) -> Row:
        error = actual - predicted
        r2 = 1 - float(np.mean(error**2)) / float(actual.var())
        rmse, rmse_extreme = _root_mean_square(error), _root_mean_square(error[extreme])
        return Row(method, size, seconds, rmse, r2, rmse_extreme)

    return scored


def _root_mean_square(error: FloatArray) -> float:
    return float(np.sqrt(np.mean(np.square(error))))


def _simple_rows(
    model: FittedModel, train: pd.DataFrame, test: pd.DataFrame, scored: Callable[..., Row]
) -> list[Row]:
    from sklearn.linear_model import Ridge

    mean = np.full(len(test), train["temperature"].mean())
    X, _ = model.encoding.encode(train[FEATURES])
    began = time.perf_counter()
    ridge = Ridge().fit(X, train["temperature"])
    seconds = time.perf_counter() - began
    return [
        scored("mean", None, 0.0, mean),
        scored("linear ridge", None, seconds, ridge.predict(model.encoding.encode(test)[0])),
    ]


def _nystroem_rows(
    model: FittedModel,
    train: pd.DataFrame,
    test: pd.DataFrame,
    scored: Callable[..., Row],
    budget: float,
    seed: int,
    *,
    quiet: bool,
) -> list[Row]:
    """Score scikit-learn's Nystroem + Ridge: at its defaults, with more centres, with ours."""
    y = train["temperature"].to_numpy(np.float32)
    raw, raw_test = (f[FEATURES].to_numpy(np.float32) for f in (train, test))
    scales = np.asarray(LENGTH_SCALES, np.float32)
    scaled, scaled_test = (model.encoding.encode(f)[0] / scales for f in (train, test))

    def run(method: str, size: int, X: FloatArray, X_test: FloatArray, **options: Any) -> Row:
        if not quiet:
            click.echo(f"{method}, {size} centres …", err=True)
        alpha = options.pop("alpha", 1.0)
        began = time.perf_counter()
        predicted = _nystroem(X, y, X_test, size, seed, alpha, **options)
        return scored(method, size, time.perf_counter() - began, predicted)

    defaults = run("Nystroem + Ridge, defaults", 100, raw, raw_test)
    grown, more = defaults, defaults
    while more.seconds < budget / 2 and more.size is not None and more.size < 1600:
        more = run("the same, centres for our time", 2 * more.size, raw, raw_test)
        grown = more if more.seconds <= budget else grown
    ours = run(
        "Nystroem + Ridge, our kernel and m", len(model.dictionary), scaled, scaled_test,
        gamma=0.5, alpha=model.mu,
    )  # fmt: skip
    return [defaults, *([grown] if grown is not defaults else []), ours]


def _nystroem(
    X: FloatArray,
    y: FloatArray,
    X_test: FloatArray,
    size: int,
    seed: int,
    alpha: float,
    gamma: float | None = None,
) -> FloatArray:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    pipeline = make_pipeline(
        Nystroem(kernel="rbf", gamma=gamma, n_components=size, random_state=seed),
        Ridge(alpha=alpha),
    )
    return np.asarray(pipeline.fit(X, y).predict(X_test))


def _print_table(rows: list[Row], model: FittedModel) -> None:
    report = model.report
    click.echo(
        f"rows {report['rows_fitted']:,}   m {report['dictionary_size']}   "
        f"γ {report['gamma']:.4g}   μ {report['mu']:.4g}   "
        f"d_eff(γ) {report['effective_dimension']:.1f}"
    )
    stages = ", ".join(f"{name} {value:.1f} s" for name, value in report["seconds"].items())
    click.echo(f"{stages}; peak worker memory {report['peak_worker_bytes'] / 2**20:,.0f} MiB")
    click.echo(f"{'':36}{'m':>6}{'seconds':>9}{'RMSE °C':>9}{'R²':>8}{'top 5 %':>9}")
    for row in rows:
        size = "" if row.size is None else str(row.size)
        click.echo(
            f"{row.method:36}{size:>6}{row.seconds:9.1f}{row.rmse:9.4f}{row.r2:8.4f}"
            f"{row.rmse_extreme:9.4f}"
        )
    click.echo("top 5 %: RMSE on the test rows of highest leverage")


def draw_maps(
    out: Path, model: squeak_dist.SqueakRegressor, train: pd.DataFrame, test: pd.DataFrame
) -> list[str]:
    """Draw the last month as predicted, and the dictionary, as PNG; return a line on each.

    Without matplotlib there are none, and the line says so.

    Parameters
    ----------
    out : Path
        Directory of the pictures.
    model : SqueakRegressor
        Fitted to ``train``.
    train, test : pandas.DataFrame
        All cells.
    """
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        return ['no maps: matplotlib is not installed; run: pip install "squeak-dist[demo]"']
    cells = pd.concat([f[f["month"] == f["month"].max()] for f in (train, test)])
    kept = train.iloc[model.component_indices_]
    maps = (
        ("predicted.png", "Predicted sea-surface temperature of September 2010 (°C)",
         cells, model.predict(cells), "plasma"),
        ("dictionary.png", f"The {len(kept)} rows of the dictionary, by months since April 2006",
         kept, kept["month"].to_numpy(), "viridis"),
    )  # fmt: skip
    lines = []
    for name, title, places, colour, palette in maps:
        figure, axes = plt.subplots(figsize=(12, 3.2), layout="constrained")
        dots = axes.scatter(
            places["longitude"], places["latitude"], c=colour, s=10, marker="s", cmap=palette
        )
        axes.set(xlabel="longitude (° east)", ylabel="latitude (°)", title=title, xlim=(0, 360))
        figure.colorbar(dots, ax=axes)
        figure.savefig(out / name, dpi=120)
        plt.close(figure)
        lines.append(f"map: {out / name}")
    return lines
