"""Late requests are the gateway's when its stages took the time and the engine did not.

Played sites, a real engine behind a real Envoy, single requests, and the daemon.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from diagnosed import SLO
from episodes import DIRECTORY, NAMES
from running_exporter import RunningExporter, wait_for
from simulated_site import BEGIN, config, played
from synthetic_engine import MODEL, SyntheticEngine
from synthetic_rank import IDLE, Load, Watched

from analyzer.config import parse_config
from analyzer.diagnosis.hops import Hops, hops
from analyzer.diagnosis.intervals import Window
from analyzer.document import windows
from analyzer.flow import EngineFlow
from analyzer.gateways.record import Outcome, RequestRecord
from analyzer.judgement import judge
from analyzer.recent_requests import MOST_REQUESTS, RecentRequests
from analyzer.replay import LogReplay, replay
from analyzer.slo import SloClass
from analyzer.sources.log_file import log_path, read_lines
from analyzer.sources.recording import read_scrapes
from analyzer.verdict import Family, Verdict

RIGHT = 0.95
SETTLED_SECONDS = 15.0
TIGHT = """
slo_classes:
  - name: tight
    match: {tenant: "*"}
    good: {ttft: 200ms, e2e: 2s}
    objective: 0.9
    stages: {gateway: 1ms, delivery: 1ms}
"""


def held(flow: EngineFlow, *, since: float = 0.0) -> Counter[str]:
    """Returns the seconds under each verdict after *since*."""
    found: Counter[str] = Counter()
    for window in windows([flow], latest=False):
        seconds = window["end"] - max(since, window["start"])
        if seconds > 0:
            found[f"{window['family']}/{window['cause'] or ''}"] += seconds
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_gateway_that_holds_requests_back_is_named(seed: int) -> None:
    """Two seconds before a healthy engine; without the log all looks well."""
    site = played("healthy", seed=seed, seconds=70, gateway_seconds=2.0)
    since = BEGIN + SETTLED_SECONDS
    found = replay(site.scrapes, config(), log=LogReplay(site.lines, config()))
    assert found is not None
    seconds = held(found[0], since=since)
    assert seconds["gateway/overhead"] >= RIGHT * seconds.total(), dict(seconds)
    latest = found[0].timelines[found[0].ranks()[0]].latest
    assert latest is not None
    told = {item.signal: item for item in latest.verdict.evidence}
    assert told["gateway_stage_seconds"].value == pytest.approx(2.0, abs=0.01)
    assert told["engine_ttft_seconds"].value < 1.0
    assert latest.verdict.advice
    blind = replay(site.scrapes, config())
    assert blind is not None
    assert {n.partition("/")[0] for n in held(blind[0], since=since)} == {"none"}


@pytest.mark.parametrize("scenario", ["overload", "kv-pressure", "long-prompts"])
def test_an_engine_that_is_late_itself_keeps_its_verdict(scenario: str) -> None:
    """The same gateway before an overloaded engine: a fast one would not help."""
    site = played(scenario, seed=1, seconds=60, gateway_seconds=1.5)
    log = LogReplay(site.lines, config())
    found = replay(site.scrapes, config(), log=log)
    blind = replay(site.scrapes, config())
    assert found is not None
    assert blind is not None
    since = BEGIN + SETTLED_SECONDS
    assert held(found[0], since=since) == held(blind[0], since=since)


@pytest.mark.parametrize("recording", NAMES)
def test_no_recording_speaks_of_the_gateway(recording: str) -> None:
    """A real Envoy takes a millisecond: not even a budget of one makes it the cause."""
    path = log_path(DIRECTORY / recording)
    assert path is not None
    scrapes = list(read_scrapes(DIRECTORY / recording))
    for text in (SLO, TIGHT):
        judged = parse_config(text)
        found = replay(scrapes, judged, log=LogReplay(read_lines(path), judged))
        assert found is not None
        families = {name.partition("/")[0] for name in held(found[0])}
        assert "gateway" not in families


CHAT = parse_config("""
slo_classes:
  - name: chat
    good: {ttft: 1s, e2e: 20s}
    objective: 0.9
    stages: {gateway: 300ms, delivery: 2s}
""").slo_classes[0]
QUICK = RequestRecord(
    route="/v1/chat/completions",
    outcome=Outcome.OK,
    status=200,
    ttft=0.2,
    e2e=3.0,
    gateway_time=0.002,
    delivery_time=0.0,
)
LIGHT = Load(running=2.0, step=0.011, arrivals=2.0)


def changed(record: RequestRecord = QUICK, **values: object) -> RequestRecord:
    """Returns *record* with other values."""
    return msgspec.structs.replace(record, **values)


def recent(
    records: Iterable[RequestRecord], slo_class: SloClass = CHAT
) -> RecentRequests:
    """Returns *records* as judged under a class."""
    found = RecentRequests()
    for record in records:
        found.add("m", [record], [judge(record, slo_class)], slo_class)
    return found


def verdict(
    record: RequestRecord,
    *,
    load: Load = LIGHT,
    slo_class: SloClass = CHAT,
    each_second: int = 2,
    limits: dict[str, float] | None = None,
) -> Verdict:
    """Returns the verdict on a rank whose every request the gateway saw as *record*."""
    watched = Watched(limits=limits)
    requests: list[RequestRecord] = []
    for _ in range(60):
        for number in range(each_second):
            ended = watched.at + number / each_second
            requests.append(changed(record, start=ended - (record.e2e or 0.0)))
        told = hops(
            [recent(requests, slo_class)], [watched.diagnosis.window], "m", watched.at
        )
        watched.context = replace(watched.context, hops=told)
        watched.play(load, 1)
    found = watched.diagnosis.verdict
    assert found is not None
    return found


SLOW = changed(ttft=1.7, gateway_time=1.5)


def test_the_stage_that_took_the_time_names_the_cause() -> None:
    """Before the engine, after it, and between the two."""
    assert verdict(SLOW).name == (Family.GATEWAY, "overhead")
    slow_way = changed(e2e=24.0, delivery_time=9.0)
    assert verdict(slow_way).name == (Family.GATEWAY, "network")
    between = verdict(changed(ttft=1.7))
    assert between.name == (Family.GATEWAY, "network")
    assert between.confidence <= 0.6
    assert "queueing/api_server" in between.candidates


def test_a_stage_above_its_budget_is_to_blame_with_less_than_half() -> None:
    """0.4 of 1.2 s, where 0.3 s are allowed; without a budget it is the rest's."""
    record = changed(ttft=1.2, gateway_time=0.4)
    load = replace(LIGHT, ttft=0.75)
    assert verdict(record, load=load).name == (Family.GATEWAY, "overhead")
    free = replace(CHAT, stages={})
    assert verdict(record, load=load, slo_class=free).family is Family.NONE


def test_a_stage_whose_absence_would_not_help_is_not_to_blame() -> None:
    """Long, and yet the rest alone is later than allowed: no knob of the gateway."""
    record = changed(ttft=3.2, gateway_time=1.7)
    load = replace(LIGHT, ttft=1.5, missed={"ttft": (2.0, 2.0)})
    found = verdict(record, load=load, limits={"ttft": 1.0})
    assert found.family is not Family.GATEWAY


@pytest.mark.parametrize(
    "load",
    [
        replace(LIGHT, missed={"tpot": (2.0, 2.0)}),
        replace(LIGHT, ttft=1.4),
        replace(LIGHT, running=16.0, step=0.019, waiting=30.0, prefill=800.0),
    ],
    ids=["late tokens", "late first tokens", "a queue"],
)
def test_an_engine_that_did_not_do_its_part_is_not_the_gateways(load: Load) -> None:
    """Its own metrics speak, whatever the log says."""
    found = verdict(SLOW, load=load, limits={"tpot": 0.05})
    assert found.family is not Family.GATEWAY


def test_a_queue_that_makes_nobody_late_leaves_the_blame_with_the_gateway() -> None:
    """The engine's first tokens are judged, and in time."""
    load = replace(
        LIGHT, running=16.0, step=0.019, waiting=3.0, missed={"ttft": (2.0, 0.0)}
    )
    found = verdict(SLOW, load=load, limits={"ttft": 1.0})
    assert found.name == (Family.GATEWAY, "overhead")


def test_an_engine_that_idles_behind_a_slow_gateway_is_not_called_idle() -> None:
    """Requests are held back before it."""
    assert verdict(SLOW, load=IDLE).name == (Family.GATEWAY, "overhead")


def test_first_tokens_of_engines_that_nobody_watches_prove_nothing() -> None:
    """Twice as many in the log as the engine had; and far fewer than it had."""
    record = changed(ttft=1.7)
    assert verdict(record, each_second=4).family is Family.NONE
    assert verdict(record, load=replace(LIGHT, arrivals=9.0)).family is Family.NONE


def test_a_log_without_the_gateways_stage_leaves_the_cause_open() -> None:
    """The time is outside the engine, before or behind the gateway."""
    found = verdict(changed(ttft=1.7, gateway_time=None))
    assert found.name == (Family.GATEWAY, "")
    assert found.missing
    assert {"gateway/overhead", "gateway/network"} <= set(found.candidates)


def test_few_late_requests_and_one_late_moment_are_a_tail() -> None:
    """One in ten all the time; and ten at once, which is no rule yet."""
    some = [SLOW, *[QUICK] * 9] * 6
    once = [SLOW] * 10
    for records, apart in ((some, 0.3), (once, 0.0)):
        watched = Watched()
        watched.play(LIGHT, 20)
        ends = [watched.at - apart * n for n in range(len(records))]
        ended = [
            changed(r, start=end - 3.0) for r, end in zip(records, ends, strict=True)
        ]
        told = hops([recent(ended)], [watched.diagnosis.window], "m", watched.at)
        assert told is not None
        watched.context = replace(watched.context, hops=told)
        assert watched.play(LIGHT, 1).family is Family.NONE


def test_recent_requests_are_bounded_and_go_by_their_own_times() -> None:
    """The last ones of each model; what lies ahead or has no time is left out."""
    found = recent(changed(start=float(n)) for n in range(2 * MOST_REQUESTS))
    every = list(found.ended("m", 0.0, 1e9))
    assert len(every) == MOST_REQUESTS
    assert every[0].record.start == float(MOST_REQUESTS)
    last = 2.0 * MOST_REQUESTS - 1 + 3.0
    assert len(list(found.ended("m", last - 20.0, last))) == 20
    assert not list(found.ended("other", 0.0, 1e9))
    found = recent([QUICK])
    assert not list(found.ended("m", 0.0, 1e9))


def test_nothing_late_is_nothing_to_say() -> None:
    """No log, no late request, and requests of another model."""
    window = Window()
    assert hops([], [window], "m", 10.0) is None
    quick = recent([changed(start=5.0)])
    assert hops([quick], [window], "m", 10.0) is None
    late: Hops | None = hops([recent([changed(SLOW, start=5.0)])], [window], "n", 10.0)
    assert late is None


def envoy_line(*, gateway: float, ttft: float, e2e: float) -> bytes:
    """Returns what Envoy logs now of a request with these times in seconds."""
    record = {
        "start_epoch": f"{time.time() - e2e:.6f}",
        "x_request_id": "r",
        "path": "/v1/chat/completions",
        "model_hdr": MODEL,
        "response_code": 200,
        "response_flags": "-",
        "content_type": "text/event-stream",
        "us_ds_rx_end": 0,
        "us_us_tx_end": round(gateway * 1e6),
        "us_us_rx_beg": round(ttft * 1e6),
        "us_us_rx_body_beg": round(ttft * 1e6),
        "us_us_rx_end": round(e2e * 1e6),
        "us_ds_tx_end": round(e2e * 1e6),
        "completion_tokens": 10,
    }
    return json.dumps(record).encode() + b"\n"


def test_the_daemon_names_a_gateway_that_holds_requests_back(tmp_path: Path) -> None:
    """From a log and an engine that are both alive, with advice and a metric."""
    log, path = tmp_path / "envoy.log", tmp_path / "c.yml"
    log.touch()
    with SyntheticEngine() as engine:
        path.write_text(
            "slo_classes: [{name: chat, good: {ttft: 1s}, objective: 0.9}]\n"
            f"engines: [{{name: vllm, url: '{engine.url}', interval: 1s}}]\n"
            f"gateways: [{{name: edge, path: '{log}', format: envoy}}]\n",
            encoding="utf-8",
        )
        with RunningExporter(f"--config.file={path}") as exporter:

            def named() -> bool:
                with log.open("ab") as file:
                    file.write(envoy_line(gateway=1.5, ttft=1.6, e2e=2.0))
                engine.finish(ttft=0.05)
                row = exporter.get("/api/v1/status").json()["windows"]
                return bool(row) and row[0]["family"] == "gateway"

            wait_for(named, seconds=60.0)
            row = exporter.get("/api/v1/status").json()["windows"][0]
            assert row["cause"] == "overhead"
            assert any("engine as it is" in text for text in row["advice"])
            assert exporter.value("goodput_constraint", family="gateway") == 1.0
            assert "gateway / overhead" in exporter.get("/").text
