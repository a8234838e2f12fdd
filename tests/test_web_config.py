from __future__ import annotations

import logging
import os
import shutil
import ssl
from pathlib import Path

import pytest
from web_files import read

from analyzer.strict import ConfigError
from exporter.file_watch import Watch
from exporter.web_config import WebConfig, WebConfigFile, read_web_config

CERTIFICATES = Path(__file__).parent / "fixtures" / "tls"
PAIR = "{cert_file: server.pem, key_file: server.key"
HASH = "$2b$04$......................8QPuF36SqwZ1d9QO3taNcRXHOtLxpvS"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "{}",
        "tls_server_config: {}",
        "tls_server_config:\nbasic_auth_users:\nhttp_server_config:\n",
        "http_server_config: {http2: true, headers: }",
        "http_server_config: {http2: false}",
        "http_server_config: {headers: {Strict-Transport-Security: ''}}",
    ],
)
def test_a_file_may_ask_for_nothing(tls_folder: Path, text: str) -> None:
    """Empty files and sections mean plain HTTP; http2 may be on or off."""
    assert read(tls_folder, text) == WebConfig()


def test_a_whole_file_is_read(tls_folder: Path) -> None:
    """Every section of the format comes out as given."""
    config = read(
        tls_folder,
        f"""
tls_server_config:
  cert_file: server.pem
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
  client_allowed_sans: [prometheus.example, "2001:0db8:0::1"]
  min_version: TLS12
  max_version: TLS13
  prefer_server_cipher_suites: false
  curve_preferences: [CurveP384]
http_server_config:
  headers:
    X-Frame-Options: deny
    Strict-Transport-Security: max-age=60
basic_auth_users:
  alice: {HASH}
""",
    )
    assert config.tls is not None
    assert config.tls.allowed_sans == {"prometheus.example", "2001:db8::1"}
    assert config.tls.context.verify_mode is ssl.CERT_REQUIRED
    assert not config.tls.context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    assert config.headers == (
        ("X-Frame-Options", "deny"),
        ("Strict-Transport-Security", "max-age=60"),
    )
    assert config.users == {"alice": HASH}


def test_defaults_are_tls_12_and_up_in_the_servers_order(tls_folder: Path) -> None:
    """A certificate and its key are enough."""
    tls = read(tls_folder, f"tls_server_config: {PAIR}}}").tls
    assert tls is not None
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert tls.context.verify_mode is ssl.CERT_NONE
    assert tls.context.options & ssl.OP_CIPHER_SERVER_PREFERENCE


def test_go_names_of_cipher_suites_are_understood(tls_folder: Path) -> None:
    """Suites of TLS 1.2 are chosen; those of TLS 1.3 are accepted and all stay."""
    tls = read(
        tls_folder,
        f"tls_server_config: {PAIR}, cipher_suites: [TLS_AES_128_GCM_SHA256, "
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]}",
    ).tls
    assert tls is not None
    chosen = [
        suite["name"]
        for suite in tls.context.get_ciphers()
        if suite["protocol"] != "TLSv1.3"
    ]
    assert chosen == ["ECDHE-ECDSA-AES256-GCM-SHA384"]


def test_only_suites_of_tls_13_mean_tls_13(tls_folder: Path) -> None:
    """As in Go, TLS 1.2 has no suite left then."""
    tls = read(
        tls_folder,
        f"tls_server_config: {PAIR}, cipher_suites: [TLS_AES_128_GCM_SHA256]}}",
    ).tls
    assert tls is not None
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_hashes_may_come_from_the_environment(
    tls_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`$(VAR)` works here as in the other configuration file."""
    monkeypatch.setenv("ALICE", HASH)
    config = read(tls_folder, "basic_auth_users: {alice: $(ALICE)}")
    assert config.users == {"alice": HASH}


def test_a_missing_file_is_an_error(tls_folder: Path) -> None:
    """A file that is named must be there."""
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_web_config(tls_folder / "none.yml")


# Reading again.


@pytest.fixture
def tls_file(tls_folder: Path) -> WebConfigFile:
    """A file that asks for TLS."""
    (tls_folder / "web.yml").write_text(f"tls_server_config: {PAIR}}}")
    return WebConfigFile(tls_folder / "web.yml")


def replace(tls_folder: Path, **files: str) -> None:
    """Puts copies in the place of files, as a renewal does."""
    for suffix, source in files.items():
        shutil.copy(tls_folder / source, tls_folder / "new")
        (tls_folder / "new").rename(tls_folder / f"server.{suffix}")


def test_nothing_is_read_again_without_a_change(tls_file: WebConfigFile) -> None:
    """The same configuration is handed out until a file changes."""
    assert tls_file.current is tls_file.current


def test_a_renewed_certificate_is_taken(
    tls_folder: Path, tls_file: WebConfigFile
) -> None:
    """A new pair of files is in use without a restart."""
    before = tls_file.current
    replace(tls_folder, pem="renewed.pem", key="renewed.key")
    assert tls_file.current is not before
    assert tls_file.last_error == ""


def test_half_a_renewal_keeps_the_old_certificate(
    tls_folder: Path, tls_file: WebConfigFile, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate without its key is told once; the pair is then taken."""
    before = tls_file.current
    replace(tls_folder, pem="renewed.pem")
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert tls_file.current is before
        assert tls_file.last_error.endswith("key values mismatch")
        assert len(caplog.records) == 1
        replace(tls_folder, key="renewed.key")
        assert tls_file.current is not before
    assert tls_file.last_error == ""
    assert caplog.records[-1].getMessage() == "web configuration read again"


def test_a_file_that_vanishes_and_returns_is_taken(
    tls_folder: Path, tls_file: WebConfigFile
) -> None:
    """A missing key is an error until it is there again."""
    before = tls_file.current
    (tls_folder / "server.key").rename(tls_folder / "away")
    assert tls_file.current is before
    assert "server.key: No such file" in tls_file.last_error
    (tls_folder / "away").rename(tls_folder / "server.key")
    assert tls_file.current is not before
    assert tls_file.last_error == ""


def test_the_files_of_a_failed_attempt_are_watched(
    tls_folder: Path, tls_file: WebConfigFile
) -> None:
    """A new configuration is taken once the file that it lacked is there."""
    before = tls_file.current
    (tls_folder / "web.yml").write_text(
        "tls_server_config: {cert_file: later.pem, key_file: renewed.key}"
    )
    assert tls_file.current is before
    shutil.copy(tls_folder / "renewed.pem", tls_folder / "later.pem")
    assert tls_file.current is not before
    assert tls_file.last_error == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("tls_server_config: {", "not YAML"),
        (
            "http_server_config: {http2: true}",
            "tls_server_config: TLS cannot be switched on or off without a restart",
        ),
    ],
)
def test_a_bad_change_keeps_the_old_configuration(
    tls_folder: Path, tls_file: WebConfigFile, text: str, reason: str
) -> None:
    """Half-written files, faults and TLS switched off change nothing."""
    before = tls_file.current
    (tls_folder / "web.yml").write_text(text)
    assert tls_file.current is before
    assert reason in tls_file.last_error


def test_tls_cannot_be_switched_on_either(tls_folder: Path) -> None:
    """A server that began in plain HTTP stays so."""
    (tls_folder / "web.yml").write_text("http_server_config: {http2: false}")
    file = WebConfigFile(tls_folder / "web.yml")
    (tls_folder / "web.yml").write_text(f"tls_server_config: {PAIR}}}")
    assert file.current.tls is None
    assert "without a restart" in file.last_error


def test_users_come_and_go(tls_folder: Path) -> None:
    """Users are those of the file as it is."""
    path = tls_folder / "web.yml"
    path.write_text(f"basic_auth_users: {{alice: {HASH}}}")
    file = WebConfigFile(path)
    path.write_text(f"basic_auth_users: {{alice: {HASH}, bob: {HASH}}}")
    assert set(file.current.users) == {"alice", "bob"}
    path.write_text("basic_auth_users: {}")
    assert file.current.users == {}


def test_a_change_behind_a_symbolic_link_is_seen(tmp_path: Path) -> None:
    """A mounted secret changes by its link; size and time may be the same."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / "link").symlink_to("a")
    watch = Watch()
    watch.add(tmp_path / "link")
    assert not watch.changed()
    (tmp_path / "new").symlink_to("b")
    (tmp_path / "new").rename(tmp_path / "link")
    assert watch.changed()
