"""The header that syslog puts before a gateway's log line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.gateways.framing import syslog_text

JSON = b'{"a": 1, "b: c": "<134>Nov 29 x: y"}'
# What HAProxy's httplog begins with: an address and a port look like a tag.
HTTPLOG = b"10.0.0.1:49722 [29/Nov/2026:14:10:48.557] fe be/b 0/0/0/1/2 200"
COMBINED = b'10.0.0.1 - - [29/Nov/2026:14:10:48 +0000] "GET / HTTP/1.1" 200 5'

HEADERS = [
    b"",
    b"<134>",  # HAProxy: format short or priority
    b"<190>Nov 29 18:00:00 web nginx: ",
    b"<190>Nov  9 18:00:00 nginx: ",  # nohostname
    b"<190>Nov  9 18:00:00 fe80::1 my_tag: ",
    b"<134>Nov 29 18:00:00 haproxy[812]: ",
    b"<134>Nov 29 18:00:00 edge-1.example haproxy[812]: ",
    b"<134>2026-11-29T18:00:00.123456+00:00 web nginx: ",  # as rsyslog passes it on
    b"<134>1 2026-11-29T18:00:00+00:00 web haproxy 812 - - ",
    b"<134>1 2026-11-29T18:00:00Z web app 1 id - \xef\xbb\xbf",
    b'<134>1 2026-11-29T18:00:00Z web app 1 - [x@1 k="]\\""][y@2] ',
]


@pytest.mark.parametrize("text", [JSON, HTTPLOG, COMBINED], ids=["json", "http", "clf"])
@pytest.mark.parametrize("header", HEADERS)
def test_headers_of_all_senders_are_taken_off(header: bytes, text: bytes) -> None:
    """Host and tag may be missing; what the gateway logged stays as it is."""
    assert syslog_text(header + text) == text
    assert syslog_text(header + text + b"\n\0") == text


@pytest.mark.parametrize(
    ("datagram", "text"),
    [
        (b"<134>Nov 29 18:00:00 " + JSON, JSON),
        (b"<134>Nov 29 18:00:00 web " + JSON, JSON),
        (b"<134>Nov 29 18:00:00 web nginx:", b""),
        (b"<134>1 2026-11-29T18:00:00Z web app 1 - -", b""),
        (b"<134>", b""),
        (b"<13456>no priority", b"<13456>no priority"),
        (b"", b""),
    ],
)
def test_odd_headers(datagram: bytes, text: bytes) -> None:
    """Without a tag, a JSON object shows where the text begins."""
    assert syslog_text(datagram) == text


@given(st.binary(max_size=200))
def test_any_datagram_gives_its_end(datagram: bytes) -> None:
    """Whatever comes, the text is what stands last in it, without newlines there."""
    stripped = datagram.rstrip(b"\r\n\0")
    assert stripped.endswith(syslog_text(datagram))


@pytest.mark.parametrize(
    "unit", [b"[", b'["', b'[a="', b"\\", b"<1>", b"a ", b"a:", b"[a]", b"1 "]
)
def test_a_hostile_datagram_takes_no_longer_than_its_length(unit: bytes) -> None:
    """Patterns do not go back over what they have seen: 64 KiB of it end at once."""
    for header in (b"<1>", b"<1>1 a b c d e ", b"<1>Nov 29 18:00:00 "):
        datagram = header + unit * (65_000 // len(unit))
        assert datagram.endswith(syslog_text(datagram))
