"""What a wheel and an sdist hold, and what a type checker sees of an installed package."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import squeak_dist
from squeak_dist.cli import main

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("build", "hatchling"))), reason="needs the extra `test`"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist of this checkout."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT],
        check=True, capture_output=True,
    )  # fmt: skip
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_is_the_package_and_nothing_else(built):
    names = zipfile.ZipFile(built[0]).namelist()
    assert {name.split("/")[0] for name in names} == {
        "squeak_dist", f"squeak_dist-{squeak_dist.__version__}.dist-info"
    }  # fmt: skip
    here = {str(path.relative_to(ROOT)) for path in (ROOT / "squeak_dist").rglob("*.py")}
    assert here <= set(names)
    assert "squeak_dist/py.typed" in names
    assert "squeak_dist/data/sea_surface_temperature.parquet" in names
    assert not [name for name in names if name.endswith((".pyc", ".pkl"))]


def test_the_wheel_declares_its_commands_extras_and_licence(built):
    with zipfile.ZipFile(built[0]) as wheel:
        folder = f"squeak_dist-{squeak_dist.__version__}.dist-info"
        entries = wheel.read(f"{folder}/entry_points.txt").decode()
        metadata = HeaderParser().parsestr(wheel.read(f"{folder}/METADATA").decode())
    assert "squeak-dist = squeak_dist.cli:main" in entries
    assert "squeak = squeak_dist.cli:main" in entries
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert {"demo", "docs", "ray", "s3"} <= set(metadata.get_all("Provides-Extra"))
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_the_sdist_can_be_tested(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for needed in (
        "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "constraints.txt",
        "pyproject.toml", "squeak_dist/py.typed", "tests/conftest.py", "docs/deploy.md",
        "docker-compose.yml", "benchmarks/peers.py",
    ):  # fmt: skip
        assert needed in names, needed
    assert not [n for n in names if n.startswith((".venv", "demo-output", "docs/_build"))]


def test_a_type_checker_sees_the_types_of_an_installed_package(built, tmp_path):
    pytest.importorskip("mypy", reason="needs the extra `dev`")
    venv.create(tmp_path / "env", with_pip=False)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    zipfile.ZipFile(built[0]).extractall(site)
    (tmp_path / "user.py").write_text(
        "import squeak_dist\nreveal_type(squeak_dist.fit)\nsqueak_dist.RBF(length_scale='far')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-executable", tmp_path / "env" / "bin" / "python",
         "--cache-dir", tmp_path / "cache", "user.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert "SqueakRegressor" in done.stdout, done.stdout + done.stderr
    assert 'incompatible type "str"' in done.stdout


# The names of conda-forge where they differ. Its dask has dataframe and distributed.
CONDA_NAMES = {
    "dask[dataframe,distributed]": "dask", "matplotlib": "matplotlib-base", "ray": "ray-default"
}  # fmt: skip
USER_EXTRAS = ("demo", "hpc", "http", "notebook", "ray", "s3", "tls", "xarray")


def in_conda(requirements):
    """Return requirements of pip as conda writes them."""
    parts = (re.fullmatch(r"([\w\[\],-]+)(>=.+)", requirement) for requirement in requirements)
    return {
        f"{CONDA_NAMES.get(name, name)} {bound}" for name, bound in (p.groups() for p in parts)
    }


def test_the_conda_recipe_says_what_pyproject_says():
    recipe = yaml.safe_load((ROOT / "deploy" / "conda" / "recipe.yaml").read_text("utf-8"))
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project, needs = pyproject["project"], recipe["requirements"]
    assert recipe["context"]["version"] == squeak_dist.__version__
    assert f">={recipe['context']['python_min']}" == project["requires-python"]
    assert recipe["package"]["name"] == project["name"]
    assert recipe["about"]["summary"].startswith(project["description"].partition(":")[0])
    assert recipe["about"]["license"] == project["license"]
    assert set(needs["run"]) == {"python >=${{ python_min }}"} | in_conda(project["dependencies"])
    extras = [r for name in USER_EXTRAS for r in project["optional-dependencies"][name]]
    assert set(needs["run_constraints"]) == in_conda(extras)
    assert set(pyproject["build-system"]["requires"]) < set(needs["host"])
    assert recipe["build"]["python"]["entry_points"] == [
        f"{name} = {target}" for name, target in project["scripts"].items()
    ]
    imports, commands = recipe["tests"][0]["python"]["imports"], recipe["tests"][1]["script"]
    for name in imports:
        importlib.import_module(name)
    for command in commands:
        program, *words = command.split()
        assert program in project["scripts"]
        assert words[0].startswith("--") or parses(words)


def parses(words):
    """Whether the command line takes these words (nothing is run)."""
    command = main.commands[words[0]]
    return command.make_context(words[0], words[1:]) is not None


@pytest.mark.parametrize("name", ["ci", "release"])
def test_workflows_pin_their_actions_and_ask_for_little(name):
    text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"] == "ubuntu-24.04"
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            version = step.get("uses", "x@v1.2.3").rpartition("@v")[2]
            assert version.count(".") == 2, step
