from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from web_files import read

from analyzer.strict import ConfigError
from exporter.web_config import HEADERS, SECTIONS
from exporter.web_tls import CLIENT_AUTH_TYPES, CURVES, OPTIONS, VERSIONS

CERTIFICATES = Path(__file__).parent / "fixtures" / "tls"
PAIR = "{cert_file: server.pem, key_file: server.key"
HASH = "$2b$04$......................8QPuF36SqwZ1d9QO3taNcRXHOtLxpvS"


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
        *(
            (
                f"tls_server_config: {PAIR}, {option}}}",
                f"tls_server_config.{place}: must be one of {known}, got ['a']",
            )
            for option, place, known in [
                (
                    "curve_preferences: [[a]]",
                    "curve_preferences[0]",
                    ", ".join(CURVES),
                ),
                ("min_version: [a]", "min_version", ", ".join(VERSIONS)),
                (
                    "client_auth_type: [a]",
                    "client_auth_type",
                    ", ".join(CLIENT_AUTH_TYPES),
                ),
            ]
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
def test_a_fault_is_told_with_its_place(
    tls_folder: Path, text: str, message: str
) -> None:
    """Each fault has one exact sentence behind the file and the path."""
    with pytest.raises(ConfigError) as caught:
        read(tls_folder, text)
    expected = f"{tls_folder}/web.yml: {message.replace('{folder}', str(tls_folder))}"
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
    tls_folder: Path, tls: dict[str, object], headers: object, users: object
) -> None:
    """Whatever a file holds, a short ConfigError is the worst that comes of it."""
    document = {
        "tls_server_config": {
            "cert_file": "server.pem",
            "key_file": "server.key",
            **tls,
        },
        "http_server_config": {"headers": headers},
        "basic_auth_users": users,
    }
    message = f"{tls_folder / 'web.yml'}: read"
    try:
        assert read(tls_folder, json.dumps(document)).tls is not None
    except ConfigError as error:
        message = str(error)
    assert message.startswith(f"{tls_folder / 'web.yml'}: ")
    assert "\n" not in message
    assert len(message) < 600


@pytest.mark.parametrize(
    "suite", ["TLS_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA", "invented"]
)
def test_insecure_or_unknown_suites_are_refused(tls_folder: Path, suite: str) -> None:
    """Only the suites that Go lists as secure have a name here."""
    with pytest.raises(ConfigError, match=r"cipher_suites\[0\]: must be one of TLS_"):
        read(tls_folder, f"tls_server_config: {PAIR}, cipher_suites: [{suite}]}}")
