from __future__ import annotations

import pytest
from gateway_lines import parsed, problem_of, rounded

from analyzer.gateways.caddy import caddy
from analyzer.gateways.record import E2eKind, Outcome, RequestRecord
from analyzer.gateways.traefik import traefik

TRAEFIK: dict[str, object] = {
    "DownstreamStatus": 200,
    "OriginStatus": 200,
    "Duration": 530_000_000,
    "OriginDuration": 529_000_000,
    "RetryAttempts": 0,
    "RequestPath": "/v1/completions?key=secret",
    "ServiceAddr": "10.0.0.1:8000",
    "StartUTC": "2026-11-29T14:15:34.500000001Z",
    "downstream_Content-Type": "text/event-stream; charset=utf-8",
    "request_X-Request-Id": "r1",
    "request_X-Tenant-Id": "acme",
    "request_X-Model": "m",
}
COMMON = (
    '10.0.0.9 - - [29/Nov/2026:14:14:58 +0000] "POST /v1/completions?a=b HTTP/1.1" '
    '{status} 1869 "-" "-" 1 "chat@file" "http://10.0.0.1:8000" 530ms'
)
CADDY: dict[str, object] = {
    "level": "info",
    "ts": 1795961866.5,
    "logger": "http.log.access.log1",
    "msg": "handled request",
    "request": {
        "uri": "/v1/completions?key=secret",
        "headers": {
            "X-Request-Id": ["r1"],
            "X-Tenant-Id": ["acme", "other"],
            "X-Model": ["m"],
            "X-Priority": ["high"],
        },
    },
    "duration": 0.5,
    "status": 200,
    "resp_headers": {"Content-Type": ["text/event-stream"]},
}


def test_traefik_knows_the_total_and_the_exchange() -> None:
    """Nanoseconds; the whole exchange with the server is the serving time."""
    assert rounded(parsed(traefik(), TRAEFIK)) == RequestRecord(
        request_id="r1",
        start=1795961734.5,
        route="/v1/completions",
        backend="10.0.0.1:8000",
        tenant="acme",
        model="m",
        stream=True,
        status=200,
        outcome=Outcome.OK,
        e2e=0.53,
        e2e_kind=E2eKind.HANDOVER,
        attempts=1,
        serving_time=0.529,
    )


@pytest.mark.parametrize(
    ("downstream", "origin", "outcome"),
    [
        (200, 200, Outcome.OK),
        (200, 0, Outcome.UNKNOWN),
        (499, 499, Outcome.CLIENT_ABORT),
        (504, 0, Outcome.TIMEOUT),
        (502, 0, Outcome.HTTP_ERROR),
        (429, 429, Outcome.HTTP_ERROR),
        (0, 0, Outcome.UNKNOWN),
    ],
)
def test_an_origin_status_of_0_is_a_cut_or_an_abort(
    downstream: int, origin: int, outcome: Outcome
) -> None:
    """Which of the two is not told, and the exchange then took no known time."""
    line = {**TRAEFIK, "DownstreamStatus": downstream, "OriginStatus": origin}
    record = parsed(traefik(), {**line, "OriginDuration": 0})
    assert record.outcome is outcome
    assert record.status == (downstream or None)
    assert record.serving_time is None
    assert record.e2e == pytest.approx(0.53)


def test_traefiks_common_format() -> None:
    """Whole milliseconds, and nothing of how an answer ended."""
    record = parsed(traefik(), COMMON.format(status=200).encode())
    assert rounded(record) == RequestRecord(
        start=1795961698.0,
        route="/v1/completions",
        backend="http://10.0.0.1:8000",
        status=200,
        outcome=Outcome.UNKNOWN,
        e2e=0.53,
        e2e_kind=E2eKind.HANDOVER,
    )
    left = parsed(traefik(), COMMON.format(status=499).encode())
    assert left.outcome is Outcome.CLIENT_ABORT
    assert problem_of(traefik(), b"hello") == "no_match"
    assert problem_of(traefik(), {"level": "info", "msg": "hello"}) == "no_match"


def test_traefiks_headers_keep_their_names() -> None:
    """`request_X-Priority`, when Traefik is told to keep it."""
    log_format = traefik(["x-priority"])
    record = parsed(log_format, {**TRAEFIK, "request_X-Priority": "high"})
    assert record.headers == {"x-priority": "high"}


def test_caddys_default_log() -> None:
    """Seconds, the end as its stamp, and header values in lists."""
    assert rounded(parsed(caddy(), CADDY)) == RequestRecord(
        request_id="r1",
        start=1795961866.0,
        route="/v1/completions",
        tenant="acme",
        model="m",
        stream=True,
        status=200,
        outcome=Outcome.OK,
        e2e=0.5,
        e2e_kind=E2eKind.HANDOVER,
    )


def test_caddys_placeholders_add_headers_exchange_and_retries() -> None:
    """What `log_append` adds is in milliseconds."""
    record = parsed(
        caddy(),
        {
            **CADDY,
            "upstream": "10.0.0.1:8000",
            "up_latency_ms": 5.25,
            "up_duration_ms": 499.5,
            "retries": 1,
        },
    )
    assert record.backend == "10.0.0.1:8000"
    assert record.header_time == pytest.approx(0.00525)
    assert record.serving_time == pytest.approx(0.4995)
    assert record.attempts == 2


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (0.5, 0.5),
        ("402.008912ms", 0.402008912),
        ("1.019990943s", 1.019990943),
        ("1m2.5s", 62.5),
        ("2h3m", 7380.0),
        ("15.5µs", 15.5e-6),
        ("900ns", 9e-7),
    ],
)
def test_caddys_durations(written: str | float, seconds: float) -> None:
    """A number of seconds, or a duration as Go prints it."""
    record = parsed(caddy(), {**CADDY, "duration": written})
    assert record.e2e == pytest.approx(seconds)


@pytest.mark.parametrize("written", ["-5ms", "1.5", "5 ms", "25h", "x", -0.5, 86401])
def test_impossible_durations_of_caddy(written: str | float) -> None:
    """Negative, without a unit, longer than a day: the line cannot be read."""
    assert problem_of(caddy(), {**CADDY, "duration": written}) == "wrong_value"


@pytest.mark.parametrize("nothing", [0, 0.0, "0s"])
def test_a_duration_of_0_is_a_cut_or_an_abort(nothing: str | float) -> None:
    """Which of the two is not told; 0 is no time, and the stamp is all there is."""
    record = parsed(caddy(), {**CADDY, "duration": nothing})
    assert record.outcome is Outcome.UNKNOWN
    assert (record.e2e, record.e2e_kind) == (None, E2eKind.NONE)
    assert record.start == pytest.approx(1795961866.5)


@pytest.mark.parametrize(
    "stamp",
    [
        1795961866.5,
        1795961866500.0,
        1795961866500000000,
        "2026-11-29T14:17:46.500Z",
        "2026-11-29T15:17:46.5+01:00",
        "2026/11/29 14:17:46.500",
    ],
)
def test_caddys_time_formats(stamp: str | float) -> None:
    """Whatever `time_format` is set to; without a zone it is UTC."""
    record = parsed(caddy(), {**CADDY, "ts": stamp})
    assert record.start == pytest.approx(1795961866.0)


def test_other_lines_of_caddy_are_no_requests() -> None:
    """Its own messages have another logger."""
    own = {"level": "info", "ts": 1.5, "logger": "tls.cache", "msg": "started"}
    assert (
        caddy().parse(b'{"logger":"http.handlers.reverse_proxy","duration":1}') is None
    )
    assert caddy().parse(str(own).replace("'", '"').encode()) is None
    assert problem_of(caddy(), {"logger": "http.log.access"}) == "no_match"


def test_caddys_headers_are_the_first_of_a_list() -> None:
    """Only those that the classes match on are read."""
    record = parsed(caddy(["x-priority", "x-absent"]), CADDY)
    assert record.headers == {"x-priority": "high"}
    assert parsed(caddy(), CADDY).headers == {}
    no_headers = {**CADDY, "request": {"uri": "/v1/completions"}}
    assert parsed(caddy(["x-priority"]), no_headers).headers == {}
