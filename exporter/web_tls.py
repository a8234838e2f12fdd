"""TLS of the web server, from `tls_server_config` of a web configuration file."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.strict import Node
from exporter.file_watch import Watch

VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
SERVED_VERSIONS = ("TLS12", "TLS13")
CLIENT_AUTH_TYPES = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
UNVERIFIED_TYPES = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
# Go's names; those of TLS 1.3 cannot be chosen there either.
SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
SUITES_OF_TLS13 = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
CURVES = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}
NOT_PEM = "one is not PEM, or the key is encrypted"
INLINE = {"cert": "cert_file", "key": "key_file", "client_ca": "client_ca_file"}
OPTIONS = (
    "cert_file",
    "key_file",
    "client_auth_type",
    "client_ca_file",
    "client_allowed_sans",
    "min_version",
    "max_version",
    "cipher_suites",
    "prefer_server_cipher_suites",
    "curve_preferences",
)


@dataclass(frozen=True, slots=True)
class Tls:
    """How connections are encrypted, and which clients' certificates are enough."""

    context: ssl.SSLContext
    allowed_sans: frozenset[str] = frozenset()

    def wrap(self, sock: socket.socket) -> ssl.SSLSocket:
        """Returns the socket as a TLS server's; the handshake is still to be done."""
        return self.context.wrap_socket(
            sock, server_side=True, do_handshake_on_connect=False
        )

    def check(self, sock: ssl.SSLSocket) -> None:
        """Raises ConnectionError if the client's certificate has no allowed name."""
        if not self.allowed_sans:
            return
        found: Any = (sock.getpeercert() or {}).get("subjectAltName", ())
        if not any(_canonical(name) in self.allowed_sans for _, name in found):
            raise ConnectionError("the client's certificate has no allowed SAN")


def read_tls(node: Node, directory: Path, watch: Watch) -> Tls | None:
    """Returns what *node* asks for, None when it is empty.

    Relative files are relative to *directory*; all are added to *watch*, also
    when an error is found. Raises ConfigError with the place of the fault.
    """
    given = node.mapping(optional=(*OPTIONS, *INLINE))
    if not given:
        return None
    for name, other in INLINE.items():
        if name in given:
            raise given[name].error(f"is not supported, use {other}")
    files = {
        name: (directory / given[name].text())
        for name in ("cert_file", "key_file", "client_ca_file")
        if name in given
    }
    for path in files.values():
        watch.add(path)
    node.mapping(required=("cert_file", "key_file"), optional=OPTIONS)
    for name, path in files.items():
        _check_readable(given[name], path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    _set_versions(context, given)
    _set_suites(context, given)
    _set_curve(context, given)
    try:
        # An empty password makes an encrypted key an error instead of a question.
        context.load_cert_chain(files["cert_file"], files["key_file"], password="")
    except (OSError, ValueError) as error:
        raise given["cert_file"].error(
            f"this and key_file cannot be used: {_reason(error) or NOT_PEM}"
        ) from error
    _set_client_auth(context, given, files)
    return Tls(context, _allowed_sans(context, given))


def _check_readable(node: Node, path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise node.error(f"cannot be read: {path}: {reason}") from error


def _set_versions(context: ssl.SSLContext, given: Mapping[str, Node]) -> None:
    context.minimum_version = VERSIONS["TLS12"]
    context.maximum_version = VERSIONS["TLS13"]
    for name in ("min_version", "max_version"):
        if name not in given:
            continue
        version = given[name].choice(tuple(VERSIONS))
        if version not in SERVED_VERSIONS:
            raise given[name].error(
                f"{version} is not served (OpenSSL's default security level "
                f"forbids it), use {' or '.join(SERVED_VERSIONS)}"
            )
        if name == "min_version":
            context.minimum_version = VERSIONS[version]
        else:
            context.maximum_version = VERSIONS[version]
    if context.minimum_version > context.maximum_version:
        raise given["max_version"].error("is lower than min_version")


def _set_suites(context: ssl.SSLContext, given: Mapping[str, Node]) -> None:
    prefer = given.get("prefer_server_cipher_suites")
    if prefer is None or prefer.boolean():
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if "cipher_suites" not in given:
        return
    node = given["cipher_suites"]
    names = [item.choice((*SUITES, *SUITES_OF_TLS13)) for item in node.items()]
    chosen = [SUITES[name] for name in names if name in SUITES]
    if chosen:
        try:
            context.set_ciphers(":".join(chosen))
        except ssl.SSLError as error:
            raise node.error(f"cannot be used: {_reason(error) or error}") from error
    elif names:
        if context.maximum_version < VERSIONS["TLS13"]:
            raise node.error("has none for TLS 1.2, which is max_version")
        context.minimum_version = VERSIONS["TLS13"]


def _set_curve(context: ssl.SSLContext, given: Mapping[str, Node]) -> None:
    if "curve_preferences" not in given:
        return
    node = given["curve_preferences"]
    names = [item.choice(tuple(CURVES)) for item in node.items()]
    if len(names) > 1:
        raise node.error(
            "more than one curve cannot be set, give one or leave it to OpenSSL"
        )
    for name in names:
        try:
            context.set_ecdh_curve(CURVES[name])
        except (ssl.SSLError, ValueError) as error:
            raise node.error(f"cannot be used: {_reason(error) or error}") from error


def _set_client_auth(
    context: ssl.SSLContext, given: Mapping[str, Node], files: Mapping[str, Path]
) -> None:
    if "client_auth_type" in given:
        node = given["client_auth_type"]
        if node.value in UNVERIFIED_TYPES:
            raise node.error(
                f"{node.value} asks for certificates and does not verify them, which "
                "is not supported, use RequireAndVerifyClientCert"
            )
        context.verify_mode = CLIENT_AUTH_TYPES[node.choice(tuple(CLIENT_AUTH_TYPES))]
    else:
        context.verify_mode = ssl.CERT_NONE
    verifies = context.verify_mode is not ssl.CERT_NONE
    if verifies and "client_ca_file" not in files:
        # The system's roots would admit whoever has any public certificate.
        raise given["client_auth_type"].error("needs client_ca_file")
    if "client_ca_file" not in files:
        return
    if not verifies:
        raise given["client_ca_file"].error(
            "needs client_auth_type RequireAndVerifyClientCert or "
            "VerifyClientCertIfGiven"
        )
    try:
        context.load_verify_locations(files["client_ca_file"])
    except (OSError, ValueError) as error:
        raise given["client_ca_file"].error(
            f"cannot be used: {_reason(error) or error}"
        ) from error


def _allowed_sans(context: ssl.SSLContext, given: Mapping[str, Node]) -> frozenset[str]:
    if "client_allowed_sans" not in given:
        return frozenset()
    node = given["client_allowed_sans"]
    if context.verify_mode is not ssl.CERT_REQUIRED:
        raise node.error("needs client_auth_type RequireAndVerifyClientCert")
    names = frozenset(_canonical(item.text()) for item in node.items())
    if not names:
        raise node.error("is empty, which would admit nobody")
    return names


def _canonical(name: str) -> str:
    """Returns a name as written; an IP address in its shortest form.

    OpenSSL writes IPv6 addresses in full, people do not.
    """
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _reason(error: Exception) -> str:
    """Returns why OpenSSL refused, in its words; empty when it does not say."""
    if not isinstance(error, ssl.SSLError):
        return str(error)
    return (getattr(error, "reason", None) or "").replace("_", " ").lower()
