"""The page in a browser: drawn without an error, on a wide and a narrow screen, light and dark."""

from __future__ import annotations

import io

import pytest

from squeak_dist.report import write_report

chromium = pytest.importorskip("chromium", reason="the helper of this folder is not importable")

pytestmark = pytest.mark.skipif(
    chromium.executable() is None, reason="no Chromium on this machine: apt install chromium"
)

READY = "typeof Bokeh !== 'undefined' && Bokeh.documents.length > 0 && Bokeh.documents[0].is_idle"
ASKED = """({
  figures: document.querySelectorAll("figure").length,
  canvases: [...document.querySelectorAll("figure")].filter((f) => f.offsetHeight > 100).length,
  overflow: document.documentElement.scrollWidth - window.innerWidth,
  ink: Bokeh.documents[0].roots()[0].title.text_color,
})"""
SCREENS = [
    chromium.Screen(width, scheme=scheme) for width in (1280, 390) for scheme in ("light", "dark")
]


def test_the_page_is_drawn_without_an_error(model, tmp_path):
    PIL = pytest.importorskip("PIL.Image")
    page = write_report(tmp_path / "fit.html", model)
    for screen, seen in zip(SCREENS, chromium.look_at(page, SCREENS, ASKED, READY), strict=True):
        assert seen.errors == []
        assert [r for r in seen.requests if not r.startswith(("file:", "data:", "blob:"))] == []
        assert seen.answer["figures"] == seen.answer["canvases"] == 13
        assert seen.answer["overflow"] <= 0
        assert seen.answer["ink"] == {"light": "#1c2026", "dark": "#e8eaed"}[screen.scheme]
        corner = PIL.open(io.BytesIO(seen.picture)).convert("RGB").getpixel((2, 2))
        assert corner == {"light": (255, 255, 255), "dark": (20, 23, 28)}[screen.scheme]
