"""Metrics as Prometheus reads them, and the server of probes with real clients."""

import http.client
import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shards.errors import StageError
from stager.http import Page, ProbeServer, parse_address, probe_page
from stager.metrics import CONTENT_TYPE, Metric, MetricKind, Sample, counter, gauge, render_metrics


def test_prometheus_reads_what_is_rendered():
    nasty = 'a\\b"c\nd\udc80é'
    text = render_metrics(
        [
            gauge("shardferry_x_bytes", "Bytes\nof x.", 2**53),
            counter("shardferry_y_total", "Ys.", 0.25, {"dataset": nasty}),
            Metric("shardferry_z", MetricKind.GAUGE, "Zs.", (Sample(1, {"a": "1"}), Sample(2, {"a": "2"}))),
        ]
    ).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["shardferry_x_bytes"].samples[0].value == 2**53
    (y,) = families["shardferry_y"].samples
    assert (y.value, y.labels) == (0.25, {"dataset": 'a\\b"c\nd?é'})
    assert [sample.labels["a"] for sample in families["shardferry_z"].samples] == ["1", "2"]


def ask(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    result = answer.status, answer.getheader("Content-Type"), answer.read()
    connection.close()
    return result


def test_pages_are_made_at_each_request_and_nothing_else_is_served():
    calls = []
    pages = {
        "/metrics": lambda: Page(render_metrics([gauge("n", "N.", len(calls))]), content_type=CONTENT_TYPE),
        "/readyz": lambda: probe_page(is_good=bool(calls), text="x"),
    }
    with ProbeServer(("127.0.0.1", 0), pages) as server:
        assert ask(server.port, "/readyz")[0] == 503
        calls.append(1)
        assert ask(server.port, "/readyz?verbose=1")[0] == 200
        assert ask(server.port, "/metrics") == (200, CONTENT_TYPE, b"# HELP n N.\n# TYPE n gauge\nn 1\n")
        assert ask(server.port, "/metrics", "HEAD") == (200, CONTENT_TYPE, b"")
        assert ask(server.port, "/etc/passwd")[0] == 404
        assert ask(server.port, "/metrics", "POST")[0] == 501


def test_a_client_that_says_nothing_holds_up_neither_others_nor_the_end():
    with ProbeServer(("127.0.0.1", 0), {"/livez": lambda: Page(b"ok\n")}) as server:
        silent = socket.create_connection(("127.0.0.1", server.port))
        assert ask(server.port, "/livez")[2] == b"ok\n"
    silent.close()


def test_a_port_in_use_is_an_error_that_names_it():
    with ProbeServer(("127.0.0.1", 0), {}) as server, pytest.raises(StageError, match=f"127.0.0.1:{server.port}"):
        ProbeServer(("127.0.0.1", server.port), {})


@pytest.mark.parametrize(
    ("text", "address"), [(":9464", ("", 9464)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80))]
)
def test_addresses(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["9464", "", ":", ":x", ":65536", "::1:80", "host:-1"])
def test_wrong_addresses_are_explained(text):
    with pytest.raises(ValueError, match="write for instance :9464"):
        parse_address(text)
