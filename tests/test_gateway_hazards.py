"""Lines that gateways really write, damaged ones, and lines made to harm."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable

import pytest
from gateway_formats import (
    CUSTOM_LINE,
    FIELDS,
    MAKE,
    MIDDLEWARE_LINE,
    PATTERN,
    PATTERN_LINE,
    outcome_of,
    samples,
)
from gateway_truth import LOGS, records, unpacked
from hypothesis import given
from hypothesis import strategies as st

from analyzer.gateways.caddy import caddy
from analyzer.gateways.custom import custom
from analyzer.gateways.envoy import envoy
from analyzer.gateways.format import Format
from analyzer.gateways.haproxy import haproxy
from analyzer.gateways.middleware import middleware
from analyzer.gateways.nginx import nginx
from analyzer.gateways.traefik import traefik


def check_goes_on(name: str, line: bytes) -> None:
    """Checks what became of a line, and that a real one after it is read as ever."""
    log_format, fresh = MAKE[name](), MAKE[name]()
    outcome_of(log_format, line)
    real = samples(name)[-1]
    assert log_format.parse(real) == fresh.parse(real)


@pytest.mark.parametrize("log", LOGS)
def test_every_recorded_line_gives_a_sane_record(log: str) -> None:
    """No line of a real gateway is lost, but for what is no request."""
    lines = unpacked(log)
    name = log.partition("-")[0]
    told = [outcome_of(MAKE[name](), line) for line in lines]
    odd = {what for what in told if what not in ("record", "none")}
    assert not odd
    assert told.count("none") == 0 or name == "litellm"


@pytest.mark.parametrize("name", MAKE)
@given(line=st.binary(max_size=400))
def test_arbitrary_bytes_are_a_line_problem_at_worst(name: str, line: bytes) -> None:
    """No bytes raise anything else, or change what later lines say."""
    check_goes_on(name, line)


@pytest.mark.parametrize("name", MAKE)
@given(data=st.data())
def test_damaged_lines_are_a_line_problem_at_worst(
    name: str, data: st.DataObject
) -> None:
    """Real lines with bytes changed, cut out, doubled or put in raise nothing else."""
    line = bytearray(data.draw(st.sampled_from(samples(name))))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(0, len(line) - 1)))
        kind = data.draw(st.sampled_from(("change", "cut", "double", "insert", "end")))
        length = data.draw(st.integers(1, 30))
        if kind == "change" and line:
            line[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del line[at : at + length]
        elif kind == "double":
            line[at:at] = line[at : at + length]
        elif kind == "insert":
            line[at:at] = data.draw(st.binary(min_size=1, max_size=length))
        else:
            del line[at:]
    check_goes_on(name, bytes(line))


WRONG: tuple[object, ...] = (
    None, True, False, "", "-", "x", "nan", "inf", "-1", "1e999", "0.1, 0.2", "+171",
    0, -1, 0.0, -0.5, 1e18, 1e300, 10**30, [], [1], [[]], {}, {"a": 1}, "\u0000",
    "2026-11-29T14:13:17Z", "29/Nov/2026:14:10:15.612", "\ud7ff", "x" * 5000,
)  # fmt: skip


@pytest.mark.parametrize(
    "name", [name for name in MAKE if name not in ("pattern", "middleware")]
)
@given(data=st.data())
def test_members_of_any_value_are_a_line_problem_at_worst(
    name: str, data: st.DataObject
) -> None:
    """JSON lines whose members hold what does not belong there raise nothing else."""
    lines = [line for line in samples(name) if line.startswith(b"{")]
    line = json.loads(data.draw(st.sampled_from(lines)))
    for _ in range(data.draw(st.integers(1, 4))):
        place = line
        key = data.draw(st.sampled_from(sorted(place)))
        if isinstance(place[key], dict) and place[key] and data.draw(st.booleans()):
            place = place[key]
            key = data.draw(st.sampled_from(sorted(place)))
        place[key] = copy.deepcopy(data.draw(st.sampled_from(WRONG)))
    check_goes_on(name, json.dumps(line).encode())


DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.parametrize("name", [n for n in MAKE if n != "pattern"])
def test_json_made_to_harm(name: str) -> None:
    """Deep nesting, a long line and repeated members cost a line at most."""
    log_format = MAKE[name]()
    line = next(x for x in samples(name) if x.startswith(b"{"))
    assert outcome_of(log_format, b'{"a":' + DEEP + b"," + line[1:]) == "too_deep"
    assert outcome_of(log_format, DEEP) != "record"
    padded = b'{"padding":"' + b"x" * (1 << 20) + b'",' + line[1:]
    assert outcome_of(log_format, padded) == outcome_of(MAKE[name](), line)
    twice = line[:-1] + b"," + line[1:]
    assert outcome_of(MAKE[name](), twice) == outcome_of(MAKE[name](), line)
    assert outcome_of(log_format, line + line) == "not_json"
    assert outcome_of(log_format, b"{}") == "no_match"
    if name in ("middleware", "custom", "caddy", "litellm"):
        assert outcome_of(log_format, b"[]") == "not_json"
        assert outcome_of(log_format, b"plain text") == "not_json"
    else:
        assert outcome_of(log_format, b"[]") == "no_match"
        assert outcome_of(log_format, b"plain text") == "no_match"


def changed(line: bytes, **members: object) -> bytes:
    """Returns a JSON line with some members replaced."""
    return json.dumps({**json.loads(line), **members}).encode()


def first(log: str) -> bytes:
    """Returns the first finished stream of a log."""
    return next(
        line
        for line in unpacked(log)
        if b"event-stream" in line and b"completion_tokens" in line
    )


@pytest.mark.parametrize("wrong", [-1, -0.001, 1e30, "nan", "inf", 86_400_000_001, "x"])
def test_an_impossible_duration_fails_the_line(wrong: object) -> None:
    """Negative, NaN, more than a day, or no number: the log is not what it says."""
    for log_format, line, member in (
        (envoy(), first("envoy"), "us_us_rx_body_beg"),
        (envoy(), first("envoy"), "duration"),
        (nginx(), first("nginx-njs"), "request_time"),
        (nginx(), first("nginx-lua"), "ttft_ms"),
        (haproxy(), unpacked("haproxy")[0], "Ta"),
        (traefik(), unpacked("traefik")[0], "Duration"),
        (caddy(), unpacked("caddy-default")[0], "duration"),
        (middleware(), MIDDLEWARE_LINE, "ttft_s"),
        (custom(FIELDS), CUSTOM_LINE, "ttft"),
    ):
        given_wrong = wrong
        if wrong == -1 and member == "Ta":
            continue  # a phase that was not reached
        if wrong == 86_400_000_001:
            units = {"duration": 1e9, "us_us_rx_body_beg": 1, "Duration": 1e-3}
            given_wrong = wrong / units.get(member, 1.0) * 1e9
        assert outcome_of(log_format, changed(line, **{member: given_wrong})) == (
            "wrong_value"
        ), (log_format.name, member, given_wrong)


def test_a_step_of_the_clock_costs_only_what_it_made() -> None:
    """Two wall-clock stamps in the wrong order: that latency is unknown, not absurd."""
    line = first("nginx-njs")
    begun = json.loads(line)["t_first_chunk"]
    late = nginx().parse(changed(line, t_first_chunk=str(int(begun) - 3_600_000)))
    assert late is not None
    assert (late.ttft, late.tpot) == (None, None)
    assert late.e2e is not None
    after = nginx().parse(changed(line, t_first_chunk=str(int(begun) + 3_600_000)))
    assert after is not None
    assert after.ttft is None
    stamped = changed(
        unpacked("haproxy-stamped")[1],
        res_ct="text/event-stream",
        t0_us="1795961465487662",
        tb_us="1795961465000000",
    )
    record = haproxy().parse(stamped)
    assert record is not None
    assert record.ttft is None
    assert record.e2e is not None
    lua = next(x for x in unpacked("envoy-lua") if b'"tok_done":true' in x)
    stepped = envoy().parse(changed(lua, tok_first_us="1"))
    assert stepped is not None
    assert (stepped.ttft, stepped.tpot, stepped.max_gap) == (None, None, None)
    lines = [x for x in unpacked("nginx-lua") if b'"ttft_ms":"4' in x]
    swapped = nginx().parse(changed(lines[0], last_token_ms="1"))
    assert swapped is not None
    assert swapped.ttft is not None
    assert swapped.tpot is None


def test_stamps_far_from_now_are_no_stamps() -> None:
    """Before 2000 or after 2100 the start is unknown; the request counts."""
    for stamp in ("1", "9999999999999", "-5"):
        record = envoy().parse(
            changed(first("envoy"), start_epoch=stamp, start_time="")
        )
        assert record is not None
        assert record.start is None
        assert record.ttft is not None


def test_a_million_model_names_leave_nothing_behind() -> None:
    """Formats keep no names: what they remember is bounded."""
    log_format = envoy()
    line = first("envoy").replace(b"/v1/chat/completions", b"/%06d/v1/chat/completions")
    for n in range(2000):
        record = log_format.parse(line.replace(b"%06d", b"%06d" % n))
        assert record is not None
    reader = log_format.parse.__self__  # type: ignore[attr-defined]
    assert len(reader.habits._seen) == 64
    long_name = changed(first("envoy"), llm_model="m" * 1_000_000)
    record = log_format.parse(long_name)
    assert record is not None
    assert record.model == "m" * 256


def test_invalid_utf8_costs_no_record() -> None:
    """Bytes that are no UTF-8 are replaced, in JSON and in text."""
    line = first("envoy").replace(b'"tenant":"', b'"tenant":"\xff\xfe')
    record = envoy().parse(line)
    assert record is not None
    assert record.tenant.startswith("\ufffd\ufffd")
    text = unpacked("nginx-combined")[1].replace(b"gwdrive", b"gw\xffdrive")
    assert outcome_of(nginx(), text) == "record"
    assert outcome_of(custom({}, PATTERN), b"\xff " + PATTERN_LINE) == "record"


def test_quotes_in_a_user_agent_move_no_field() -> None:
    """Envoy writes agents as they are: fields behind one are found from the end."""
    line = next(x for x in unpacked("envoy-text") if b"gwdrive" in x)
    evil = line.replace(b"gwdrive/1.0", b'a" "forged-id" "x" "1.2.3.4:5" "b')
    plain, record = envoy().parse(line), envoy().parse(evil)
    assert record == plain
    ansi = b"\x1b[32mINFO\x1b[0m: " + line
    assert outcome_of(envoy(), ansi) == "no_match"


def test_text_lines_cost_time_in_proportion_to_their_length() -> None:
    """No text format hangs on a long line made to make its pattern try everything."""
    parts = (b'" "', b"[", b" - ", b'"', b"- - [", b"{|", b"1/1/1/1/", b" 1 1")
    told: dict[str, set[str]] = {}
    for name in ("envoy", "nginx", "haproxy", "traefik", "pattern"):
        for part in parts:
            for line in (
                part * 20_000,
                samples(name)[-1][:60] + part * 20_000,
                b'1.1.1.1 - - [29/Nov/2026:14:02:18 +0000] "' + part * 20_000,
                b'[2026-11-29T14:13:17.471Z] "POST / H" 200 - 1 1 1 1 "'
                + part * 20_000,
            ):
                told.setdefault(name, set()).add(outcome_of(MAKE[name](), line))
    assert told.pop("pattern") == {"no_match", "too_long", "record"}
    assert set.union(*told.values()) == {"no_match", "not_json"}


def counted(log_format: Format, lines: Iterable[bytes]) -> int:
    """Returns how many requests a log has."""
    return len(list(records(log_format, lines)))


def test_lines_without_a_request_id_count() -> None:
    """An id is for joins: a request without one is a request."""
    malformed = [x for x in unpacked("envoy") if b'"response_flags":"DPE"' in x]
    assert counted(envoy(), malformed) == 3
    assert counted(nginx(), unpacked("nginx-combined")) == 232
