"""Take the screenshots of docs/images: `python docs/take_screenshots.py demo-output [NAME…]`.

Names are report, notebook, watch and terminal; all of them by default. Needs the folder that
`make demo` wrote, Chromium (Debian's package), and for the notebook nbconvert (extra `notebook`).
"""

from __future__ import annotations

import html
import io
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT / "tests" / "report"))

from chromium import Screen, look_at  # noqa: E402
from PIL import Image  # noqa: E402

BOKEH = "typeof Bokeh !== 'undefined' && Bokeh.documents.length > 0 && Bokeh.documents[0].is_idle"
LOADED = "document.readyState === 'complete'"
# The page from one place on: what stands before it goes.
FROM = """(() => {
  const first = document.querySelector("%s");
  for (let node = first; node !== document.body; node = node.parentElement)
    while (node.previousElementSibling) node.previousElementSibling.remove();
  window.dispatchEvent(new Event("resize"));
})()"""
NOTEBOOK_CELL = ".jp-Cell:has(#What-was-kept)"
COMMANDS = (
    "squeak-dist fit 'table/*.parquet' --target temperatur --model m.zarr",
    "squeak-dist fit 'table/*.parquet' --target temperature --model m.zarr --max-dictionary 300",
    "squeak-dist evaluate m.zarr test.parquet",
    "squeak-dist fit table --target temperature --max-dictionary 600 --dry-run",
)


def take(page: Path | str, name: str, screen: Screen, first: str = "body > *", ready=LOADED):
    """Keep what a screen shows of a page, from an element on."""
    (seen,) = look_at(page, [screen], FROM % first, ready)
    picture = Image.open(io.BytesIO(seen.picture)).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)
    print(name, f"{(IMAGES / name).stat().st_size / 1000:.0f} kB")


def report(demo: Path, place: Path) -> None:
    page = place / "report.html"
    command = ["report", demo / "model.zarr", "--test", demo / "test.parquet", "--out", page]
    squeak_dist(*command, "--workers", "0", place=place)
    take(page, "report_wide.png", Screen(1280, 830), "#quality", BOKEH)
    take(page, "report_dark.png", Screen(1280, 1455, "dark"), "#dictionary", BOKEH)
    take(page, "report_phone.png", Screen(390, 960), "#predictions", BOKEH)


def notebook(demo: Path, place: Path) -> None:
    from nbconvert import HTMLExporter

    text, _ = HTMLExporter().from_filename(str(ROOT / "notebooks" / "01_quickstart.ipynb"))
    (place / "notebook.html").write_text(text, encoding="utf-8")
    take(place / "notebook.html", "notebook.png", Screen(960, 1190), NOTEBOOK_CELL)


def watch(demo: Path, place: Path) -> None:
    import logging

    from distributed import Client, LocalCluster
    from tornado.ioloop import IOLoop

    import squeak_dist as package
    from squeak_dist.report.watching import watch_server

    with (
        LocalCluster(n_workers=2, dashboard_address=":0", silence_logs=logging.ERROR) as cluster,
        Client(cluster) as client,
    ):
        package.fit(months(place), target="temperature", max_dictionary=300)
        server = watch_server(client.get_events, port=0)
        server.start()
        address = f"http://localhost:{server.port}/"

        def look() -> None:
            take(address, "watch.png", Screen(1000, 370), ready=BOKEH)

        IOLoop.current().run_sync(lambda: IOLoop.current().run_in_executor(None, look))
        server.stop()


def terminal(demo: Path, place: Path) -> None:
    months(place)
    lines = []
    for command in COMMANDS:
        words = (
            "bash",
            "-c",
            f"{command.replace('squeak-dist', sys.executable + ' -m squeak_dist')}",
        )
        done = subprocess.run(words, cwd=place, capture_output=True, text=True)
        printed = html.escape(done.stderr + done.stdout)
        lines.append(f"<b>$ {html.escape(command)}</b>\n{printed}")
    page = place / "terminal.html"
    page.write_text(
        "<meta charset=utf-8><style>body{margin:0;background:#1e1e1e;color:#ddd}"
        "pre{margin:16px;font:14px/16px monospace;white-space:pre-wrap}b{color:#fff}</style>"
        f"<body><pre>{''.join(lines)}</pre>",
        encoding="utf-8",
    )
    take(page, "terminal.png", Screen(960, 660))


def months(place: Path) -> str:
    """Write six months of the temperatures, a file each, and a tenth of the places to test."""
    from squeak_dist.datasets import holdout, sea_surface_temperature

    (place / "table").mkdir(exist_ok=True)
    columns = ["x", "y", "z", "month", "temperature"]
    train, test = holdout(sea_surface_temperature().query("month >= 48")[columns])
    test.to_parquet(place / "test.parquet")
    for month, rows in train.groupby("month"):
        rows.to_parquet(place / "table" / f"month-{month}.parquet")
    return str(place / "table")


def squeak_dist(*words: object, place: Path) -> None:
    command = [sys.executable, "-m", "squeak_dist", *map(str, words)]
    subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    every = {"report": report, "notebook": notebook, "watch": watch, "terminal": terminal}
    for name in sys.argv[2:] or every:
        with tempfile.TemporaryDirectory() as folder:
            every[name](Path(sys.argv[1]).resolve(), Path(folder))
