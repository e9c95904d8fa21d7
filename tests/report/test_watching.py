"""What a fit logs on a scheduler, and the page that shows it."""

from __future__ import annotations

import dask.dataframe as dd
import pytest
from distributed import Client
from tornado.httpclient import AsyncHTTPClient

import squeak_dist
from squeak_dist.progress import ProgressView
from squeak_dist.report.watching import fan_in_of, watch_server, watched_fit

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def client():
    with Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None
    ) as client:
        yield client


def test_a_fit_is_seen_on_the_scheduler_and_served(client, train):
    seen = []
    lazy = dd.from_pandas(train[["latitude", "longitude", "median_house_value"]], npartitions=8)
    model = squeak_dist.fit(
        lazy, target="median_house_value", max_dictionary=60, client=client,
        progress=ProgressView(seen.append),
    )  # fmt: skip
    fit = watched_fit(client.get_events())
    assert (fit.moment.stage, fit.moment.done) == ("solve", fit.moment.total)
    assert fit.moment.rows == seen[-1].rows == 1200
    assert fit.moment.size == seen[-1].size == len(model.dictionary_)
    places = {(node["level"], node["index"]) for node in fit.nodes}
    assert places == {(node["level"], node["index"]) for node in model.report_["merges"]}
    assert fan_in_of(fit.nodes) == 2

    server = watch_server(client.get_events, port=0)
    server.start()
    try:
        url = f"http://localhost:{server.port}/"
        answer = server.io_loop.run_sync(lambda: AsyncHTTPClient().fetch(url), timeout=60)
    finally:
        server.stop()
        server.io_loop.close()
    assert b"squeak_dist watch" in answer.body
