from __future__ import annotations

import pytest
from gateway_lines import parsed, problem_of, rounded
from gateway_truth import unpacked

from analyzer.gateways.haproxy import haproxy
from analyzer.gateways.record import E2eKind, Outcome, RequestRecord, TtftKind

LINE: dict[str, object] = {
    "t_request": "29/Nov/2026:14:10:15.615",
    "epoch_s": 1795961415,
    "ms": "612",
    "x_request_id": "r1",
    "tenant": "acme",
    "model": "m",
    "res_ct": "text/event-stream; charset=utf-8",
    "be": "vllm",
    "server": "a",
    "path": "/v1/chat/completions?key=secret",
    "status": 200,
    "term": "----",
    "retries": "0",
    "Th": 0,
    "Ti": 3,
    "TR": 1,
    "Tw": 20,
    "Tc": 2,
    "Tr": 7,
    "Td": 500,
    "Ta": "530",
    "t0_us": "1795961415616000",
    "th_us": "1795961415645000",
}
STAMPED = {**LINE, "tb_us": "1795961415915000"}


def told(base: dict[str, object] = LINE, **members: object) -> RequestRecord:
    """Returns the record of a line with some members replaced."""
    return parsed(haproxy(), {**base, **members})


def test_timers_and_the_stamp_of_the_first_body_byte() -> None:
    """The wait before the server is the gateway's; the request began TR before t0."""
    assert rounded(told(STAMPED)) == RequestRecord(
        request_id="r1",
        start=1795961415.615,
        route="/v1/chat/completions",
        backend="vllm/a",
        tenant="acme",
        model="m",
        stream=True,
        status=200,
        outcome=Outcome.OK,
        header_time=0.03,
        ttft=0.3,
        ttft_kind=TtftKind.FIRST_BODY_BYTE,
        e2e=0.53,
        e2e_kind=E2eKind.HANDOVER,
        attempts=1,
        gateway_time=0.023,
        serving_time=0.507,
    )


def test_header_time_is_no_first_token() -> None:
    """Without the stamp there is none, of no kind."""
    record = told()
    assert (record.ttft, record.ttft_kind) == (None, TtftKind.NONE)
    assert record.header_time == pytest.approx(0.03)


def test_a_dash_instead_of_the_stamp_is_no_byte() -> None:
    """The log would have had it: nothing came."""
    record = told(STAMPED, tb_us="-", term="CD--")
    assert (record.ttft, record.ttft_kind) == (None, TtftKind.FIRST_BODY_BYTE)


@pytest.mark.parametrize(
    ("term", "status", "outcome"),
    [
        ("----", 200, Outcome.OK),
        ("CD--", 200, Outcome.CLIENT_ABORT),
        ("cD--", 200, Outcome.CLIENT_ABORT),
        ("CH--", -1, Outcome.CLIENT_ABORT),
        ("SD--", 200, Outcome.UPSTREAM_CUT),
        ("sD--", 200, Outcome.TIMEOUT),
        ("sH--", 504, Outcome.TIMEOUT),
        ("sR--", 504, Outcome.TIMEOUT),
        ("SH--", 502, Outcome.HTTP_ERROR),
        ("sQ--", 503, Outcome.TIMEOUT),
        ("SC--", 503, Outcome.HTTP_ERROR),
        ("PR--", 403, Outcome.HTTP_ERROR),
        ("PD--", 200, Outcome.UPSTREAM_CUT),
        ("LR--", 200, Outcome.OK),
        ("----", 429, Outcome.HTTP_ERROR),
        ("----", -1, Outcome.UNKNOWN),
    ],
)
def test_termination_states_tell_who_ended_it(
    term: str, status: int, outcome: Outcome
) -> None:
    """A status of 200 says nothing of the body: the first letter does."""
    record = told(term=term, status=status)
    assert record.outcome is outcome
    assert record.status == (None if status == -1 else status)


def test_a_phase_that_was_not_reached_is_no_time() -> None:
    """−1 is a sentinel: nothing is added up with it."""
    record = told(Tc=-1, Tr=-1, Td=-1, status=503, term="SC--")
    assert record.gateway_time is None
    assert record.header_time is None
    assert record.serving_time is None
    assert record.e2e == pytest.approx(0.53)
    no_answer = told(Tr=-1, Td=-1, status=504, term="sH--")
    assert no_answer.gateway_time == pytest.approx(0.023)
    assert (no_answer.header_time, no_answer.serving_time) == (None, None)


def test_retries_count_attempts() -> None:
    """A plus sign says that another server was tried."""
    assert told(retries="+2").attempts == 3
    assert told(retries=1).attempts == 2
    assert told(retries="-").attempts is None


def test_a_line_written_at_the_headers_has_no_end() -> None:
    """`option logasap` marks what had passed until then with a plus sign."""
    record = told(Ta="+171")
    assert (record.e2e, record.e2e_kind) == (None, E2eKind.NONE)
    assert record.outcome is Outcome.UNKNOWN
    assert record.serving_time is None


def test_the_start_by_the_best_stamp_there_is() -> None:
    """Epoch stamps, else the date, which has no zone and is read as UTC."""
    no_stamp = {k: v for k, v in LINE.items() if k not in ("t0_us", "th_us")}
    assert told(no_stamp).start == pytest.approx(1795961415.615)
    date = {k: v for k, v in no_stamp.items() if k not in ("epoch_s", "ms")}
    assert told(date).start == pytest.approx(1795961415.615)
    assert told(date, t_request="today").start is None


def test_without_a_content_type_only_a_late_body_is_a_stream() -> None:
    """Headers and body of a whole answer come together."""
    bare = {k: v for k, v in STAMPED.items() if k != "res_ct"}
    assert told(bare).stream is True
    together = told(bare, th_us=bare["tb_us"])
    assert (together.stream, together.ttft) == (None, None)
    whole = told(STAMPED, res_ct="application/json")
    assert (whole.stream, whole.ttft) == (False, None)


HTTPLOG = (
    "10.0.0.9:49756 [29/Nov/2026:14:10:48.561] fe vllm/a 1/20/2/7/530 200 12561 - - "
    '---- 6/6/5/1/+1 0/0 {r1|agent} {x} "POST /v1/completions?a=b HTTP/1.1"'
)


@pytest.mark.parametrize(
    "prefix", ["", "<134>Nov 29 14:10:48 localhost haproxy[10745]: "]
)
def test_httplog(prefix: str) -> None:
    """The first captured header is the request id; a syslog header does not matter."""
    assert rounded(parsed(haproxy(), (prefix + HTTPLOG).encode())) == RequestRecord(
        request_id="r1",
        start=1795961448.561,
        route="/v1/completions",
        backend="vllm/a",
        status=200,
        outcome=Outcome.OK,
        header_time=0.03,
        e2e=0.53,
        e2e_kind=E2eKind.HANDOVER,
        attempts=2,
        gateway_time=0.023,
        serving_time=0.507,
    )


def test_httplog_without_captures_and_with_logasap() -> None:
    """Captures are optional; a plus sign means that the end is not known."""
    line = HTTPLOG.replace(" {r1|agent} {x}", "").replace("/7/530", "/7/+30")
    record = parsed(haproxy(), line.encode())
    assert record.request_id == ""
    assert record.e2e is None
    assert record.outcome is Outcome.UNKNOWN


def test_haproxys_own_messages_are_no_requests() -> None:
    """Health and handshakes share the log; other text is a problem."""
    for message in (
        b"<129>Nov 29 14:10:48 localhost haproxy[1]: Server vllm/a is DOWN, reason: x",
        b"10.0.0.9:4 [29/Nov/2026:14:10:48.561] fe/1: SSL handshake failure",
        b"Connect from 10.0.0.9:4 to 10.0.0.1:80 (fe/HTTP)",
    ):
        assert haproxy().parse(message) is None
    assert problem_of(haproxy(), b"hello") == "no_match"
    assert problem_of(haproxy(), {"message": "hello"}) == "no_match"


def test_headers_have_their_names_with_underscores() -> None:
    """Only those that the classes match on are read."""
    record = parsed(haproxy(["x-priority"]), {**LINE, "x_priority": "high"})
    assert record.headers == {"x-priority": "high"}


def test_a_line_cut_at_1024_bytes_is_read() -> None:
    """HAProxy cuts a long URL, and with it the end of the line."""
    cut = [x for x in unpacked("haproxy-text") if b"?trace=" in x]
    assert len(cut) == 1
    record = haproxy().parse(cut[0])
    assert record is not None
    assert record.route == "/v1/chat/completions"
    assert record.e2e == pytest.approx(1.413)
