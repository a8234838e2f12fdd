"""TLS between the fetcher and its target: what is trusted, and how it fails."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from raw_server import (
    Peer,
    RawServer,
    Script,
    answer,
    dripping,
    serving,
)
from scraping import (
    CA,
    CERTIFICATES,
    DEADLINE,
    PAGE,
    PATIENCE,
    SIZED,
    context,
    failure,
    fetching,
    nothing_is_left,  # noqa: F401  pytest holds every test here to it
)

from analyzer.config_sources import Tls

TLS_FAILING: dict[str, Tls] = {
    "unknown CA": Tls(),
    "wrong CA": Tls(ca_file=str(CERTIFICATES / "stranger.pem")),
    "no CA in the file": Tls(ca_file=str(CERTIFICATES / "server.key")),
    "CA file missing": Tls(ca_file=str(CERTIFICATES / "missing.pem")),
    "client certificate missing": Tls(
        ca_file=CA, cert_file="missing.pem", key_file=str(CERTIFICATES / "client.key")
    ),
    "key of another certificate": Tls(
        ca_file=CA,
        cert_file=str(CERTIFICATES / "client.pem"),
        key_file=str(CERTIFICATES / "server.key"),
    ),
    "encrypted key": Tls(
        ca_file=CA,
        cert_file=str(CERTIFICATES / "server.pem"),
        key_file=str(CERTIFICATES / "encrypted.key"),
    ),
}


@pytest.mark.parametrize("tls", TLS_FAILING.values(), ids=TLS_FAILING)
def test_a_certificate_that_does_not_hold_is_tls(tls: Tls) -> None:
    """No page is taken over a connection that is not what was configured."""
    with (
        RawServer(serving(answer(PAGE)), tls=context()) as server,
        fetching(tls=tls) as fetcher,
    ):
        assert failure(fetcher, server.url).reason == "tls"
        assert server.requests == []


def test_a_certificate_of_a_known_authority_is_taken() -> None:
    """The CA file is read at each new connection, so that it can be renewed."""
    with (
        RawServer(serving(answer(PAGE)), tls=context()) as server,
        fetching(tls=Tls(ca_file=CA)) as fetcher,
    ):
        for _ in range(3):
            assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE
        assert server.connections == 1


def test_a_certificate_for_another_host_is_tls() -> None:
    """It is good, but not for this address."""
    with (
        RawServer(serving(answer(PAGE)), tls=context(), address="127.0.0.2") as server,
        fetching(tls=Tls(ca_file=CA)) as fetcher,
    ):
        assert failure(fetcher, server.url).reason == "tls"


def test_a_renewed_ca_file_is_picked_up(tmp_path: Path) -> None:
    """Certificates are rotated while we run."""
    file = tmp_path / "ca.pem"
    file.write_bytes((CERTIFICATES / "stranger.pem").read_bytes())
    with (
        RawServer(serving(answer(PAGE)), tls=context()) as server,
        fetching(tls=Tls(ca_file=str(file))) as fetcher,
    ):
        assert failure(fetcher, server.url).reason == "tls"
        file.write_bytes(Path(CA).read_bytes())
        assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE


def test_without_verification_any_certificate_is_taken_in_silence() -> None:
    """Whoever configured insecure_skip_verify needs no warning at every scrape."""
    with (
        RawServer(serving(answer(PAGE)), tls=context(), address="127.0.0.2") as server,
        fetching(tls=Tls(insecure_skip_verify=True)) as fetcher,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE


def test_a_client_certificate_is_shown_where_one_is_wanted() -> None:
    """With it the page comes, without it the failure is tls."""
    shown = Tls(
        ca_file=CA,
        cert_file=str(CERTIFICATES / "client.pem"),
        key_file=str(CERTIFICATES / "client.key"),
    )
    server_side = context(clients=CA)
    with RawServer(serving(answer(PAGE)), tls=server_side) as server:
        with fetching(tls=shown) as fetcher:
            assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE
        with fetching(tls=Tls(ca_file=CA)) as fetcher:
            assert failure(fetcher, server.url).reason == "tls"


def test_an_answer_without_encryption_is_tls() -> None:
    """The URL says https and the server speaks HTTP."""

    def script(peer: Peer) -> None:
        peer.socket.recv(1)
        peer.send(answer(b"what?", status="400 Bad Request"))

    with RawServer(script) as server, fetching(tls=Tls(ca_file=CA)) as fetcher:
        url = server.url.replace("http:", "https:")
        assert failure(fetcher, url).reason == "tls"


HANDSHAKES: dict[str, Script] = {
    "silent": lambda peer: peer.hang(),
    "dripping": lambda peer: peer.drip(b"\x16\x03\x03\x40\x00" + bytes(0x4000)),
}


@pytest.mark.parametrize("script", HANDSHAKES.values(), ids=HANDSHAKES)
def test_a_handshake_that_never_ends_is_a_timeout(script: Script) -> None:
    """TLS has the same deadline, and a slow peer is no bad certificate."""
    with RawServer(script) as server, fetching(tls=Tls(ca_file=CA)) as fetcher:
        url = server.url.replace("http:", "https:")
        assert failure(fetcher, url, timeout=DEADLINE).reason == "timeout"


def test_a_body_dripping_through_tls_is_a_timeout() -> None:
    """The deadline reaches through the encryption."""
    with (
        RawServer(dripping(SIZED, b"a 1\n"), tls=context()) as server,
        fetching(tls=Tls(ca_file=CA)) as fetcher,
    ):
        assert failure(fetcher, server.url, timeout=DEADLINE).reason == "timeout"
