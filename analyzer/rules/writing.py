"""Rules as YAML: files for Prometheus and vmalert, or a PrometheusRule resource."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from analyzer.rules.rule import Alert, Group, Record

# What Kubernetes takes of one resource: `kubectl apply` keeps a copy of it in an
# annotation of at most 256 KiB, and the operator's own limit is 512 KiB.
RESOURCE_BYTES = 180_000
NOTICE = "Written by `goodput rules`; change the configuration and write it anew."


def rule_file(groups: Sequence[Group]) -> str:
    """Returns a file for `rule_files` of Prometheus, or for vmalert."""
    return "\n".join([f"# {NOTICE}", *_groups(groups)]) + "\n"


def prometheus_rule(
    groups: Sequence[Group], *, name: str, labels: Mapping[str, str]
) -> str:
    """Returns PrometheusRules for the operator; *labels* are what it selects by.

    It is one document unless the groups are too large for that; others are named
    `name-2` and so on.
    """
    documents = []
    for number, some in enumerate(_parts(groups), 1):
        lines = [
            f"# {NOTICE}",
            "apiVersion: monitoring.coreos.com/v1",
            "kind: PrometheusRule",
            "metadata:",
            f"  name: {_scalar(name if number == 1 else f'{name}-{number}')}",
        ]
        if labels:
            lines += ["  labels:", *_mapping(labels, "    ")]
        lines += ["spec:", *(f"  {line}".rstrip() for line in _groups(some))]
        documents.append("\n".join(lines) + "\n")
    return "---\n".join(documents)


def _parts(groups: Sequence[Group]) -> list[list[Group]]:
    """Returns *groups* in parts, each of which a resource has room for."""
    parts: list[list[Group]] = [[]]
    free = RESOURCE_BYTES
    for group in groups:
        size = sum(len(line.encode()) + 1 for line in _group(group))
        if size > free and parts[-1]:
            parts.append([])
            free = RESOURCE_BYTES
        parts[-1].append(group)
        free -= size
    return parts


def _groups(groups: Sequence[Group]) -> Iterator[str]:
    yield "groups:"
    for group in groups:
        yield from _group(group)


def _group(group: Group) -> Iterator[str]:
    yield f"- name: {_scalar(group.name)}"
    yield f"  interval: {group.interval}"
    yield "  rules:"
    for rule in group.rules:
        for line in rule.comment.splitlines():
            yield f"  # {line}"
        yield from (_record(rule) if isinstance(rule, Record) else _alert(rule))


def _record(rule: Record) -> Iterator[str]:
    yield f"  - record: {rule.name}"
    yield from _text("expr", rule.expr, "    ")
    if rule.labels:
        yield "    labels:"
        yield from _mapping(rule.labels, "      ")


def _alert(rule: Alert) -> Iterator[str]:
    yield f"  - alert: {rule.name}"
    yield from _text("expr", rule.expr, "    ")
    if rule.hold:
        yield f"    for: {rule.hold}"
    yield "    labels:"
    yield from _mapping({"severity": rule.severity, **rule.labels}, "      ")
    yield "    annotations:"
    yield from _mapping(rule.annotations, "      ")


def _mapping(values: Mapping[str, str], indent: str) -> Iterator[str]:
    for key, value in values.items():
        yield from _text(key, value, indent)


def _text(key: str, value: str, indent: str) -> Iterator[str]:
    """Yields a key with its text; with more than one line as a block."""
    if "\n" not in value:
        yield f"{indent}{key}: {_scalar(value)}"
        return
    yield f"{indent}{key}: |-"
    for line in value.splitlines():
        yield f"{indent}  {line}".rstrip()


def _scalar(value: str) -> str:
    """Returns *value* as YAML, in quotes where it might mean something else."""
    plain = value and all(c.isalnum() or c in "_-./" for c in value)
    if plain and value[0].isalpha() and value.lower() not in _WORDS:
        return value
    if "'" not in value:
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)


_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
