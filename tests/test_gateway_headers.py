"""Learning whether headers come before the first token."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from gateway_lines import parsed

from analyzer.gateways.envoy import envoy
from analyzer.gateways.format import Format
from analyzer.gateways.haproxy import haproxy
from analyzer.gateways.headers import MOST_ROUTES, HeaderHabits
from analyzer.gateways.nginx import nginx
from analyzer.gateways.record import TtftKind

CHAT, OTHER = "/v1/chat/completions", "/v1/completions"


def test_nothing_is_known_before_enough_answers() -> None:
    """Nineteen answers do not tell, the twentieth does."""
    habits = HeaderHabits()
    for n in range(20):
        assert habits.late(CHAT) is None, n
        habits.saw(CHAT, 0.3, 0.301)
    assert habits.late(CHAT) is True
    assert habits.late(OTHER) is None


def test_headers_that_come_at_once_are_early() -> None:
    """A wait between headers and first output shows it."""
    habits = HeaderHabits()
    for _ in range(30):
        habits.saw(CHAT, 0.002, 0.25)
    assert habits.late(CHAT) is False


def test_a_fast_first_token_says_nothing() -> None:
    """Within 50 ms headers and token come together from any server."""
    habits = HeaderHabits()
    for _ in range(1000):
        habits.saw(CHAT, 0.02, 0.021)
    assert habits.late(CHAT) is None
    for _ in range(20):
        habits.saw(CHAT, 0.002, 0.012)
    assert habits.late(CHAT) is False


def test_a_server_that_changes_is_learnt_anew() -> None:
    """Only the last answers count: after an upgrade the other habit is found."""
    habits = HeaderHabits()
    for _ in range(500):
        habits.saw(CHAT, 0.002, 0.25)
    for _ in range(60):
        habits.saw(CHAT, 0.3, 0.301)
        assert habits.late(CHAT) is False
    for _ in range(4):
        habits.saw(CHAT, 0.3, 0.301)
    assert habits.late(CHAT) is True
    for _ in range(4):
        habits.saw(CHAT, 0.002, 0.25)
    assert habits.late(CHAT) is False


def test_routes_are_bounded() -> None:
    """Paths that are no generation, and more than 64 that are, are not learnt."""
    habits = HeaderHabits()
    for n in range(200):
        for _ in range(20):
            habits.saw(f"/{n}{CHAT}", 0.3, 0.301)
            habits.saw(f"/health/{n}", 0.3, 0.301)
    assert len(habits._seen) == MOST_ROUTES
    assert habits.late(f"/0{CHAT}") is True
    assert habits.late(f"/199{CHAT}") is None


def envoy_line(header: float, body: float | None) -> dict[str, object]:
    """Returns a stream with headers and first body byte at these milliseconds."""
    line: dict[str, object] = {
        "path": CHAT,
        "response_code": 200,
        "response_flags": "-",
        "content_type": "text/event-stream",
        "us_us_rx_beg": header * 1e3,
        "us_us_rx_end": 900e3,
        "completion_tokens": 11,
    }
    return line if body is None else {**line, "us_us_rx_body_beg": body * 1e3}


def nginx_line(header: float, first: float | None) -> dict[str, object]:
    """Returns the same stream by nginx, with a filter or without one."""
    line: dict[str, object] = {
        "uri": CHAT,
        "status": "200",
        "msec": "1795960938.000",
        "request_time": "0.901",
        "request_completion": "OK",
        "up_content_type": "text/event-stream",
        "upstream_addr": "127.0.0.1:8000",
        "upstream_header_time": f"{header / 1e3:.3f}",
        "upstream_response_time": "0.900",
    }
    filtered = {"saw_done": "1", "ttft_ms": str(first), "last_token_ms": "890"}
    return line if first is None else {**line, **filtered}


def haproxy_line(header: float, first: float | None) -> dict[str, object]:
    """Returns the same stream by HAProxy, with the stamp of the body or without."""
    begun = 1795961465000000
    line: dict[str, object] = {
        "path": CHAT,
        "status": 200,
        "term": "----",
        "res_ct": "text/event-stream",
        "t0_us": str(begun),
        "th_us": str(int(begun + header * 1e3)),
        "TR": 0,
        "Tw": 0,
        "Tc": 0,
        "Tr": int(header),
        "Ta": "900",
    }
    return line if first is None else {**line, "tb_us": str(int(begun + first * 1e3))}


@pytest.mark.parametrize(
    ("log_format", "line"),
    [(envoy(), envoy_line), (nginx(), nginx_line), (haproxy(), haproxy_line)],
    ids=["envoy", "nginx", "haproxy"],
)
def test_header_time_is_first_token_time_only_where_learnt(
    log_format: Format, line: Callable[[float, float | None], dict[str, object]]
) -> None:
    """A line without its own first token takes the headers' time once that is known."""
    assert parsed(log_format, line(300, None)).ttft is None
    for _ in range(20):
        assert parsed(log_format, line(300, 302)).ttft == pytest.approx(0.302)
    learnt = parsed(log_format, line(250, None))
    assert learnt.ttft == pytest.approx(0.25)
    assert learnt.ttft_kind is TtftKind.HEADERS
    for _ in range(4):
        parsed(log_format, line(3, 300))
    unlearnt = parsed(log_format, line(250, None))
    assert (unlearnt.ttft, unlearnt.ttft_kind) == (None, TtftKind.NONE)


def test_an_upload_hides_in_nginx_before_the_headers() -> None:
    """The header time lacks a slow upload, so it is no first token's time then."""
    log_format = nginx()
    for _ in range(20):
        parsed(log_format, nginx_line(300, 302))
    slow = {**nginx_line(250, None), "request_time": "1.100"}
    assert parsed(log_format, slow).ttft is None
    assert parsed(log_format, nginx_line(250, None)).ttft == pytest.approx(0.25)
