from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import ssl
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.strict import ConfigError
from exporter.file_watch import Watch
from exporter.web_config import (
    HEADERS,
    SECTIONS,
    WebConfig,
    WebConfigFile,
    read_web_config,
)
from exporter.web_tls import CLIENT_AUTH_TYPES, CURVES, OPTIONS, VERSIONS

CERTIFICATES = Path(__file__).parent / "fixtures" / "tls"
PAIR = "{cert_file: server.pem, key_file: server.key"
HASH = "$2b$04$......................8QPuF36SqwZ1d9QO3taNcRXHOtLxpvS"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the certificates, for a `web.yml`."""
    for path in (*CERTIFICATES.glob("*.pem"), *CERTIFICATES.glob("*.key")):
        shutil.copy(path, tmp_path)
    return tmp_path


def read(folder: Path, text: str) -> WebConfig:
    """Returns what *text* says as the folder's file."""
    path = folder / "web.yml"
    path.write_text(text)
    return read_web_config(path)


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
def test_a_file_may_ask_for_nothing(folder: Path, text: str) -> None:
    """Empty files and sections mean plain HTTP; http2 may be on or off."""
    assert read(folder, text) == WebConfig()


def test_a_whole_file_is_read(folder: Path) -> None:
    """Every section of the format comes out as given."""
    config = read(
        folder,
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


def test_defaults_are_tls_12_and_up_in_the_servers_order(folder: Path) -> None:
    """A certificate and its key are enough."""
    tls = read(folder, f"tls_server_config: {PAIR}}}").tls
    assert tls is not None
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert tls.context.verify_mode is ssl.CERT_NONE
    assert tls.context.options & ssl.OP_CIPHER_SERVER_PREFERENCE


def test_go_names_of_cipher_suites_are_understood(folder: Path) -> None:
    """Suites of TLS 1.2 are chosen; those of TLS 1.3 are accepted and all stay."""
    tls = read(
        folder,
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


def test_only_suites_of_tls_13_mean_tls_13(folder: Path) -> None:
    """As in Go, TLS 1.2 has no suite left then."""
    tls = read(
        folder,
        f"tls_server_config: {PAIR}, cipher_suites: [TLS_AES_128_GCM_SHA256]}}",
    ).tls
    assert tls is not None
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_hashes_may_come_from_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`$(VAR)` works here as in the other configuration file."""
    monkeypatch.setenv("ALICE", HASH)
    config = read(folder, "basic_auth_users: {alice: $(ALICE)}")
    assert config.users == {"alice": HASH}


VERIFIED = "RequireAndVerifyClientCert"
UNSUPPORTED = (
    "asks for certificates and does not verify them, which is not supported, "
    f"use {VERIFIED}"
)
BCRYPT = (
    "must be a bcrypt hash ($2a$, $2b$ or $2y$, cost 4 to 31), "
    "as `htpasswd -nB` prints it"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tls_server: {}",
            (
                "tls_server: unknown key, did you mean 'tls_server_config' (known: "
                "basic_auth_users, http_server_config, rate_limit, tls_server_config)"
            ),
        ),
        ("[]", "must be a mapping, got []"),
        (
            "rate_limit: {interval: 1s, burst: 20}",
            "rate_limit: is not supported, limit requests in a proxy",
        ),
        (
            "tls_server_config: {cert_file: server.pem}",
            "tls_server_config.key_file: is missing",
        ),
        (
            "tls_server_config: {min_version: TLS12}",
            "tls_server_config.cert_file: is missing",
        ),
        (
            "tls_server_config: {cert: x, key: y}",
            "tls_server_config.cert: is not supported, use cert_file",
        ),
        (
            f"tls_server_config: {PAIR}, client_ca: x}}",
            "tls_server_config.client_ca: is not supported, use client_ca_file",
        ),
        (
            "tls_server_config: {cert_file: none.pem, key_file: server.key}",
            (
                "tls_server_config.cert_file: cannot be read: {folder}/none.pem: "
                "No such file or directory"
            ),
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: renewed.key}",
            (
                "tls_server_config.cert_file: this and key_file cannot be used: "
                "key values mismatch"
            ),
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: encrypted.key}",
            (
                "tls_server_config.cert_file: this and key_file cannot be used: "
                "one is not PEM, or the key is encrypted"
            ),
        ),
        (
            "tls_server_config: {cert_file: web.yml, key_file: server.key}",
            (
                "tls_server_config.cert_file: this and key_file cannot be used: "
                "one is not PEM, or the key is encrypted"
            ),
        ),
        *(
            (
                f"tls_server_config: {PAIR}, client_auth_type: {kind}}}",
                f"tls_server_config.client_auth_type: {kind} {UNSUPPORTED}",
            )
            for kind in ("RequestClientCert", "RequireAnyClientCert")
        ),
        (
            f"tls_server_config: {PAIR}, client_auth_type: Require}}",
            (
                "tls_server_config.client_auth_type: must be one of NoClientCert, "
                f"VerifyClientCertIfGiven, {VERIFIED}, got 'Require'"
            ),
        ),
        (
            f"tls_server_config: {PAIR}, client_auth_type: {VERIFIED}}}",
            "tls_server_config.client_auth_type: needs client_ca_file",
        ),
        (
            f"tls_server_config: {PAIR}, client_ca_file: ca.pem}}",
            (
                "tls_server_config.client_ca_file: needs client_auth_type "
                f"{VERIFIED} or VerifyClientCertIfGiven"
            ),
        ),
        (
            (
                f"tls_server_config: {PAIR}, client_auth_type: {VERIFIED}, "
                "client_ca_file: server.key}"
            ),
            (
                "tls_server_config.client_ca_file: cannot be used: "
                "no certificate or crl found"
            ),
        ),
        (
            f"tls_server_config: {PAIR}, client_allowed_sans: [a]}}",
            f"tls_server_config.client_allowed_sans: needs client_auth_type {VERIFIED}",
        ),
        (
            (
                f"tls_server_config: {PAIR}, client_auth_type: {VERIFIED}, "
                "client_ca_file: ca.pem, client_allowed_sans: []}"
            ),
            "tls_server_config.client_allowed_sans: is empty, which would admit nobody",
        ),
        *(
            (
                f"tls_server_config: {PAIR}, {name}: TLS10}}",
                (
                    f"tls_server_config.{name}: TLS10 is not served (OpenSSL's default "
                    "security level forbids it), use TLS12 or TLS13"
                ),
            )
            for name in ("min_version", "max_version")
        ),
        (
            f"tls_server_config: {PAIR}, min_version: SSL3}}",
            (
                "tls_server_config.min_version: must be one of TLS10, TLS11, TLS12, "
                "TLS13, got 'SSL3'"
            ),
        ),
        (
            f"tls_server_config: {PAIR}, min_version: TLS13, max_version: TLS12}}",
            "tls_server_config.max_version: is lower than min_version",
        ),
        (
            (
                f"tls_server_config: {PAIR}, max_version: TLS12, "
                "cipher_suites: [TLS_AES_128_GCM_SHA256]}"
            ),
            (
                "tls_server_config.cipher_suites: has none for TLS 1.2, which is "
                "max_version"
            ),
        ),
        (
            f"tls_server_config: {PAIR}, curve_preferences: [CurveP256, X25519]}}",
            (
                "tls_server_config.curve_preferences: more than one curve cannot be "
                "set, give one or leave it to OpenSSL"
            ),
        ),
        (
            f"tls_server_config: {PAIR}, curve_preferences: [P256]}}",
            (
                "tls_server_config.curve_preferences[0]: must be one of CurveP256, "
                "CurveP384, CurveP521, X25519, got 'P256'"
            ),
        ),
        (
            f"tls_server_config: {PAIR}, prefer_server_cipher_suites: 1}}",
            (
                "tls_server_config.prefer_server_cipher_suites: must be true or false, "
                "got 1"
            ),
        ),
        (
            "http_server_config: {http2: 2}",
            "http_server_config.http2: must be true or false, got 2",
        ),
        (
            "http_server_config: {headers: {X-Frame-Options: allow}}",
            (
                "http_server_config.headers.X-Frame-Options: must be one of deny, "
                "sameorigin, got 'allow'"
            ),
        ),
        (
            "http_server_config: {headers: {Server: x}}",
            (
                "http_server_config.headers.Server: unknown key (known: "
                "Content-Security-Policy, Strict-Transport-Security, "
                "X-Content-Type-Options, X-Frame-Options, X-XSS-Protection)"
            ),
        ),
        (
            'http_server_config: {headers: {X-XSS-Protection: "1\\r\\nX: y"}}',
            (
                "http_server_config.headers.X-XSS-Protection: must be one line of "
                "ASCII text, got '1\\r\\nX: y'"
            ),
        ),
        ("basic_auth_users: {alice: secret}", f"basic_auth_users.alice: {BCRYPT}"),
        ("basic_auth_users: {alice: 12345}", f"basic_auth_users.alice: {BCRYPT}"),
        ("basic_auth_users: {alice: }", f"basic_auth_users.alice: {BCRYPT}"),
        (
            f"basic_auth_users: {{alice: {HASH.replace('$2b$04', '$2b$03')}}}",
            f"basic_auth_users.alice: {BCRYPT}",
        ),
        (
            f"basic_auth_users: {{'a:b': {HASH}}}",
            "basic_auth_users.a:b: a user's name must not be empty or hold a colon",
        ),
    ],
)
def test_a_fault_is_told_with_its_place(folder: Path, text: str, message: str) -> None:
    """Each fault has one exact sentence behind the file and the path."""
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    expected = f"{folder}/web.yml: {message.replace('{folder}', str(folder))}"
    assert str(caught.value) == expected


anything = st.recursive(
    st.sampled_from(
        [
            *OPTIONS,
            *CURVES,
            *VERSIONS,
            *CLIENT_AUTH_TYPES,
            *HEADERS,
            *SECTIONS,
            "server.pem",
            "server.key",
            "ca.pem",
            "/",
            "a\0b",
            "$(HOME)",
            "",
        ]
    )
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*OPTIONS, *HEADERS, "a"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tls=st.dictionaries(st.sampled_from(OPTIONS), anything, max_size=5),
    headers=anything,
    users=anything,
)
def test_any_document_is_read_or_refused(
    folder: Path, tls: dict[str, object], headers: object, users: object
) -> None:
    """Whatever a file holds, a ConfigError is the worst that comes of it."""
    document = {
        "tls_server_config": {
            "cert_file": "server.pem",
            "key_file": "server.key",
            **tls,
        },
        "http_server_config": {"headers": headers},
        "basic_auth_users": users,
    }
    with contextlib.suppress(ConfigError):
        read(folder, json.dumps(document))


@pytest.mark.parametrize(
    "suite", ["TLS_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA", "invented"]
)
def test_insecure_or_unknown_suites_are_refused(folder: Path, suite: str) -> None:
    """Only the suites that Go lists as secure have a name here."""
    with pytest.raises(ConfigError, match=r"cipher_suites\[0\]: must be one of TLS_"):
        read(folder, f"tls_server_config: {PAIR}, cipher_suites: [{suite}]}}")


def test_a_missing_file_is_an_error(folder: Path) -> None:
    """A file that is named must be there."""
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_web_config(folder / "none.yml")


# Reading again.


@pytest.fixture
def tls_file(folder: Path) -> WebConfigFile:
    """A file that asks for TLS."""
    (folder / "web.yml").write_text(f"tls_server_config: {PAIR}}}")
    return WebConfigFile(folder / "web.yml")


def replace(folder: Path, **files: str) -> None:
    """Puts copies in the place of files, as a renewal does."""
    for suffix, source in files.items():
        shutil.copy(folder / source, folder / "new")
        (folder / "new").rename(folder / f"server.{suffix}")


def test_nothing_is_read_again_without_a_change(tls_file: WebConfigFile) -> None:
    """The same configuration is handed out until a file changes."""
    assert tls_file.current is tls_file.current


def test_a_renewed_certificate_is_taken(folder: Path, tls_file: WebConfigFile) -> None:
    """A new pair of files is in use without a restart."""
    before = tls_file.current
    replace(folder, pem="renewed.pem", key="renewed.key")
    assert tls_file.current is not before
    assert tls_file.last_error == ""


def test_half_a_renewal_keeps_the_old_certificate(
    folder: Path, tls_file: WebConfigFile, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate without its key is told once; the pair is then taken."""
    before = tls_file.current
    replace(folder, pem="renewed.pem")
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert tls_file.current is before
        assert tls_file.last_error.endswith("key values mismatch")
        assert len(caplog.records) == 1
        replace(folder, key="renewed.key")
        assert tls_file.current is not before
    assert tls_file.last_error == ""
    assert caplog.records[-1].getMessage() == "web configuration is usable again"


def test_a_file_that_vanishes_and_returns_is_taken(
    folder: Path, tls_file: WebConfigFile
) -> None:
    """A missing key is an error until it is there again."""
    before = tls_file.current
    (folder / "server.key").rename(folder / "away")
    assert tls_file.current is before
    assert "server.key: No such file" in tls_file.last_error
    (folder / "away").rename(folder / "server.key")
    assert tls_file.current is not before
    assert tls_file.last_error == ""


def test_the_files_of_a_failed_attempt_are_watched(
    folder: Path, tls_file: WebConfigFile
) -> None:
    """A new configuration is taken once the file that it lacked is there."""
    before = tls_file.current
    (folder / "web.yml").write_text(
        "tls_server_config: {cert_file: later.pem, key_file: renewed.key}"
    )
    assert tls_file.current is before
    shutil.copy(folder / "renewed.pem", folder / "later.pem")
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
    folder: Path, tls_file: WebConfigFile, text: str, reason: str
) -> None:
    """Half-written files, faults and TLS switched off change nothing."""
    before = tls_file.current
    (folder / "web.yml").write_text(text)
    assert tls_file.current is before
    assert reason in tls_file.last_error


def test_tls_cannot_be_switched_on_either(folder: Path) -> None:
    """A server that began in plain HTTP stays so."""
    (folder / "web.yml").write_text("http_server_config: {http2: false}")
    file = WebConfigFile(folder / "web.yml")
    (folder / "web.yml").write_text(f"tls_server_config: {PAIR}}}")
    assert file.current.tls is None
    assert "without a restart" in file.last_error


def test_users_come_and_go(folder: Path) -> None:
    """Users are those of the file as it is."""
    path = folder / "web.yml"
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
