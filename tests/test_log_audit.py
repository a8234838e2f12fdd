"""What a request log's lines can tell, on the logs of real gateways."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from gateway_truth import LOGS, unpacked

from analyzer.config import parse_config
from analyzer.config_gateways import GatewaySource, LogField
from analyzer.finding import Finding
from analyzer.gateways.framing import Framing
from analyzer.gateways.record import TtftKind
from analyzer.judgement import Verdict
from analyzer.log_audit import Chunk, LogAudit, audit_log
from analyzer.log_findings import counted_twice, log_findings
from analyzer.logflow import LogFlow

NOW = 1_796_100_000.0  # after the recorded logs
JOINT = "{name: joint, good: {ttft: 300ms, tpot: 15ms, e2e: 1.2s}, objective: 0.9}"
GAPS = "{name: gaps, good: {max_gap: 100ms}, objective: 0.9}"
CRITERIA = {
    # log → criterion → whether answers that stream can be evaluated
    "envoy": {"ttft": True, "tpot": True, "e2e": True, "max_gap": False},
    "envoy-lua": {"ttft": True, "tpot": True, "e2e": True, "max_gap": True},
    "envoy-text": {"ttft": False, "tpot": False, "e2e": True, "max_gap": False},
    "nginx": {"ttft": False, "tpot": False, "e2e": True, "max_gap": False},
    "nginx-njs": {"ttft": True, "tpot": True, "e2e": True, "max_gap": False},
    "nginx-lua": {"ttft": True, "tpot": True, "e2e": True, "max_gap": True},
    "haproxy": {"ttft": False, "tpot": False, "e2e": True, "max_gap": False},
    "haproxy-stamped": {"ttft": True, "tpot": False, "e2e": True, "max_gap": False},
    "traefik": {"ttft": False, "tpot": False, "e2e": True, "max_gap": False},
    "caddy": {"ttft": False, "tpot": False, "e2e": True, "max_gap": False},
    "litellm": {"ttft": True, "tpot": True, "e2e": True, "max_gap": False},
}


def audited(
    *lines: bytes,
    classes: str = JOINT,
    now: float = NOW,
    written: float | None = None,
    whole: bool = True,
    **source: object,
) -> tuple[LogAudit, dict[str, Finding]]:
    """Returns the audit of lines, and its findings by their code."""
    config = parse_config(f"slo_classes: [{classes}]")
    given = GatewaySource("edge", path="/gw.log", **source)  # type: ignore[arg-type]
    found = audit_log(
        [Chunk(lines, whole, written)], given, config.slo_classes, aliases={}, now=now
    )
    findings = log_findings(found, config.slo_classes, now)
    return found, {finding.code: finding for finding in findings}


@pytest.mark.parametrize("name", CRITERIA)
def test_each_log_tells_the_criteria_that_it_can(name: str) -> None:
    """And names what to add for each of the others."""
    every = (
        "{name: all, objective: 0.9, good: {ttft: 1s, tpot: 1s, max_gap: 9s, e2e: 9s}}"
    )
    found, findings = audited(*unpacked(name), classes=every)
    answers = found.classes["all"].criteria
    for criterion, told in CRITERIA[name].items():
        known = answers[criterion].known
        assert (known > 30) is told, (criterion, known)
        # Aborts, errors, and answers that are not streamed are not among them.
        ended = found.judged - found.failed
        assert answers[criterion].total == ended or criterion in ("tpot", "max_gap")
        assert ended - 20 < answers[criterion].total <= ended
    lacking = [c for c, told in CRITERIA[name].items() if not told]
    texts = [f for f in findings.values() if f.code.startswith("criterion_")]
    assert bool(texts) is bool(lacking) or all(f.severity == "info" for f in texts)


@pytest.mark.parametrize(
    ("lacking", "having", "criterion", "added"),
    [
        ("nginx", "nginx-njs", "ttft", "js_body_filter goodput.answer;"),
        ("nginx", "nginx-njs", "tpot", "js_body_filter goodput.answer;"),
        ("haproxy", "haproxy-stamped", "ttft", "wait-for-body time 600s at-least 1"),
        ("envoy-text", "envoy", "ttft", "us_us_rx_body_beg"),
        ("envoy", "envoy-lua", "max_gap", "tok_max_gap_us"),
    ],
)
def test_what_is_advised_makes_the_criterion_evaluable(
    lacking: str, having: str, criterion: str, added: str
) -> None:
    """The same gateway with the snippet in its configuration has what it lacked."""
    only = f"{{name: only, good: {{{criterion}: 1s}}, objective: 0.9}}"
    before, findings = audited(*unpacked(lacking), classes=only)
    assert before.classes["only"].criteria[criterion].known == 0
    absent = findings["criterion_absent"]
    assert absent.severity == "warning"
    assert added in absent.snippet
    assert absent.file.startswith("deploy/gateways/")
    after, findings = audited(*unpacked(having), classes=only)
    assert after.classes["only"].criteria[criterion].known > 30
    assert "criterion_absent" not in findings


@pytest.mark.parametrize("name", LOGS)
def test_its_verdicts_are_those_of_the_exporter(name: str) -> None:
    """The same definition, line by line."""
    found, _ = audited(*unpacked(name))
    config = parse_config(f"slo_classes: [{JOINT}]")
    flow = LogFlow(GatewaySource("edge", path="/gw.log"), config)
    flow.take(unpacked(name), NOW)
    flow.finish(NOW)
    counted = Counter[Verdict]()
    for (_, slo_class), row in flow.totals.rows.items():
        assert slo_class == "joint"
        counted[Verdict.GOOD] += int(row.good)
        counted[Verdict.BAD] += int(row.bad)
        counted[Verdict.UNEVALUABLE] += int(row.unevaluable)
        counted[Verdict.EXCLUDED] += int(row.excluded)
    assert +found.classes["joint"].verdicts == +counted
    assert found.lines == flow.totals.lines
    assert found.requests == counted.total()


def envoy_lines(count: int = 40, **changes: object) -> list[bytes]:
    """Returns good streams of a real Envoy with some members changed."""
    good = [
        x
        for x in unpacked("envoy")
        if b'"response_flags":"-"' in x and b"text/event-stream" in x
    ]
    found = []
    for line in good[:count]:
        members = json.loads(line)
        members.update(changes)
        found.append(json.dumps(members).encode())
    return found


def test_streams_without_usage_are_a_share_with_what_to_do() -> None:
    """An argument of the engine, an option of the clients, the filter that reads it."""
    lines = envoy_lines(20) + envoy_lines(20, completion_tokens=None)
    found, findings = audited(*lines)
    assert (found.with_usage, found.without_usage) == (20, 20)
    finding = findings["no_usage"]
    assert finding.message.startswith("20 of 40 (50.0%) streams")
    assert "--enable-force-include-usage" in finding.fix
    assert '"stream_options": {"include_usage": true}' in finding.fix
    assert "envoy.filters.http.sse_to_metadata" in finding.snippet
    assert finding.severity == "warning"
    assert found.classes["joint"].criteria["tpot"].unknown == {"no_usage": 20}
    assert "criterion_partly" not in findings  # one cause is one finding

    _, findings = audited(*lines, classes="{name: e, good: {e2e: 1s}, objective: 0.9}")
    assert findings["no_usage"].severity == "info"  # nobody asks for what it gives


def test_a_log_that_reads_no_bodies_says_nothing_of_usage() -> None:
    """Its lines have no tokens whether answers have usage or not."""
    for name in ("nginx", "haproxy", "traefik", "caddy", "envoy-text"):
        found, findings = audited(*unpacked(name))
        assert (found.with_usage, found.without_usage) == (0, 0)
        assert "no_usage" not in findings


def test_answers_that_are_not_streamed_are_told_apart() -> None:
    """They are no fault of the log: a class of their own can judge them."""
    whole = [x for x in unpacked("envoy") if b'"content_type":"application/json"' in x]
    ok = [x for x in whole if b'"response_code":200' in x]
    found, findings = audited(*envoy_lines(20), *ok[:10])
    assert (found.streamed, found.unstreamed) == (20, 10)
    assert found.classes["joint"].criteria["ttft"].unknown == {"not_streamed": 10}
    partly = findings["criterion_partly"]
    assert partly.severity == "info"
    assert "a class of e2e alone" in partly.fix


@pytest.mark.parametrize(("header", "late"), [(2_000, False), (299_000, True)])
def test_when_headers_come_is_learnt_by_route(header: int, *, late: bool) -> None:
    """By answers whose headers and first output are both in the log."""
    lines = envoy_lines(
        30, us_us_rx_beg=header, us_us_rx_body_beg=300_000, path="/v1/completions"
    )
    found, _ = audited(*lines)
    assert found.habits.routes() == [("/v1/completions", 30, late)]


def test_requests_that_no_class_takes_are_named() -> None:
    """By their models, the most frequent ones first, and bounded."""
    classes = "{name: joint, match: {model: a*}, good: {e2e: 1s}, objective: 0.9}"
    lines = envoy_lines(10, llm_model="abc") + envoy_lines(25, llm_model="big")
    for number in range(30):
        lines += envoy_lines(1, llm_model=f"m{number}")
    found, findings = audited(*lines, classes=classes)
    assert (found.judged, found.classless) == (65, 55)
    message = findings["no_class"].message
    assert message.startswith("55 of 65 (84.6%) requests match no class: 'big' 25, ")
    assert message.endswith(" and 26 more models")
    _, findings = audited(
        *envoy_lines(9, llm_model=None, model_hdr=None), classes=classes
    )
    assert "X-Model" in findings["no_class"].fix


def test_stamps_in_the_future_are_a_finding() -> None:
    """How many, and by how much; a second is what kept clocks may differ by."""
    lines = envoy_lines(5, start_epoch=NOW + 3600.0, us_ds_tx_end=500_000)
    lines += envoy_lines(5, start_epoch=NOW, us_ds_tx_end=900_000)
    found, findings = audited(*lines)
    assert found.clock.future == 5
    assert found.clock.ahead == pytest.approx(3600.5)
    assert "5 of 10 (50.0%) requests end in the future" in findings["future"].message
    assert "by up to 3600.5 s" in findings["future"].message


@pytest.mark.parametrize(("hours", "told"), [(2, True), (0.6, False), (0, False)])
def test_a_log_that_ends_hours_before_its_file_may_be_of_another_zone(
    hours: float, *, told: bool
) -> None:
    """Only whole quarters of an hour look like a zone; a quiet log ends anywhere."""
    lines = envoy_lines(5, start_epoch=NOW - 100.0 - hours * 3600, us_ds_tx_end=0)
    _, findings = audited(*lines, written=NOW - 97.0)
    assert ("zone" in findings) is told


def test_lines_that_cannot_be_parsed_have_reasons_and_an_example() -> None:
    """The example is the parser's word on it, not the line."""
    secret = b'{"response_code":200,"response_flags":"-","duration":-5,"prompt":"hush"}'
    found, findings = audited(*envoy_lines(20), *[secret] * 5, b"{", b"x" * (2 << 20))
    assert found.unparsed == {"wrong_value": 5, "not_json": 1, "too_long": 1}
    assert found.lines == 27
    assert "hush" not in str(found.examples)
    assert "duration" in found.examples["wrong_value"]
    assert "7 of 27" in findings["unparsed"].message
    _, findings = audited(*envoy_lines(40), b"{")
    assert "unparsed" not in findings  # one torn line is no finding


def test_lines_of_no_format_and_of_another_one() -> None:
    """Nothing recognised says what to set, and so does a wrong setting."""
    found, findings = audited(b"hello", b"world")
    assert (found.format, found.unparsed) == (None, {"no_match": 2})
    assert list(findings) == ["not_recognised"]
    assert "docs/gateway-setup.md" in findings["not_recognised"].fix
    found, findings = audited(*unpacked("caddy")[:20], format="traefik")
    assert found.looks_like == "caddy"
    assert findings["other_format"].message.endswith("look like those of caddy")


def test_a_format_of_ones_own_may_be_that_of_a_gateway_too() -> None:
    """Only when most lines do not fit the configured format is another one named."""
    fields = {"e2e": LogField("duration", "ms"), "status": LogField("response_code")}
    found, findings = audited(*envoy_lines(20), format="custom", fields=fields)
    assert (found.looks_like, found.requests) == ("", 20)
    assert "other_format" not in findings


def test_framed_lines_are_unframed_and_messages_apart() -> None:
    """Of a sample from the middle of a file the first message may be half of one."""
    stamp = b"2026-11-29T14:10:48.123456789Z "
    lines = [stamp + b"stdout F " + line for line in envoy_lines(10)]
    lines[0] = stamp + b"stdout F half of a line"
    lines.append(stamp + b"stderr F starting")
    lines.append(stamp + b"stderr F started")
    found, _ = audited(*lines, whole=False)
    assert found.framing is Framing.CRI
    assert (found.requests, found.unparsed) == (9, {"stderr": 1})
    found, findings = audited(*lines)
    assert found.unparsed == {"no_match": 1, "stderr": 2}
    assert found.format is not None
    assert found.format.name == "envoy"
    assert "unparsed" in findings


def test_upper_bounds_of_tpot_are_told_as_such() -> None:
    """LiteLLM's are; its shipped middleware has the value itself."""
    found, findings = audited(*unpacked("litellm"))
    answers = found.classes["joint"].criteria["tpot"]
    assert answers.unknown["bound"] > answers.known > 0
    assert "goodput_litellm.py" in findings["criterion_partly"].file


def test_a_log_that_cannot_tell_a_cut_answer_says_so() -> None:
    """Without a filter nginx knows no end; Traefik not of those that were cut."""
    _, findings = audited(*unpacked("nginx"))
    assert findings["ending"].severity == "warning"
    assert "njs" in findings["ending"].fix
    _, findings = audited(*unpacked("traefik"))
    assert findings["ending"].severity == "info"
    _, findings = audited(*unpacked("nginx-njs"))
    assert "ending" not in findings


def test_without_lines_or_classes_there_is_nothing_to_find() -> None:
    """An empty log has no findings of its own, and without classes none is judged."""
    found, findings = audited()
    assert (found.lines, found.format, findings) == (0, None, {})
    config = parse_config("engines: [{name: a, url: 'http://a/metrics'}]")
    found = audit_log(
        [Chunk(unpacked("haproxy"))],
        GatewaySource("edge", path="/a"),
        config.slo_classes,
        aliases={},
        now=NOW,
    )
    assert found.requests == found.classless + found.excluded.total()
    assert log_findings(found, (), NOW) == ()


def test_first_body_bytes_are_no_tokens() -> None:
    """A class with TTFT is told that comments may be taken for it."""
    found, findings = audited(*unpacked("envoy"), classes=JOINT)
    assert found.ttft_kinds[TtftKind.FIRST_BODY_BYTE] == found.streams_ended
    assert "tok_first_us" in findings["first_body_byte"].snippet
    _, findings = audited(*unpacked("envoy-lua"), classes=JOINT)
    assert "first_body_byte" not in findings


def test_what_an_audit_keeps_is_bounded() -> None:
    """A million names leave a thousand; ids are kept for a while only."""
    lines = envoy_lines(1)
    template = json.loads(lines[0])
    many = []
    for number in range(3000):
        template["llm_model"] = f"model-{number}"
        many.append(json.dumps(template).encode())
    only = "{name: a, match: {model: none}, good: {e2e: 1s}, objective: 0.9}"
    found, _ = audited(*many, classes=only)
    assert found.classless == 3000
    assert len(found.classless_models) == 1000


def test_requests_in_two_logs_are_told() -> None:
    """By their ids: one of the two must not count."""
    assert "`counts: false`" in counted_twice("engine", 7).fix
    assert counted_twice("engine", 7).message.startswith("7 requests stand in the log")
