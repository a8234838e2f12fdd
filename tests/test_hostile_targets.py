"""One good engine among hostile targets: its rows are right, their failures counted."""

from __future__ import annotations

import gzip
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from exporter_pages import (
    CLASSES,
    EVENTS,
    OPENMETRICS,
    Page,
    check_metrics,
    no_series_twice,
    parse_openmetrics,
    parse_plain,
    scraped,
    source,
)
from raw_server import (
    Peer,
    RawServer,
    Script,
    answer,
    chunk,
    dripping,
    head,
    pouring,
    resetting,
    saying,
    serving,
    stalling,
)
from running_exporter import RunningExporter, wait_for
from synthetic_engine import MODEL, SyntheticEngine, free_port

CERTIFICATES = Path(__file__).parent / "fixtures" / "tls"
MAX_BODY = 1 << 20
LINES = b'vllm:num_requests_running{engine="0",model_name="m"} 1\n'
CHUNKED = head("Transfer-Encoding: chunked")
SIZED = head(f"Content-Length: {MAX_BODY // 2}")
NODE = b"# TYPE node_load1 gauge\nnode_load1 0.5\nnode_load5 0.4\n"
# what a target does → the reason of its failures
HOSTILE: dict[str, tuple[Script, str]] = {
    "silent": (stalling(), "timeout"),
    "dripping-head": (dripping(b"HTTP/1.1 200 OK\r\nX: ", b"a"), "timeout"),
    "dripping-body": (dripping(SIZED, LINES), "timeout"),
    "endless": (pouring(head(), LINES * 999), "too_large"),
    "endless-chunks": (pouring(CHUNKED, chunk(LINES * 999)), "too_large"),
    "huge": (saying(answer(b"a 1\n" * (MAX_BODY // 4 + 1))), "too_large"),
    "not-http": (saying(b"\x00\xffgarbage\r\n\r\n"), "connection"),
    "reset": (resetting, "connection"),
    "cut": (saying(answer(LINES, length=999)), "connection"),
    "cut-chunks": (saying(CHUNKED, chunk(LINES)), "connection"),
    "cut-in-a-line": (saying(head(), LINES, LINES[:40]), "connection"),
    "redirect": (
        saying(answer(b"", "Location: /elsewhere", status="302 Found")),
        "http_status",
    ),
    "not-found": (serving(answer(b"no", status="404 Not Found")), "http_status"),
    "broken": (serving(answer(LINES, status="500 Oops")), "http_status"),
    "compressed": (
        saying(answer(gzip.compress(LINES), "Content-Encoding: gzip")),
        "not_an_exposition",
    ),
    "compressed-in-secret": (saying(answer(gzip.compress(LINES))), "connection"),
    "html": (serving(answer(b"<!doctype html>\n<p>hello</p>\n")), "not_an_exposition"),
    "binary": (serving(answer(bytes(range(256)) * 99 + b"\n")), "not_an_exposition"),
    "empty": (serving(answer(b"")), "not_an_exposition"),
    "another-exporter": (serving(answer(NODE)), "no_engine_metrics"),
}

# those that fail before any answer
EARLY = {
    "refused": "refused",
    "unknown-name": "dns",
    "unknown-ca": "tls",
    "not-tls": "tls",
    "dripping-handshake": "timeout",
    "no-token": "credentials",
}
REASONS = {**{name: reason for name, (_, reason) in HOSTILE.items()}, **EARLY}
TURNED = "turned"  # its first page is good


def not_tls(peer: Peer) -> None:
    """Answers a TLS handshake with something else."""
    peer.socket.recv(1)
    peer.send(b"hello\r\n" * 9)


def dripping_handshake(peer: Peer) -> None:
    """Begins a TLS record and drips the rest."""
    peer.drip(b"\x16\x03\x03\x40\x00" + bytes(0x4000))


def turning(peer: Peer) -> None:
    """Gives one good page, and is silent ever after."""
    if peer.number == 0:
        saying(answer(LINES))(peer)
    stalling()(peer)


def hostile_sources(stack: ExitStack) -> Iterator[str]:
    """Starts every hostile server and gives the lines of the configuration."""

    def start(script: Script, tls: ssl.SSLContext | None = None) -> str:
        return stack.enter_context(RawServer(script, tls=tls)).url

    def hostile(name: str, url: str, *options: str) -> str:
        ends = REASONS.get(name, "timeout") not in ("timeout", "dns")
        timeout = "20s" if ends else "400ms"
        common = ("interval: 1s", "startup_grace: 1s", f"max_body_bytes: {MAX_BODY}")
        return source(name, url, f"timeout: {timeout}", *common, *options)

    for name, (script, _) in HOSTILE.items():
        yield hostile(name, start(script))
    page = serving(answer(LINES))
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(
        CERTIFICATES / "server.pem", CERTIFICATES / "server.key"
    )
    ca = f"tls: {{ca_file: {CERTIFICATES / 'ca.pem'}}}"
    yield hostile("refused", f"http://127.0.0.1:{free_port()}/metrics")
    yield hostile("unknown-name", "http://no-such-host.invalid:8000/metrics")
    yield hostile("unknown-ca", start(page, server_side))
    for name, script in (
        ("not-tls", not_tls),
        ("dripping-handshake", dripping_handshake),
    ):
        yield hostile(name, start(script).replace("http:", "https:"), ca)
    token = "authorization: {credentials_file: /nonexistent/token}"
    yield hostile("no-token", start(page), token)
    yield hostile(TURNED, start(turning))


@dataclass(frozen=True)
class Scene:
    """A running exporter that watches the good engine among hostile targets."""

    exporter: RunningExporter
    engine: SyntheticEngine
    page: Page


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The scene once every hostile target has failed more than once."""
    path = tmp_path_factory.mktemp("hostile") / "c.yml"
    with ExitStack() as stack:
        engine = stack.enter_context(SyntheticEngine())
        sources = source("good", engine.url, "interval: 1s", "timeout: 5s")
        sources += "".join(hostile_sources(stack))
        path.write_text(f"{CLASSES}engines:\n{sources}", encoding="utf-8")
        exporter = stack.enter_context(RunningExporter(f"--config.file={path}"))
        wait_for(lambda: exporter.value(EVENTS, target="good", criterion="e2e") == 0)
        for _ in range(6):
            engine.finish(ttft=0.05, tpot=0.02, e2e=1.0)
        for _ in range(2):
            engine.finish(ttft=0.3, tpot=0.02, e2e=1.0)
        wait_for(lambda: exporter.value(EVENTS, target="good", criterion="e2e") == 8)

        def failed() -> bool:
            page = scraped(exporter)
            counts = [sum(page.failures(name).values()) for name in REASONS]
            return min(counts) > 1

        wait_for(failed)
        yield Scene(exporter, engine, scraped(exporter))


@pytest.mark.parametrize(("name", "reason"), REASONS.items(), ids=REASONS)
def test_a_hostile_target_is_counted_under_its_reason(
    scene: Scene, name: str, reason: str
) -> None:
    """Every scrape of it failed by that reason, it is not up, and shown as down."""
    page = scene.page
    failures = page.failures(name)
    assert failures.keys() == {reason}
    assert page.value("goodput_target_scrapes_total", target=name) == failures[reason]
    assert page.value("goodput_target_up", target=name) == 0
    assert page.one_hot("goodput_engine_state", "state", target=name) == "down"
    last = "goodput_target_last_success_timestamp_seconds"
    assert page.value(last, target=name) is None
    models = {s.name for s in page.samples if s.labels.get("target") == name}
    assert not any(n.startswith("goodput_engine_criterion") for n in models)


def test_the_good_engine_is_right_among_them(scene: Scene) -> None:
    """Its counts are exact, its state is serving, and no scrape of it failed."""
    page = scene.page
    good = {"target": "good", "model": MODEL, "slo_class": "interactive"}
    for criterion, met in (("ttft", 6.0), ("tpot", 8.0), ("e2e", 8.0)):
        labels = {**good, "criterion": criterion}
        assert page.value(EVENTS, **labels) == 8
        for side in ("lower", "upper"):
            name = f"goodput_engine_criterion_good_events_{side}_total"
            assert page.value(name, **labels) == met
    assert page.value("goodput_engine_e2e_seconds_count", target="good") == 8
    assert page.value("goodput_engine_generation_tokens_total", target="good") == 80
    assert page.value("goodput_target_up", target="good") == 1
    assert page.failures("good") == {}
    assert page.one_hot("goodput_engine_state", "state", target="good") == "serving"


def test_status_page_and_document_tell_each_failure(scene: Scene) -> None:
    """A person sees the reason, whatever bytes a target sent."""
    status = scene.exporter.get("/api/v1/status").json()
    told = {row["name"]: row["reason"] for row in status["sources"]}
    assert {name: told[name] for name in REASONS} == REASONS
    shown = scene.exporter.get("/")
    assert shown.status_code == 200
    assert "<p>hello</p>" not in shown.text
    assert all(name in shown.text for name in REASONS)
    assert scene.exporter.get("/-/healthy").status_code == 200


def test_the_page_is_clean_in_both_formats(
    scene: Scene, need_tool: Callable[[str], str]
) -> None:
    """Promtool and prometheus_client read it, and no series stands there twice."""
    check_metrics(need_tool("promtool"), scene.page)
    assert no_series_twice(scene.page)
    assert parse_plain(scene.page.text)
    page = scraped(scene.exporter, OPENMETRICS)
    assert page.text.endswith("# EOF\n")
    assert parse_openmetrics(page.text)
    assert no_series_twice(page)


def test_a_target_that_falls_silent_after_a_good_page_is_down(scene: Scene) -> None:
    """Its counters stay, its gauges go."""

    def state() -> str:
        page = scraped(scene.exporter)
        return page.one_hot("goodput_engine_state", "state", target=TURNED)

    wait_for(lambda: state() == "down", seconds=40)
    page = scraped(scene.exporter)
    assert page.failures(TURNED).keys() == {"timeout"}
    assert page.value("goodput_target_up", target=TURNED) == 0
    assert page.value("goodput_engine_running_requests", target=TURNED) is None
    last = "goodput_target_last_success_timestamp_seconds"
    assert page.value(last, target=TURNED) is not None
