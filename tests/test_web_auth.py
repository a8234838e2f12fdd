from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
from web_serving import ask, connect, handlers, serving

from exporter.web import WebServer
from exporter.web_auth import CHECKS_WAITING, REMEMBERED, BusyError, Passwords

PATHS = ["/", "/metrics", "/api/v1/status", "/-/healthy", "/-/ready", "/nope"]
SECRET = "correct horse: battery staple"


def hashed(password: str | bytes, *, prefix: bytes = b"2b") -> str:
    """Returns a bcrypt hash of the lowest cost."""
    data = password if isinstance(password, bytes) else password.encode()
    made = bcrypt.hashpw(data[:72], bcrypt.gensalt(4))
    return made.replace(b"$2b$", b"$%s$" % prefix).decode()


def basic(name: str, password: str | bytes) -> str:
    """Returns a Basic header's value."""
    data = password if isinstance(password, bytes) else password.encode()
    return "Basic " + base64.b64encode(name.encode() + b":" + data).decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A configuration with one user and a header."""
    path = tmp_path / "web.yml"
    path.write_text(
        "http_server_config: {headers: {X-Frame-Options: deny, "
        "Content-Security-Policy: default-src 'self'}}\n"
        f"basic_auth_users: {{alice: {hashed(SECRET, prefix=b'2y')}}}\n"
    )
    return path


@pytest.fixture
def server(path: Path) -> Iterator[WebServer]:
    """A server that asks for a password."""
    with serving(web_config=path) as running:
        yield running


@pytest.mark.parametrize("path_asked", PATHS)
def test_every_path_asks_for_a_password(server: WebServer, path_asked: str) -> None:
    """Without one there is 401 and a challenge, whether the path exists or not."""
    got = ask(server, path_asked)
    assert (got.status_code, got.text) == (401, "Unauthorized\n")
    assert got.headers["WWW-Authenticate"].startswith("Basic realm=")


def test_the_right_password_opens(server: WebServer) -> None:
    """The name and password of the file are enough, again and again."""
    for _ in range(2):
        assert ask(server, "/metrics", auth=("alice", SECRET)).status_code == 200
    assert ask(server, "/nope", auth=("alice", SECRET)).status_code == 404


@pytest.mark.parametrize(
    "header",
    [
        basic("alice", "wrong"),
        basic("alice", ""),
        basic("alice", SECRET + " "),
        basic("bob", SECRET),
        basic("", SECRET),
        basic("ALICE", SECRET),
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
        basic("alice", SECRET).replace("Basic", "Bearer"),
        "\xe9",
    ],
)
def test_anything_else_is_refused(server: WebServer, header: str) -> None:
    """Wrong, malformed and foreign credentials are all 401."""
    for _ in range(2):
        got = ask(server, "/metrics", headers={"Authorization": header})
        assert got.status_code == 401


def test_post_needs_the_password_too(path: Path) -> None:
    """Nobody reloads without it, and the handler is not called."""
    calls: list[int] = []

    def reload() -> tuple[bool, str]:
        calls.append(1)
        return True, "reloaded\n"

    with serving(handlers(reload=reload), web_config=path) as server:
        assert ask(server, "/-/reload", method="POST").status_code == 401
        assert calls == []
        good = ask(server, "/-/reload", method="POST", auth=("alice", SECRET))
    assert (good.status_code, calls) == (200, [1])


def test_configured_headers_stand_on_every_answer(server: WebServer) -> None:
    """They stand on refusals too, and instead of the page's own."""
    for auth in (None, ("alice", SECRET)):
        headers = ask(server, "/", auth=auth).headers
        assert headers["X-Frame-Options"] == "deny"
        assert headers["Content-Security-Policy"] == "default-src 'self'"


def test_headers_need_no_users(tmp_path: Path) -> None:
    """A file with headers only asks for no password."""
    path = tmp_path / "web.yml"
    path.write_text("http_server_config: {headers: {X-XSS-Protection: 1; mode=block}}")
    with serving(web_config=path) as server:
        got = ask(server, "/-/ready")
    assert got.headers["X-XSS-Protection"] == "1; mode=block"


def test_a_changed_password_counts_from_the_next_request(
    path: Path, server: WebServer
) -> None:
    """The old one is refused though it was remembered, on an open connection too."""
    request = (
        f"GET /-/ready HTTP/1.1\r\nAuthorization: {basic('alice', SECRET)}\r\n\r\n"
    ).encode()
    with connect(server) as sock:
        sock.sendall(request)
        assert b" 200 OK" in sock.recv(4096)
        path.write_text(f"basic_auth_users: {{alice: {hashed('new')}}}\n")
        sock.sendall(request)
        assert b" 401 Unauthorized" in sock.recv(4096)
    assert ask(server, "/-/ready", auth=("alice", "new")).status_code == 200


def test_a_broken_file_keeps_the_users(path: Path, server: WebServer) -> None:
    """A fault in the file opens nothing, and can be read."""
    for text in ("", "basic_auth_users: {alice: plain}", "basic_auth"):
        path.write_text(text)
        assert ask(server, "/-/ready").status_code == 401
        assert ask(server, "/-/ready", auth=("alice", SECRET)).status_code == 200
        assert server.config_error.startswith(str(path))


def test_passwords_and_hashes_stay_out_of_the_log(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither good nor bad logins nor faults of the file tell a secret."""
    with caplog.at_level(logging.DEBUG), serving(web_config=path) as server:
        ask(server, "/", auth=("alice", SECRET))
        ask(server, "/", auth=("alice", "hunter2"))
        path.write_text("basic_auth_users: {alice: hunter2}")
        ask(server, "/", auth=("alice", "hunter2"))
        assert "hunter2" not in server.config_error
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("exporter")]
    assert any("web configuration kept" in message for message in ours)
    assert not any("hunter2" in message or SECRET in message for message in ours)


@pytest.mark.parametrize("prefix", [b"2a", b"2b", b"2y"])
def test_hashes_of_all_tools_are_understood(prefix: bytes) -> None:
    """Apache's htpasswd writes $2y$, others $2a$ and $2b$."""
    users = {"a": hashed("x", prefix=prefix)}
    assert Passwords().accept(basic("a", "x"), users)
    assert not Passwords().accept(basic("a", "y"), users)


@pytest.mark.parametrize("password", ["ünïcode ☃", "a:b:c", "", "x" * 72, "x" * 100])
def test_any_password_can_be_checked(password: str) -> None:
    """UTF-8, colons and more than bcrypt's 72 bytes, of which only they count."""
    users = {"a": hashed(password)}
    passwords = Passwords()
    assert passwords.accept(basic("a", password), users)
    assert not passwords.accept(basic("a", "other"), users)


def test_a_remembered_login_passes_while_checks_are_full() -> None:
    """A flood of guesses keeps out new logins only."""
    users = {"a": hashed("right"), "b": hashed("right")}
    passwords = Passwords()
    assert passwords.accept(basic("a", "right"), users)
    for _ in range(CHECKS_WAITING):
        passwords._places.acquire()
    assert passwords.accept(basic("a", "right"), users)
    for name, password in (("b", "right"), ("a", "wrong"), ("c", "right")):
        with pytest.raises(BusyError):
            passwords.accept(basic(name, password), users)


def test_too_many_checks_are_503(server: WebServer) -> None:
    """The client is told to come back."""
    guard = server._server.wsgi_app
    for _ in range(CHECKS_WAITING):
        guard._passwords._places.acquire()
    got = ask(server, "/-/ready", auth=("alice", SECRET))
    assert (got.status_code, got.headers["Retry-After"]) == (503, "1")
    for _ in range(CHECKS_WAITING):
        guard._passwords._places.release()
    assert ask(server, "/-/ready", auth=("alice", SECRET)).status_code == 200


def test_a_bounded_number_of_logins_is_remembered() -> None:
    """The oldest is forgotten, and wrong ones never take a place."""
    users = {f"u{i}": hashed("x") for i in range(REMEMBERED + 5)}
    passwords = Passwords()
    for name in users:
        assert passwords.accept(basic(name, "x"), users)
        assert not passwords.accept(basic(name, "wrong"), users)
    assert len(passwords._right) == REMEMBERED
    for _ in range(CHECKS_WAITING):
        passwords._places.acquire()
    assert passwords.accept(basic(f"u{REMEMBERED + 4}", "x"), users)
    with pytest.raises(BusyError):
        passwords.accept(basic("u0", "x"), users)
