"""The section `engines` of a configuration, and how to reach a source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from analyzer.config_discovery import DnsSd, FileSd, read_dns_sd, read_file_sd
from analyzer.strict import Node, shown

NAME = r"[a-zA-Z0-9][a-zA-Z0-9_.:-]{0,127}"
NAME_TEXT = "a name of letters, digits and _ . : - (at most 128)"
URL_TEXT = "a URL such as http://localhost:8000/metrics"
ENGINES = ("auto", "vllm")
# What an entry of engines may give to say where they are.
ENGINE_PLACES = ("url", "file_sd", "dns")
DECLARED = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
)


@dataclass(frozen=True, slots=True)
class Tls:
    """How a target's certificate is checked, and the one we show it."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    insecure_skip_verify: bool = False


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a target asks for: a bearer token or a name and password, from files.

    The files are read at every use, so that rotated secrets need no reload.
    """

    bearer_file: str = ""
    username: str = ""
    password_file: str = ""


@dataclass(frozen=True, slots=True)
class EngineSource:
    """One engine to scrape; durations in seconds, `max_body_bytes` in bytes.

    `aliases` maps other names of a model to the served one. `declared` holds knobs
    that the engine's metrics never tell. `labels` holds the pod and the node, as far
    as discovery told them.
    """

    name: str
    url: str
    engine: str = "auto"
    interval: float = 2.0
    timeout: float = 5.0
    startup_grace: float = 600.0
    stall_grace: float = 30.0
    max_body_bytes: int = 16 << 20
    aliases: Mapping[str, str] = field(default_factory=dict)
    tls: Tls = field(default_factory=Tls)
    credentials: Credentials = field(default_factory=Credentials)
    declared: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineGroup:
    """An entry of `engines` that stands for any number of them.

    Each has all that *template* says, but a name and a URL of its own.
    """

    template: EngineSource
    found_by: FileSd | DnsSd

    @property
    def name(self) -> str:
        """The name of the entry, with which the names of its targets begin."""
        return self.template.name


def read_engine(node: Node) -> EngineSource | EngineGroup:
    """Returns one entry of `engines`. Raises ConfigError."""
    members = node.mapping(
        required=("name",),
        optional=(
            *ENGINE_PLACES,
            "engine",
            "interval",
            "timeout",
            "startup_grace",
            "stall_grace",
            "max_body_bytes",
            "aliases",
            "tls",
            "authorization",
            "basic_auth",
            "declared",
        ),
    )
    if len([place for place in ENGINE_PLACES if place in members]) != 1:
        raise node.error(f"needs exactly one of {', '.join(ENGINE_PLACES)}")
    given: dict[str, object] = {}
    for name, minimum in (
        ("interval", 0.2),
        ("timeout", 0.1),
        ("startup_grace", 0.0),
        ("stall_grace", 1.0),
    ):
        if name in members:
            given[name] = members[name].duration(minimum=minimum)
    if "engine" in members:
        given["engine"] = members["engine"].choice(ENGINES)
    if "max_body_bytes" in members:
        given["max_body_bytes"] = members["max_body_bytes"].integer(
            minimum=1024, maximum=1 << 30
        )
    if "aliases" in members:
        aliases = members["aliases"].members()
        given["aliases"] = {name: value.text() for name, value in aliases.items()}
    if "declared" in members:
        knobs = members["declared"].mapping(optional=DECLARED)
        given["declared"] = {name: value.integer() for name, value in knobs.items()}
    source = EngineSource(
        name=members["name"].text(pattern=NAME, what=NAME_TEXT),
        url=read_url(members["url"]) if "url" in members else "",
        tls=read_tls(members.get("tls")),
        credentials=read_credentials(members),
        **given,  # type: ignore[arg-type]
    )
    if "file_sd" in members:
        return EngineGroup(source, read_file_sd(members["file_sd"]))
    if "dns" in members:
        return EngineGroup(source, read_dns_sd(members["dns"]))
    return source


def read_url(node: Node) -> str:
    """Returns the URL of a page. Raises ConfigError."""
    text = node.text(what=URL_TEXT)
    if not usable_url(text):
        raise node.error(f"must be {URL_TEXT}, got {shown(node.value)}")
    if "@" in urlsplit(text).netloc:
        raise node.error("must not hold a password; use authorization or basic_auth")
    return text


def usable_url(text: str) -> bool:
    """Whether *text* is the URL of a page, as far as can be told without asking."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        return usable and parts.port != 0 and not re.search(r"[\s\x00-\x1f]", text)
    except ValueError:
        return False


def read_tls(node: Node | None) -> Tls:
    """Returns a section `tls`. Raises ConfigError."""
    if node is None:
        return Tls()
    members = node.mapping(
        optional=("ca_file", "cert_file", "key_file", "insecure_skip_verify")
    )
    if ("cert_file" in members) != ("key_file" in members):
        raise node.error("cert_file and key_file go together")
    paths = {n: m.text() for n, m in members.items() if n != "insecure_skip_verify"}
    skip = members.get("insecure_skip_verify")
    return Tls(insecure_skip_verify=skip.boolean() if skip else False, **paths)


def read_credentials(members: Mapping[str, Node]) -> Credentials:
    """Returns what the keys of a source say of credentials. Raises ConfigError."""
    bearer, basic = members.get("authorization"), members.get("basic_auth")
    if bearer is not None and basic is not None:
        raise basic.error("cannot stand beside authorization")
    given = bearer or basic
    if given is None:
        return Credentials()
    if not isinstance(given.value, dict):  # the value may be the secret: not shown
        raise given.error("must be a mapping")
    if bearer is not None:
        found = bearer.mapping(required=("credentials_file",))
        return Credentials(bearer_file=_read_secret_file(found["credentials_file"]))
    found = given.mapping(required=("username", "password_file"))
    return Credentials(
        username=found["username"].text(),
        password_file=_read_secret_file(found["password_file"]),
    )


def _read_secret_file(node: Node) -> str:
    if not isinstance(node.value, str):
        raise node.error("must be the path of a file")
    return node.text(what="the path of a file")
