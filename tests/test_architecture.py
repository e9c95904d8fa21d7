"""The laws of the design, read from the source: who may import whom, and docstrings."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from numpydoc.docscrape import NumpyDocString

import squeak_dist

ROOT = Path(squeak_dist.__file__).parent

# Bottom up. A file imports only from layers below its own; a folder counts as one file.
LAYERS = [
    {"errors", "_typing", "_version", "_cache"},
    {
        *("_floats", "_lapack", "_scratch", "kernel_code"),
        *("columns", "moments", "calibration", "progress"),
    },
    {"kernels", "linalg", "tridiagonal", "dictionary", "merge_tree", "validation", "datasets"},
    {"parameter_table"},
    {"table", "column_profile", "column_encoding"},
    {"row_sample", "row_encoder", "classes"},
    {"profile", "label_counts"},
    {"profile_checks"},
    {"leverage", "nystrom", "encoding"},
    {"encoding_rules", "ridge_path", "encoded_sample"},
    {"model", "feature_model"},
    {"squeak", "solvers", "conjugate_gradients", "store", "inspection"},
    {"samplers", "tuning", "checkpoint", "principal"},
    {"stages"},
    {"distributed", "report"},
    {"estimators", "model_selection"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# Law 1: what may be imported where.
HOMES = {
    "dask": {"distributed", "validation", "datasets", "report", "cli"},
    "distributed": {"distributed", "validation", "datasets", "report", "cli"},
    "zarr": {"store", "checkpoint", "datasets"},
    "bokeh": {"report"},
    "sklearn": {"estimators", "samplers", "datasets", "report", "cli"},
    "click": {"cli"},
    "ray": {"distributed"},
    "llvmlite": {"kernel_code"},
}
MATHEMATICS = {
    *(
        "_typing",
        "_floats",
        "_lapack",
        "_scratch",
        "errors",
        "kernels",
        "linalg",
        "tridiagonal",
        "dictionary",
        "merge_tree",
    ),
    *("leverage", "nystrom", "squeak", "solvers", "conjugate_gradients", "samplers", "tuning"),
    *("ridge_path", "principal", "calibration"),
}


# --- reading imports --------------------------------------------------------------------------


class Module:
    """One source file: its dotted name inside the package, its tree and its imports."""

    def __init__(self, path: Path) -> None:
        parts = path.relative_to(ROOT).with_suffix("").parts
        self.is_package = parts[-1] == "__init__"
        self.parts = parts[:-1] if self.is_package else parts
        self.name = ".".join(("squeak_dist", *self.parts))
        self.unit = self.parts[0] if self.parts else "__init__"
        self.tree = ast.parse(path.read_text(encoding="utf-8"))

    def imports(self, *, for_typing: bool = True) -> set[str]:
        """Absolute names of all that is imported, inside functions too."""
        skipped = set() if for_typing else self._for_typing()
        nodes = (node for node in ast.walk(self.tree) if node not in skipped)
        return {name for node in nodes for name in self._imported(node)}

    def _for_typing(self) -> set[ast.AST]:
        """Statements under ``if TYPE_CHECKING``, which never run."""
        return {
            inner
            for node in ast.walk(self.tree)
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            for statement in node.body
            for inner in ast.walk(statement)
        }

    def _imported(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = self._absolute(node)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            argument = node.args[0]
            if name in {"import_module", "__import__"} and isinstance(argument, ast.Constant):
                yield str(argument.value)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = ("squeak_dist", *self.parts)[: None if self.is_package else -1]
        kept = package[: len(package) - (node.level - 1)]
        return ".".join([*kept, *([node.module] if node.module else [])])


MODULES = [Module(path) for path in sorted(ROOT.rglob("*.py"))]
NAMES = {module.name for module in MODULES}
each_module = pytest.mark.parametrize("module", MODULES, ids=lambda m: m.name)


def imported_units(module: Module) -> set[str]:
    """Files and folders of the package that a module imports, without its own folder."""
    inside = {name.split(".")[1] for name in module.imports() if name.startswith("squeak_dist.")}
    units = {name.split(".")[1] for name in NAMES if "." in name}
    return (inside & units) - {module.unit}


def imported_roots(module: Module) -> set[str]:
    return {name.split(".")[0] for name in module.imports(for_typing=False)}


def test_the_reader_sees_every_form_of_import(tmp_path, monkeypatch):
    source = """
import dask.array as da
from zarr.storage import LocalStore
from . import kernels
from .store import save_model
def later():
    import bokeh
    from squeak_dist.report import figure
    importlib.import_module("distributed.client")
if TYPE_CHECKING:
    from sklearn import base
"""
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "probe.py").write_text(source)
    module = Module(tmp_path / "probe.py")
    assert imported_roots(module) >= {"dask", "zarr", "bokeh", "distributed"}
    assert "sklearn" not in imported_roots(module)  # a name for the type checker
    assert "sklearn.base" in module.imports()
    assert module.imports() >= {"squeak_dist.kernels", "squeak_dist.store.save_model"}
    assert imported_units(module) >= {"kernels", "store"}


# --- layers -------------------------------------------------------------------------------------


def test_every_module_has_a_layer():
    units = {module.unit for module in MODULES} - {"__init__"}
    assert units - LEVEL.keys() == set(), "assign these modules to a layer in this file"
    assert len(LEVEL) == sum(map(len, LAYERS)), "a module stands in two layers"


@each_module
def test_a_module_imports_only_from_layers_below(module):
    if module.unit == "__init__":
        return
    level = LEVEL.get(module.unit, -1)
    upward = {unit for unit in imported_units(module) if LEVEL.get(unit, len(LAYERS)) >= level}
    assert not upward, f"{module.name} imports {sorted(upward)} from its own layer or above"


def test_imports_have_no_cycle():
    graph = {
        module.name: {name for name in module.imports() if name in NAMES} - {module.name}
        for module in MODULES
        if module.unit != "__init__"
    }
    assert list(TopologicalSorter(graph).static_order())


@each_module
@pytest.mark.parametrize("package", HOMES)
def test_a_heavy_package_is_imported_only_where_it_belongs(module, package):
    if package in imported_roots(module):
        assert module.unit in HOMES[package]


@each_module
def test_the_mathematics_imports_numpy_and_scipy_alone(module):
    if module.unit in MATHEMATICS:
        foreign = imported_roots(module) - set(sys.stdlib_module_names) - {"squeak_dist"}
        allowed = {"numpy", "scipy"} | ({"threadpoolctl"} if module.unit == "linalg" else set())
        allowed |= {"sklearn"} if module.unit == "samplers" else set()
        assert foreign <= allowed


def test_importing_the_package_imports_nothing_heavy():
    heavy = (
        *("dask", "distributed", "bokeh", "zarr", "sklearn", "pandas", "pyarrow", "scipy"),
        "llvmlite",
    )
    script = f"import sys, squeak_dist; print(*[m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_ray_is_imported_in_one_file_and_only_when_it_is_asked_for():
    assert [m.name for m in MODULES if "ray" in imported_roots(m)] == [
        "squeak_dist.distributed.on_ray"
    ]
    script = "import sys, squeak_dist.cli; print('ray' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_face_is_complete():
    for name in squeak_dist.__all__:
        assert getattr(squeak_dist, name) is not None
        assert name in dir(squeak_dist)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = squeak_dist.no_such_name


# --- no private attributes of Dask ------------------------------------------------------------


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def names_of_dask(tree: ast.AST) -> set[str]:
    """Local names that were imported from dask or distributed."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            source = getattr(node, "module", None) or ""
            for alias in node.names:
                origin = source or alias.name
                if origin.split(".")[0] in {"dask", "distributed"}:
                    names.add((alias.asname or alias.name).split(".")[0])
    return names


def private_uses_of_dask(module: Module) -> list[str]:
    """Private names taken from Dask by import, and private attributes of anything foreign.

    In a file that uses Dask, an attribute that starts with an underscore may belong
    only to ``self``, ``cls``, a name of our own modules, or be defined in the file.
    """
    if not names_of_dask(module.tree):
        return []
    ours = {"self", "cls"} | {
        alias.asname or alias.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("squeak_dist")
        for alias in node.names
    }
    ours |= {node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)}
    defined = {n.name for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef)}
    found = [
        name
        for name in module.imports()
        if name.split(".")[0] in {"dask", "distributed"} and any(map(is_private, name.split(".")))
    ]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in defined:
            owner = node.value
            if not (isinstance(owner, ast.Name) and owner.id in ours):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"getattr", "setattr"}:
            name = node.args[1]
            if isinstance(name, ast.Constant) and is_private(str(name.value)):
                found.append(ast.unparse(node))
    return found


@each_module
def test_no_private_attribute_of_dask(module):
    assert private_uses_of_dask(module) == []


def test_the_check_for_private_attributes_can_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    for line in (
        "from dask.utils import _deps",
        "import dask\ndask.base._x()",
        "from distributed import Client\ndef f(client): return client._state",
        "import dask\ngetattr(dask, '_x')",
        "import dask._task_spec",
    ):
        (tmp_path / "probe.py").write_text(line)
        assert private_uses_of_dask(Module(tmp_path / "probe.py")), line
    (tmp_path / "probe.py").write_text(
        "import dask\nclass A:\n    def f(self): return self._x, dask.__version__"
    )
    assert private_uses_of_dask(Module(tmp_path / "probe.py")) == []


# --- docstrings -------------------------------------------------------------------------------

# A short function may say all in a sentence, without a section for its parameters.
MOST_WITHOUT_SECTION = 3


def public_members(name: str) -> Iterator[tuple[str, object]]:
    """Functions, classes and their methods that a module defines."""
    module = importlib.import_module(name)
    for key, value in vars(module).items():
        if key.startswith("_") or getattr(value, "__module__", None) != name:
            continue
        if inspect.isfunction(value):
            yield key, value
        elif inspect.isclass(value):
            yield key, value
            for attribute, member in vars(value).items():
                if not attribute.startswith("_") and (function := underlying(member)):
                    yield f"{key}.{attribute}", function


def underlying(member: object) -> object | None:
    if isinstance(member, staticmethod | classmethod):
        member = member.__func__
    elif isinstance(member, property):
        member = member.fget
    elif isinstance(member, cached_property):
        member = member.func
    return member if inspect.isfunction(member) else None


def parameters_of(member: object) -> list[str]:
    if not inspect.isclass(member):
        names = inspect.signature(member).parameters
        return [name for name in names if name not in {"self", "cls"}]
    if is_dataclass(member):
        return [field.name for field in fields(member) if field.init]
    ours = str(getattr(member.__init__, "__module__", "")).startswith("squeak_dist.")
    if ours and not getattr(member, "_is_protocol", False):  # inherited ones too
        return list(inspect.signature(member.__init__).parameters)[1:]
    return []


def docstring_faults(label: str, member: object) -> list[str]:
    text = inspect.cleandoc(member.__doc__ or "")
    if not text:
        return [f"{label}: no docstring"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            parsed = NumpyDocString(text)
        except Exception as error:
            return [f"{label}: numpydoc cannot read it: {error}"]
    documented = [
        name.strip().lstrip("*")
        for entry in parsed["Parameters"]
        for name in entry.name.split(",")
    ]
    expected = parameters_of(member)
    refers = "Parameters are those of :" in text
    if not documented and (refers or len(expected) <= MOST_WITHOUT_SECTION):
        return []
    if documented != expected:
        return [f"{label}: documents {documented}, but takes {expected}"]
    return []


MODULE_NAMES = sorted(
    info.name for info in pkgutil.walk_packages(squeak_dist.__path__, "squeak_dist.")
)


@pytest.mark.parametrize("name", MODULE_NAMES)
def test_docstrings_name_what_is_taken(name):
    assert importlib.import_module(name).__doc__
    faults = [
        fault
        for label, member in public_members(name)
        for fault in docstring_faults(label, member)
    ]
    assert not faults, "\n".join(faults)


def test_the_check_of_docstrings_can_fail():
    def wrong(a: int, b: int) -> int:
        """Add.

        Parameters
        ----------
        a, c : int
            Numbers.
        """
        return a + b

    def silent(a, b, c, d):
        """Say nothing of four parameters."""

    assert docstring_faults("wrong", wrong) == [
        "wrong: documents ['a', 'c'], but takes ['a', 'b']"
    ]
    assert docstring_faults("silent", silent)
    assert docstring_faults("none", lambda: None) == ["none: no docstring"]
