"""Verdicts from recorded logs of real gateways, against what their clients saw."""

from __future__ import annotations

from pathlib import Path

import pytest
from gateway_truth import (
    LOGS,
    SLOS,
    Row,
    Truth,
    compared,
    read,
    records,
    slo,
    table,
    unpacked,
)

from analyzer.gateways.detect import detect
from analyzer.gateways.record import Outcome, RequestRecord, TtftKind
from analyzer.judgement import Verdict, judge

# The fewest wrong verdicts that anybody's way of reading such a log had, of those
# tried on the same recordings with TTFT 300 ms, TPOT 15 ms and E2E 1.2 s.
BEST_KNOWN = {
    "envoy": 2,
    "envoy-lua": 2,
    "envoy-comments": 2,
    "envoy-text": 77,
    "nginx": 85,
    "nginx-buffered": 85,
    "nginx-combined": 85,
    "nginx-njs": 1,
    "nginx-njs-comments": 1,
    "nginx-lua": 1,
    "haproxy": 77,
    "haproxy-corked": 39,
    "haproxy-text": 77,
    "haproxy-stamped": 12,
    "haproxy-stamped-comments": 12,
    "traefik": 84,
    "traefik-text": 84,
    "caddy": 30,
    "caddy-default": 30,
    "litellm": 8,
}
# Comments before the first token are taken for it: the limit of a first body byte.
FOOLED = ("envoy-comments", "haproxy-stamped-comments")
JOINT = ("strict", "tight", "loose")
PARTIAL = ("first", "total")


@pytest.mark.parametrize(
    ("name", "criteria"),
    [
        (name, criteria)
        for name in LOGS
        for criteria in JOINT
        if not (name in FOOLED and criteria == "loose")
    ],
)
def test_no_reading_of_a_log_is_known_to_be_better(name: str, criteria: str) -> None:
    """Wrongly good and wrongly bad ones are at most those of the best reading."""
    row = compared(name, SLOS[criteria])
    assert row.requests > 0 or name == "nginx-combined"
    assert row.wrong <= BEST_KNOWN[name], (row.wrongly_good, row.wrongly_bad)


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("criteria", [*JOINT, *PARTIAL])
def test_a_request_that_its_client_left_is_never_good(name: str, criteria: str) -> None:
    """An abort is bad, excluded or unevaluable in every log, whatever is asked for."""
    row = compared(name, SLOS[criteria])
    good = [truth.label for truth in row.aborts_called_good]
    # Corked, the whole answer was in the kernel before HAProxy heard of the abort.
    corked = name == "haproxy-corked" and criteria == "total"
    assert good == (["abort_before_headers"] if corked else [])


@pytest.mark.parametrize("name", LOGS)
def test_formats_that_cannot_know_say_so(name: str) -> None:
    """Without first token or tokens in the log nothing is good, only unevaluable."""
    can = ("envoy", "envoy-lua", "nginx-njs", "nginx-lua", "litellm")
    row = compared(name, SLOS["strict"])
    if name.removesuffix("-comments") in can:
        assert row.called_good > 0 or name.endswith("-comments")
        # Whole answers have no first token, and errors no count of tokens.
        assert row.unevaluable <= (0.2 if name == "litellm" else 0.1) * row.requests
    else:
        assert row.called_good == 0
        assert row.unevaluable > 0 or name == "nginx-combined"


def explained(name: str, record: RequestRecord, truth: Truth) -> str:
    """Returns which limit of the format makes a verdict wrong, "" for none."""
    gateway = name.partition("-")[0]
    if truth.label == "slow_reader":
        return "only nginx waits for the client to take the last byte"
    if truth.outcome == "sse_error" and gateway in ("haproxy", "traefik", "caddy"):
        return "an error inside the stream"
    if truth.outcome == "sse_error" and name == "envoy-text":
        return "an error inside the stream"
    if gateway == "litellm":
        return "what the proxy did before it called the model is not recorded"
    for seen, client in ((record.ttft, truth.ttft), (record.e2e, truth.e2e)):
        if seen is not None and client is not None and 0 <= client - seen <= 0.02:
            return "the client saw it up to 20 ms later"
    return ""


@pytest.mark.parametrize("name", [name for name in LOGS if name not in FOOLED])
@pytest.mark.parametrize("criteria", PARTIAL)
def test_every_wrong_verdict_has_its_known_reason(name: str, criteria: str) -> None:
    """Classes without TPOT are judged by more logs; what is wrong is explained."""
    slo_class = SLOS[criteria]
    for record, truth in read(name):
        verdict = judge(record, slo_class).verdict
        good = truth.good(slo_class) and truth.knowable(slo_class)
        wrongly_good = verdict is Verdict.GOOD and not good and not truth.aborted
        wrongly_bad = verdict is Verdict.BAD and truth.good(slo_class)
        if wrongly_good or wrongly_bad:
            assert explained(name, record, truth), (verdict, record, truth)


@pytest.mark.parametrize(
    ("name", "kind", "fooled"),
    [
        ("envoy-comments", TtftKind.FIRST_BODY_BYTE, True),
        ("haproxy-stamped-comments", TtftKind.FIRST_BODY_BYTE, True),
        ("nginx-njs-comments", TtftKind.TOKEN, False),
    ],
)
def test_comments_before_the_first_token(
    name: str, kind: TtftKind, *, fooled: bool
) -> None:
    """A filter that reads the body sees the token, a first body byte the comment."""
    pairs = [(r, t) for r, t in read(name) if r.ttft is not None]
    assert len(pairs) >= 29
    for record, truth in pairs:
        assert record.ttft_kind is kind
        assert record.ttft is not None
        assert truth.ttft is not None
        if fooled:
            assert 0.09 <= record.ttft <= 0.12 < truth.ttft
        else:
            assert record.ttft == pytest.approx(truth.ttft, abs=0.01)
    log_format = detect(unpacked(name))
    assert log_format is not None
    told = any("comments" in sentence for sentence in log_format.blind)
    assert told is fooled


def test_envoys_lua_filter_is_not_fooled_by_comments() -> None:
    """Its first token is long after the first body byte, which was a comment."""
    lines = [x for x in unpacked("envoy-lua") if b'"x_request_id":"eluaping' in x]
    log_format = detect(lines)
    assert log_format is not None
    found = list(records(log_format, lines))
    assert len(found) == 30
    assert all(r.ttft_kind is TtftKind.TOKEN and (r.ttft or 0) > 0.25 for r in found)


# Median and 95th percentile of |log − client|, in seconds, with room for a busy
# machine: the recordings do not change, so these fail only if the reading does.
PRECISION = {
    "envoy": ("ttft", 0.002, 0.012),
    "envoy-lua": ("ttft", 0.002, 0.012),
    "nginx-njs": ("ttft", 0.001, 0.005),
    "nginx-lua": ("ttft", 0.002, 0.02),
    "haproxy-stamped": ("ttft", 0.002, 0.02),
    "haproxy": ("e2e", 0.005, 0.02),
    "traefik": ("e2e", 0.005, 0.02),
    "caddy": ("e2e", 0.005, 0.02),
    "nginx": ("e2e", 0.002, 0.005),
}


@pytest.mark.parametrize("name", PRECISION)
def test_latencies_are_those_of_the_client(name: str) -> None:
    """Finished streams have the client's latency, but for the way to the client."""
    criterion, median, high = PRECISION[name]
    off = sorted(
        abs(getattr(record, criterion) - getattr(truth, criterion))
        for record, truth in read(name)
        if truth.outcome == "ok"
        and truth.label != "slow_reader"
        and getattr(record, criterion) is not None
        and getattr(truth, criterion) is not None
    )
    assert len(off) > 60
    assert off[len(off) // 2] <= median
    assert off[int(len(off) * 0.95)] <= high


@pytest.mark.parametrize("name", ["envoy", "envoy-lua", "nginx-njs", "nginx-lua"])
def test_time_per_token_is_that_of_the_client(name: str) -> None:
    """Chunks of several tokens do not matter, since tokens are the server's count."""
    off = sorted(
        abs(record.tpot - truth.tpot)
        for record, truth in read(name)
        if truth.outcome == "ok"
        and truth.label != "slow_reader"
        and record.tpot is not None
        and truth.tpot is not None
    )
    assert len(off) > 60
    assert off[len(off) // 2] <= 0.0002
    assert off[int(len(off) * 0.95)] <= 0.002


ENDS = {
    "abort_before_headers": Outcome.CLIENT_ABORT,
    "abort_before_first_token": Outcome.CLIENT_ABORT,
    "abort_mid_stream": Outcome.CLIENT_ABORT,
    "rst_mid": Outcome.UPSTREAM_CUT,
    "fin_mid": Outcome.UPSTREAM_CUT,
    "hang_after_headers": Outcome.TIMEOUT,
    "hang_no_headers": Outcome.TIMEOUT,
    "reset_always": Outcome.HTTP_ERROR,
    "err429": Outcome.HTTP_ERROR,
    "err400": Outcome.HTTP_ERROR,
    "sse_error_in_200": Outcome.STREAM_ERROR,
    "stream_ok": Outcome.OK,
    "stream_late_headers": Outcome.OK,
    "err503_then_ok": Outcome.OK,
}
# What a log tells otherwise, or cannot tell.
U, OK = Outcome.UNKNOWN, Outcome.OK
UNTOLD: dict[str, dict[str, Outcome]] = {
    "envoy": {},
    "envoy-lua": {},
    "haproxy": {"sse_error_in_200": OK},
    # Held back until the first body byte, a hanging answer is a 504.
    "haproxy-stamped": {"sse_error_in_200": OK},
    "nginx-lua": {"hang_after_headers": Outcome.UPSTREAM_CUT},
    "nginx-njs": {
        "hang_after_headers": Outcome.UPSTREAM_CUT,
        "sse_error_in_200": U,
    },
    "nginx": {
        **dict.fromkeys(("rst_mid", "fin_mid", "hang_after_headers"), U),
        **dict.fromkeys(("sse_error_in_200", "stream_ok", "stream_late_headers"), U),
        "err503_then_ok": U,
    },
    "traefik": {
        **dict.fromkeys(("abort_before_first_token", "abort_mid_stream"), U),
        **dict.fromkeys(("rst_mid", "fin_mid", "hang_after_headers"), U),
        "sse_error_in_200": OK,
        "err503_then_ok": Outcome.HTTP_ERROR,
    },
    "caddy": {
        **dict.fromkeys(("abort_before_first_token", "abort_mid_stream"), U),
        **dict.fromkeys(("rst_mid", "fin_mid", "hang_after_headers"), U),
        "sse_error_in_200": OK,
        "err503_then_ok": Outcome.HTTP_ERROR,
    },
    "litellm": {
        "rst_mid": Outcome.STREAM_ERROR,
        "fin_mid": Outcome.STREAM_ERROR,
    },
}


@pytest.mark.parametrize("name", UNTOLD)
def test_how_an_answer_ended(name: str) -> None:
    """Every abnormal end has its outcome, or is unknown where the log cannot tell."""
    seen = 0
    for record, truth in read(name):
        if truth.label not in ENDS:
            continue
        seen += 1
        told = UNTOLD[name].get(truth.label, ENDS[truth.label])
        assert record.outcome is told, (truth.label, record)
    assert seen > 60


def test_time_lost_in_failed_attempts_is_in_the_latencies() -> None:
    """A retried request begins with its first attempt, as its user sees it."""
    for name in ("envoy", "nginx-njs", "litellm"):
        retried = [
            (r, t)
            for r, t in read(name)
            if t.label in ("err503_then_ok", "reset_then_ok")
        ]
        assert retried
        for record, truth in retried:
            if truth.outcome != "ok":
                continue
            assert record.attempts == 2
            assert record.ttft is not None
            assert truth.ttft is not None
            slack = 0.15 if name == "litellm" else 0.03
            assert record.ttft == pytest.approx(truth.ttft, abs=slack)


def test_whole_answers_have_no_first_token() -> None:
    """A JSON answer has neither TTFT nor TPOT, and so no joint verdict of good."""
    for name in ("envoy", "nginx-njs", "nginx-lua", "litellm"):
        whole = [r for r, t in read(name) if t.label == "nonstream_ok"]
        assert whole
        for record in whole:
            assert record.ttft is None
            assert record.tpot is None
            assert record.outcome is Outcome.OK
            assert judge(record, SLOS["strict"]).verdict in (
                Verdict.UNEVALUABLE,
                Verdict.BAD,
            )
            assert judge(record, slo(e2e=60.0)).verdict is Verdict.GOOD


def test_print_the_table() -> None:
    """Prints the table of all logs (-s shows it), one per class."""
    for name, slo_class in SLOS.items():
        text = table(slo_class)
        limits = ", ".join(f"{c} {t.seconds:g} s" for c, t in slo_class.good.items())
        print(f"\n{name}: {limits}\n{text}")  # noqa: T201
        assert text.count("\n") == len(LOGS)


def test_the_comparison_can_fail() -> None:
    """A wrong verdict is seen as one: with no limit at all everything is wrong."""
    row = compared("nginx-njs", slo(e2e=3600.0))
    assert isinstance(row, Row)
    strict = {t.request_id for _, t in read("nginx-njs") if t.good(SLOS["strict"])}
    lax = [
        t
        for r, t in read("nginx-njs")
        if judge(r, slo(e2e=3600.0)).verdict is Verdict.GOOD
    ]
    assert len([t for t in lax if t.request_id not in strict]) > 30


def test_the_documented_table_is_what_is_measured() -> None:
    """docs/gateway-setup.md has these numbers, row by row."""
    page = (Path(__file__).parents[1] / "docs" / "gateway-setup.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines()]
    documented = {cells[0]: cells[1:] for cells in rows if cells[0] in LOGS}
    assert len(documented) >= 10
    for name, cells in documented.items():
        row = compared(name, SLOS["strict"])
        measured = (
            row.requests,
            row.truly_good,
            row.called_good,
            len(row.wrongly_good),
            len(row.wrongly_bad),
            row.unevaluable,
        )
        assert cells == [str(number) for number in measured], name
