"""The status page as a whole: well formed, safe, small, readable by everybody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from status_page import (
    MODEL,
    Page,
    both,
    feed,
    log_lines,
    make_flow,
    make_log,
    rendered,
    replayed,
    scrapes,
)

from analyzer.document import document
from exporter import page
from exporter.log_state import LogState
from exporter.page_style import STYLE


def variants() -> Iterator[tuple[str, Page]]:
    """Yields pages of every kind."""
    yield "no targets", rendered([], 1_800_000_000.0)
    yield "not scraped", rendered([make_flow(since=100.0)], 101.0)
    for episode in ("kv-a", "restart-a", "dp2-a"):
        flow, at = replayed(episode)
        yield episode, rendered([flow], at)
    flow, at = replayed("restart-a", until=8)
    yield (
        "outage",
        rendered(
            [flow],
            at + 20,
            config_error="config.yml: engines[0].url: must be a URL",
            state_note="counters are kept in memory only: no --storage.path",
            switch_url="?refresh=0",
        ),
    )
    flow, at = replayed("kv-a", models="other-*")
    yield "no class", rendered([flow], at)
    for episode in ("kv-a", "mixed-a"):
        flow, log, at = both(episode)
        yield f"{episode} with a log", rendered([flow], at, [log])
    logs = [make_log(name) for name in ("house", "missing", "idle")]
    logs[0].take([b"?"] * 60, at)
    states = [
        LogState("house", place="/var/log/x", problems=(logs[0].problem,), lag_bytes=9),
        LogState("missing", problems=("/x: No such file",), lost={"torn_line": 1.0}),
        LogState("idle", never=("ttft",), blind=("A client that reads slowly.",)),
    ]
    yield "logs", rendered([], at, logs, logs=states)
    yield "hostile", hostile_page()


HOSTILE = (
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(2)>",
    "x' onmouseover='alert(3)",
    'y\\" onload=\\"alert(4)',
    "&lt;b&gt;",
    "L" * 5000,
    "שלום",
    "user\u202egpj.exe",
    "nul\x00 bell\x07 line\u2028separator",
)


def hostile_page() -> Page:
    """Returns a page on which every text from outside is an attack."""
    found = scrapes("dp2-a")[:4]
    flows = []
    for number, text in enumerate(HOSTILE):
        flow = make_flow(f"t{number}", since=found[0].at)
        flow.source = replace(flow.source, url=f"http://x/{text}")
        for scrape in found:
            given = (scrape.text or "").replace(f'"{MODEL}"', f'"{text}"')
            given = given.replace('engine="1"', f'engine="{text[:60]}"')
            flow.observe(flow.read(f"{given}{text}\n", scrape.at))
        flows.append(flow)
    broken = make_flow("broken", since=found[0].at)
    broken.fail("connection", found[-1].at, seconds=0.1, detail=HOSTILE[0])
    at = found[-1].at
    log = make_log("tail", match='tenant: "*"')
    log.mark(at - 100)
    for text in HOSTILE:
        for tenant in ("interactive", text):
            given = log_lines("kv-a")[0][1].decode()
            given = given.replace(f'"{MODEL}"', json.dumps(text))
            log.take([given.replace('"interactive"', json.dumps(tenant)).encode()], at)
    state = LogState("tail", place=HOSTILE[0], problems=HOSTILE, blind=HOSTILE)
    return rendered(
        [*flows, broken],
        at,
        [log],
        logs=[state],
        config_error=HOSTILE[0],
        state_note=HOSTILE[1],
    )


def test_every_page_is_well_formed() -> None:
    """Elements are balanced, ids are unique, and links within lead somewhere."""
    for kind, found in variants():
        assert found.faults == [], kind
        assert found.open == [], kind
        ids = [a["id"] for _, a in found.elements if "id" in a]
        assert len(ids) == len(set(ids)), kind
        links = {a["href"] for a in found.of("a") if a["href"].startswith("#")}
        assert links <= {f"#{i}" for i in ids}, kind
        labels = {a["aria-labelledby"] for a in found.of("section") if len(a) == 1}
        assert labels - {"aria-label"} <= set(ids), kind


def test_a_page_loads_nothing_and_runs_nothing() -> None:
    """No script, no handler, no address but our own two, no style from elsewhere."""
    for kind, found in variants():
        names = {tag for tag, _ in found.elements}
        assert names.isdisjoint({"script", "img", "iframe", "object", "form"}), kind
        for tag, attributes in found.elements:
            assert not any(name.startswith("on") for name in attributes), kind
            assert "style" not in attributes, kind
            for name in ("src", "href", "action", "data", "xlink:href"):
                value = attributes.get(name, "#")
                assert value.startswith("#") or value in (
                    "/metrics",
                    "/api/v1/status",
                    "?refresh=0",
                    "data:,",
                ), (kind, tag)
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_text_from_outside_is_escaped() -> None:
    """Hostile names appear as text, invisible characters spelled out, long ones cut."""
    found = hostile_page()
    for plain in (*HOSTILE[:3], 'y" onload="alert(4)', HOSTILE[4]):
        assert plain in found.said("bdi")
    assert "<script" not in found.source
    assert "<img" not in found.source
    assert "onmouseover='" not in found.source
    assert r"user\u202egpj.exe" in found.said("bdi")
    assert r"nul\x00 bell\x07 line\u2028separator" in found.said("bdi")
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e\u2028]", found.source)
    assert "L" * 2000 not in found.source
    assert HOSTILE[6] in found.said("bdi")


def test_many_targets_stay_usable() -> None:
    """Two hundred with full sparklines fit in 2 MB, folded, the troubled ones first."""
    pages = scrapes("kv-a")[-2:]  # nothing to do, so that none of them stalls
    start = pages[0].at
    flows = []
    for number in range(200):
        flow = make_flow(f"vllm-{number:03d}", since=start)
        feed(flow, pages)
        for (_, _, signal), trail in flow.trails.items():
            for step in range(120):
                peak = 1.0 if signal == "kv_cache_usage" else 250.0
                trail.append(pages[1].at + 5.0 * step, peak * (step % 7) / 6)
        flows.append(flow)
    at = pages[1].at + 600.0
    for number, flow in enumerate(flows):
        if number in (17, 101):
            flow.fail("refused", at, seconds=0.01)
        else:
            feed(flow, [replace(pages[1], at=at)])
    found = document(flows, at, seconds=300, pictures=True)
    body = page.render(found, version="1.2.3", at=at)
    assert 500_000 < len(body) < 2_000_000
    result = Page(body)
    assert result.faults == []
    assert len(result.classes("spark")) == 600
    assert [a for a in result.classes("target") if "open" in a] == []
    links = [a["href"] for a in result.of("a") if a["href"].startswith("#target-")]
    assert links[:2] == ["#target-18", "#target-102"]
    assert links[2:5] == ["#target-18", "#target-102", "#target-1"]
    assert "198 targets serving" in result.said("ul")
    assert "left out" not in result.said()


def test_a_page_has_a_limit_and_says_what_it_left_out() -> None:
    """However many targets there are, the page stays small and sends one elsewhere."""
    flow, at = replayed("dp2-a")
    found = document([flow], at, seconds=300, pictures=True)
    numbers = range(3000)
    for part, key in (
        ("targets", "target"),
        ("sources", "name"),
        ("windows", "target"),
    ):
        found[part] = [{**row, key: f"t{n}"} for n in numbers for row in found[part]]
    body = page.render(found, version="1.2.3", at=at)
    assert len(body) < 2_000_000
    said = Page(body).said()
    assert re.search(r"[\d ]+ targets left out to keep this page small", said)
    assert re.search(r"[\d ]+ target's details left out", said)
    assert "/api/v1/status has all" in said


@pytest.mark.parametrize(("number", "opened"), [(5, 5), (6, 0)])
def test_details_are_folded_beyond_five_targets(number: int, opened: int) -> None:
    """Few targets are open at once, more are folded."""
    found = scrapes("kv-a")[:2]
    flows = [make_flow(f"t{n}", since=found[0].at) for n in range(number)]
    at = max(feed(flow, found) for flow in flows)
    result = rendered(flows, at)
    details = [a for a in result.classes("target") if "open" in a]
    assert len(details) == opened


def test_many_in_the_same_trouble_share_a_line() -> None:
    """A fleet that is down does not push everything else off the screen."""
    flows = [make_flow(f"t{number}", since=0.0) for number in range(12)]
    for flow in flows:
        flow.fail("refused", 10_000.0, seconds=0.01)
    result = rendered(flows, 10_001.0)
    assert "■down (12): t0, t1, t2, t3, t4, t5, t6, t7 and 4 more" in result.said("ul")


def test_header_and_notices() -> None:
    """Product, version, time in UTC, links, and everything that went wrong with us."""
    result = rendered(
        [],
        1_796_000_000.0,
        config_error="config.yml: is empty",
        state_note="state could not be written: disk full",
        telemetry_path="/own/metrics",
    )
    header = result.said("header")
    assert "llm-goodput1.2.3" in header
    assert "as of 2026-11-30 00:53:20 UTC" in header
    links = [a["href"] for a in result.of("a")]
    assert links == ["/own/metrics", "/api/v1/status"]
    said = result.said("main")
    assert "the configuration before it is in force: config.yml: is empty" in said
    assert "State: state could not be written: disk full" in said
    assert "No target: the configuration names no engine" in said


def test_the_page_refreshes_itself_unless_told_not_to() -> None:
    """Refreshing is a meta element; the link between both is ours to give."""
    given = {a.get("http-equiv"): a for a in rendered([], 0.0).of("meta")}
    assert given["refresh"]["content"] == "5"
    still = rendered([], 0.0, refresh_seconds=0, switch_url="?")
    assert "refresh" not in {a.get("http-equiv") for a in still.of("meta")}
    assert "does not refresh, resume" in still.said("header")


def test_tables_and_pictures_are_accessible() -> None:
    """Heads have a scope, pictures a label, states a word beside their colour."""
    for kind, found in variants():
        assert all(a.get("scope") in ("row", "col") for a in found.of("th")), kind
        for attributes in found.of("svg"):
            assert attributes["role"] == "img", kind
            assert attributes["aria-label"], kind
        assert found.of("html") == [{"lang": "en"}], kind


def _luminance(colour: str) -> float:
    digits = colour[1:]
    if len(digits) == 3:
        digits = "".join(2 * d for d in digits)
    channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    ]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_text_has_contrast_in_light_and_dark() -> None:
    """Every text colour has at least 4.5 to 1 on the background (WCAG AA)."""
    themes = re.findall(r":root\{[^}]*--page[^}]*\}", STYLE)
    assert len(themes) == 2
    for theme in themes:
        colours = dict(re.findall(r"--(\w+):(#[0-9a-f]+)", theme))
        ground = _luminance(colours["page"])
        for name in ("ink", "soft", "accent", "bad", "warn"):
            light, dark = sorted((_luminance(colours[name]), ground), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, theme)
