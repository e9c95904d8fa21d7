"""The values for the Helm chart dask/dask.

The chart is on no package index: DASK_CHART names a checkout of its folder. With it and the
package helm-python-sdk the chart is rendered, and what comes out is checked by the API's schemas.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import squeak_dist

yaml = pytest.importorskip("yaml")
HERE = Path(__file__).parents[2] / "deploy" / "kubernetes"


@pytest.fixture(scope="module")
def values():
    return yaml.safe_load((HERE / "dask-chart-values.yaml").read_text())


def test_values_say_what_the_manifests_say(values):
    worker, scheduler = values["worker"], values["scheduler"]
    assert worker["threads_per_worker"] == 1
    assert worker["resources"]["limits"] == worker["resources"]["requests"]
    assert scheduler["serviceType"] == "ClusterIP"
    assert values["jupyter"]["enabled"] is False, "its default password is public"
    assert values["webUI"]["ingress"]["enabled"] is False
    for part in (worker, scheduler):
        assert part["image"]["tag"] == squeak_dist.__version__
        assert part["securityContext"]["runAsNonRoot"] is True
        assert part["resources"]["limits"]["memory"]
    (manifest,) = yaml.safe_load_all((HERE / "daskcluster.yaml").read_text())
    (container,) = manifest["spec"]["worker"]["spec"]["containers"]
    assert worker["resources"] == container["resources"]
    assert worker["replicas"] == manifest["spec"]["worker"]["replicas"]


@pytest.fixture(scope="module")
def rendered(values):
    helm = pytest.importorskip("helm_python")
    if "DASK_CHART" not in os.environ:
        pytest.skip("DASK_CHART does not name a checkout of the chart")
    with helm.Chart.load(os.environ["DASK_CHART"]) as chart:
        default = chart.values
        assert unknown(values, default) == [], "the chart ignores what it does not know"
        files = chart.render(values, name="squeak", namespace="default")
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    documents = [d for text in texts for d in yaml.safe_load_all(text) if d]
    return {(d["kind"], d["metadata"]["name"]): d for d in documents}


def unknown(ours, theirs, path=""):
    """Names that the chart's own values do not have."""
    if not isinstance(ours, dict) or not theirs:
        return []
    optional = {"threads_per_worker"}  # shown in a comment of the chart alone
    found = [f"{path}{name}" for name in ours if name not in theirs and name not in optional]
    return found + [
        name
        for key in ours.keys() & theirs.keys()
        for name in unknown(ours[key], theirs[key], f"{path}{key}.")
    ]


def test_a_misspelt_value_is_found():
    assert unknown({"worker": {"replica": 1}}, {"worker": {"replicas": 3}}) == ["worker.replica"]


def test_kubernetes_takes_what_the_chart_makes(rendered):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kinds = sorted(kind for kind, _ in rendered)
    assert kinds == ["Deployment", "Deployment", "Service"], "no notebook, no ingress, no roles"
    for document in rendered.values():
        kubernetes_validate.validate(document, "1.34", strict=True)


def test_the_commands_are_understood(rendered):
    from distributed.cli import dask_scheduler, dask_worker

    programs = {"dask-scheduler": dask_scheduler.main, "dask-worker": dask_worker.main}
    seen = {}
    for (kind, _), document in rendered.items():
        if kind == "Deployment":
            (container,) = document["spec"]["template"]["spec"]["containers"]
            name, *arguments = container["args"]
            seen[name] = programs[name].make_context("x", list(arguments)).params
    assert seen["dask-worker"]["memory_limit"] == "0.85"
    assert seen["dask-worker"]["nthreads"] == 1
    assert seen["dask-scheduler"]["port"] == "8786"
