"""Every block of code in README and docs runs, page by page; every link leads somewhere.

``<!-- python … -->`` is code that a reader does not see. A block that cannot run here has the
reason in front of it: ``<!-- not run: … -->``. In blocks of bash the lines that begin with
``squeak-dist`` run on threads.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from squeak_dist.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"^<!-- not run: (?P<reason>.+?) -->\n"
    r"|^<!-- python\n(?P<hidden>.*?)^-->"
    r"|^```(?P<language>\w*)\n(?P<shown>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")

pytestmark = pytest.mark.skipif(len(PAGES) < 2, reason="no docs here")


def blocks(page):
    """Yield (language, code, reason not to run it) of a page."""
    reason = None
    for found in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if found["reason"]:
            reason = found["reason"]
            continue
        if found["hidden"] is not None:
            yield "python", found["hidden"], None
        else:
            yield found["language"], found["shown"], reason
        reason = None


def run_commands(text):
    lines = text.replace("\\\n", " ").splitlines()
    for line in lines:
        if line.startswith("squeak-dist "):
            words = shlex.split(line, comments=True)[1:]
            cluster = any(p.name == "workers" for p in main.commands[words[0]].params)
            workers = ["--workers", "0"] if cluster and "--workers" not in words else []
            result = CliRunner().invoke(main, [*words, *workers])
            assert result.exit_code == 0, f"{line}: {result.output}"


@pytest.mark.filterwarnings("ignore::squeak_dist.errors.SqueakWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    ran = 0
    for language, code, reason in blocks(page):
        if reason is not None or language not in ("python", "bash"):
            continue
        ran += 1
        if language == "bash":
            run_commands(code)
        else:
            exec(compile(code, str(page), "exec"), names)
    if page.stem in ("README", "tutorial", "command_line", "choosing", "features"):
        assert ran > 0


def test_what_is_not_run_says_why():
    reasons = [reason for page in PAGES for _, _, reason in blocks(page) if reason]
    assert all(len(reason) > 10 for reason in reasons)
    assert len(reasons) <= 10, "write examples that run"


def test_the_check_of_code_can_fail(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("<!-- python\nx = 1\n-->\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError):
        test_code_of_a_page_runs(page, tmp_path, monkeypatch)
    page.write_text("```bash\nsqueak-dist inspect nowhere\n```\n")
    with pytest.raises(AssertionError, match="nowhere"):
        test_code_of_a_page_runs(page, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    targets = [target for target in LINK.findall(text) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_every_page_is_in_the_contents():
    contents = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^(\w+)$", contents, re.MULTILINE))
    assert {page.stem for page in PAGES[1:]} - {"index"} <= listed


@pytest.mark.skipif(
    not all(map(find_spec, ("furo", "myst_parser"))), reason="needs the extra `docs`"
)
def test_the_site_builds_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-d",
         tmp_path / "trees", ROOT / "docs", tmp_path / "html"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "html" / "command_line.html").read_text(encoding="utf-8")
    assert "--max-dictionary" in page  # the table that docs/conf.py fills in
    assert (tmp_path / "html" / "reference.html").read_text(encoding="utf-8").count("<dt") > 100
