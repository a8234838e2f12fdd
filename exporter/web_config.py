"""The web configuration file: TLS, basic authentication and headers.

The format is that of Prometheus' exporter-toolkit (docs/web-configuration.md there).
What cannot be done here is refused with its place, never ignored. `http2` may be
given and changes nothing: HTTP/1.1 is spoken, which every client can.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from analyzer.strict import ConfigError, Node, load
from exporter.file_watch import Watch
from exporter.web_tls import Tls, read_tls

logger = logging.getLogger(__name__)

SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users")
# Headers that may be set, with their values where only some make sense.
HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
_HEADER_TEXT = r"[ -~]+"
# bcrypt's alphabet; the last character of the salt carries two bits only.
_HASH = re.compile(
    r"\$2[aby]\$(?:0[4-9]|[12][0-9]|3[01])\$"
    r"[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}"
)


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What a web configuration file says; `users` maps names to bcrypt hashes."""

    tls: Tls | None = None
    headers: tuple[tuple[str, str], ...] = ()
    users: Mapping[str, str] = field(default_factory=dict)


def read_web_config(
    path: Path, watch: Watch | None = None, *, may_be_empty: bool = True
) -> WebConfig:
    """Returns the configuration in *path*, certificates and keys loaded.

    It and the files that it names are added to *watch*, also when an error is found.
    Raises ConfigError with the place of the fault.
    """
    watch = Watch() if watch is None else watch
    watch.add(path)
    root = load(path)
    if root.value is None:
        if not may_be_empty:
            raise root.error("is empty")
        return WebConfig()
    given = root.mapping(optional=(*SECTIONS, "rate_limit"))
    if "rate_limit" in given:
        raise given["rate_limit"].error("is not supported, limit requests in a proxy")
    sections = {name: node for name, node in given.items() if node.value is not None}
    tls, headers, users = (sections.get(name) for name in SECTIONS)
    return WebConfig(
        tls=read_tls(tls, path.parent, watch) if tls else None,
        headers=_headers(headers) if headers else (),
        users=_users(users) if users else {},
    )


def _headers(node: Node) -> tuple[tuple[str, str], ...]:
    given = node.mapping(optional=("http2", "headers"))
    if "http2" in given:
        given["http2"].boolean()
    if "headers" not in given or given["headers"].value is None:
        return ()
    result = []
    for name, value in given["headers"].mapping(optional=HEADERS).items():
        if HEADERS[name]:
            result.append((name, value.choice(HEADERS[name])))
        elif value.value:  # blank leaves it unset
            text = value.text(pattern=_HEADER_TEXT, what="one line of ASCII text")
            result.append((name, text))
    return tuple(result)


def _users(node: Node) -> Mapping[str, str]:
    users = {}
    for name, value in node.members().items():
        if not name or ":" in name:
            raise value.error("a user's name must not be empty or hold a colon")
        # The value stays out of messages: it may be a password given by mistake.
        text = value.text() if isinstance(value.value, str) and value.value else ""
        if not _HASH.fullmatch(text):
            raise value.error(
                "must be a bcrypt hash ($2a$, $2b$ or $2y$, cost 4 to 31), "
                "as `htpasswd -nB` prints it"
            )
        users[name] = text
    return users


class WebConfigFile:
    """A web configuration file that is read again when it or its files change.

    A new content that cannot be used leaves the old one in use; `last_error` says
    why, and is empty when all is well. TLS is on or off for good.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._watch = Watch()
        self.last_error = ""
        self._current = self._read(may_be_empty=True)

    @property
    def current(self) -> WebConfig:
        """The configuration in use, as of now."""
        with self._lock:
            if self._watch.changed():
                self._read_again()
            return self._current

    def _read_again(self) -> None:
        try:
            # An empty file was more likely caught while being written than meant.
            new = self._read(may_be_empty=False)
            self._check_tls_stays(new)
        except ConfigError as error:
            self.last_error = str(error)
            logger.error("web configuration kept as it was error=%r", self.last_error)
            return
        logger.info("web configuration read again")
        self._current = new
        self.last_error = ""

    def _check_tls_stays(self, new: WebConfig) -> None:
        if (new.tls is None) != (self._current.tls is None):
            raise ConfigError(
                "tls_server_config",
                "TLS cannot be switched on or off without a restart",
                str(self._path),
            )

    def _read(self, *, may_be_empty: bool) -> WebConfig:
        self._watch = Watch()  # also of a failed attempt: its files may get better
        return read_web_config(self._path, self._watch, may_be_empty=may_be_empty)
