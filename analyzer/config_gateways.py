"""The section `gateways` of a configuration: request logs, and what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from analyzer.config_sources import NAME, NAME_TEXT
from analyzer.gateways.pattern import PatternError, compile_pattern
from analyzer.strict import Node, shown

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
