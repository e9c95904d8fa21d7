"""Cross-validated choices that need no further pass: the ridge penalty, the dictionary's size.

scikit-learn's ``GridSearchCV``, ``cross_val_score`` and the like work with the estimators as
they are; each candidate costs them a fit. The functions here take one fit for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from squeak_dist.distributed import Progress, active_executor, read_source
from squeak_dist.errors import InvalidParameterError
from squeak_dist.stages import FitParameters
from squeak_dist.stages.selection import Curve, FoldSums, fold_sums, penalty_curve, size_curve
from squeak_dist.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    from distributed import Client


def mu_path(
    X: Any,
    y: Any = None,
    *,
    target: Any = None,
    sample_weight: Any = None,
    client: Client | str | None = None,
    progress: Progress | bool | None = None,
    mus: Sequence[float] | None = None,
    folds: int = 5,
    by: str = "row",
    random_state: int = 0,
    **parameters: Any,
) -> pd.DataFrame:
    """Cross-validate the ridge penalty μ: all values from one fit.

    Parameters
    ----------
    X, y, target, sample_weight, client, progress
        As in :meth:`SqueakRegressor.fit`.
    mus : sequence of float, optional
        Penalties, all above 0; thirteen from 1e-6 to 1e6 of the one that GCV chooses by
        default.
    folds : int, default 5
        At least 2.
    by : {"row", "partition"}, default "row"
        What is dealt to the folds at random: rows; or whole partitions, for tables whose
        neighbouring rows are alike (time series, maps).
    random_state : int, default 0
        Seed.
    **parameters
        Those of :class:`SqueakRegressor` but ``mu`` and ``solver``.

    Returns
    -------
    pandas.DataFrame
        One row per μ, the index: ``rmse`` (root of the mean square over folds), ``rmse_std``
        (over folds), ``rmse_0``, …, ``train_rmse``, ``gcv``, ``degrees_of_freedom``. Errors are in
        the units of the target; of several outputs the root mean square.

    Raises
    ------
    InvalidParameterError
        For penalties, folds or ``by`` out of range.
    SqueakError
        As :meth:`SqueakRegressor.fit`.

    Notes
    -----
    Cost: a direct fit, and folds + 1 tridiagonal forms of m × m. The dictionary
    is chosen once on all rows, from the features alone, as are their centre and
    scale.

    Examples
    --------
    >>> import numpy as np
    >>> from squeak_dist.model_selection import mu_path
    >>> X = np.linspace(0, 6, 500)[:, None]
    >>> path = mu_path(X, np.sin(X[:, 0]) + 0.1 * np.cos(70 * X[:, 0]))
    >>> bool(0.05 < path["rmse"].min() < 0.1)
    True
    """
    if mus is not None:
        for mu in mus:
            check_real("mus", mu, above=0)
        if not len(mus):
            raise InvalidParameterError("mus is empty; name at least one penalty, or leave it out")
    settings = _settings(parameters, random_state)
    sums = _sums(X, y, target, sample_weight, settings, folds, by, client, progress)
    grid = None if mus is None else np.asarray(mus, np.float64)
    return _table("mu", penalty_curve(sums, grid, settings.penalty.linear_part))


def dictionary_curve(
    X: Any,
    y: Any = None,
    *,
    target: Any = None,
    sample_weight: Any = None,
    folds: int = 5,
    by: str = "row",
    random_state: int = 0,
    client: Client | str | None = None,
    progress: Progress | bool | None = None,
    sizes: Sequence[int] | None = None,
    **parameters: Any,
) -> pd.DataFrame:
    """Cross-validate the size of the dictionary: the learning curve of one fit.

    Parameters
    ----------
    X, y, target, sample_weight, folds, by, random_state, client, progress
        As in :func:`mu_path`.
    sizes : sequence of int, optional
        Points in the dictionary, at least 1; more than there are count as all of them.
        By default about ten, each 1.6 times the one before, up to all.
    **parameters
        Those of :class:`SqueakRegressor` but ``mu`` and ``solver``; ``max_dictionary``
        is the largest size there can be.

    Returns
    -------
    pandas.DataFrame
        As that of :func:`mu_path`, one row per size; ``mu`` is a column.

    Raises
    ------
    InvalidParameterError
        For sizes, folds or ``by`` out of range.
    SqueakError
        As :meth:`SqueakRegressor.fit`.

    Notes
    -----
    Smaller dictionaries are random parts of the largest: the curve says what further
    points bring, not what a fit with a larger γ would choose. Each size has the μ
    of its own GCV, without a linear part.
    """
    for size in sizes or ():
        check_integer("sizes", size, at_least=1)
    settings = _settings(parameters, random_state)
    sums = _sums(X, y, target, sample_weight, settings, folds, by, client, progress)
    largest = len(sums.folds[0].kernel.gram)
    chosen = _default_sizes(largest) if sizes is None else sizes
    distinct = sorted({min(int(size), largest) for size in chosen})
    return _table("size", size_curve(sums, distinct))


def _settings(parameters: dict[str, Any], seed: int) -> FitParameters:
    taken = {"mu", "solver"} & parameters.keys()
    if taken:
        raise InvalidParameterError(
            f"{' and '.join(sorted(taken))} cannot be given here: every mu is tried, on normal "
            f"equations"
        )
    unknown = sorted(parameters.keys() - FitParameters.__dataclass_fields__.keys())
    if unknown:
        raise InvalidParameterError(
            f"unknown parameter {unknown[0]!r}; expected those of SqueakRegressor"
        )
    return FitParameters(seed=seed, **parameters)


def _sums(
    X: Any,
    y: Any,
    target: Any,
    sample_weight: Any,
    settings: FitParameters,
    folds: int,
    by: str,
    client: Client | str | None,
    progress: Progress | bool | None,
) -> FoldSums:
    check_integer("folds", folds, at_least=2)
    check_choice("by", by, ("row", "partition"))
    source = read_source(X, y, target=target, sample_weight=sample_weight)
    with active_executor(client, progress) as executor:
        return fold_sums(
            executor,
            executor.tables(source),
            settings,
            n_outputs=len(source.schema.targets),
            folds=folds,
            by=by,
        )


def _default_sizes(largest: int) -> list[int]:
    sizes = largest / 1.6 ** np.arange(10)
    return [int(size) for size in sizes if size >= min(10, largest)]


def _table(name: str, curve: Curve) -> pd.DataFrame:
    grid = curve.grid.astype(np.int64) if name == "size" else curve.grid
    columns = {
        "rmse": np.sqrt(np.mean(curve.rmse**2, axis=1)),
        "rmse_std": curve.rmse.std(axis=1),
        **{f"rmse_{j}": column for j, column in enumerate(curve.rmse.T)},
        "train_rmse": curve.train_rmse,
        "gcv": curve.gcv,
        "degrees_of_freedom": curve.degrees_of_freedom,
    }
    if name == "size":
        columns = {"mu": curve.mu, **columns}
    return pd.DataFrame(columns, index=pd.Index(grid, name=name))
