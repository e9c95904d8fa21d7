"""What ``squeak-dist inspect`` does: a model as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from squeak_dist.feature_model import ComponentModel, FeatureModel
from squeak_dist.kernels import brief_kernel
from squeak_dist.model import FittedModel
from squeak_dist.store import load_model

_LISTED = 8  # names and numbers of a list that a table shows


def run_inspect(model_path: str, *, as_json: bool) -> None:
    """Print what a model is.

    Parameters
    ----------
    model_path : str
        Of any model.
    as_json : bool
        Everything, as one line of JSON.
    """
    model = load_model(model_path)
    if as_json:
        click.echo(json.dumps(facts(model) | {"report": dict(model.report)}, allow_nan=False))
    else:
        click.echo(summary(model))
        click.echo(f"\nfitted with\n{_table(facts(model)['parameters'])}")


def facts(model: FittedModel | FeatureModel) -> dict[str, Any]:
    """Return what a model is and how it was fitted, as plain values.

    Parameters
    ----------
    model : FittedModel or FeatureModel
        Of any task.
    """
    report = model.report
    known = (
        "sampler",
        "rows_fitted",
        "train_rmse",
        "target_std",
        "solver",
        "seconds",
        "peak_worker_bytes",
    )
    return {
        "task": report["task"],
        "kernel": str(model.kernel),
        **_outputs(model),
        "features": list(map(str, model.encoding.feature_names)),
        "encoded_features": model.encoding.n_features,
        "dictionary_size": len(model.dictionary),
        "gamma": model.dictionary.gamma,
        "effective_dimension": report["effective_dimension"],
        "epsilon": model.epsilon,
        "qbar": model.dictionary.qbar,
        "approximation": model.approximation,
        "seed": model.seed,
        **{name: report[name] for name in known if name in report},
        "parameters": dict(report.get("parameters", {})),
    }


def _outputs(model: FittedModel | FeatureModel) -> dict[str, Any]:
    """Return what comes out of a model."""
    if isinstance(model, ComponentModel):
        shares = model.eigenvalues / (model.total or 1.0)
        return {"components": model.n_outputs, "explained_variance_ratio": shares.tolist()}
    if isinstance(model, FeatureModel):
        return {"outputs": model.n_outputs}
    if model.classes is None:
        return {"target": list(model.target_names), "mu": model.mu}
    labels = [label.item() if hasattr(label, "item") else label for label in model.classes.labels]
    return {"target": [model.classes.target], "classes": labels, "mu": model.mu}


def summary(model: FittedModel | FeatureModel) -> str:
    """Return the facts of a model as a table.

    Parameters
    ----------
    model : FittedModel or FeatureModel
        Of any task.
    """
    return _table({k: v for k, v in facts(model).items() if k != "parameters"})


def _table(values: Mapping[str, Any]) -> str:
    return "\n".join(
        f"{name.replace('_', ' '):>24}  {_text(name, v)}" for name, v in values.items()
    )


def _text(name: str, value: Any) -> str:
    if name == "kernel":
        return brief_kernel(value)
    if name == "peak_worker_bytes":
        return f"{value / 2**20:,.0f} MiB"
    if isinstance(value, float):
        return f"{value:.6g}"
    if name == "rows_fitted":
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {seconds:.1f}" for key, seconds in value.items())
    return _listed(value) if isinstance(value, list | tuple) else str(value)


def _listed(values: Sequence[Any]) -> str:
    shown = ", ".join(_text("", value) for value in values[:_LISTED])
    return shown + (f", … ({len(values)} in all)" if len(values) > _LISTED else "")
