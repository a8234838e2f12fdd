"""The status page as the tests read it: made by the real flow from real recordings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from html.parser import HTMLParser
from typing import TypedDict, Unpack

from episodes import DIRECTORY

from analyzer.config import parse_config
from analyzer.document import document
from analyzer.flow import EngineFlow
from analyzer.gateways.envoy import envoy
from analyzer.gateways.record import RequestRecord
from analyzer.logflow import LogFlow
from analyzer.sources.log_file import log_path, read_lines
from analyzer.sources.recording import Scrape, read_scrapes
from exporter import page
from exporter.log_state import LogState

EVERY = 5  # one scrape of five is read: they are a second apart
MODEL = "demo-small"
VOID = {"meta", "link", "br", "!doctype"}
CONFIG = """
slo_classes:
  - {{name: interactive, match: {{model: "{models}"}}, objective: {objective},
      good: {{ttft: {ttft}, tpot: 50ms, e2e: 10s}}}}
engines: [{{name: {name}, url: "http://vllm.example:8000/metrics"}}]
"""
LOG_CONFIG = """
slo_classes:
  - {{name: interactive, match: {{{match}}}, objective: {objective},
      good: {{ttft: {ttft}, tpot: 50ms, e2e: 10s}}}}
gateways: [{{name: {name}, path: /var/log/envoy.log{more}}}]
"""


class Options(TypedDict, total=False):
    """What a page may be told beside its document."""

    refresh_seconds: int
    logs: Sequence[LogState]
    config_error: str
    state_note: str
    telemetry_path: str
    switch_url: str


class Page(HTMLParser):
    """A parsed page: its elements, its text by element, and whether it is balanced."""

    def __init__(self, body: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.faults: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[tuple[tuple[str, ...], str]] = []
        self.source = body.decode()
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes an element and its attributes."""
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.faults.append(f"{tag} repeats an attribute")
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes an element that closes itself."""
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """Notes an end that fits no beginning."""
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"unexpected end of {tag}")

    def handle_data(self, data: str) -> None:
        """Notes text, with the elements around it."""
        self.text.append((tuple(self.open), data))

    def of(self, tag: str) -> list[dict[str, str]]:
        """Returns the attributes of all elements of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def said(self, inside: str = "body") -> str:
        """Returns the text within elements of a kind, white space made plain."""
        parts = (data for path, data in self.text if inside in path)
        return re.sub(r"\s+", " ", "".join(parts))

    def classes(self, wanted: str) -> list[dict[str, str]]:
        """Returns the attributes of all elements that carry a class."""
        return [a for _, a in self.elements if wanted in a.get("class", "").split()]


@cache
def scrapes(episode: str) -> tuple[Scrape, ...]:
    """Returns the scrapes of an episode, five seconds apart."""
    return tuple(read_scrapes(DIRECTORY / episode))[::EVERY]


def make_flow(name: str = "vllm", *, since: float = 0.0, **given: str) -> EngineFlow:
    """Returns a flow that has seen nothing."""
    values = {"models": "*", "objective": "0.95", "ttft": "1s", **given}
    config = parse_config(CONFIG.format(name=name, **values))
    return EngineFlow(config.engines[0], config, since=since)


def feed(flow: EngineFlow, found: Iterable[Scrape]) -> float:
    """Runs scrapes through a flow, and returns the time of the last one."""
    at = 0.0
    for scrape in found:
        at = scrape.at
        if scrape.text is None:
            flow.fail(scrape.reason, at, seconds=scrape.seconds, detail=scrape.reason)
        else:
            flow.observe(flow.read(scrape.text, at), seconds=scrape.seconds)
    return at


def replayed(
    episode: str, *, first: int = 0, until: int | None = None, **given: str
) -> tuple[EngineFlow, float]:
    """Returns a flow over a part of a recording, and the time of its end."""
    found = scrapes(episode)[first:until]
    flow = make_flow(since=found[0].at, **given)
    return flow, feed(flow, found)


@cache
def log_lines(episode: str) -> tuple[tuple[float, bytes], ...]:
    """Returns the lines of an episode's request log, each with its request's end."""
    path = log_path(DIRECTORY / episode)
    assert path is not None
    parse = envoy().parse
    found = []
    for line in read_lines(path):
        record = parse(line)
        assert isinstance(record, RequestRecord)
        assert record.start is not None
        found.append((record.start + (record.e2e or 0.0), line))
    return tuple(sorted(found))


def make_log(name: str = "edge", **given: str) -> LogFlow:
    """Returns the flow of a request log that has read nothing."""
    values = {"match": "", "objective": "0.95", "ttft": "1s", "more": "", **given}
    config = parse_config(LOG_CONFIG.format(name=name, **values))
    return LogFlow(config.gateways[0], config)


def logged(
    episode: str, *, since: float, at: float, every: float = 5.0, **given: str
) -> LogFlow:
    """Returns the log of an episode, read live from *since* to *at*."""
    flow = make_log(**given)
    flow.mark(since)
    moment = since
    while moment < at:
        before, moment = moment, min(moment + every, at)
        lines = [line for end, line in log_lines(episode) if before < end <= moment]
        flow.take(lines, moment)
        flow.mark(moment)
    return flow


def both(episode: str, *, objective: str = "0.95") -> tuple[EngineFlow, LogFlow, float]:
    """Returns the engine and the request log of an episode, read together."""
    flow, at = replayed(episode, objective=objective)
    since = scrapes(episode)[0].at
    return flow, logged(episode, since=since, at=at, objective=objective), at


def rendered(
    flows: list[EngineFlow],
    at: float,
    log_flows: Sequence[LogFlow] = (),
    **given: Unpack[Options],
) -> Page:
    """Returns the parsed page of these flows."""
    found = document(flows, at, logs=log_flows, seconds=300, pictures=True)
    return Page(page.render(found, version="1.2.3", at=at, **given))


def overview(found: Page) -> dict[str, str]:
    """Returns the text of the gauges in the first row of the overview."""
    table = found.source.partition('class="overview')[2].partition("</table>")[0]
    row = table.partition("<tbody")[2].partition("</tr>")[0]
    cells = re.findall(r'<td[^>]*data-label="([^"]+)"[^>]*>(.*?)</td>', row)
    return {label: re.sub(r"<[^>]*>", "", cell) for label, cell in cells}
