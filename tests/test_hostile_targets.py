"""One good engine among hostile targets: its rows are right, their failures counted."""

from __future__ import annotations

import gzip
import re
import ssl
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import Metric as Family
from prometheus_client import parser as plain_parser
from prometheus_client.openmetrics import parser as openmetrics_parser
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
from running_exporter import RunningExporter, value, wait_for
from synthetic_engine import MODEL, SyntheticEngine, free_port

from analyzer.catalogue import SCRAPE_FAILURES
from analyzer.exposition import Sample, parse_text

EVENTS = "goodput_engine_criterion_events_total"
FAILURES = "goodput_target_scrape_failures_total"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
CERTIFICATES = Path(__file__).parent / "fixtures" / "tls"
MAX_BODY = 1 << 20
CLASSES = f"""
slo_classes:
  - name: interactive
    match: {{model: {MODEL}}}
    good: {{ttft: 100ms, tpot: 25ms, e2e: 2s}}
    objective: 0.95
"""
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


def source(name: str, url: str, *options: str) -> str:
    """Returns one line of the configuration's engines."""
    given = [f'url: "{url}"', *options]
    return f"  - {{name: {name}, {', '.join(given)}}}\n"


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
class Page:
    """One page of the exporter: what it printed and the samples in it."""

    text: str
    samples: list[Sample]

    def value(self, name: str, **labels: str) -> float | None:
        """Returns one sample's value, None when it is not there."""
        return value(self.samples, name, **labels)

    def one_hot(self, name: str, label: str, **labels: str) -> str:
        """Returns which of a one-hot state's rows is 1."""
        rows = {
            s.labels[label]: s.value
            for s in self.samples
            if s.name == name and labels.items() <= dict(s.labels).items()
        }
        ones = [row for row, number in rows.items() if number == 1]
        assert len(ones) == 1
        assert set(rows.values()) == {0.0, 1.0}
        return ones[0]

    def failures(self, target: str) -> Mapping[str, float]:
        """Returns how often scrapes of a target failed, by reason; not the zeros."""
        rows = {
            s.labels["reason"]: s.value
            for s in self.samples
            if s.name == FAILURES and s.labels["target"] == target
        }
        assert rows.keys() == set(SCRAPE_FAILURES)
        return {reason: count for reason, count in rows.items() if count}


def scraped(exporter: RunningExporter, accept: str = "text/plain") -> Page:
    """Scrapes the exporter once."""
    got = exporter.get(Accept=accept)
    assert got.status_code == 200
    return Page(got.text, parse_text(got.text))


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


def parse_plain(text: str) -> list[Family]:
    """Returns the families as prometheus_client reads the text format."""
    return list(plain_parser.text_string_to_metric_families(text))


def parse_openmetrics(text: str) -> list[Family]:
    """Returns the families as prometheus_client reads OpenMetrics."""
    return list(openmetrics_parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def check_metrics(promtool: str, page: Page) -> None:
    """Fails when promtool finds a fault on a page."""
    found = subprocess.run(
        [promtool, "check", "metrics"],
        input=page.text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout + found.stderr) == (0, "")


def no_series_twice(page: Page) -> bool:
    """Whether every series stands once on a page."""
    series = [(s.name, *sorted(s.labels.items())) for s in page.samples]
    return len(series) == len(set(series))


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


def peak_memory(exporter: RunningExporter) -> int:
    """Returns the highest resident memory of the process so far, in MiB."""
    status = Path(f"/proc/{exporter.process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) // 1024


@contextmanager
def flooded(
    folder: Path, page: Callable[[int], str], *, scrapes: int, limits: str = ""
) -> Iterator[tuple[RunningExporter, Page]]:
    """Runs an exporter with a target that prints *page*(number of the scrape, from 1).

    Gives it when the good engine beside has one request and *scrapes* are counted.
    """
    printed = 0

    def script(peer: Peer) -> None:
        nonlocal printed
        while request := peer.request():
            if b" /metrics " in request:
                printed += 1
                peer.send(answer(page(printed).encode()))
            else:
                peer.send(answer(b"", status="404 Not Found"))

    # Each of our scrapes is a sample; the timer's hour does not come.
    slow = ("interval: 1h", "timeout: 30s", "max_body_bytes: 67108864")
    with SyntheticEngine() as engine, RawServer(script) as server:
        path = folder / "c.yml"
        sources = source("flood", server.url, *slow) + source("good", engine.url, *slow)
        path.write_text(f"{CLASSES}{limits}\nengines:\n{sources}", encoding="utf-8")
        with RunningExporter(f"--config.file={path}") as exporter:
            wait_for(
                lambda: exporter.value(EVENTS, target="good", criterion="e2e") == 0
            )
            engine.finish()
            pages: list[Page] = []

            def counted() -> bool:
                page = scraped(exporter)
                pages.append(page)
                seen = page.value("goodput_target_scrapes_total", target="flood") or 0
                good = page.value(EVENTS, target="good", criterion="e2e")
                return seen >= scrapes and good == 1

            wait_for(counted, seconds=120)
            yield exporter, pages[-1]


MANY = 100_000


def many_models(number: int) -> str:
    """Returns a page on which each of many models has *number* tokens."""
    line = 'vllm:generation_tokens_total{{engine="0",model_name="m{}"}} {}\n'
    return "".join(line.format(model, number) for model in range(MANY))


@pytest.mark.slow
def test_a_hundred_thousand_models_are_held_to_the_limit(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """Some keep their name, the rest is `other` and counted, and no token is lost."""
    limits = "limits: {models: 5}"
    with flooded(tmp_path, many_models, scrapes=2, limits=limits) as (exporter, page):
        assert page.value("goodput_target_up", target="flood") == 1
        assert page.failures("flood") == {}
        tokens = {
            s.labels["model"]: s.value
            for s in page.samples
            if s.name == "goodput_engine_generation_tokens_total"
            and s.labels["target"] == "flood"
        }
        # One of the five is reserved for the model that the configuration names.
        assert len(tokens) == 5
        assert "other" in tokens
        scrapes = page.value("goodput_target_scrapes_total", target="flood")
        assert scrapes is not None
        assert sum(tokens.values()) == MANY * (scrapes - 1)
        dropped = page.value("goodput_label_values_dropped_total", label="model")
        assert dropped is not None
        assert dropped >= MANY - 4
        assert {s.labels.get("model") for s in page.samples} == {
            *tokens,
            MODEL,
            None,
        }
        assert peak_memory(exporter) < 512
        check_metrics(need_tool("promtool"), page)


def million_lines(_: int) -> str:
    """Returns an engine's page with very many series that nobody knows."""
    return LINES.decode() + "".join(f"vllm:x{n} 1\n" for n in range(1_000_000))


@pytest.mark.slow
def test_a_million_lines_cost_bounded_memory(tmp_path: Path) -> None:
    """What stands before the limit is read, and the good engine is not kept waiting."""
    with flooded(tmp_path, million_lines, scrapes=2) as (exporter, page):
        assert page.value("goodput_target_up", target="flood") == 1
        running = "goodput_engine_running_requests"
        assert page.value(running, target="flood", model="m") == 1
        assert page.value("goodput_engine_generation_tokens_total", target="good") == 10
        assert peak_memory(exporter) < 512


ODD_MODELS = (
    'a "quoted" one',
    "a\\backslash\\n",
    "two\nlines",
    '{model_name="x"} 1 # EOF',
    "模型 – é\u2028\U0001f600",
    "\ttab and\x1b[31mescape",
    "<script>alert(1)</script>&amp;",
    "m" * 2000,
)


def models_by_target(families: Iterable[Family]) -> dict[str, set[str]]:
    """Returns the model labels of each target."""
    found: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples:
            if "model" in sample.labels and "target" in sample.labels:
                models = found.setdefault(sample.labels["target"], set())
                models.add(sample.labels["model"])
    return found


def test_a_model_of_any_name_is_printed_as_it_is(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """Whatever an engine calls its model, both formats and the page stay whole."""
    expected = {f"e{number}": model for number, model in enumerate(ODD_MODELS)}
    classes = CLASSES.replace(MODEL, '"*"')
    with ExitStack() as stack:
        sources = "".join(
            source(name, stack.enter_context(SyntheticEngine(model=model)).url)
            for name, model in expected.items()
        )
        path = tmp_path / "c.yml"
        path.write_text(f"{classes}engines:\n{sources}", encoding="utf-8")
        exporter = stack.enter_context(RunningExporter(f"--config.file={path}"))
        up = "goodput_target_up"
        for name in expected:
            wait_for(partial(exporter.value, up, target=name))
        plain, openmetrics = scraped(exporter), scraped(exporter, OPENMETRICS)
        status = exporter.get("/api/v1/status").json()
        shown = exporter.get("/")
    check_metrics(need_tool("promtool"), plain)
    wanted = {name: {model} for name, model in expected.items()}
    assert models_by_target(parse_plain(plain.text)) == wanted
    assert models_by_target(parse_openmetrics(openmetrics.text)) == wanted
    assert {row["model"] for row in status["slo"]} == set(ODD_MODELS)
    assert shown.status_code == 200
    assert "<script>alert" not in shown.text


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
