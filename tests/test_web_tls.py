from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from web_serving import PAGE, ask, connect, read_all, serving

from exporter.web import WebServer
from exporter.web_front import Limits
from exporter.web_tls import Tls

CERTIFICATES = Path(__file__).parent / "fixtures" / "tls"
CA = CERTIFICATES / "ca.pem"
REFUSED = (requests.exceptions.SSLError, requests.exceptions.ConnectionError)


def certificate(name: str) -> tuple[Path, Path]:
    """Returns a certificate's file and its key's."""
    return CERTIFICATES / f"{name}.pem", CERTIFICATES / f"{name}.key"


def web_config(folder: Path, **options: str) -> Path:
    """Returns a configuration with the server's certificate and *options*."""
    for name in ("server", "renewed"):
        for path in certificate(name):
            shutil.copy(path, folder)
    shutil.copy(CA, folder)
    lines = ["cert_file: server.pem", "key_file: server.key"]
    lines += [f"{name}: {value}" for name, value in options.items()]
    path = folder / "web.yml"
    path.write_text("tls_server_config:\n" + "".join(f"  {x}\n" for x in lines))
    return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    """A server with TLS."""
    with serving(web_config=web_config(tmp_path)) as running:
        yield running


def hello(
    server: WebServer,
    sock: socket.socket,
    *,
    versions: tuple[ssl.TLSVersion, ssl.TLSVersion] | None = None,
    ciphers: str = "",
) -> ssl.SSLSocket:
    """Returns *sock* after a handshake."""
    context = ssl.create_default_context(cafile=CA)
    context.set_alpn_protocols(["h2", "http/1.1"])
    if versions is not None:
        context.minimum_version, context.maximum_version = versions
    if ciphers:
        context.set_ciphers(ciphers)
    return context.wrap_socket(
        sock, server_hostname=server.address[0], suppress_ragged_eofs=False
    )


def test_https_is_served_with_the_files_certificate(server: WebServer) -> None:
    """Files named relative to the configuration are found next to it."""
    assert server.url.startswith("https://")
    assert ask(server, "/metrics", verify=CA).content == PAGE


def test_answers_larger_than_a_record_arrive_whole(server: WebServer) -> None:
    """One connection serves several requests over TLS."""
    with requests.Session() as session:
        session.trust_env = False
        for _ in range(3):
            got = session.get(
                f"{server.url}/metrics",
                verify=str(CA),
                headers={"Accept-Encoding": "identity"},
                timeout=20,
            )
            assert got.content == PAGE


def test_the_end_of_a_connection_is_told(server: WebServer) -> None:
    """The client sees an orderly end of TLS, which no attacker could fake."""
    with connect(server) as plain, hello(server, plain) as sock:
        sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert read_all(sock).endswith(PAGE)


def test_plain_http_gets_a_sentence(server: WebServer) -> None:
    """A client that forgot the s learns it."""
    with connect(server) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = read_all(sock)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.endswith(b"this port speaks HTTPS only\n")


def test_clients_that_want_http2_get_http11(server: WebServer) -> None:
    """The protocol is agreed on in the handshake."""
    with connect(server) as plain, hello(server, plain) as sock:
        assert sock.selected_alpn_protocol() == "http/1.1"


@pytest.mark.parametrize(
    ("option", "version"),
    [("min_version", ssl.TLSVersion.TLSv1_2), ("max_version", ssl.TLSVersion.TLSv1_3)],
)
def test_versions_outside_the_range_are_refused(
    tmp_path: Path, option: str, version: ssl.TLSVersion
) -> None:
    """Clients that speak only a version outside do not get in."""
    limit = {"min_version": "TLS13", "max_version": "TLS12"}[option]
    path = web_config(tmp_path, **{option: limit})
    with serving(web_config=path) as server, connect(server) as plain:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            hello(server, plain, versions=(version, version))
        assert ask(server, "/-/ready", verify=CA).status_code == 200


def test_the_chosen_suite_is_used(tmp_path: Path) -> None:
    """A suite by its Go name is what a client of TLS 1.2 gets."""
    path = web_config(
        tmp_path,
        max_version="TLS12",
        cipher_suites="[TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]",
    )
    with (
        serving(web_config=path) as server,
        connect(server) as plain,
        hello(server, plain) as sock,
    ):
        cipher = sock.cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"


@pytest.mark.parametrize(
    ("curve", "agreed"), [("secp384r1", True), ("prime256v1", False)]
)
def test_the_chosen_curve_is_the_only_one(
    tmp_path: Path, curve: str, *, agreed: bool
) -> None:
    """A client that has another curve only does not get in."""
    path = web_config(tmp_path, curve_preferences="[CurveP384]")
    context = ssl.create_default_context(cafile=CA)
    context.set_ecdh_curve(curve)
    with serving(web_config=path) as server, connect(server) as plain:
        if agreed:
            context.wrap_socket(plain, server_hostname="127.0.0.1").close()
        else:
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_a_client_certificate_can_be_required(tmp_path: Path) -> None:
    """None and a stranger's are refused, one of the CA is enough."""
    path = web_config(
        tmp_path,
        client_auth_type="RequireAndVerifyClientCert",
        client_ca_file="ca.pem",
    )
    with serving(web_config=path) as server:
        for cert in (None, certificate("stranger")):
            with pytest.raises(REFUSED):
                ask(server, "/metrics", verify=CA, cert=cert)
        known = ask(server, "/metrics", verify=CA, cert=certificate("client"))
        assert known.content == PAGE


def test_a_client_certificate_can_be_optional(tmp_path: Path) -> None:
    """Without one a client gets in, with a stranger's it does not."""
    path = web_config(
        tmp_path, client_auth_type="VerifyClientCertIfGiven", client_ca_file="ca.pem"
    )
    with serving(web_config=path) as server:
        assert ask(server, "/-/ready", verify=CA).status_code == 200
        known = ask(server, "/-/ready", verify=CA, cert=certificate("client"))
        assert known.status_code == 200
        with pytest.raises(REFUSED):
            ask(server, "/-/ready", verify=CA, cert=certificate("stranger"))


@pytest.mark.parametrize(
    ("san", "admitted"),
    [
        ("prometheus.example", True),
        ("spiffe://example/prometheus", True),
        ("'2001:db8::1'", True),
        ("example", False),
        ("'*.example'", False),
        ("PROMETHEUS.example", False),
    ],
)
def test_a_client_needs_an_allowed_name(
    tmp_path: Path, san: str, *, admitted: bool
) -> None:
    """A certificate of the CA is enough only with one of the names, exactly."""
    path = web_config(
        tmp_path,
        client_auth_type="RequireAndVerifyClientCert",
        client_ca_file="ca.pem",
        client_allowed_sans=f"[other.example, {san}]",
    )
    with serving(web_config=path) as server:
        if admitted:
            got = ask(server, "/-/ready", verify=CA, cert=certificate("client"))
            assert got.status_code == 200
        else:
            with pytest.raises(REFUSED):
                ask(server, "/-/ready", verify=CA, cert=certificate("client"))


def serial_number(sock: ssl.SSLSocket) -> object:
    """Returns which certificate the server showed."""
    found = sock.getpeercert()
    assert found is not None
    return found["serialNumber"]


def test_a_renewed_certificate_is_shown_to_new_connections(
    tmp_path: Path, server: WebServer
) -> None:
    """A renewal needs no restart, and connections that are open stay so."""
    with connect(server) as plain, hello(server, plain) as old:
        old.sendall(b"GET /-/ready HTTP/1.1\r\n\r\n")
        assert old.recv(4096).endswith(b"ready\n")
        for name, suffix in (("renewed.pem", "pem"), ("renewed.key", "key")):
            (tmp_path / name).rename(tmp_path / f"server.{suffix}")
        with connect(server) as other, hello(server, other) as new:
            assert serial_number(new) != serial_number(old)
        old.sendall(b"GET /-/ready HTTP/1.1\r\n\r\n")
        assert old.recv(4096).endswith(b"ready\n")
    assert server.config_error == ""


def test_a_broken_renewal_keeps_the_old_certificate(
    tmp_path: Path, server: WebServer
) -> None:
    """A half-written certificate locks nobody out, and the error can be read."""
    (tmp_path / "server.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    assert ask(server, "/-/ready", verify=CA).status_code == 200
    assert "tls_server_config.cert_file: this and key_file" in server.config_error


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_unfinished_handshakes_do_not_keep_others_out(
    server: WebServer, sent: bytes
) -> None:
    """More half-open handshakes than threads and places leave the rest served."""
    with ExitStack() as stack:
        for _ in range(2 * Limits().connections):
            stack.enter_context(connect(server)).sendall(sent)
        assert ask(server, "/metrics", verify=CA).content == PAGE


def test_half_sent_requests_do_not_keep_others_out(server: WebServer) -> None:
    """The same holds after the handshake."""
    with ExitStack() as stack:
        for _ in range(2 * Limits().threads):
            sock = stack.enter_context(
                hello(server, stack.enter_context(connect(server)))
            )
            sock.sendall(b"GET /metr")
        assert ask(server, "/metrics", verify=CA).content == PAGE


def test_a_handshake_must_end_in_time(tmp_path: Path) -> None:
    """A client that never says hello is let go."""
    limits = Limits(head_seconds=0.2)
    path = web_config(tmp_path)
    with serving(web_config=path, limits=limits) as server, connect(server) as sock:
        assert sock.recv(1) == b""


class BrokenTls(Tls):
    """TLS with an error of our own."""

    def check(self, sock: ssl.SSLSocket) -> None:
        """Fails as no code should."""
        raise RuntimeError(f"broken at {sock.fileno()}")


def test_an_error_of_ours_ends_one_connection_only(
    server: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread that serves all connections outlives what goes wrong with one."""
    good = server._server._tls
    tls = good()
    assert tls is not None
    broken = BrokenTls(tls.context)
    server._server._tls = lambda: broken
    with pytest.raises(REFUSED):
        ask(server, "/-/ready", verify=CA)
    server._server._tls = good
    assert ask(server, "/-/ready", verify=CA).status_code == 200
    assert "RuntimeError: broken" in caplog.text
