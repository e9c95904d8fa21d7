"""The page: whole, self-contained, safe, and readable by machines that read aloud."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import squeak_dist
from squeak_dist.cli import main
from squeak_dist.errors import InvalidParameterError, MissingColumnsError
from squeak_dist.report import judged, report_page, write_report

TARGET = "median_house_value"
_VOID = {"meta", "link", "br", "input", "img", "hr"}


class Page(HTMLParser):
    """What is on a page: elements with their attributes, and text outside of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.styles: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["style"]:
            self.styles.append(data)
        elif self.open[-1:] != ["script"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def text(model):
    return report_page(model)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_nothing_is_loaded_from_elsewhere(text, page):
    assert len(text.encode()) < 5e6
    for _, attributes in page.elements:
        assert not attributes.get("src")
        link = attributes.get("href")
        assert link is None or link.startswith(("#", "data:"))
    assert not any(re.search(r"@import|url\(", style) for style in page.styles)
    assert page.open == []


def test_every_section_is_there(page):
    for title in (
        "What was fitted", "How good it is", "Predictions and intervals", "Errors by column",
        "The dictionary", "Chains and merges", "Solver, time and memory",
    ):  # fmt: skip
        assert title in page.text
    for said in ("linear ridge", "as if it had been left out", "SqueakRegressor", "1,200"):
        assert said in page.text


def test_figures_and_tables_have_names_for_readers_aloud(page):
    figures = [a for a in page.all("div") if a.get("role") == "img"]
    assert len(figures) == len(page.all("figure")) == 13
    assert all(len(a["aria-label"]) > 20 for a in figures)
    assert all(a.get("aria-label") for a in page.all("table"))
    assert all(a.get("tabindex") == "0" for a in page.all("div") if a.get("class") == "scroll")
    ids = {a["id"] for _, a in page.elements if a.get("id")}
    assert all(a["href"][1:] in ids for a in page.all("a"))
    assert page.all("html") == [{"lang": "en"}]
    assert all(a.get("scope") in ("row", "col") for a in page.all("th"))


def test_rows_of_the_highest_leverage_are_shown_with_their_values(model, page):
    frame = model.dictionary_frame().sort_values("leverage")
    assert f"{frame.index[-1]:,}" in page.text
    assert f"{frame['total_rooms'].iloc[-1]:.6g}" in page.text


def test_a_loaded_model_has_the_same_report(model, tmp_path):
    model.save(tmp_path / "m.zarr")
    loaded = squeak_dist.load(tmp_path / "m.zarr")
    path = loaded.report(tmp_path / "deep" / "fit.html")
    assert [p.name for p in path.parent.iterdir()] == ["fit.html"]
    assert Page(path.read_text()).text == Page(report_page(model)).text
    ours, theirs = judged(model), judged(loaded)
    assert ours.predicted.tobytes() == theirs.predicted.tobytes()
    assert ours.deviation.tobytes() == theirs.deviation.tobytes()


def test_a_model_without_a_sample_says_so(model):
    text = Page(report_page(replace(model.model_, sample=None))).text
    assert "Not known: the model keeps no rows of its fit" in text
    assert "keeps no sample of its rows" in text


def test_held_out_rows(model, test, tmp_path):
    page = Page(model.report(tmp_path / "fit.html", test).read_text())
    assert "all held-out rows" in page.text
    assert f"{model.evaluate(test).model.rmse[0]:,.0f}" in page.text
    again = model.report(tmp_path / "again.html", test.drop(columns=TARGET), test[TARGET])
    assert Page(again.read_text()).text == page.text


def test_classes(classifier, test, tmp_path):
    left_out = Page(report_page(classifier)).text
    assert "most frequent class" in left_out
    assert "Actual class (lines) and predicted class (columns)" in left_out
    held_out = Page(classifier.report(tmp_path / "fit.html", test).read_text()).text
    assert "balanced accuracy" in held_out
    assert f"{classifier.evaluate(test).model.accuracy:.4g}" in held_out


def test_two_classes_and_several_targets(train):
    dear = np.where(train[TARGET] > 2e5, "dear", "cheap")
    columns = train[["latitude", "longitude", "median_income"]]
    two = squeak_dist.SqueakClassifier(max_dictionary=60).fit(columns, dear)
    assert "dear" in Page(report_page(two)).text
    several = squeak_dist.fit(
        train.drop(columns="ocean_proximity"), target=[TARGET, "households"], missing="impute",
        max_dictionary=60,
    )  # fmt: skip
    text = Page(report_page(several)).text
    assert "RMSE of households" in text
    assert f"R² of {TARGET}" in text


def test_models_without_predictions_and_streams(train, tmp_path):
    columns = train[["latitude", "longitude", "median_income"]]
    for model in (
        squeak_dist.SqueakTransformer(max_dictionary=40).fit(columns),
        squeak_dist.SqueakPCA(3, max_dictionary=40).fit(columns),
    ):
        text = Page(model.report(tmp_path / "fit.html").read_text()).text
        assert "The dictionary" in text
        assert "How good it is" not in text
    stream = squeak_dist.SqueakRegressor(max_dictionary=40).partial_fit(columns, train[TARGET])
    assert "partial_fit" in Page(report_page(stream)).text


def test_iterations_are_shown(train):
    model = squeak_dist.fit(
        train[["latitude", "longitude", TARGET]], target=TARGET, solver="cg", max_dictionary=40
    )
    assert len(model.report_["cg_seconds"]) == len(model.report_["cg_residuals"]) > 0
    text = Page(report_page(model)).text
    assert "relative residual" in text
    assert len(model.report_["cg_train_rmse"]) == len(model.report_["cg_residuals"])
    assert f"{model.report_['cg_residuals'][-1]:.2e}" in text


def test_names_and_values_are_text_not_html(tmp_path):
    evil = "<script>alert(1)</script>"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({evil: rng.normal(size=80), "c": rng.choice([evil, "b"], 80)})
    frame["y</script>"] = frame[evil] ** 2
    model = squeak_dist.fit(frame, target="y</script>", max_dictionary=20)
    text = write_report(tmp_path / "fit.html", model).read_text()
    assert "<script>alert" not in text
    assert "y</script>" not in text
    assert evil in Page(text).text


def test_a_page_that_cannot_be_made_leaves_the_old_one(model, tmp_path):
    path = tmp_path / "fit.html"
    path.write_text("old")
    with pytest.raises(MissingColumnsError):
        model.report(path, columns=["nowhere", "latitude"])
    with pytest.raises(InvalidParameterError, match="pass X too"):
        model.report(path, y=[1.0])
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


# --- command line -------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


@pytest.fixture
def saved(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model.save(tmp_path / "m.zarr")
    return tmp_path / "m.zarr"


def test_report_writes_beside_nothing_of_the_users(saved, test, tmp_path):
    done = run(saved)
    assert (done.exit_code, done.stdout) == (0, "m.html\n"), done.output
    test.to_parquet(tmp_path / "test.parquet")
    done = run(
        saved, "--test", tmp_path / "test.parquet", "--out", "x/fit.html", "--workers", 0,
        "--columns", "median_income, latitude",
    )  # fmt: skip
    assert (done.exit_code, done.stdout) == (0, "x/fit.html\n"), done.output
    text = Page((tmp_path / "x" / "fit.html").read_text()).text
    assert "all held-out rows" in text


def test_report_refuses_what_it_should_not_overwrite(saved, tmp_path):
    for out, said in (
        ("notes.txt", "must be an HTML file"),
        ("m.zarr/fit.html", "overlaps"),
    ):
        done = run(saved, "--out", out)
        assert done.exit_code == 2
        assert said in done.output
    done = run(saved, "--columns", "nowhere,latitude")
    assert done.exit_code == 2
    assert "nowhere" in done.output


def test_watch_needs_a_scheduler(monkeypatch):
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    done = CliRunner().invoke(main, ["watch"])
    assert done.exit_code == 2
    assert "--scheduler" in done.output
