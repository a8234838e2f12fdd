from __future__ import annotations

import pytest
from gateway_lines import parsed, problem_of, rounded

from analyzer.config import parse_config
from analyzer.config_gateways import LogField
from analyzer.gateways.custom import custom
from analyzer.gateways.detect import format_for
from analyzer.gateways.format import Format
from analyzer.gateways.pattern import LONGEST_LINE, PatternError, compile_pattern
from analyzer.gateways.record import (
    E2eKind,
    Outcome,
    RequestRecord,
    TokensKind,
    TtftKind,
)
from analyzer.strict import ConfigError

HOUSE = """
gateways:
  - name: house
    path: /logs/gw.jsonl
    format: custom
    fields: {start: {key: time, unit: s}, request_id: rid, status: status,
             model: model, tenant: tenant, ttft: {key: ttft_ms, unit: ms},
             e2e: {key: duration_us, unit: us}, route: http.path,
             completion_tokens: usage.completion_tokens}
"""
LINE: dict[str, object] = {
    "time": 1795960938.25,
    "rid": "r1",
    "status": 200,
    "model": "m",
    "tenant": "acme",
    "ttft_ms": 200,
    "duration_us": 1_000_000,
    "http.path": "/v1/completions?key=secret",
    "usage": {"completion_tokens": 81, "prompt_tokens": 5},
}


def configured(text: str = HOUSE) -> Format:
    """Returns the format of the first gateway of a configuration."""
    found = format_for(parse_config(text).gateways[0])
    assert found is not None
    return found


def test_fields_with_units_and_dotted_paths() -> None:
    """A dot leads into an object, or is part of a flat key."""
    assert rounded(parsed(configured(), LINE)) == RequestRecord(
        request_id="r1",
        start=1795960938.25,
        route="/v1/completions",
        tenant="acme",
        model="m",
        status=200,
        outcome=Outcome.OK,
        ttft=0.2,
        ttft_kind=TtftKind.TOKEN,
        tpot=0.01,
        e2e=1.0,
        e2e_kind=E2eKind.HANDOVER,
        completion_tokens=81,
        tokens_kind=TokensKind.USAGE,
    )
    nested = {k: v for k, v in LINE.items() if k != "http.path"}
    nested["http"] = {"path": "/generate"}
    assert parsed(configured(), nested).route == "/generate"


def test_what_it_can_evaluate_is_what_its_fields_hold() -> None:
    """The time per token follows from first token, total and tokens."""
    assert configured().criteria == {"ttft", "tpot", "e2e"}
    assert custom({"e2e": LogField("d")}).criteria == {"e2e"}


def test_usage_makes_an_answer_complete() -> None:
    """Without it a status of 200 says nothing of the end."""
    without = {k: v for k, v in LINE.items() if k != "usage"}
    assert parsed(configured(), without).outcome is Outcome.UNKNOWN
    assert parsed(configured(), {**LINE, "usage": None}).outcome is Outcome.UNKNOWN
    assert parsed(configured(), {**LINE, "status": 502}).outcome is Outcome.HTTP_ERROR
    left = parsed(configured(), {**LINE, "status": 499})
    assert left.outcome is Outcome.CLIENT_ABORT
    assert left.tpot is None


@pytest.mark.parametrize("outcome", list(Outcome))
def test_the_logs_own_outcome_decides(outcome: Outcome) -> None:
    """One of our words is taken; another one means that nothing is known."""
    log_format = custom({"status": LogField("s"), "outcome": LogField("o")})
    assert parsed(log_format, {"s": 200, "o": outcome.value}).outcome is outcome
    assert parsed(log_format, {"s": 200, "o": "fine"}).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("unit", "factor"), [("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9), ("", 1.0)]
)
def test_units(unit: str, factor: float) -> None:
    """Durations and stamps in any unit, and as texts."""
    fields = {"start": LogField("t", unit), "e2e": LogField("d", unit)}
    for value in (0.5 * factor, str(0.5 * factor)):
        record = parsed(custom(fields), {"t": 1795960938.0 * factor, "d": value})
        assert record.e2e == pytest.approx(0.5)
        assert record.start == pytest.approx(1795960938.0)


@pytest.mark.parametrize(
    "stamp",
    ["2026-11-29T14:02:18Z", "29/Nov/2026:15:02:18 +0100", "1795960938", 1795960938],
)
def test_stamps(stamp: object) -> None:
    """RFC 3339, a common log's, or a number."""
    record = parsed(custom({"start": LogField("t")}), {"t": stamp})
    assert record.start == 1795960938.0


def test_a_whole_answer_has_no_first_token() -> None:
    """When the log tells which answers are streams."""
    fields = {"stream": LogField("s"), "ttft": LogField("f"), "e2e": LogField("d")}
    for flag in (False, "false", "0", 0):
        record = parsed(custom(fields), {"s": flag, "f": 1, "d": 1})
        assert (record.stream, record.ttft, record.ttft_kind) == (
            False,
            None,
            TtftKind.NONE,
        )
    for flag in (True, "true", 1):
        assert parsed(custom(fields), {"s": flag, "f": 1, "d": 1}).ttft == 1.0
    assert parsed(custom(fields), {"s": "maybe", "f": 1, "d": 1}).stream is None


def test_values_that_do_not_belong() -> None:
    """Objects, truth values and texts where numbers belong fail the line."""
    fields = {"e2e": LogField("d"), "status": LogField("s")}
    for wrong in ({"d": True}, {"d": [1]}, {"d": "x"}, {"s": "two"}, {"s": 1000}):
        assert problem_of(custom(fields), wrong) == "wrong_value"
    assert problem_of(configured(), {**LINE, "usage": "none"}) == "wrong_value"
    assert problem_of(custom(fields), {"other": 1}) == "no_match"


PATTERN = """
gateways:
  - name: house
    path: /logs/gw.log
    format: custom
    pattern: '^(?P<start>[0-9.]+) (?P<rid>\\S+) (?P<status>\\d+) took=(?P<ms>[0-9.]+)
      (?P<ttft>[0-9.]+)?'
    fields: {e2e: {key: ms, unit: ms}, request_id: rid}
"""


def test_a_pattern_with_named_groups() -> None:
    """Groups named like a field map themselves, others by `fields`."""
    line = b"1795960938.25 r1 200 took=900 0.25 whatever \xc3\x9f"
    assert rounded(parsed(configured(PATTERN), line)) == RequestRecord(
        request_id="r1",
        start=1795960938.25,
        status=200,
        outcome=Outcome.UNKNOWN,
        ttft=0.25,
        ttft_kind=TtftKind.TOKEN,
        e2e=0.9,
        e2e_kind=E2eKind.HANDOVER,
    )
    assert parsed(configured(PATTERN), b"1.5 r1 200 took=900 ").ttft is None
    assert problem_of(configured(PATTERN), b"hello") == "no_match"


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"(?P<model>(a+)+)$", b"a" * 60_000 + b"!"),
        (r"(?P<model>.*.*.*.*)=x", b"a" * 60_000),
        (r"(?P<model>(a|aa)+)$", b"a" * 60_000 + b"!"),
        (r"^(?P<model>(\w+\s?)*)$", b"word " * 12_000 + b"!"),
    ],
)
def test_no_pattern_can_hang_us(pattern: str, line: bytes) -> None:
    """What takes Python's engine longer than anyone waits is over at once."""
    assert problem_of(custom({}, pattern), line) == "no_match"


def test_a_line_beyond_the_limit_is_not_searched() -> None:
    """Time is in proportion to length, and length is bounded."""
    log_format = custom({}, r"(?P<model>a+)")
    assert problem_of(log_format, b"a" * (LONGEST_LINE + 1)) == "too_long"


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "is no pattern of RE2"),
        (r"(?P<a>x)\1", "is no pattern of RE2"),
        (r"(?P<a>(?=x)y)", "is no pattern of RE2"),
        ("(?P<a>(x{1000}){1000})", "is no pattern of RE2"),
        ("abc", "needs named groups"),
        ("(?P<a>" + "x" * 5000 + ")", "longer than"),
    ],
)
def test_patterns_that_are_refused(pattern: str, words: str) -> None:
    """Each with the reason."""
    with pytest.raises(PatternError, match=words):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    ("gateway", "message"),
    [
        ("pattern: '('", "is no pattern of RE2: missing ): ("),
        ("pattern: '(?P<x>a)'", "has no group with the name of a field"),
        (
            "pattern: '(?P<x>a)', fields: {status: y}",
            "status: the pattern has no group 'y'",
        ),
        (
            "fields: {status: usage, completion_tokens: usage.n}",
            "'usage' cannot also hold 'usage.n'",
        ),
        ("policy_statuses: [429]", "format custom needs fields or a pattern"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(
    gateway: str, message: str
) -> None:
    """Before the first line is read."""
    text = f"gateways: [{{name: h, path: /l, format: custom, {gateway}}}]"
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    assert message in caught.value.message
    with pytest.raises(ConfigError):
        parse_config("gateways: [{name: h, path: /l, pattern: '(?P<status>a)'}]")
