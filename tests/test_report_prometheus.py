"""A report from real Prometheus and VictoriaMetrics, against one from the recording."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from episodes import DIRECTORY as EPISODES
from metrics_server import Pages, page, prometheus, victoria_metrics
from prometheus_client.core import Metric as Family
from recorded_logs import content, parsed
from synthetic_engine import free_port

from analyzer.cli import main
from analyzer.config import Config, parse_config
from analyzer.config_gateways import GatewaySource
from analyzer.flow import EngineFlow
from analyzer.judgement import Verdict, judge
from analyzer.logflow import LogFlow
from analyzer.replay import replay
from analyzer.requests_total import BOUNDS
from analyzer.sources.prometheus import Range
from analyzer.sources.recording import read_scrapes

NAME = "ramp-a"
CONFIG = """
slo_classes:
  - {name: interactive, good: {ttft: 1s, tpot: 50ms, e2e: 10s}, objective: 0.95}
engines: [{name: engine, url: "http://engine.example/metrics"}]
"""


def pages_of(config: Config, *, logged: bool = True) -> Pages:
    """Returns what an exporter would have published, every five seconds."""
    lines = content(f"episodes/{NAME}").splitlines()
    records = parsed(b"\n".join(lines))[0]
    waiting = sorted(
        ((record.start or 0.0) + (record.e2e or 0.0), line)
        for record, line in zip(records, lines, strict=True)
    )
    log = LogFlow(GatewaySource("edge", format="envoy"), config)
    log.expect("demo-small")
    pages: list[tuple[int, list[Family]]] = []

    def take(flow: EngineFlow, at: float) -> None:
        if pages and at - pages[-1][0] < 5:
            return
        while waiting and waiting[0][0] <= at:
            log.take([waiting.pop(0)[1]], at)
        pages.append((round(at), page(at, config, [flow], [log] if logged else [])))

    replay(read_scrapes(EPISODES / NAME), config, on_scrape=take)
    last = pages[-1][0] + 5
    for _, line in waiting:
        log.take([line], last)
    pages.append((last, page(last, config, [], [log] if logged else [])))
    return pages


@pytest.fixture(scope="module", params=["prometheus", "victoria-metrics"])
def server(
    request: pytest.FixtureRequest,
    need_tool: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """Yields the URL of a server with the recording's metrics."""
    program = need_tool(request.param)
    pages = pages_of(parse_config(CONFIG))
    directory = tmp_path_factory.mktemp("metrics") / "server"
    if request.param == "prometheus":
        running = prometheus((program, need_tool("promtool")), directory, pages)
    else:
        running = victoria_metrics(program, directory, pages)
    with running as url:
        yield url


def report(*arguments: object) -> Result:
    """Runs `goodput report` for JSON."""
    given = ["report", *map(str, arguments), "--format", "json"]
    return CliRunner().invoke(main, given)


def period() -> list[str]:
    """Returns options for a period that holds all of the recording."""
    records = parsed(content(f"episodes/{NAME}"))[0]
    starts = [record.start or 0.0 for record in records]
    return ["--from", str(min(starts) - 60), "--to", str(max(starts) + 300)]


@pytest.mark.parametrize("step", ["60s", "10s"])
def test_a_server_tells_what_the_recording_tells(
    server: str, step: str, tmp_path: Path
) -> None:
    """Counts are equal; percentiles lie in the bucket of the exact ones."""
    done = report("--prometheus", server, *period(), "--step", step)
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    config = tmp_path / "goodput.yml"
    config.write_text(CONFIG)
    wanted = json.loads(report(EPISODES / NAME, "--config.file", config).stdout)
    (mine,) = [row for row in found["goodput"] if row["source"] == "log"]
    (exact,) = wanted["goodput"]
    for name in ("class", "model", "total", "good", "bad", "unevaluable", "objective"):
        assert mine[name] == exact[name]
    for name in ("output_tokens", "good_output_tokens", "attainment"):
        assert mine[name] == pytest.approx(exact[name])
    misses = {row["criterion"]: row["requests"] for row in found["misses"]}
    assert misses == {row["criterion"]: row["requests"] for row in wanted["misses"]}
    bounds = (0.0, *BOUNDS["ttft"], math.inf)
    by_measure = {row["measure"]: row for row in wanted["percentiles"]}
    for row in found["percentiles"]:
        exact = by_measure[row["measure"]]
        assert row["count"] == exact["count"]
        assert row["mean"] == pytest.approx(exact["mean"])
        if row["measure"] != "ttft":
            continue
        for level in ("p50", "p90", "p95"):
            number = bisect_left(bounds, exact[level])
            assert bounds[number - 1] <= row[level] <= bounds[number]
    timeline = sum(row["total"] for row in found["timeline"])
    assert timeline == pytest.approx(mine["total"])


def test_a_server_tells_what_bound(server: str, tmp_path: Path) -> None:
    """Seconds under each verdict are those of the recording, to a scrape's length."""
    config = tmp_path / "goodput.yml"
    config.write_text(CONFIG)
    wanted = json.loads(report(EPISODES / NAME, "--config.file", config).stdout)
    found = json.loads(report("--prometheus", server, *period()).stdout)
    seconds = {
        (row["family"], row["cause"]): row["seconds"]
        for row in found["constraint_shares"]
    }
    for row in wanted["constraint_shares"]:
        key = (row["family"], row["cause"])
        assert seconds[key] == pytest.approx(row["seconds"], abs=5.0)


def test_classes_may_be_those_that_the_exporter_published(server: str) -> None:
    """Without a configuration the objective and the thresholds are the exporter's."""
    found = json.loads(report("--prometheus", server, *period()).stdout)
    assert found["thresholds"] == {
        "interactive": {"ttft": "1 s", "tpot": "50 ms", "e2e": "10 s"}
    }
    assert found["budget"][0]["objective"] == 0.95


def test_engines_alone_give_bounds(
    need_tool: Callable[[str], str], tmp_path: Path
) -> None:
    """Without a request log the share is an interval that holds the exact one."""
    pages = pages_of(parse_config(CONFIG), logged=False)
    tools = (need_tool("prometheus"), need_tool("promtool"))
    with prometheus(tools, tmp_path / "server", pages) as url:
        found = json.loads(report("--prometheus", url, *period()).stdout)
    (row,) = found["goodput"]
    assert row["source"] == "engine"
    assert row["good"] is None
    judged = [judge(r, parse_config(CONFIG).slo_classes[0]) for r in RECORDS]
    share = sum(j.verdict is Verdict.GOOD for j in judged) / len(judged)
    assert row["lower"] <= share + 0.02
    assert share - 0.02 <= row["upper"] < 1


RECORDS = parsed(content(f"episodes/{NAME}"))[0]


def test_a_server_without_our_metrics_says_so(server: str) -> None:
    """A period before the exporter ran, or matchers of nobody: exit 3, one sentence."""
    for options in (
        ["--from", "1000000000", "--to", "1000003600"],
        [*period(), "--match", 'gateway="nobody",target="nobody"'],
    ):
        done = report("--prometheus", server, *options)
        assert done.exit_code == 3
        assert "goodput-exporter" in done.stderr
        assert "Traceback" not in done.output


def test_a_wrong_query_is_told_in_the_servers_words(server: str) -> None:
    """Matchers that are none come back as the server's own error."""
    done = report("--prometheus", server, *period(), "--match", "x=")
    assert done.exit_code == 3
    assert server in done.stderr


def test_nobody_there_is_a_failure() -> None:
    """A port where nobody listens: exit 3."""
    url = f"http://127.0.0.1:{free_port()}"
    done = report("--prometheus", url)
    assert done.exit_code == 3
    assert "cannot be reached" in done.stderr


@pytest.mark.parametrize("points", [1, 7, 100])
def test_a_range_in_chunks_has_each_moment_once(points: int) -> None:
    """No moment is missing or asked for twice, and no chunk is longer than allowed."""
    moments = Range(1000, 4000, 60)
    asked = []
    for chunk in moments.chunks(points):
        part = list(range(chunk.start, chunk.end + 1, chunk.step))
        assert len(part) <= points
        asked += part
    assert asked == list(range(1000, 4001, 60))
