"""Sphinx: `make docs` builds docs/_build/html, warnings are errors."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from squeak_dist._version import __version__
from squeak_dist.parameter_table import PARAMETERS

project = "squeak_dist"
author = copyright = "the squeak_dist developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = f"squeak_dist {version}"
html_copy_source = False
html_show_sphinx = False

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.xref_missing"]  # replaced by tests/test_docs.py, which knows files too

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say more
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True


def parameter_rows() -> str:
    """Return the parameters of a fit as rows of a table, for command_line.md."""
    rows = ["| key | option | values | default | |", "|---|---|---|---|---|"]
    for name, parameter in PARAMETERS.items():
        key = "seed" if name == "random_state" else name
        default = "none" if parameter.default is None else parameter.default
        rows.append(
            f"| `{key}` | `--{key.replace('_', '-')}` | {parameter.domain} | `{default}` | "
            f"{parameter.help} |"
        )
    return "\n".join(rows)


def fill_in(app, name, source) -> None:
    """Put the table where a page asks for it."""
    source[0] = source[0].replace("<!-- the table of parameters -->", parameter_rows())


def setup(app) -> None:
    """Connect what Sphinx calls."""
    app.connect("source-read", fill_in)
