"""The sources of a configuration: engines and gateway logs, and how to reach them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from analyzer.config_discovery import DnsSd, FileSd, read_dns_sd, read_file_sd
from analyzer.gateways.pattern import PatternError, compile_pattern
from analyzer.strict import Node, shown

NAME = r"[a-zA-Z0-9][a-zA-Z0-9_.:-]{0,127}"
NAME_TEXT = "a name of letters, digits and _ . : - (at most 128)"
URL_TEXT = "a URL such as http://localhost:8000/metrics"
ENGINES = ("auto", "vllm")
# What an entry of engines may give to say where they are.
ENGINE_PLACES = ("url", "file_sd", "dns")
FORMATS = (
    "auto",
    "envoy",
    "nginx",
    "haproxy",
    "traefik",
    "caddy",
    "litellm",
    "middleware",
    "custom",
)
# Where a log may come from, each with its form.
PLACES = {
    "path": (r".*", "a path"),
    "socket": (r"unix://.+", "unix://PATH"),
    "syslog": (r"udp://[^/\s]*:[0-9]{1,5}", "udp://HOST:PORT"),
}
FRAMINGS = ("auto", "plain", "cri", "docker")
DECLARED = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
)
RECORD_FIELDS = (
    "start",
    "request_id",
    "status",
    "model",
    "route",
    "tenant",
    "ttft",
    "tpot",
    "max_gap",
    "e2e",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "backend",
    "stream",
    "outcome",
)
TIME_FIELDS = ("start", "ttft", "tpot", "max_gap", "e2e")
FIELD_UNITS = ("s", "ms", "us", "ns")


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


@dataclass(frozen=True, slots=True)
class LogField:
    """Where a custom format keeps one of our fields; *unit* of times only.

    The key is a member's name, dotted when it is nested, or a pattern's group.
    """

    key: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class GatewaySource:
    """One request log: exactly one of *path*, *socket* and *syslog* is set.

    *fields* and *pattern* are of a custom format: JSON without a pattern.
    """

    name: str
    path: str = ""
    socket: str = ""
    syslog: str = ""
    format: str = "auto"
    framing: str = "auto"
    policy_statuses: tuple[int, ...] = ()
    counts: bool = True
    fields: Mapping[str, LogField] = field(default_factory=dict)
    pattern: str = ""


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


def read_gateway(node: Node) -> GatewaySource:
    """Returns one entry of `gateways`. Raises ConfigError."""
    members = node.mapping(
        required=("name",),
        optional=(
            *PLACES,
            "format",
            "framing",
            "policy_statuses",
            "counts",
            "fields",
            "pattern",
        ),
    )
    given = [place for place in PLACES if place in members]
    if len(given) != 1:
        raise node.error(f"needs exactly one of {', '.join(PLACES)}")
    place = given[0]
    pattern, what = PLACES[place]
    address = members[place].text(pattern=pattern, what=what)
    if place == "syslog" and not 0 < int(address.rpartition(":")[2]) < 65536:
        raise members[place].error(f"must be {what}, got {shown(address)}")
    statuses: tuple[int, ...] = ()
    if "policy_statuses" in members:
        statuses = tuple(
            item.integer(minimum=400, maximum=599)
            for item in members["policy_statuses"].items()
        )
    log_format = members["format"].choice(FORMATS) if "format" in members else "auto"
    fields, custom_pattern = _read_custom(members)
    if (log_format == "custom") != bool(fields or custom_pattern):
        raise node.error(
            "format custom needs fields or a pattern, and only custom may have them"
        )
    return GatewaySource(
        name=members["name"].text(pattern=NAME, what=NAME_TEXT),
        format=log_format,
        framing=members["framing"].choice(FRAMINGS) if "framing" in members else "auto",
        policy_statuses=statuses,
        counts=members["counts"].boolean() if "counts" in members else True,
        fields=fields,
        pattern=custom_pattern,
        **{place: address},
    )


def _read_custom(members: Mapping[str, Node]) -> tuple[dict[str, LogField], str]:
    """Returns the fields and the pattern of a custom format, which must fit."""
    fields: dict[str, LogField] = {}
    if "fields" in members:
        given = members["fields"].mapping(optional=RECORD_FIELDS)
        fields = {name: _read_field(name, value) for name, value in given.items()}
    if "pattern" not in members:
        keys = sorted({entry.key for entry in fields.values()})
        for key in keys:
            outer = next((k for k in keys if key.startswith(f"{k}.")), None)
            if outer is not None:
                raise members["fields"].error(f"{outer!r} cannot also hold {key!r}")
        return fields, ""
    pattern = members["pattern"].text()
    try:
        _, groups = compile_pattern(pattern)
    except PatternError as error:
        raise members["pattern"].error(str(error)) from None
    for name, entry in fields.items():
        if entry.key not in groups:
            raise members["fields"].error(
                f"{name}: the pattern has no group {entry.key!r}"
            )
    if not fields and not set(groups) & set(RECORD_FIELDS):
        raise members["pattern"].error("has no group with the name of a field")
    return fields, pattern


def _read_field(name: str, node: Node) -> LogField:
    if isinstance(node.value, str):
        return LogField(node.text())
    members = node.mapping(required=("key",), optional=("unit",))
    unit = ""
    if "unit" in members:
        if name not in TIME_FIELDS:
            raise members["unit"].error(f"is only for {', '.join(TIME_FIELDS)}")
        unit = members["unit"].choice(FIELD_UNITS)
    return LogField(members["key"].text(), unit)


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
