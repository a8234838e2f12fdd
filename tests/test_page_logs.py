"""What the status page says of request logs: what each gives, lacks, and why."""

from __future__ import annotations

import re
import shutil
from html import unescape
from pathlib import Path

import pytest
from running_exporter import RunningExporter, wait_for
from status_page import Page, both, log_lines, make_flow, make_log, rendered

from analyzer.gateways.envoy import envoy
from analyzer.gateways.record import LINE_PROBLEMS
from analyzer.logflow import LogFlow
from analyzer.requests_total import EXCLUSIONS
from exporter import page_exact, page_logs
from exporter.log_state import LogState
from exporter.tail_batch import LOST_REASONS

AT = 1_800_000_000.0
ENVOY = tuple(line for _, line in log_lines("kv-a"))
PLACE = "/var/log/envoy.log"


def facts(found: Page, log: int = 1) -> dict[str, str]:
    """Returns the terms and texts of a log's details."""
    part = found.source.partition(f'id="log-{log}"')[2].partition("</dl>")[0]
    pairs = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", part)
    return {term: _plain(text) for term, text in pairs}


def _plain(text: str) -> str:
    return re.sub(r"\s", " ", unescape(re.sub(r"<[^>]*>", "", text)))


def envoy_log(lines: int = 116, *, at: float = AT) -> LogFlow:
    """Returns the flow of a log whose format its lines tell."""
    flow = make_log()
    flow.mark(at - 60)
    flow.take(ENVOY[:lines], at)
    return flow


def test_a_log_that_is_read_says_what_it_gives() -> None:
    """Format, lines, the last record's age and what nobody has read yet."""
    _, log, at = both("kv-a")
    blind = envoy().blind
    state = LogState("edge", place=PLACE, lag_bytes=12_345, blind=blind)
    found = rendered([], at, [log], logs=[state])
    assert "1 request log read" in found.said("ul")
    assert "edge ●read · envoy · 116 lines · last record 17.4 s ago" in (
        found.said("summary")
    )
    said = facts(found)
    assert said["From"] == PLACE
    assert said["Format"] == "envoy, recognised by its lines"
    assert said["Lines so far"] == "116"
    assert said["Last record"] == "17.4 s ago, ended 15:05:34 UTC"
    assert said["Not read yet"] == "12.3 kB"
    assert said["Never tells"] == "".join(blind)
    assert set(said) == {
        "From",
        "Format",
        "Lines so far",
        "Last record",
        "Not read yet",
        "Never tells",
    }


def test_a_log_of_lines_that_nobody_recognises_says_what_to_do() -> None:
    """It stands at the top, and names the keys of the configuration."""
    log = make_log("house")
    log.take([b"hello %d" % number for number in range(60)], AT)
    state = LogState("house", place=PLACE, problems=(log.problem,))
    found = rendered([], AT, [log], logs=[state])
    assert "■not recognised: request log house — no known format" in found.said("ul")
    assert found.said("title") == "1 in trouble · llm-goodput"
    said = facts(found)
    assert said["Format"].startswith("not recognised. Set “format” to the gateway's;")
    assert "“custom”" in said["Format"]
    assert said["Lines so far"] == (
        "60, 60 unreadable: 60 no_match (of another shape than the format's)"
    )
    assert "Problems" not in said


def test_lines_before_a_decision_are_told() -> None:
    """A banner alone is neither an error nor silence."""
    log = make_log()
    log.take([b"starting up"], AT)
    found = rendered([], AT, [log], logs=[LogState("edge", undecided=log.undecided)])
    assert "edge ○empty so far" in found.said("summary")
    assert facts(found)["Format"] == (
        "1 line read, and no format recognises one of them yet"
    )


def test_a_format_that_was_configured_is_called_so() -> None:
    """It is known before the first line."""
    log = make_log(more=", format: caddy")
    state = LogState("edge", detected=False, never=("tpot", "ttft"))
    said = facts(rendered([], AT, [log], logs=[state]))
    assert said["Format"] == "caddy, as configured"
    assert said["Cannot evaluate"] == (
        "tpot and ttft, which a class of the configuration asks for"
    )


def test_unreadable_lines_have_their_reasons() -> None:
    """Each by the label of its counter and in words; many of them are a trouble."""
    log = envoy_log(10)
    log.take([b"{", b"garbage", b"{"], AT)
    found = rendered([], AT, [log])
    assert facts(found)["Lines so far"] == (
        "13, 3 unreadable: 2 not_json (not a JSON object), 1 no_match (of another "
        "shape than the format's)"
    )
    assert "●read" in found.said("summary")
    log.take([b"garbage"] * 20, AT)
    found = rendered([], AT, [log])
    assert "▲mostly unreadable: request log edge — 23 of 33 lines cannot be read" in (
        found.said("ul")
    )


@pytest.mark.parametrize(("lines", "state"), [(0, "■not read"), (5, "▲partly read")])
def test_a_path_that_cannot_be_read_is_named(lines: int, state: str) -> None:
    """Its problem stands at the top and in the details, open among many."""
    problem = f"{PLACE}: Permission denied"
    names = ("a", "b", "c")
    logs = [make_log(name) for name in names]
    logs[1].take(ENVOY[:lines], AT)
    states = [
        LogState(name, problems=(problem,) if name == "b" else ()) for name in names
    ]
    found = rendered([], AT, logs, logs=states)
    assert f"{state}: request log b — {problem}" in found.said("ul")
    assert facts(found, 2)["Problems"] == problem
    opened = [a for a in found.classes("target") if "open" in a]
    assert len(opened) == 1
    titles = re.findall(r"<summary><strong><bdi>(.)<", found.source)
    assert titles == ["b", "a", "c"]
    assert "2 request logs empty so far" in found.said("ul")


def test_many_problems_of_one_log_are_cut_short() -> None:
    """A pattern over hundreds of unreadable files names the first ones."""
    problems = tuple(f"/logs/{n}: Permission denied" for n in range(300))
    found = rendered([], AT, [make_log()], logs=[LogState("edge", problems=problems)])
    assert (
        "edge — /logs/0: Permission denied; /logs/1: Permission denied; 298 more"
        in found.said("ul")
    )
    assert facts(found)["Problems"].endswith("/logs/19: Permission denied280 more")


def test_troubled_logs_come_after_troubled_engines() -> None:
    """An engine that serves nobody is worse than a log that is not read."""
    flow = make_flow(since=0.0)
    flow.fail("refused", AT, seconds=0.1)
    state = LogState("edge", problems=("x: No such file or directory",))
    found = rendered([flow], AT, [make_log()], logs=[state])
    said = found.said("ul")
    assert said.index("■down") < said.index("■not read")
    assert found.said("title").startswith("2 in trouble")


def test_losses_and_requests_that_do_not_count_are_told() -> None:
    """What was lost, excluded and not judged so far, each with its reason."""
    _, log, at = both("mixed-a")
    state = LogState("edge", lost={"rotated_out": 2.0, "torn_line": 0.0}, counts=False)
    said = facts(rendered([], at, [log], logs=[state]))
    assert said["Lost so far"] == (
        "2 rotated_out (files may have come and gone between two looks)"
    )
    assert said["Not counted so far"] == (
        "12 left by the client before a threshold had passed, 4 with the caller's own "
        "error"
    )
    assert said["Not judged so far"] == "23 without ttft or tpot"
    assert said["Counts"] == "no (counts: false): another log has the same requests"


@pytest.mark.parametrize(
    ("later", "age"),
    [(0.0, "now"), (-0.5, "now"), (-90.0, "1 min 30 s ahead of our clock")],
)
def test_a_gateway_whose_clock_is_ahead_is_no_negative_age(
    later: float, age: str
) -> None:
    """A record that ends after now is now, or says by how much clocks differ."""
    ends, line = log_lines("kv-a")[0]
    log = make_log()
    log.take([line], ends)
    expected = "0 s ago" if later == 0.0 else age
    assert f"last record {expected}" in rendered([], ends + later, [log]).said(
        "summary"
    )


def test_there_is_no_section_without_a_log() -> None:
    """Engines alone have no request logs to show."""
    assert "Request logs" not in rendered([make_flow()], AT).said()


def test_every_reason_has_its_words() -> None:
    """Labels that the counters can have are all explained on the page."""
    assert set(page_logs.UNREADABLE) == set(LINE_PROBLEMS)
    assert set(page_logs.LOSSES) == set(LOST_REASONS)
    assert set(page_exact.EXCLUSIONS) == set(EXCLUSIONS)


def test_the_running_exporter_shows_its_logs(tmp_path: Path) -> None:
    """A real file that grows is exact on the page; one that is missing says so."""
    log = tmp_path / "envoy.log"
    log.touch()
    missing = tmp_path / "missing.log"
    config = tmp_path / "goodput.yml"
    config.write_text(
        "slo_classes: [{name: interactive, objective: 0.95, "
        "good: {ttft: 1s, tpot: 50ms, e2e: 10s}}]\n"
        "gateways:\n"
        f"  - {{name: edge, path: '{log}'}}\n"
        f"  - {{name: two, path: '{missing}'}}\n",
        encoding="utf-8",
    )
    with RunningExporter(f"--config.file={config}") as exporter:
        wait_for(lambda: f"{missing}: No such file" in _page(exporter).said("ul"))
        with log.open("ab") as file:
            file.write(b"\n".join(ENVOY) + b"\n")
        wait_for(lambda: "116 lines" in _page(exporter).said("summary"))
        found = _page(exporter)
        assert "interactive · demo-small: 21.6 % of 116 requests were good in the " in (
            found.said("h3")
        )
        said = facts(found)
        assert str(log).startswith(said["From"].removesuffix("…"))  # long ones end
        assert said["Format"] == "envoy, recognised by its lines"
        assert "Cannot evaluate" not in said
        assert facts(found, 2)["Problems"] == f"{missing}: No such file or directory"
        shutil.copy(log, missing)
        wait_for(lambda: "No such file" not in _page(exporter).said("ul"))


def _page(exporter: RunningExporter) -> Page:
    return Page(exporter.get("/").content)
