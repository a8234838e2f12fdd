"""Secrets that a target asks for: read anew, sent as they are, and never told."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from raw_server import (
    RawServer,
    answer,
    saying,
    serving,
)
from scraping import (
    CA,
    PAGE,
    PATIENCE,
    context,
    failure,
    fetching,
    nothing_is_left,  # noqa: F401  pytest holds every test here to it
)

from analyzer.config_sources import Credentials


def authorization(server: RawServer) -> str:
    """Returns what the latest request showed."""
    lines = server.requests[-1].decode().split("\r\n")
    return next(line for line in lines if line.startswith("Authorization: "))


def test_a_bearer_token_is_read_anew_at_each_scrape(tmp_path: Path) -> None:
    """A rotated file needs no reload; white space around the token is none of it."""
    file = tmp_path / "token"
    file.write_text("first\n")
    with (
        RawServer(serving(answer(PAGE))) as server,
        fetching(credentials=Credentials(bearer_file=str(file))) as fetcher,
    ):
        fetcher.get(server.url, timeout=PATIENCE)
        assert authorization(server) == "Authorization: Bearer first"
        file.write_text("  second\r\n")
        fetcher.get(server.url, timeout=PATIENCE)
        assert authorization(server) == "Authorization: Bearer second"
        assert server.connections == 1


def test_a_password_is_read_anew_and_may_hold_any_bytes(tmp_path: Path) -> None:
    """Name and password go out as UTF-8; what is no UTF-8 goes out as it stands."""
    file = tmp_path / "password"
    with (
        RawServer(serving(answer(PAGE))) as server,
        fetching(
            credentials=Credentials(username="ünï", password_file=str(file))
        ) as fetcher,
    ):
        for password in (b"se:cret", "pä€ss".encode(), b"\xff\xfe"):
            file.write_bytes(password + b"\n")
            fetcher.get(server.url, timeout=PATIENCE)
            expected = base64.b64encode("ünï:".encode() + password).decode()
            assert authorization(server) == f"Authorization: Basic {expected}"


SECRETS = {
    "empty": b"",
    "blank": b" \n\t\n",
    "of two lines": b"hunter2\nhunter3\n",
    "of two lines as on a Mac": b"hunter2\rhunter3",
    "huge": b"hunter2" * 10_000,
}

TOKENS = {
    "with a space": b"hunter2 hunter3",
    "not ASCII": "hunter2é€".encode(),
    "not UTF-8": b"hunter2\xff",
    "with a control": b"hunter2\x00\x1b[0m",
}


def spoken(error: BaseException) -> str:
    """Returns all that an error and its causes would print."""
    parts = []
    cause: BaseException | None = error
    while cause is not None:
        parts += [str(cause), repr(cause)]
        cause = cause.__cause__ or cause.__context__
    return " ".join(parts)


@pytest.mark.parametrize("kind", ["bearer", "basic"])
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_secret_that_is_not_one_line_is_credentials(
    tmp_path: Path, secret: bytes, kind: str
) -> None:
    """The error names the file and never its text, and nobody was asked."""
    file = tmp_path / "secret"
    file.write_bytes(secret)
    given = {
        "bearer": Credentials(bearer_file=str(file)),
        "basic": Credentials(username="me", password_file=str(file)),
    }[kind]
    with RawServer(serving(answer(PAGE))) as server:
        with fetching(credentials=given) as fetcher:
            failed = failure(fetcher, server.url)
        assert failed.reason == "credentials"
        assert failed.detail == f"{file}: must hold one line of text"
        assert "hunter" not in spoken(failed)
        assert server.connections == 0


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_a_text_that_no_header_can_hold_is_no_token(
    tmp_path: Path, token: bytes
) -> None:
    """It is refused before it reaches a header, and not shown."""
    file = tmp_path / "token"
    file.write_bytes(token)
    with fetching(credentials=Credentials(bearer_file=str(file))) as fetcher:
        failed = failure(fetcher, "http://127.0.0.1:1/metrics")
    assert failed.reason == "credentials"
    assert failed.detail == f"{file}: not a bearer token"
    assert "hunter" not in spoken(failed)


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_secret_file_that_cannot_be_read_is_credentials(
    tmp_path: Path, name: str
) -> None:
    """A missing file, or a folder; the next scrape finds it when it has come."""
    file = tmp_path / name
    with (
        RawServer(serving(answer(PAGE))) as server,
        fetching(credentials=Credentials(bearer_file=str(file))) as fetcher,
    ):
        failed = failure(fetcher, server.url)
        assert failed.reason == "credentials"
        assert str(file) in failed.detail
        if name == "missing":
            file.write_text("here")
            fetcher.get(server.url, timeout=PATIENCE)
            assert authorization(server) == "Authorization: Bearer here"


def test_a_refused_secret_is_not_in_the_error(tmp_path: Path) -> None:
    """Nor is one that was sent."""
    file = tmp_path / "token"
    file.write_text("hunter2")
    with (
        RawServer(saying(answer(b"no", status="401 No"))) as server,
        fetching(credentials=Credentials(bearer_file=str(file))) as fetcher,
    ):
        failed = failure(fetcher, server.url)
        assert "hunter2" in authorization(server)
        assert "hunter2" not in spoken(failed)


def test_proxies_and_netrc_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The engine is beside us; a proxy would see its metrics and our secrets."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", CA)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with (
        RawServer(serving(answer(b"proxy 1\n"))) as proxy,
        RawServer(serving(answer(PAGE))) as plain,
        RawServer(serving(answer(PAGE)), tls=context()) as encrypted,
        fetching() as fetcher,
    ):
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            address = f"http://127.0.0.1:{proxy.port}"
            monkeypatch.setenv(name, address)
            monkeypatch.setenv(name.lower(), address)
        assert fetcher.get(plain.url, timeout=PATIENCE).body == PAGE
        assert failure(fetcher, encrypted.url).reason == "tls"
        assert proxy.connections == 0
        assert b"Authorization" not in plain.requests[0]
