"""Fetchers that are closed, their failures, and a check that nothing is left."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from raw_server import head
from running_exporter import wait_for

from analyzer.catalogue import SCRAPE_FAILURES
from analyzer.config_sources import Credentials, Tls
from analyzer.sources.scrape import Fetcher, ScrapeError

PAGE = b"# TYPE a gauge\na 1\n"
MAX_BYTES = 1 << 20
BUFFERED = 64 << 20  # more than the kernel takes from a sender that nobody reads
PATIENCE = 20.0  # a deadline that is not meant to pass
DEADLINE = 0.3
SLACK = 1.0
CERTIFICATES = Path(__file__).parent / "fixtures" / "tls"
CA = str(CERTIFICATES / "ca.pem")


def open_files() -> set[str]:
    """Returns the open sockets, pipes and files of this process."""
    found = set()
    for number in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{number.name} {number.readlink()}")
        except FileNotFoundError:
            continue  # the one that listed the folder
    return found


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Fails where a test leaves more sockets or threads than there were before it."""
    files, threads = open_files(), set(threading.enumerate())
    yield
    wait_for(lambda: set(threading.enumerate()) <= threads)
    assert open_files() <= files


@contextmanager
def fetching(
    *, tls: Tls | None = None, credentials: Credentials | None = None
) -> Iterator[Fetcher]:
    """Gives a fetcher and closes it."""
    fetcher = Fetcher(
        tls=tls or Tls(), credentials=credentials or Credentials(), max_bytes=MAX_BYTES
    )
    try:
        yield fetcher
    finally:
        fetcher.close()


def failure(fetcher: Fetcher, url: str, *, timeout: float = PATIENCE) -> ScrapeError:
    """Returns how a scrape failed; it must have ended within its deadline."""
    begun = time.monotonic()
    with pytest.raises(ScrapeError) as caught:
        fetcher.get(url, timeout=timeout)
    assert time.monotonic() - begun < timeout + SLACK
    assert caught.value.reason in SCRAPE_FAILURES
    return caught.value


def context(**options: str) -> ssl.SSLContext:
    """Returns a TLS server's context; `clients` is the CA that it wants."""
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    if "clients" in options:
        made.load_verify_locations(options["clients"])
        made.verify_mode = ssl.CERT_REQUIRED
    return made


CHUNKED = head("Transfer-Encoding: chunked")

SIZED = head(f"Content-Length: {MAX_BYTES // 2}")
