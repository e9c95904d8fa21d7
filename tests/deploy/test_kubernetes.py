"""The Kubernetes files against the operator's own CRDs, and what it makes of them against the API.

The schemas are read out of the installed packages dask-kubernetes and kubernetes-validate.
"""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

import squeak_dist
from squeak_dist.cli import main

pytest.importorskip("dask_kubernetes")
jsonschema = pytest.importorskip("jsonschema")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

HERE = Path(__file__).parents[2] / "deploy" / "kubernetes"
CRDS = files("dask_kubernetes") / "operator/deployment/helm/dask-kubernetes-operator/crds"
API = "1.34"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(name):
    (document,) = yaml.safe_load_all((HERE / name).read_text())
    return document


@lru_cache
def encrypted_job():
    """The job with TLS, as kubectl makes it of the patches."""
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    done = subprocess.run(["kubectl", "kustomize", HERE / "tls"], capture_output=True, text=True)
    if "unknown command" in done.stderr:
        pytest.skip("this kubectl has no kustomize")
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)


MANIFESTS = {
    "cluster": lambda: load("daskcluster.yaml"),
    "job": lambda: load("job/daskjob.yaml"),
    "job with TLS": encrypted_job,
}
each_manifest = pytest.mark.parametrize("name", MANIFESTS)


# --- the operator's CRDs ----------------------------------------------------------------------


@lru_cache
def crd_schema(kind):
    """The CRD's schema, and on top of it that nothing unknown is said.

    An API server drops unknown fields in silence, so a misspelt limit would be no limit.
    """
    for crd in CRDS.iterdir():
        if f"kind: {kind}\n" not in crd.read_text():
            continue
        definition = yaml.load(crd.read_text(), Loader=LOADER)  # thousands of lines
        if definition["spec"]["names"]["kind"] == kind:
            (version,) = definition["spec"]["versions"]
            schema = copy.deepcopy(version["schema"]["openAPIV3Schema"])
            top = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
            schema["properties"] |= top | {"metadata": {"type": "object"}}
            return closed(schema), f"{definition['spec']['group']}/{version['name']}"
    raise LookupError(kind)


def closed(schema):
    """Refuse what an object's properties do not name, and read the x-kubernetes words."""
    if schema.get("x-kubernetes-int-or-string"):
        schema = {k: v for k, v in schema.items() if k != "type"}
        schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if schema.get("nullable"):
        schema = schema | {"type": [schema["type"], "null"]}
    result = {}
    for key, value in schema.items():
        if key == "properties":
            result[key] = {name: closed(inner) for name, inner in value.items()}
        elif key in ("items", "additionalProperties", "not") and isinstance(value, dict):
            result[key] = closed(value)
        elif key in ("anyOf", "allOf", "oneOf"):
            result[key] = [closed(inner) for inner in value]
        else:
            result[key] = value
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in schema and "additionalProperties" not in schema and not open_ended:
        result["additionalProperties"] = False
    return result


def faults(document):
    schema, api_version = crd_schema(document["kind"])
    assert document["apiVersion"] == api_version
    found = jsonschema.Draft202012Validator(schema).iter_errors(document)
    return [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in found]


@each_manifest
def test_the_operator_takes_it(name):
    assert faults(MANIFESTS[name]()) == []


def changed(document, path, value):
    """A copy with one value set, or taken out for ``...``."""
    document = copy.deepcopy(document)
    *above, last = path.split("/")
    place = document
    for part in above:
        place = place[int(part) if isinstance(place, list) else part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


WORKER = "spec/worker/spec/containers/0"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec/worker", ..., "'worker' is a required property"),
        ("spec/scheduler/service", ..., "'service' is a required property"),
        ("spec/worker/replicas", "four", "not of type 'integer'"),
        ("spec/worker/replica", 4, "'replica' was unexpected"),
        (f"{WORKER}/name", ..., "'name' is a required property"),
        (f"{WORKER}/resource", {}, "'resource' was unexpected"),
        (f"{WORKER}/args", "dask worker", "not of type 'array'"),
        (f"{WORKER}/resources/limit", {"memory": "4Gi"}, "'limit' was unexpected"),
        (f"{WORKER}/livenessProbe/httpGet/path", 7, "not of type 'string'"),
    ],
)
def test_a_broken_manifest_is_refused(path, value, expected):
    found = faults(changed(load("daskcluster.yaml"), path, value))
    assert any(expected in fault for fault in found), found


def test_the_words_of_kubernetes_are_understood():
    schema = closed(
        {
            "type": "object",
            "properties": {
                "port": {"type": "string", "x-kubernetes-int-or-string": True},
                "time": {"type": "string", "nullable": True},
                "free": {
                    "type": "object",
                    "properties": {},
                    "x-kubernetes-preserve-unknown-fields": True,
                },
            },
        }
    )
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert valid({"port": 8786, "time": None, "free": {"any": 1}})
    assert valid({"port": "http"})
    assert not valid({"port": 1.5})
    assert not valid({"other": 1})


# --- what the operator makes of them, against the API of Kubernetes ---------------------------


def made_by_the_operator(document):
    """The deployments, services and pods that the operator creates, by its own functions."""
    controller = pytest.importorskip("dask_kubernetes.operator.controller.controller")
    name = document["metadata"]["name"]
    spec = document["spec"]
    made = []
    if document["kind"] == "DaskJob":
        job, spec = spec["job"]["spec"], spec["cluster"]["spec"]
        made.append(controller.build_job_pod_spec(name, name, "default", job, {}, {}))
    scheduler = spec["scheduler"]
    made += [
        controller.build_scheduler_deployment_spec(name, scheduler["spec"], {}, {}),
        controller.build_scheduler_service_spec(name, scheduler["service"], {}, {}),
        controller.build_worker_deployment_spec(
            f"{name}-default", "default", name, "0", spec["worker"]["spec"], {}, {}
        ),
    ]
    return {(one["kind"], one["metadata"]["name"]): one for one in made}


def validate_all(made):
    for one in made.values():
        kubernetes_validate.validate(one, API, strict=True)


@each_manifest
def test_kubernetes_takes_what_the_operator_makes(name):
    validate_all(made_by_the_operator(MANIFESTS[name]()))
    kubernetes_validate.validate(load("networkpolicy.yaml"), API, strict=True)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{WORKER}/resources/limits", "4Gi"),
        (f"{WORKER}/ports/0/containerPort", "8788"),
        (f"{WORKER}/securityContext/readOnlyRootFileSystem", True),
        ("spec/worker/spec/securityContext/runAsUser", "nobody"),
    ],
)
def test_the_api_refuses_a_broken_pod(path, value):
    made = made_by_the_operator(changed(load("daskcluster.yaml"), path, value))
    with pytest.raises(kubernetes_validate.ValidationError):
        validate_all(made)


def pods(document):
    for (kind, name), one in made_by_the_operator(document).items():
        if kind == "Deployment":
            yield name, one["spec"]["template"]
        elif kind == "Pod":
            yield name, one


@each_manifest
def test_pods_may_do_little(name):
    """The level `restricted` of Pod Security, and no token of the cluster."""
    for label, pod in pods(MANIFESTS[name]()):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, label
        assert spec["securityContext"]["runAsNonRoot"] is True, label
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, label
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, label
            assert container["resources"]["limits"]["memory"], label


@each_manifest
def test_every_port_and_volume_that_is_named_is_there(name):
    document = MANIFESTS[name]()
    made = made_by_the_operator(document)
    (service,) = [one for (kind, _), one in made.items() if kind == "Service"]
    scheduler = made["Deployment", f"{document['metadata']['name']}-scheduler"]
    template = scheduler["spec"]["template"]
    assert service["spec"]["type"] == "ClusterIP"
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == ports
    for label, pod in pods(document):
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        (container,) = pod["spec"]["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes, label


def test_the_wall_is_around_these_clusters():
    policy = load("networkpolicy.yaml")
    (expression,) = policy["spec"]["podSelector"]["matchExpressions"]
    names = {load(f)["metadata"]["name"] for f in ("daskcluster.yaml", "job/daskjob.yaml")}
    assert expression == {"key": "dask.org/cluster-name", "operator": "In",
                          "values": sorted(names)}  # fmt: skip
    for document in (load("daskcluster.yaml"), load("job/daskjob.yaml")):
        for label, pod in pods(document):
            assert pod["metadata"]["labels"]["dask.org/cluster-name"] in names, label


# --- the commands in them ---------------------------------------------------------------------


def arguments(pod):
    (container,) = pod["spec"]["containers"]
    assert "command" not in container
    return container["args"]


@each_manifest
def test_the_commands_are_understood(name):
    """Each command line is parsed by the program itself."""
    from distributed.cli import dask_scheduler, dask_worker

    programs = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}
    for _, pod in pods(MANIFESTS[name]()):
        program, *rest = arguments(pod)
        if program == "squeak-dist":
            command, rest = main.commands[rest[0]], rest[1:]
        else:
            assert program == "dask"
            command, rest = programs[rest[0]], rest[1:]
        context = command.make_context("x", rest, resilient_parsing=False)
        assert context.params


def environment(pod):
    (container,) = pod["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"]}


def test_one_image_and_one_thread_each():
    images = set()
    for file in ("daskcluster.yaml", "job/daskjob.yaml"):
        for label, pod in pods(load(file)):
            images.add(pod["spec"]["containers"][0]["image"])
            if "worker" in label:
                given = arguments(pod)
                assert given[given.index("--nthreads") + 1] == "1"
                resources = pod["spec"]["containers"][0]["resources"]
                assert resources["limits"] == resources["requests"]
                assert environment(pod)["DASK_SCHEDULER_ADDRESS"].startswith("tcp://")
    (image,) = images
    assert image.endswith(f":{squeak_dist.__version__}")


def test_with_tls_everything_is_encrypted():
    found = list(pods(encrypted_job()))
    assert len(found) == 3
    for label, pod in found:
        role = next(r for r in ("scheduler", "worker", "runner") if r in label.split("fit-")[1])
        role = {"runner": "client"}.get(role, role)
        variables = environment(pod)
        assert variables["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
        prefix = "DASK_DISTRIBUTED__COMM__TLS__"
        paths = {
            variables[f"{prefix}CA_FILE"],
            variables[f"{prefix}{role.upper()}__CERT"],
            variables[f"{prefix}{role.upper()}__KEY"],
        }
        assert paths == {"/certs/ca.pem", "/certs/cert.pem", "/certs/key.pem"}
        (secret,) = [v["secret"] for v in pod["spec"]["volumes"] if "secret" in v]
        assert secret["secretName"] == f"squeak-tls-{role}"
        if role == "scheduler":
            assert "--protocol tls" in " ".join(arguments(pod))
        else:
            assert re.match(r"tls://squeak-fit-scheduler:8786$",
                            variables["DASK_SCHEDULER_ADDRESS"])  # fmt: skip
