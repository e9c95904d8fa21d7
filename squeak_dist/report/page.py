"""The report: one HTML page with all figures and tables, which needs no network to open."""

from __future__ import annotations

import os
import secrets
from collections.abc import Hashable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from bokeh.embed import components
from bokeh.resources import Resources

from squeak_dist._version import __version__
from squeak_dist.model import FittedModel
from squeak_dist.report.judged import AnyModel, model_of
from squeak_dist.report.sections import Picture, Section, sections_of

_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">
<style>{style}</style>
{scripts}</head>
"""
_BODY = """<body><a class="skip" href="#main">Skip to the report</a>
<header><h1>{title}</h1><p>{made_by}</p>
<nav aria-label="Sections"><ul>{links}</ul></nav></header>
<main id="main">{sections}</main>
{figures}
<script>{theme}</script></body></html>
"""


def write_report(path: str | os.PathLike[str], fitted: Any, **options: Any) -> Path:
    """Write the report of a model; replace what is at the path only when it is whole.

    Parameters
    ----------
    path : str or path
        An HTML file on a local disk.
    fitted : estimator, model or JudgedRows
        As for :func:`report_page`.
    **options
        Of :func:`report_page`.

    Returns
    -------
    Path
        Where it is.
    """
    text, target = report_page(fitted, **options), Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.tmp-{secrets.token_hex(4)}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def report_page(
    fitted: Any,
    *,
    columns: Sequence[Hashable] | None = None,
    others: Mapping[str, Any] | None = None,
) -> str:
    """Return the report of a model as an HTML page.

    Parameters
    ----------
    fitted : estimator, model or JudgedRows
        The model. With JudgedRows quality is measured on these; otherwise on the rows of
        the fit that the model keeps, each as if it had been left out.
    columns : two labels, optional
        The axes of the picture of the dictionary.
    others : mapping of name to predictions, optional
        What other methods predict of the JudgedRows, for the table of scores.

    Returns
    -------
    str
        About 1.5 MB: bokeh's own script is in it, and nothing is loaded from elsewhere.

    Notes
    -----
    Cost: that of :func:`~squeak_dist.report.judged`, and a few kernel matrices of the dictionary.
    """
    model, sections = model_of(fitted), sections_of(fitted, columns, others)
    figures = {
        _place(section, i): picture.figure
        for section in sections
        for i, picture in enumerate(section.pictures)
    }
    script, places = components(figures)
    title = escape(_title(model))
    folder = files("squeak_dist.report")
    style, theme = (folder.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    # Without widgets, tables and formulas, whose scripts are four times as large.
    bokeh = Resources(mode="inline", components=["bokeh"]).render_js()
    return _HEAD.format(title=title, style=style, scripts=bokeh) + _BODY.format(
        title=title,
        made_by=f"squeak_dist {__version__}, {escape(model.estimator_name)}",
        links="".join(f'<li><a href="#{s.name}">{escape(s.title)}</a></li>' for s in sections),
        sections="".join(_section_html(section, places) for section in sections),
        figures=script,
        theme=theme,
    )


def _place(section: Section, number: int) -> str:
    return f"{section.name}{number}"


def _title(model: AnyModel) -> str:
    if not isinstance(model, FittedModel):
        return f"A fit of {model.estimator_name}"
    names = model.target_names if model.classes is None else (model.classes.target,)
    return f"Fit of {', '.join(names)}"


def _section_html(section: Section, places: Mapping[str, str]) -> str:
    figures = "".join(
        _picture_html(picture, places[_place(section, i)])
        for i, picture in enumerate(section.pictures)
    )
    tables = "".join(table.to_html() for table in section.tables)
    if section.folded:
        tables = f"<details><summary>The numbers as tables</summary>{tables}</details>"
    text = f"<p>{escape(section.text)}</p>" * bool(section.text)
    return (
        f'<section id="{section.name}" aria-labelledby="{section.name}-title">'
        f'<h2 id="{section.name}-title">{escape(section.title)}</h2>{text}'
        f'<div class="pictures">{figures}</div>{tables}</section>\n'
    )


def _picture_html(picture: Picture, place: str) -> str:
    label = escape(f"{picture.figure.title.text}. {picture.caption}")
    return (
        f'<figure><div role="img" aria-label="{label}">{place}</div>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )
